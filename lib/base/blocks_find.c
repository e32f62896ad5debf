/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Chooses the free block that is taken.
 *
 * The class of a length also has shorter blocks, so a few of its blocks are tried
 * before a longer class is used, and the shortest of those that fit is taken; all of
 * them only before the heap would have to grow, which costs far more.
 *
 * The next blocks depend on where a long one goes. Micro-batches differ in length,
 * and a short one's block that lies in what a long one's has left over keeps the next
 * long one out when its neighbour has gone. So of some blocks of each class the one is
 * taken that fits best: its range was made for blocks about as long, and of it blocks
 * of this length leave nothing unused.
 */
#include <stdlib.h>

#include "base/blocks_find.h"

#define FEW		8
/* Shorter ones are in nobody's way. */
#define LONG_BYTES	(64ULL << 10)
/* So many long ones are looked at in each class, and in all. */
#define SOME		32
#define MANY		256
/*
 * Misfits: in a range for blocks twice, or half, as long; and where as much is left
 * unused as such a block has. Anything beyond the last fits badly.
 */
#define MISFIT_TWICE	CLASS_COLUMNS
#define MISFIT_UNUSED	(2 * MISFIT_TWICE)
#define MISFIT_GOOD	(MISFIT_TWICE / 2)

/* The first class that is not empty, from @class on; false: none. */
static bool next_class(const struct blocks *blocks, struct class *class)
{
	uint32_t columns = 0;
	uint64_t rows;

	if (class->column < CLASS_COLUMNS)
		columns = blocks->columns[class->row] >> class->column << class->column;
	if (!columns) {
		rows = blocks->rows >> (class->row + 1) << (class->row + 1);
		if (!rows)
			return false;
		class->row = (unsigned int)__builtin_ctzll(rows);
		columns = blocks->columns[class->row];
	}
	class->column = (unsigned int)__builtin_ctz(columns);
	return true;
}

/*
 * The shortest block that fits, of at most @tries in the first class that has
 * one.
 */
static struct block *find_shortest(const struct blocks *blocks, uint64_t length, uint64_t align,
				   size_t tries)
{
	struct class class = block_class(length);
	struct block *block, *best = NULL;
	size_t try;

	for (; !best && next_class(blocks, &class); class.column++) {
		block = blocks->classes[class.row][class.column];
		for (try = 0; block && try < tries; try++, block = block->next) {
			if (block_gap(block, align) + length > block->length ||
			    (best && best->length <= block->length))
				continue;
			best = block;
			if (best->length == length)
				break;
		}
	}
	return best;
}

static unsigned int misfit(const struct block *block, uint64_t length, uint64_t gap)
{
	uint64_t unused = (block->length - gap) % length;

	return (unsigned int)abs((int)block->home - (int)block_class_number(length)) +
	       (unsigned int)(unused * MISFIT_UNUSED / length);
}

/* *@least: how badly it fits. */
static struct block *find_best(const struct blocks *blocks, uint64_t length, uint64_t align,
			       unsigned int *least)
{
	struct class class = block_class(length);
	struct block *block, *best = NULL;
	unsigned int left = MANY, try, its;
	uint64_t gap;

	*least = UINT32_MAX;
	for (; left && *least && next_class(blocks, &class); class.column++) {
		block = blocks->classes[class.row][class.column];
		for (try = 0; block && try < SOME && left; try++, left--, block = block->next) {
			gap = block_gap(block, align);
			if (gap + length > block->length)
				continue;
			its = misfit(block, length, gap);
			if (its > *least || (its == *least && block->length >= best->length))
				continue;
			best = block;
			*least = its;
			if (!its && block->length == length)
				return best;
		}
	}
	return best;
}

struct block *blocks_find(const struct blocks *blocks, uint64_t length, uint64_t align,
			  enum fit fit)
{
	struct block *block;
	unsigned int least;

	if (length < LONG_BYTES) {
		block = find_shortest(blocks, length, align, FEW);
	} else {
		block = find_best(blocks, length, align, &least);
		if (fit == FIT_WELL && least > MISFIT_GOOD)
			return NULL;
	}
	return block ? block : find_shortest(blocks, length, align, SIZE_MAX);
}
