/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which free extent is taken.
 *
 * The class of a length also has shorter extents, so a few of its extents are tried
 * before a longer class is used, and the shortest of those that fit is taken; all of
 * them only before the heap would have to grow, which costs far more.
 *
 * Where a long extent goes, the next ones depend on. Micro-batches differ in length,
 * and a short one's extent that lies in what a long one's has left over keeps the next
 * long one out when its neighbour has gone. So of some extents of each class the one is
 * taken that fits best: its range was made for extents about as long, and of it extents
 * of this length leave nothing unused.
 */
#include <stdlib.h>

#include "base/extents_find.h"

#define FEW		8
/* Shorter ones are in nobody's way. */
#define LONG_BYTES	(64ULL << 10)
/* Of long ones, in each class, and in all. */
#define SOME		32
#define MANY		256
/*
 * Misfits: in a range for extents twice, or half, as long; and where as much is left
 * unused as such an extent has.
 */
#define MISFIT_TWICE	CLASS_COLUMNS
#define MISFIT_UNUSED	(2 * MISFIT_TWICE)

/* The first class that is not empty, from @class on; false: none. */
static bool next_class(const struct extents *extents, struct class *class)
{
	uint32_t columns = 0;
	uint64_t rows;

	if (class->column < CLASS_COLUMNS)
		columns = extents->columns[class->row] >> class->column << class->column;
	if (!columns) {
		rows = extents->rows >> (class->row + 1) << (class->row + 1);
		if (!rows)
			return false;
		class->row = (unsigned int)__builtin_ctzll(rows);
		columns = extents->columns[class->row];
	}
	class->column = (unsigned int)__builtin_ctz(columns);
	return true;
}

/*
 * The shortest extent that fits, of at most @tries in the first class that has
 * one.
 */
static struct extent *find_shortest(const struct extents *extents, uint64_t length, uint64_t align,
				    size_t tries)
{
	struct class class = extent_class(length);
	struct extent *extent, *best = NULL;
	size_t try;

	for (; !best && next_class(extents, &class); class.column++) {
		extent = extents->classes[class.row][class.column];
		for (try = 0; extent && try < tries; try++, extent = extent->next) {
			if (extent_gap(extent, align) + length > extent->length ||
			    (best && best->length <= extent->length))
				continue;
			best = extent;
			if (best->length == length)
				break;
		}
	}
	return best;
}

static unsigned int misfit(const struct extent *extent, uint64_t length, uint64_t gap)
{
	uint64_t unused = (extent->length - gap) % length;

	return (unsigned int)abs((int)extent->home - (int)extent_class_number(length)) +
	       (unsigned int)(unused * MISFIT_UNUSED / length);
}

static struct extent *find_best(const struct extents *extents, uint64_t length, uint64_t align)
{
	struct class class = extent_class(length);
	struct extent *extent, *best = NULL;
	unsigned int left = MANY, least = UINT32_MAX, try, its;
	uint64_t gap;

	for (; left && least && next_class(extents, &class); class.column++) {
		extent = extents->classes[class.row][class.column];
		for (try = 0; extent && try < SOME && left; try++, left--, extent = extent->next) {
			gap = extent_gap(extent, align);
			if (gap + length > extent->length)
				continue;
			its = misfit(extent, length, gap);
			if (its > least || (its == least && extent->length >= best->length))
				continue;
			best = extent;
			least = its;
			if (!its && extent->length == length)
				return best;
		}
	}
	return best;
}

struct extent *extents_find(const struct extents *extents, uint64_t length, uint64_t align)
{
	struct extent *extent = length < LONG_BYTES ? find_shortest(extents, length, align, FEW) :
			      find_best(extents, length, align);

	return extent ? extent : find_shortest(extents, length, align, SIZE_MAX);
}
