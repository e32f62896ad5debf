/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Extents: the parts of ranges of memory that are taken, and those that are free.
 * Never touches the memory itself and takes no lock: the caller keeps two calls on the
 * same ranges apart.
 */
#ifndef LIB_BASE_EXTENTS_H
#define LIB_BASE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXTENT_UNIT		256ULL
#define EXTENT_ALIGN_MAX	(2ULL << 20)
#define EXTENT_BYTES_MAX	(1ULL << 47)

#define CLASS_ROWS	40
#define CLASS_COLUMNS	32

struct extent {
	char *address;
	uint64_t length : 48;		/* a multiple of EXTENT_UNIT */
	uint64_t home : 15;		/* class of the extents that its range was made for */
	uint64_t is_free : 1;
	struct extent *before, *after;	/* neighbours in the same range */
	struct extent *next;		/* free: in its class; taken: the caller's */
	struct extent *previous;		/* free: in its class */
	struct extent *chain;		/* taken: next in its bucket */
	uint64_t bytes;			/* taken: the caller's */
};

struct extent_chunk;

struct extents {
	uint64_t rows;			/* bit: a class of the row is not empty */
	uint32_t columns[CLASS_ROWS];
	struct extent *classes[CLASS_ROWS][CLASS_COLUMNS];
	struct extent **buckets;	/* of taken extents, by address */
	size_t bucket_count;		/* a power of two */
	size_t taken;
	uint64_t taken_bytes;
	uint64_t taken_bytes_peak;
	size_t free;
	uint64_t range_bytes;		/* of all ranges */
	struct extent *spare;		/* descriptors not in use, linked by next */
	size_t spare_count;
	struct extent_chunk *chunks;
};

/* 0 or -ENOMEM, without words. */
int extents_init(struct extents *extents);
void extents_destroy(struct extents *extents);

/*
 * Adds a free range, whose address is a multiple of EXTENT_ALIGN_MAX, for extents of
 * the length @home above all. Returns the descriptor of its first extent, which stays
 * its first; NULL: no memory. Extents of different ranges never join, also where the
 * ranges adjoin.
 */
struct extent *extents_add_range(struct extents *extents, void *address, uint64_t length,
				 uint64_t home);

/* Whether nothing of the range is taken. */
bool extents_range_is_free(const struct extent *first);

/* Takes a range out of which nothing is taken. */
void extents_remove_range(struct extents *extents, struct extent *first);

/* The length that an extent of @bytes takes. */
static inline uint64_t extent_length(uint64_t bytes)
{
	return (bytes + EXTENT_UNIT - 1) / EXTENT_UNIT * EXTENT_UNIT;
}

/*
 * @length an extent_length() up to EXTENT_BYTES_MAX, @align a power of two in
 * EXTENT_UNIT..EXTENT_ALIGN_MAX. 0; -ENOSPC: no free extent is long enough; -ENOMEM: no
 * memory for the bookkeeping. Without words.
 */
int extents_take(struct extents *extents, uint64_t length, uint64_t align, struct extent **extent);

/* Gives a taken extent back. */
void extents_give(struct extents *extents, struct extent *extent);

/* The taken extent that begins at @address, which may be any; NULL: there is none. */
struct extent *extents_at(const struct extents *extents, const void *address);

/*
 * Makes a taken extent longer or shorter where it is. @length as for extents_take().
 * False: there is no room behind it, or no memory for the bookkeeping.
 */
bool extents_resize(struct extents *extents, struct extent *extent, uint64_t length);

uint64_t extents_largest_free(const struct extents *extents);

/*
 * Tells in words what is wrong with the bookkeeping; NULL: nothing. @firsts:
 * the first extent of each range, @count of them.
 */
const char *extents_wrong(const struct extents *extents, struct extent *const *firsts,
			  size_t count);

#endif /* LIB_BASE_EXTENTS_H */
