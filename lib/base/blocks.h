/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which parts of which ranges of memory are taken. Never touches the memory
 * itself and takes no lock: the caller keeps two calls on the same blocks apart.
 */
#ifndef LIB_BASE_BLOCKS_H
#define LIB_BASE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_UNIT	256ULL
#define BLOCK_ALIGN_MAX	(2ULL << 20)
#define BLOCK_BYTES_MAX	(1ULL << 47)

#define CLASS_ROWS	40
#define CLASS_COLUMNS	32

struct block {
	char *address;
	uint64_t length : 48;		/* a multiple of BLOCK_UNIT */
	uint64_t home : 15;		/* class of the blocks that its range was made for */
	uint64_t is_free : 1;
	struct block *before, *after;	/* neighbours in the same range */
	struct block *next;		/* free: in its class; taken: the caller's */
	struct block *previous;		/* free: in its class */
	struct block *chain;		/* taken: next in its bucket */
	uint64_t bytes;			/* taken: the caller's */
};

struct block_chunk;

struct blocks {
	uint64_t rows;			/* bit: a class of the row is not empty */
	uint32_t columns[CLASS_ROWS];
	struct block *classes[CLASS_ROWS][CLASS_COLUMNS];
	struct block **buckets;		/* of taken blocks, by address */
	size_t bucket_count;		/* a power of two */
	size_t taken;
	uint64_t taken_bytes;
	uint64_t taken_bytes_peak;
	size_t free;
	uint64_t range_bytes;		/* of all ranges */
	struct block *spare;		/* descriptors not in use, linked by next */
	size_t spare_count;
	struct block_chunk *chunks;
};

/* 0 or -ENOMEM, without words. */
int blocks_init(struct blocks *blocks);
void blocks_destroy(struct blocks *blocks);

/*
 * Adds a free range, whose address is a multiple of BLOCK_ALIGN_MAX, for blocks of
 * the length @home above all. Returns the descriptor of its first block, which stays
 * its first; NULL: no memory. Blocks of different ranges never join, also where the
 * ranges adjoin.
 */
struct block *blocks_add_range(struct blocks *blocks, void *address, uint64_t length,
			       uint64_t home);

/* Whether nothing of the range is taken. */
bool blocks_range_is_free(const struct block *first);

/* Takes a range out of which nothing is taken. */
void blocks_remove_range(struct blocks *blocks, struct block *first);

/* The length that a block of @bytes takes. */
static inline uint64_t block_length(uint64_t bytes)
{
	return (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

/*
 * @length a block_length() up to BLOCK_BYTES_MAX, @align a power of two in
 * BLOCK_UNIT..BLOCK_ALIGN_MAX. 0; -ENOSPC: no free block is long enough; -ENOMEM: no
 * memory for the bookkeeping. Without words.
 */
int blocks_take(struct blocks *blocks, uint64_t length, uint64_t align, struct block **block);

/* Gives a taken block back. */
void blocks_give(struct blocks *blocks, struct block *block);

/* The taken block that begins at @address, which may be any; NULL: there is none. */
struct block *blocks_at(const struct blocks *blocks, const void *address);

/*
 * Makes a taken block longer or shorter where it is. @length as for blocks_take().
 * False: there is no room behind it, or no memory for the bookkeeping.
 */
bool blocks_resize(struct blocks *blocks, struct block *block, uint64_t length);

uint64_t blocks_largest_free(const struct blocks *blocks);

/*
 * What is wrong with the bookkeeping, in words: NULL, as it is to be. @firsts:
 * the first block of each range, @count of them.
 */
const char *blocks_wrong(const struct blocks *blocks, struct block *const *firsts, size_t count);

#endif /* LIB_BASE_BLOCKS_H */
