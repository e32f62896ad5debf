/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A range of a driver's region as a dma-buf.
 */
#include <errno.h>
#include <string.h>

#include "driver.h"
#include "error.h"
#include "why.h"

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
	else if (!why_tell(-error, &export.why, backing->fd, false))
		fail(-error, "the driver cannot export %s (%s)", BYTES_TEXT(length),
		     strerror(-error));
	return error;
}
