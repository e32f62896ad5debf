/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the kernel tells of the memory behind an address. */
#ifndef FRAME_TEST_H
#define FRAME_TEST_H

#include <linux/kernel-page-flags.h>

#include "driver_test.h"

#define SMALL	4096

#define PFN_MASK	((1ULL << 55) - 1)

/* The i-th entry of a file with 8 bytes for each page; 0 if there is none. */
static inline uint64_t page_entry(const char *path, uint64_t i)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;

	if (fd >= 0 && pread(fd, &entry, 8, i * 8) != 8)
		entry = 0;
	if (fd >= 0)
		close(fd);
	return entry;
}

/* Of the small page at @memory, which is mapped; 0 if it cannot be told. */
static inline uint64_t frame_of(const char *memory)
{
	return page_entry("/proc/self/pagemap", (uintptr_t)memory / SMALL) & PFN_MASK;
}

/* Bits KPF_*, of the small page at @memory. */
static inline uint64_t frame_flags(const char *memory)
{
	return page_entry("/proc/kpageflags", frame_of(memory));
}

#endif
