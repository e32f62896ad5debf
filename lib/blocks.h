/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which parts of which ranges of memory are taken. Never touches the memory
 * itself and takes no lock.
 */
#ifndef LIB_BLOCKS_H
#define LIB_BLOCKS_H

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
	uint64_t length;		/* a multiple of BLOCK_UNIT */
	uint64_t asked;			/* bytes the user asked for; 0: free */
	struct block *before, *after;	/* neighbours in the same range */
	struct block *next, *previous;	/* free: in its class; taken: next in its bucket */
};

struct block_chunk;

struct blocks {
	uint64_t rows;			/* bit: a class of the row is not empty */
	uint32_t columns[CLASS_ROWS];
	struct block *classes[CLASS_ROWS][CLASS_COLUMNS];
	struct block **buckets;
	size_t bucket_count;		/* a power of two */
	size_t taken;
	struct block *spare;		/* descriptors not in use, linked by next */
	size_t spare_count;
	struct block_chunk *chunks;
};

/* 0 or -ENOMEM, without words. */
int blocks_init(struct blocks *blocks);
void blocks_destroy(struct blocks *blocks);

/*
 * Adds a free range, whose address is a multiple of BLOCK_ALIGN_MAX. Returns
 * the descriptor of its first block, which stays its first; NULL: no memory.
 */
struct block *blocks_add_range(struct blocks *blocks, void *address, uint64_t length);

/* Whether nothing of the range is taken. */
bool blocks_range_is_free(const struct block *first);

/* Takes a range out of which nothing is taken. */
void blocks_remove_range(struct blocks *blocks, struct block *first);

/*
 * @bytes in 1..BLOCK_BYTES_MAX, @align a power of two in
 * BLOCK_UNIT..BLOCK_ALIGN_MAX. 0; -ENOSPC: no free block is long enough;
 * -ENOMEM: no memory for the bookkeeping. Without words.
 */
int blocks_take(struct blocks *blocks, uint64_t bytes, uint64_t align, struct block **block);

/* The taken block that begins at @address, or NULL. */
struct block *blocks_find(const struct blocks *blocks, const void *address);

/* Gives a taken block back. */
void blocks_give(struct blocks *blocks, struct block *block);

uint64_t blocks_largest_free(const struct blocks *blocks);

#endif /* LIB_BLOCKS_H */
