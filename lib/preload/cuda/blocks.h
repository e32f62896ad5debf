/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A tree that finds blocks by address. A block is host memory that the preload allocated for a CUDA
 * program. The caller's lock protects the blocks and the tree.
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
	unsigned int flags;		/* CUDA's flags of the allocation */
	void *owner;			/* the pool of the block */
	bool is_ending;			/* a thread is freeing the block */
};

/*
 * Adds a block. Returns false if there is no memory, or if the block overlaps another one. On
 * failure, @block still belongs to the caller.
 */
bool cuda_blocks_add(struct cuda_blocks *blocks, struct cuda_block *block);

/* Returns the block that overlaps the range, or NULL. */
struct cuda_block *cuda_blocks_find(const struct cuda_blocks *blocks, const void *address,
				    size_t bytes);

/* Removes a block, which then belongs to the caller. */
void cuda_blocks_remove(struct cuda_blocks *blocks, struct cuda_block *block);

/* Returns a block of @owner that no thread is freeing, or NULL. */
struct cuda_block *cuda_blocks_of(const struct cuda_blocks *blocks, const void *owner);

#endif /* LIB_PRELOAD_CUDA_BLOCKS_H */
