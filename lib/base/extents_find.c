/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which free extent is taken.
 *
 * The class of a length also has shorter extents, so a few of its extents are tried
 * before a longer class is used, and the shortest of those that fit is taken. All of
 * them are tried only before the heap would have to grow, which costs far more.
 *
 * The place of a long extent decides where the next ones fit. Micro-batches differ in
 * length: a short one's block in what a long one's block leaves over keeps the next long
 * one out after the long block has gone. So some extents of each class are looked at, and
 * the one that fits best is taken: its range was made for extents about as long, and
 * extents of this length leave nothing of it unused.
 */
#include <stdlib.h>

#include "base/extents_find.h"

#define FEW		8
/* Shorter extents may lie anywhere. */
#define LONG_BYTES	(64ULL << 10)
/* How many extents are looked at for a long one, of each class, and of all. */
#define SOME		32
#define MANY		256
/*
 * Misfits: of a range for extents twice, or half, as long; and where a length of such an
 * extent is left unused.
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
