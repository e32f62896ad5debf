/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Extents: the taken and the free parts of ranges of memory. A class is the set of the free extents
 * of about the same length. The functions of this file never access the memory of the ranges, and
 * take no lock: the caller serializes calls on the same struct extents.
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
	uint64_t home : 15;		/* class number of @home in extents_add_range() */
	uint64_t is_free : 1;
	struct extent *before, *after;	/* neighbours in the same range */
	struct extent *next;		/* free: next in its class; taken: for the caller's use */
	struct extent *previous;		/* free: previous in its class */
	struct extent *chain;		/* taken: next in its bucket */
	uint64_t bytes;			/* taken: for the caller's use */
};

struct extent_chunk;

struct extents {
	uint64_t rows;			/* bit n: a class of row n is not empty */
	uint32_t columns[CLASS_ROWS];
	struct extent *classes[CLASS_ROWS][CLASS_COLUMNS];
	struct extent **buckets;	/* hash table of taken extents, by address */
	size_t bucket_count;		/* a power of two */
	size_t taken;
	uint64_t taken_bytes;
	uint64_t taken_bytes_peak;
	size_t free;
	uint64_t range_bytes;		/* total length of all ranges */
	struct extent *spare;		/* descriptors not in use, linked by next */
	size_t spare_count;
	struct extent_chunk *chunks;
};

/* Returns 0, or -ENOMEM without an error message. */
int extents_init(struct extents *extents);
void extents_destroy(struct extents *extents);

/*
 * Adds a free range, mainly for extents of length @home. @address must be a multiple of
 * EXTENT_ALIGN_MAX. Returns the descriptor of the range's first extent, or NULL if memory is short.
 * This descriptor stays the first as long as the range exists. Extents of different ranges never
 * merge, even if the ranges adjoin.
 */
struct extent *extents_add_range(struct extents *extents, void *address, uint64_t length,
				 uint64_t home);

/* Returns true if no part of the range is taken. */
bool extents_range_is_free(const struct extent *first);

/* Removes a range. The caller must have freed all of its extents. */
void extents_remove_range(struct extents *extents, struct extent *first);

/* Returns the length of an extent for @bytes. */
static inline uint64_t extent_length(uint64_t bytes)
{
	return (bytes + EXTENT_UNIT - 1) / EXTENT_UNIT * EXTENT_UNIT;
}

/*
 * Takes an extent. @length: a result of extent_length(), at most EXTENT_BYTES_MAX. @align: a power
 * of two in EXTENT_UNIT..EXTENT_ALIGN_MAX. Returns 0, -ENOSPC if no free extent is long enough, or
 * -ENOMEM if there is no memory for the bookkeeping. Sets no error message.
 */
int extents_take(struct extents *extents, uint64_t length, uint64_t align, struct extent **extent);

/* Frees a taken extent. */
void extents_give(struct extents *extents, struct extent *extent);

/* Returns the taken extent that begins at @address; NULL if none does. */
struct extent *extents_at(const struct extents *extents, const void *address);

/*
 * Makes a taken extent longer or shorter in place. @length: as for extents_take(). Returns false if
 * too little memory is free after the extent, or if there is no memory for the bookkeeping.
 */
bool extents_resize(struct extents *extents, struct extent *extent, uint64_t length);

uint64_t extents_largest_free(const struct extents *extents);

/*
 * Checks the bookkeeping. Returns a description of the first error found, or NULL. @firsts: the
 * first extent of each of the @count ranges.
 */
const char *extents_wrong(const struct extents *extents, struct extent *const *firsts,
			  size_t count);

#endif /* LIB_BASE_EXTENTS_H */
