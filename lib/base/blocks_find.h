/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The classes of free blocks, and which of these is taken. For blocks.c.
 */
#ifndef LIB_BASE_BLOCKS_FIND_H
#define LIB_BASE_BLOCKS_FIND_H

#include "base/blocks.h"

#define COLUMN_BITS	5

_Static_assert(CLASS_COLUMNS == 1 << COLUMN_BITS, "so many classes to a power of two");

struct class {
	unsigned int row, column;
};

static inline struct class block_class(uint64_t length)
{
	uint64_t units = length / BLOCK_UNIT;
	unsigned int top;

	if (units < CLASS_COLUMNS)
		return (struct class){ 0, (unsigned int)units };
	top = 63 - (unsigned int)__builtin_clzll(units);
	return (struct class){ top - COLUMN_BITS + 1,
			       (units >> (top - COLUMN_BITS)) & (CLASS_COLUMNS - 1) };
}

/* Lengths in the same proportion are as many apart. */
static inline unsigned int block_class_number(uint64_t length)
{
	struct class class = block_class(length);

	return class.row * CLASS_COLUMNS + class.column;
}

/* Bytes before the first aligned address in the block. */
static inline uint64_t block_gap(const struct block *block, uint64_t align)
{
	return -(uintptr_t)block->address & (align - 1);
}

/* The free block to take @length of; NULL: none is long enough. */
struct block *blocks_find(const struct blocks *blocks, uint64_t length, uint64_t align);

#endif /* LIB_BASE_BLOCKS_FIND_H */
