/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the tests of importing share: memfds of each kind, and regions of them. */
#ifndef IMPORT_TEST_H
#define IMPORT_TEST_H

#include <linux/memfd.h>
#include <linux/mempolicy.h>

#include "copy_test.h"

#define GIB		(1UL << 30)

/* What the kernel has of huge pages of a size, and what it says of them. */
#define HUGE_PAGES(kib)	"/sys/kernel/mm/hugepages/hugepages-" kib "kB/"

static inline int memfd_of(unsigned int flags, size_t bytes)
{
	int fd = syscall(SYS_memfd_create, "import", MFD_CLOEXEC | flags);

	return fd < 0 || ftruncate(fd, (off_t)bytes) ? -errno : fd;
}

static inline struct actmem_ioctl_import import_of(int memory, uint64_t offset, uint64_t length)
{
	struct actmem_ioctl_import arg = {
		.size = sizeof(arg),
		.memory_fd = memory,
		.offset = offset,
		.length = length,
	};

	return arg;
}

/* The descriptor, or a negative errno. */
static inline int import(int device, struct actmem_ioctl_import *arg)
{
	int err = call(device, ACTMEM_IOC_IMPORT, arg);

	return err ? err : arg->fd;
}

static inline int import_all(int device, int memory, size_t bytes)
{
	struct actmem_ioctl_import arg = import_of(memory, 0, bytes);

	return import(device, &arg);
}

static inline char *map_bytes(int fd, size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* Of the mapping at the address: 0 or a negative errno. */
static inline int bind_to(void *memory, size_t bytes, int node)
{
	unsigned long mask = 1UL << node;

	return syscall(SYS_mbind, memory, bytes, MPOL_BIND, &mask, 65UL, 0) ? -errno : 0;
}

#endif
