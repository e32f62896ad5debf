/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps account of ranges of memory: which parts are taken.
 *
 * Free blocks are kept in classes by length, 32 to each power of two, as in
 * two-level segregated fit: a block is found by two bit scans, and split and
 * merged in constant time. Activations come in few lengths and go in reverse
 * order: a freed block is found again at the head of its class, and neighbours
 * merge back to what they were. blocks_find.c says which free block is taken.
 *
 * Taken blocks are found by address in a hash table with chains, which is read
 * without a lock. That needs no more than that descriptors and tables stay as
 * long as the heap: a reader that is led astray finds nothing, and asks again
 * under the lock.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/blocks.h"
#include "base/blocks_find.h"

#define CHUNK_BLOCKS	128
/*
 * The distance from one descriptor to the one that is handed out next is farther than the
 * 2 KiB up to which processors look for a pattern in a loop's accesses. At a small one a few of
 * a thread's own would lie in a row, and the processor fetches what follows them, which
 * is another thread's, and so takes it from that thread.
 */
#define CHUNK_STRIDE	53
#define BUCKETS_FIRST	2048
/* Seldom two in a bucket: to pass by another thread's block takes it from that thread. */
#define BUCKETS_PER_BLOCK	8
/* Taking one block makes two more at most: before and behind it. */
#define SPARE_FOR_TAKE	2

/*
 * Descriptors begin at the first multiple of their size: a pair of cache lines each, as
 * they are fetched, so that threads with neighbours do not take them from each other.
 */
struct block_chunk {
	struct block_chunk *next;
	struct block blocks[CHUNK_BLOCKS + 1];
};

_Static_assert(sizeof(struct block) == 128, "a descriptor is a pair of cache lines");
_Static_assert(!(CHUNK_BLOCKS & (CHUNK_BLOCKS - 1)) && CHUNK_STRIDE % 2,
	       "each descriptor of a chunk has its turn");

static void link_free(struct blocks *blocks, struct block *block)
{
	struct class class = block_class(block->length);
	struct block **head = &blocks->classes[class.row][class.column];

	block->is_free = true;
	block->previous = NULL;
	block->next = *head;
	if (*head)
		(*head)->previous = block;
	*head = block;
	blocks->rows |= 1ULL << class.row;
	blocks->columns[class.row] |= 1U << class.column;
	blocks->free++;
}

static void unlink_free(struct blocks *blocks, struct block *block)
{
	struct class class = block_class(block->length);
	struct block **head = &blocks->classes[class.row][class.column];

	block->is_free = false;
	blocks->free--;
	if (block->next)
		block->next->previous = block->previous;
	if (block->previous) {
		block->previous->next = block->next;
		return;
	}
	*head = block->next;
	if (*head)
		return;
	blocks->columns[class.row] &= ~(1U << class.column);
	if (!blocks->columns[class.row])
		blocks->rows &= ~(1ULL << class.row);
}

static bool have_spare(struct blocks *blocks, size_t count)
{
	struct block_chunk *chunk;
	struct block *first;
	unsigned int i, place;

	if (blocks->spare_count >= count)
		return true;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->next = blocks->chunks;
	blocks->chunks = chunk;
	first = (struct block *)(((uintptr_t)chunk->blocks + sizeof(*first) - 1) &
				 ~(sizeof(*first) - 1));
	for (i = 0; i < CHUNK_BLOCKS; i++) {
		place = i * CHUNK_STRIDE % CHUNK_BLOCKS;
		first[place].next = blocks->spare;
		blocks->spare = &first[place];
	}
	blocks->spare_count += CHUNK_BLOCKS;
	return true;
}

/* A search for a live block may still read its old state. */
static struct block *take_spare(struct blocks *blocks, char *address, uint64_t length)
{
	struct block *block = blocks->spare;

	blocks->spare = block->next;
	blocks->spare_count--;
	atomic_store_explicit(&block->address, address, memory_order_release);
	block->length = length;
	block->home = 0;
	block->is_free = false;
	block->before = NULL;
	block->after = NULL;
	return block;
}

static void give_spare(struct blocks *blocks, struct block *block)
{
	block->next = blocks->spare;
	blocks->spare = block;
	blocks->spare_count++;
}

static struct block_table *make_table(size_t buckets)
{
	struct block_table *table = calloc(1, sizeof(*table) + buckets * sizeof(table->buckets[0]));

	if (table)
		table->mask = buckets - 1;
	return table;
}

static void set_link(struct block *_Atomic *link, struct block *block)
{
	atomic_store_explicit(link, block, memory_order_release);
}

static void link_into(struct block_table *table, struct block *block)
{
	struct block *_Atomic *bucket = block_bucket(table, block_address(block));

	set_link(&block->chain, block_link(bucket));
	set_link(bucket, block);
}

/* Without memory for more buckets the chains only become longer. */
static void grow_table(struct blocks *blocks)
{
	struct block_table *old = blocks->table, *table = make_table((old->mask + 1) * 2);
	struct block *block, *next;
	size_t i;

	if (!table)
		return;
	for (i = 0; i <= old->mask; i++) {
		for (block = block_link(&old->buckets[i]); block; block = next) {
			next = block_link(&block->chain);
			link_into(table, block);
		}
	}
	table->outgrown = old;
	atomic_store_explicit(&blocks->table, table, memory_order_release);
}

static void link_taken(struct blocks *blocks, struct block *block)
{
	if (++blocks->taken > blocks->table->mask / BUCKETS_PER_BLOCK)
		grow_table(blocks);
	link_into(blocks->table, block);
	blocks->taken_bytes += block->length;
	if (blocks->taken_bytes > blocks->taken_bytes_peak)
		blocks->taken_bytes_peak = blocks->taken_bytes;
}

static void unlink_taken(struct blocks *blocks, struct block *block)
{
	struct block *_Atomic *link = block_bucket(blocks->table, block_address(block));

	while (block_link(link) != block)
		link = &block_link(link)->chain;
	set_link(link, block_link(&block->chain));
	blocks->taken--;
	blocks->taken_bytes -= block->length;
}

int blocks_init(struct blocks *blocks)
{
	*blocks = (struct blocks){ .table = make_table(BUCKETS_FIRST) };
	return blocks->table ? 0 : -ENOMEM;
}

void blocks_destroy(struct blocks *blocks)
{
	struct block_table *table = blocks->table, *outgrown;
	struct block_chunk *chunk;

	while ((chunk = blocks->chunks)) {
		blocks->chunks = chunk->next;
		free(chunk);
	}
	for (; table; table = outgrown) {
		outgrown = table->outgrown;
		free(table);
	}
}

struct block *blocks_add_range(struct blocks *blocks, void *address, uint64_t length,
			       uint64_t home)
{
	struct block *block;

	if (!have_spare(blocks, 1))
		return NULL;
	block = take_spare(blocks, address, length);
	block->home = block_class_number(home);
	link_free(blocks, block);
	blocks->range_bytes += length;
	return block;
}

bool blocks_range_is_free(const struct block *first)
{
	return first->is_free && !first->after;
}

void blocks_remove_range(struct blocks *blocks, struct block *first)
{
	unlink_free(blocks, first);
	blocks->range_bytes -= first->length;
	give_spare(blocks, first);
}

/* Makes the part of a free, unlinked block behind @length a free block. */
static void cut(struct blocks *blocks, struct block *block, uint64_t length)
{
	struct block *rest = take_spare(blocks, block_address(block) + length,
					block->length - length);

	rest->home = block->home;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	block->length = length;
}

int blocks_take(struct blocks *blocks, uint64_t length, uint64_t align, enum fit fit,
		struct block **result)
{
	struct block *block, *front;
	uint64_t unaligned;

	if (!have_spare(blocks, SPARE_FOR_TAKE))
		return -ENOMEM;
	block = blocks_find(blocks, length, align, fit);
	if (!block)
		return -ENOSPC;
	unlink_free(blocks, block);
	unaligned = block_gap(block, align);
	if (unaligned) {
		front = block;
		cut(blocks, front, unaligned);
		block = front->after;
		link_free(blocks, front);
	}
	if (block->length > length) {
		cut(blocks, block, length);
		link_free(blocks, block->after);
	}
	link_taken(blocks, block);
	*result = block;
	return 0;
}

/* Joins a block with the one behind it, which is linked nowhere else. */
static void join(struct blocks *blocks, struct block *block)
{
	struct block *after = block->after;

	block->length += after->length;
	block->after = after->after;
	if (block->after)
		block->after->before = block;
	give_spare(blocks, after);
}

void blocks_give(struct blocks *blocks, struct block *block)
{
	unlink_taken(blocks, block);
	if (block->after && block->after->is_free) {
		unlink_free(blocks, block->after);
		join(blocks, block);
	}
	if (block->before && block->before->is_free) {
		block = block->before;
		unlink_free(blocks, block);
		join(blocks, block);
	}
	link_free(blocks, block);
}

bool blocks_resize(struct blocks *blocks, struct block *block, uint64_t length)
{
	uint64_t was = block->length;
	struct block *rest;

	if (!have_spare(blocks, 1))
		return false;
	rest = block->after;
	if (length > was) {
		if (!rest || !rest->is_free || rest->length < length - was)
			return false;
		unlink_free(blocks, rest);
		join(blocks, block);
	}
	if (block->length > length) {
		cut(blocks, block, length);
		rest = block->after;
		if (rest->after && rest->after->is_free) {
			unlink_free(blocks, rest->after);
			join(blocks, rest);
		}
		link_free(blocks, rest);
	}
	blocks->taken_bytes += length - was;
	if (blocks->taken_bytes > blocks->taken_bytes_peak)
		blocks->taken_bytes_peak = blocks->taken_bytes;
	return true;
}

uint64_t blocks_largest_free(const struct blocks *blocks)
{
	const struct block *block;
	uint64_t largest = 0;
	unsigned int row;

	if (!blocks->rows)
		return 0;
	row = 63 - (unsigned int)__builtin_clzll(blocks->rows);
	block = blocks->classes[row][31 - __builtin_clz(blocks->columns[row])];
	for (; block; block = block->next)
		if (block->length > largest)
			largest = block->length;
	return largest;
}

static const char *wrong_in_classes(const struct blocks *blocks, size_t *count)
{
	const struct block *block, *previous;
	unsigned int row, column;
	struct class class;

	for (row = 0; row < CLASS_ROWS; row++) {
		if (!blocks->columns[row] != !(blocks->rows >> row & 1))
			return "a row's bit is not that of its classes";
		for (column = 0; column < CLASS_COLUMNS; column++) {
			block = blocks->classes[row][column];
			if (!block != !(blocks->columns[row] >> column & 1))
				return "a class's bit is not that of its blocks";
			for (previous = NULL; block; previous = block, block = block->next) {
				class = block_class(block->length);
				if (class.row != row || class.column != column)
					return "a free block is in another length's class";
				if (!block->is_free || block->previous != previous)
					return "a class has a block that is not free, or not linked back";
				++*count;
			}
		}
	}
	return NULL;
}

static bool is_in_table(const struct blocks *blocks, const struct block *block)
{
	const struct block *other = block_link(block_bucket(blocks->table, block_address(block)));

	while (other && other != block)
		other = block_link(&other->chain);
	return other;
}

const char *blocks_wrong(const struct blocks *blocks, struct block *const *firsts, size_t count)
{
	size_t free_seen = 0, free_listed = 0, taken = 0, i;
	const char *wrong = wrong_in_classes(blocks, &free_listed);
	const struct block *block;
	uint64_t taken_bytes = 0, bytes = 0;

	for (i = 0; i < count; i++) {
		if (firsts[i]->before)
			return "a range's first block has one before it";
		for (block = firsts[i]; block; block = block->after) {
			if (!block->length || block->length % BLOCK_UNIT)
				return "a block has an impossible length";
			if (block->after && (block->after->before != block ||
			    block_address(block->after) != block_address(block) + block->length))
				return "two neighbours do not adjoin";
			if (block->is_free && block->after && block->after->is_free)
				return "two free neighbours have not merged";
			if (block->is_free && atomic_load(&block->life) & BLOCK_LIVE)
				return "a free block is live";
			if (!block->is_free && !is_in_table(blocks, block))
				return "a taken block cannot be found by its address";
			free_seen += block->is_free;
			taken += !block->is_free;
			taken_bytes += block->is_free ? 0 : block->length;
			bytes += block->length;
		}
	}
	if (taken != blocks->taken || taken_bytes != blocks->taken_bytes ||
	    free_seen != blocks->free || bytes != blocks->range_bytes)
		return "the sums are not those of the blocks";
	if (!wrong && free_listed != free_seen)
		wrong = "a free block is in no class";
	return wrong;
}
