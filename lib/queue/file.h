/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A set of files, striped, as a queue uses it.
 */
#ifndef LIB_FILE_H
#define LIB_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_queue.h"
#include "base/links.h"
#include "region/context.h"

/* Requests in order, and how many of their blocks may be under way. */
struct lane {
	struct link pending;
	unsigned int under_way, depth;
};

struct stripe {
	int fd;
	uint16_t slot;			/* in the ring's table of files */
	char *path;			/* for words */
};

struct actmem_file {
	struct link link;		/* of its queue */
	struct actmem_queue *queue;
	struct held held;
	int descriptors[ACTMEM_FILE_PATHS_MAX];
	struct lane lane;
	unsigned int requests;		/* under way */
	bool read_only, direct, rotational;
	uint64_t alignment, memory_alignment, block_bytes, stripe_bytes;
	uint64_t request_bytes;		/* the longest of its devices; 0: not known */
	unsigned int count;
	struct stripe stripes[];
};

/*
 * Where byte @offset of the set lies: the file, and the offset in it. Returns how
 * many bytes follow there.
 */
uint64_t file_locate(const struct actmem_file *file, uint64_t offset, unsigned int *stripe,
		     uint64_t *file_offset);

/*
 * Has a part of the set allocated on the disks, and has them take it back: what is in it is
 * lost then, and the files are as long as before. Both may take long. 0 or -errno with
 * words; -EOPNOTSUPP: a file system takes nothing back.
 */
int file_allocate(const struct actmem_file *file, uint64_t offset, uint64_t length);
int file_punch(const struct actmem_file *file, uint64_t offset, uint64_t length);

#endif /* LIB_FILE_H */
