/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of copying share: requests, and contents to recognise.
 */
#ifndef COPY_TEST_H
#define COPY_TEST_H

#include "driver_test.h"

static inline struct actmem_ioctl_copy copy_of(uint64_t offset, int from, uint64_t source_offset,
					       uint64_t length)
{
	struct actmem_ioctl_copy arg = {
		.size = sizeof(arg),
		.offset = offset,
		.source_offset = source_offset,
		.length = length,
		.source_fd = from,
		.done = 42,
	};

	return arg;
}

/* 0 only if all was told to be done. */
static inline int copy(int to, uint64_t offset, int from, uint64_t source_offset, uint64_t length)
{
	struct actmem_ioctl_copy arg = copy_of(offset, from, source_offset, length);
	int err = call(to, ACTMEM_IOC_COPY, &arg);

	if (!err && (arg.done != length || arg.why.reason != ACTMEM_WHY_NONE))
		return -ENODATA;
	return err;
}

static inline bool is_all(const void *memory, unsigned char byte, size_t length)
{
	const unsigned char *bytes = memory;

	return !length || (bytes[0] == byte && !memcmp(bytes, bytes + 1, length - 1));
}

/* Marks every small page by its number, at a place that moves. */
static inline void mark(char *memory, size_t bytes)
{
	uint64_t i;

	for (i = 0; i < bytes / 4096; i++)
		memcpy(memory + i * 4096 + i % 500 * 8, &i, sizeof(i));
}

static inline bool is_marked(const char *memory, size_t bytes)
{
	uint64_t i;

	for (i = 0; i < bytes / 4096; i++)
		if (memcmp(memory + i * 4096 + i % 500 * 8, &i, sizeof(i)))
			return false;
	return true;
}

#endif
