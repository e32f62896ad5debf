/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The kernel's calls for address space themselves. Those of the C library's names may be
 * a preload's, actmem's own among them, which takes a lock to look whether the program's
 * memory is a region's: what is known not to be needs no look, and may be under a lock.
 */
#ifndef LIB_BASE_KERNEL_MEMORY_H
#define LIB_BASE_KERNEL_MEMORY_H

#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline void *kernel_mmap(void *address, size_t bytes, int protection, int flags, int fd,
				off_t offset)
{
	return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

static inline int kernel_munmap(void *address, size_t bytes)
{
	return (int)syscall(SYS_munmap, address, bytes);
}

static inline int kernel_madvise(void *address, size_t bytes, int advice)
{
	return (int)syscall(SYS_madvise, address, bytes, advice);
}

static inline int kernel_mprotect(void *address, size_t bytes, int protection)
{
	return (int)syscall(SYS_mprotect, address, bytes, protection);
}

#endif /* LIB_BASE_KERNEL_MEMORY_H */
