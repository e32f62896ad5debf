/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of dma-bufs share: how one is made, and imported by
 * tests/vm/importer.
 */
#ifndef DMABUF_TEST_H
#define DMABUF_TEST_H

#include <linux/dma-buf.h>
#include <signal.h>

#include "driver_test.h"

#include "../vm/importer/importer.h"

#define IMPORTER	"/vm/modules/importer.ko"
#define IMPORTER_DEVICE	"/dev/importer"

static inline struct actmem_ioctl_export export_of(size_t first, size_t pages)
{
	struct actmem_ioctl_export arg = {
		.size = sizeof(arg),
		.offset = first * PAGE_BYTES,
		.length = pages * PAGE_BYTES,
	};

	return arg;
}

/* The dma-buf's descriptor, or a negative errno. */
static inline int export(int fd, size_t first, size_t pages)
{
	struct actmem_ioctl_export arg = export_of(first, pages);
	int err = call(fd, ACTMEM_IOC_EXPORT, &arg);

	return err ? err : arg.fd;
}

/* In pages; -1 if the region cannot be asked. */
static inline long pages_exported(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? -1 : (long)(now.exported_bytes / PAGE_BYTES);
}

static inline long pages_pinned(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? -1 : (long)(now.pinned_bytes / PAGE_BYTES);
}

/* A device that takes all it is given. */
static inline struct importer_attach device_in(unsigned int slot)
{
	struct importer_attach arg = {
		.slot = slot,
		.mask_bits = 64,
		.max_segment = UINT32_MAX,
		.boundary = UINT64_MAX,
	};

	return arg;
}

/* The attachment's descriptor, or a negative errno. */
static inline int attach_to(struct importer_attach arg, int buffer)
{
	int fd = open(IMPORTER_DEVICE, O_RDWR | O_CLOEXEC);
	int err;

	if (fd < 0)
		return -errno;
	arg.fd = buffer;
	err = call(fd, IMPORTER_ATTACH, &arg);
	if (err)
		close(fd);
	return err ? err : fd;
}

static inline int map_attachment(int fd, uint32_t direction, struct importer_map *arg)
{
	*arg = (struct importer_map){ .direction = direction };
	return call(fd, IMPORTER_MAP, arg);
}

static inline int unmap_attachment(int fd)
{
	return call(fd, IMPORTER_UNMAP, NULL);
}

static inline int detach(int fd)
{
	return call(fd, IMPORTER_DETACH, NULL);
}

#endif
