/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the driver does to ranges of its regions, and its answers in words.
 */
#include <errno.h>
#include <string.h>

#include "driver.h"
#include "error.h"
#include "why.h"

static int ask_range(const struct backing *backing, unsigned long request, uint64_t offset,
		     uint64_t length, struct actmem_ioctl_range *range)
{
	int error;

	*range = (struct actmem_ioctl_range){
		.size = sizeof(*range),
		.offset = offset,
		.length = length,
	};
	error = driver_ask(backing->fd, request, range);
	if (error == -ENOTTY)
		error = fail(EOPNOTSUPP, "this driver neither populates nor discards; upgrade the module");
	return error;
}

int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length)
{
	struct actmem_ioctl_range range;
	int error = ask_range(backing, ACTMEM_IOC_POPULATE, offset, length, &range);

	if (!error || error == -EOPNOTSUPP)
		return error;
	if (!why_tell(-error, &range.why, false))
		fail(-error, "the driver cannot populate %s (%s)", BYTES_TEXT(length),
		     strerror(-error));
	fail_more("; the first %s of the %s are there", BYTES_TEXT(range.done), BYTES_TEXT(length));
	return error;
}

int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length)
{
	struct actmem_ioctl_range range;
	int error = ask_range(backing, ACTMEM_IOC_DISCARD, offset, length, &range);

	if (error == -EBUSY)
		return fail(EBUSY, "%s of %s stay, since a device or I/O in flight holds them; try again when that has ended",
			    BYTES_TEXT(length - range.done), BYTES_TEXT(length));
	if (error && error != -EOPNOTSUPP)
		return fail(-error, "the driver cannot discard %s (%s)", BYTES_TEXT(length),
			    strerror(-error));
	return error;
}

int driver_copy(const struct backing *to, uint64_t offset, const struct backing *from,
		uint64_t from_offset, uint64_t length)
{
	struct actmem_ioctl_copy copy = {
		.size = sizeof(copy),
		.offset = offset,
		.source_offset = from_offset,
		.length = length,
		.source_fd = from->fd,
	};
	int error = driver_ask(to->fd, ACTMEM_IOC_COPY, &copy);

	if (!error)
		return 0;
	if (error == -ENOTTY)
		return fail(EOPNOTSUPP, "this driver does not copy; upgrade the module");
	if (error == -ESTALE)
		fail(ESTALE, "the owner of imported memory has truncated its file or punched a hole in it; close the region and import the memory again");
	else if (error == -EIO && copy.why.reason == ACTMEM_WHY_NONE)
		fail(EIO, "the hardware reported an error in a page (see the kernel's log)");
	else if (!why_tell(-error, &copy.why, false))
		fail(-error, "the driver cannot copy %s (%s)", BYTES_TEXT(length),
		     strerror(-error));
	fail_more("; the first %llu of %llu bytes are copied", (unsigned long long)copy.done,
		  (unsigned long long)length);
	return error;
}

int driver_export(const struct backing *backing, uint64_t offset, uint64_t length,
		  uint32_t flags, int *fd)
{
	struct actmem_ioctl_export export = {
		.size = sizeof(export),
		.flags = flags & ACTMEM_DMABUF_READ_ONLY ? ACTMEM_EXPORT_READ_ONLY : 0,
		.offset = offset,
		.length = length,
	};
	int error = driver_ask(backing->fd, ACTMEM_IOC_EXPORT, &export);

	if (!error)
		*fd = export.fd;
	else if (error == -ENOTTY)
		error = fail(EOPNOTSUPP, "this driver exports no dma-bufs; upgrade the module");
	else if (error == -EOPNOTSUPP)
		fail(EOPNOTSUPP, "this kernel has no dma-bufs (CONFIG_DMA_SHARED_BUFFER); give the device the region's memory by address");
	else if (!why_tell(-error, &export.why, false))
		fail(-error, "the driver cannot export %s (%s)", BYTES_TEXT(length),
		     strerror(-error));
	return error;
}
