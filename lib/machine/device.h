/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds out how to transfer data best between memory and the device that stores a file.
 */
#ifndef LIB_MACHINE_DEVICE_H
#define LIB_MACHINE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct device {
	uint64_t number;		/* device number */
	uint64_t alignment;		/* direct I/O: alignment of offsets and lengths */
	uint64_t memory_alignment;	/* direct I/O: alignment of buffers */
	uint64_t block_bytes;		/* a good length of one transfer */
	uint64_t request_bytes;		/* the longest request of the block layer; 0: not known */
	unsigned int depth;		/* a good number of concurrent transfers */
	bool rotational;
	bool is_block;			/* the file is the device itself */
	uint64_t length;		/* length of the file or device */
};

/* Describes the device of @fd. Returns 0, or -errno with an error message that names @path. */
int device_of(int fd, const char *path, struct device *device);

#endif /* LIB_MACHINE_DEVICE_H */
