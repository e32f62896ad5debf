/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Asks what the device below a file needs and likes.
 */
#ifndef LIB_MACHINE_DEVICE_H
#define LIB_MACHINE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct device {
	uint64_t number;		/* which it is */
	uint64_t alignment;		/* direct I/O: of offsets and lengths */
	uint64_t memory_alignment;
	uint64_t block_bytes;		/* a good length of one transfer */
	uint64_t request_bytes;		/* the longest request of the block layer; 0: not known */
	unsigned int depth;		/* a good number of them at a time */
	bool rotational;
	bool is_block;			/* the file is the device itself */
	uint64_t length;		/* of the file or device */
};

/* 0 or -errno with words that name @path. */
int device_of(int fd, const char *path, struct device *device);

#endif /* LIB_MACHINE_DEVICE_H */
