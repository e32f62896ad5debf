/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Chooses the free extent to take.
 *
 * Each class contains the free extents of similar lengths. The class of the requested length also
 * contains extents that are a little shorter. The search therefore tries a few extents of that
 * class, and takes the shortest that fits. If none fits, it goes on to the next longer class. If no
 * class yields an extent, the search tries all extents of these classes, because growing the heap
 * would cost far more.
 *
 * The place of a long extent decides where later extents fit. The blocks of one micro-batch can be
 * longer than those of another. Suppose a short block is placed directly after a long one. When the
 * long block is freed, a slightly longer block does not fit in the gap. The search therefore
 * compares some extents of each class and takes the best one. An extent fits well if its range was
 * added for blocks of about the requested length, and if the extent's length is nearly a multiple
 * of the requested length.
 */
#include <stdlib.h>

#include "base/extents_find.h"

#define FEW		8
/* Extents shorter than this may lie anywhere. */
#define LONG_BYTES	(64ULL << 10)
/* How many extents the search for a long extent tries: in each class, and in total. */
#define SOME		32
#define MANY		256
/*
 * Penalties for a bad fit. MISFIT_TWICE: the range was added for extents that are twice or half as
 * long as the request. MISFIT_UNUSED: the unused rest of the extent would be nearly as long as the
 * request.
 */
#define MISFIT_TWICE	CLASS_COLUMNS
#define MISFIT_UNUSED	(2 * MISFIT_TWICE)

/* If *@class is empty, advances it to the next nonempty class. Returns false if none is left. */
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
 * Returns the shortest extent that fits, from the first class that has one. Tries at most @tries
 * extents of each class.
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
