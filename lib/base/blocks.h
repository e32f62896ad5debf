/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps account of ranges of memory: which parts are taken. Never touches the memory
 * itself and takes no lock: the caller keeps two calls on the same blocks
 * apart, but for those whose comment says otherwise.
 *
 * A taken block is live while the user has it, and kept when it has been freed
 * and waits in a thread's cache for the next user. Whether it is live is one
 * word, so that a wrong pointer is told from a live block without a lock.
 */
#ifndef LIB_BASE_BLOCKS_H
#define LIB_BASE_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLOCK_UNIT	256ULL
#define BLOCK_ALIGN_MAX	(2ULL << 20)
#define BLOCK_BYTES_MAX	(1ULL << 47)
/* Returns how many bytes were asked for in a block's life; 0: the block is not live. */
#define BLOCK_LIVE	((1ULL << 48) - 1)

#define CLASS_ROWS	40
#define CLASS_COLUMNS	32

struct block {
	char *_Atomic address;
	_Atomic uint64_t life;		/* see block_begin() */
	struct block *_Atomic chain;	/* taken: next in its bucket */
	uint64_t length : 48;		/* a multiple of BLOCK_UNIT */
	uint64_t home : 15;		/* class of the blocks that its range was made for */
	uint64_t is_free : 1;
	struct block *before, *after;	/* neighbours in the same range */
	struct block *next, *previous;	/* free: in its class; kept: the next alone */
	char apart[64];			/* processors fetch the line beside the one that is used */
};

struct block_chunk;

/* Buckets by address. Those that were outgrown stay for who still reads them. */
struct block_table {
	struct block_table *outgrown;
	size_t mask;
	struct block *_Atomic buckets[];
};

struct blocks {
	uint64_t rows;			/* bit: a class of the row is not empty */
	uint32_t columns[CLASS_ROWS];
	struct block *classes[CLASS_ROWS][CLASS_COLUMNS];
	struct block_table *_Atomic table;
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

/* Tells whether nothing of the range is taken. */
bool blocks_range_is_free(const struct block *first);

/* Takes a range out of which nothing is taken. */
void blocks_remove_range(struct blocks *blocks, struct block *first);

/* The length that a block of @bytes takes. */
static inline uint64_t block_length(uint64_t bytes)
{
	return (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

enum fit {
	FIT_ANY,
	FIT_WELL,			/* of long blocks: where blocks of the length belong */
};

/*
 * @length a block_length() up to BLOCK_BYTES_MAX, @align a power of two in
 * BLOCK_UNIT..BLOCK_ALIGN_MAX. The block is kept, not live. 0; -ENOSPC: no free
 * block is long enough, or none of those where it fits so; -ENOMEM: no memory for the
 * bookkeeping. Without words.
 */
int blocks_take(struct blocks *blocks, uint64_t length, uint64_t align, enum fit fit,
		struct block **block);

/* Gives a kept block back. */
void blocks_give(struct blocks *blocks, struct block *block);

/*
 * Makes a kept block longer or shorter where it is. @length as for blocks_take().
 * False: there is no room behind it, or no memory for the bookkeeping.
 */
bool blocks_resize(struct blocks *blocks, struct block *block, uint64_t length);

/*
 * Makes a kept block live, for who has it to himself. @bytes: 1 or more, up to
 * its length. The life's other bits count the lives, so that who read one of
 * them does not take a later one for it.
 */
static inline void block_begin(struct block *block, uint64_t bytes)
{
	uint64_t life = atomic_load_explicit(&block->life, memory_order_relaxed);

	life = ((life >> 48) + 1) << 48 | bytes;
	atomic_store_explicit(&block->life, life, memory_order_release);
}

static inline struct block *_Atomic *block_bucket(struct block_table *table, const void *address)
{
	/* Fibonacci hashing: the high bits of the product are well mixed. */
	uint64_t hash = (uintptr_t)address / BLOCK_UNIT * 0x9e3779b97f4a7c15ULL;

	return &table->buckets[(hash >> 32) & table->mask];
}

static inline struct block *block_link(struct block *const _Atomic *link)
{
	return atomic_load_explicit(link, memory_order_acquire);
}

/*
 * Ends the life of the block that begins at @address, and stores how many bytes
 * the user had asked for. NULL: no live block begins there. Any thread may call
 * it at any time; one that holds the lock of the others need not ask again, one
 * that does not may have missed a live block, and asks again under that lock.
 */
static inline struct block *blocks_end(const struct blocks *blocks, const void *address,
				       uint64_t *bytes)
{
	struct block_table *table = atomic_load_explicit(&blocks->table, memory_order_acquire);
	struct block *block = block_link(block_bucket(table, address));
	uint64_t life;

	while (block && atomic_load_explicit(&block->address, memory_order_relaxed) != address)
		block = block_link(&block->chain);
	if (!block)
		return NULL;
	life = atomic_load_explicit(&block->life, memory_order_acquire);
	/* Only a block that is not live moves: if it did since, the life has changed. */
	if (!(life & BLOCK_LIVE) ||
	    atomic_load_explicit(&block->address, memory_order_acquire) != address ||
	    !atomic_compare_exchange_strong_explicit(&block->life, &life, life & ~BLOCK_LIVE,
						     memory_order_acq_rel, memory_order_relaxed))
		return NULL;
	*bytes = life & BLOCK_LIVE;
	return block;
}

uint64_t blocks_largest_free(const struct blocks *blocks);

/*
 * Tells in words what is wrong with the bookkeeping; NULL: nothing. @firsts:
 * the first block of each range, @count of them.
 */
const char *blocks_wrong(const struct blocks *blocks, struct block *const *firsts, size_t count);

#endif /* LIB_BASE_BLOCKS_H */
