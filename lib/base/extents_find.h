/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Classes of free extents, and the search for the extent to take. Only for extents.c.
 */
#ifndef LIB_BASE_EXTENTS_FIND_H
#define LIB_BASE_EXTENTS_FIND_H

#include "base/extents.h"

#define COLUMN_BITS	5

_Static_assert(CLASS_COLUMNS == 1 << COLUMN_BITS, "CLASS_COLUMNS must be 1 << COLUMN_BITS");

struct class {
	unsigned int row, column;
};

static inline struct class extent_class(uint64_t length)
{
	uint64_t units = length / EXTENT_UNIT;
	unsigned int top;

	if (units < CLASS_COLUMNS)
		return (struct class){ 0, (unsigned int)units };
	top = 63 - (unsigned int)__builtin_clzll(units);
	return (struct class){ top - COLUMN_BITS + 1,
			       (units >> (top - COLUMN_BITS)) & (CLASS_COLUMNS - 1) };
}

/*
 * Returns the number of the length's class. If the length is at least CLASS_COLUMNS * EXTENT_UNIT,
 * doubling the length raises the number by CLASS_COLUMNS.
 */
static inline unsigned int extent_class_number(uint64_t length)
{
	struct class class = extent_class(length);

	return class.row * CLASS_COLUMNS + class.column;
}

/* Returns the number of bytes before the first aligned address in the extent. */
static inline uint64_t extent_gap(const struct extent *extent, uint64_t align)
{
	return -(uintptr_t)extent->address & (align - 1);
}

/* Returns the best free extent for @length; NULL if none is long enough. */
struct extent *extents_find(const struct extents *extents, uint64_t length, uint64_t align);

#endif /* LIB_BASE_EXTENTS_FIND_H */
