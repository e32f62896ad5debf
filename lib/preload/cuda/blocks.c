/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A tree of blocks. Blocks do not overlap. The comparison treats overlapping ranges as equal, so a
 * search for a range finds a block that overlaps the range.
 */
#include <search.h>

#include "preload/cuda/blocks.h"

/* Only glibc has twalk_r(). With another C library, no function of this file is called. */
#pragma weak twalk_r

static int compare_blocks(const void *one, const void *other)
{
	const struct cuda_block *left = one, *right = other;

	if (left->address + left->bytes <= right->address)
		return -1;
	return left->address >= right->address + right->bytes;
}

bool cuda_blocks_add(struct cuda_blocks *blocks, struct cuda_block *block)
{
	struct cuda_block **node = tsearch(block, &blocks->root, compare_blocks);

	return node && *node == block;
}

struct cuda_block *cuda_blocks_find(const struct cuda_blocks *blocks, const void *address,
				    size_t bytes)
{
	struct cuda_block key = { .address = address, .bytes = bytes };
	struct cuda_block **node = tfind(&key, &blocks->root, compare_blocks);

	return node ? *node : NULL;
}

void cuda_blocks_remove(struct cuda_blocks *blocks, struct cuda_block *block)
{
	tdelete(block, &blocks->root, compare_blocks);
}

struct block_search {
	const void *owner;
	struct cuda_block *found;
};

static void look_at_block(const void *node, VISIT visit, void *closure)
{
	struct cuda_block *block = *(struct cuda_block *const *)node;
	struct block_search *search = closure;

	if ((visit == postorder || visit == leaf) && block->owner == search->owner &&
	    !block->is_ending)
		search->found = block;
}

struct cuda_block *cuda_blocks_of(const struct cuda_blocks *blocks, const void *owner)
{
	struct block_search search = { .owner = owner };

	twalk_r(blocks->root, look_at_block, &search);
	return search.found;
}
