/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of dma-bufs share: how one is made, mapped, and imported by
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
static inline int export_as(int fd, size_t first, size_t pages, uint32_t flags)
{
	struct actmem_ioctl_export arg = export_of(first, pages);
	int err;

	arg.flags = flags;
	err = call(fd, ACTMEM_IOC_EXPORT, &arg);
	return err ? err : arg.fd;
}

static inline int export(int fd, size_t first, size_t pages)
{
	return export_as(fd, first, pages, 0);
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

/* A dma-buf at an aligned address, which the kernel does not look for. */
static inline void *map_aligned(int fd, size_t first, size_t pages, int protection)
{
	size_t length = pages * PAGE_BYTES;
	char *room = mmap(NULL, length + PAGE_BYTES, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *aligned;
	void *memory;
	int err;

	if (room == MAP_FAILED)
		return room;
	aligned = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	memory = mmap(aligned, length, protection, MAP_SHARED | MAP_FIXED, fd,
		      (off_t)(first * PAGE_BYTES));
	err = errno;
	if (memory == MAP_FAILED)
		munmap(room, length + PAGE_BYTES);
	else if (aligned > room)
		munmap(room, aligned - room);
	if (memory != MAP_FAILED)
		munmap(aligned + length, room + PAGE_BYTES - aligned);
	errno = err;
	return memory;
}

static inline void *map_buffer(int fd, size_t pages)
{
	return map_aligned(fd, 0, pages, PROT_READ | PROT_WRITE);
}

static inline int load_importer(void)
{
	int fd = open(IMPORTER, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* Nobody has it in use. */
static inline int unload_importer(void)
{
	return syscall(SYS_delete_module, "importer", O_NONBLOCK) ? -errno : 0;
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
