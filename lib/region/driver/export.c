/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Exports a range of a driver's region as a dma-buf.
 */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "region/driver/command.h"
#include "region/driver/driver.h"

static int tell_export(int error, uint64_t length)
{
	switch (error) {
	case -EOPNOTSUPP:
		return fail(EOPNOTSUPP, "this kernel has no dma-bufs (CONFIG_DMA_SHARED_BUFFER); give the device the region's memory by address");
	case -ENODATA:
		return fail(ENODATA, "the driver cannot export %s: some of the pages are missing (they were discarded); populate them first",
			    BYTES_TEXT(length));
	default:
		return fail(-error, "the driver cannot export %s (%s)", BYTES_TEXT(length),
			    strerror(-error));
	}
}

/* Populates the range first, because the driver exports only pages that exist. */
int driver_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd)
{
	struct actmem_ioctl_export export = {
		.size = sizeof(export),
		.offset = offset,
		.length = length,
	};
	int error = driver_populate(backing, offset, length);

	if (error)
		return error;
	error = driver_ask(backing->fd, ACTMEM_IOC_EXPORT, &export);
	if (error)
		return tell_export(error, length);
	*fd = export.fd;
	return 0;
}
