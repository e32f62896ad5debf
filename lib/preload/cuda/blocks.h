/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds parts of memory that are ours, by address. Under the caller's lock.
 */
#ifndef LIB_PRELOAD_CUDA_BLOCKS_H
#define LIB_PRELOAD_CUDA_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

struct cuda_blocks {
	void *root;
};

struct cuda_block {
	const char *address;
	size_t bytes;
	unsigned int flags;
	void *owner;
	bool ending;			/* somebody is about to give it back */
};

/* False: no memory for it, or a part of it is there. @block then stays the caller's. */
bool cuda_blocks_add(struct cuda_blocks *blocks, struct cuda_block *block);

/* The one that has a byte of the range in it, or NULL. */
struct cuda_block *cuda_blocks_find(const struct cuda_blocks *blocks, const void *address,
				    size_t bytes);

/* It is the caller's from then on. */
void cuda_blocks_remove(struct cuda_blocks *blocks, struct cuda_block *block);

/* One of an owner's that is not ending, or NULL. */
struct cuda_block *cuda_blocks_of(const struct cuda_blocks *blocks, const void *owner);

#endif /* LIB_PRELOAD_CUDA_BLOCKS_H */
