/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which parts of which ranges of memory are taken.
 *
 * Free blocks are kept in classes by length, 32 to each power of two, as in
 * two-level segregated fit: a block is found by two bit scans, and split and
 * merged in constant time. It was chosen over best fit in a tree since
 * activations come in few lengths and go in reverse order: a freed block is
 * found again at the head of its class, and neighbours merge back to what
 * they were, so that what best fit would save is not there to be saved.
 *
 * The class of a length also has shorter blocks, so a few of its blocks are
 * tried before a longer class is used; all of them only before the heap would
 * have to grow, which costs far more.
 *
 * Taken blocks are found by address in a hash table with chains.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"

#define COLUMN_BITS	5
#define FEW		8
#define CHUNK_BLOCKS	128
#define BUCKETS_FIRST	64
/* Taking one block makes two more at most: before and behind it. */
#define SPARE_FOR_TAKE	2

struct block_chunk {
	struct block_chunk *next;
	struct block blocks[CHUNK_BLOCKS];
};

struct class {
	unsigned int row, column;
};

static struct class class_of(uint64_t length)
{
	uint64_t units = length / BLOCK_UNIT;
	unsigned int top;

	if (units < CLASS_COLUMNS)
		return (struct class){ 0, (unsigned int)units };
	top = 63 - (unsigned int)__builtin_clzll(units);
	return (struct class){ top - COLUMN_BITS + 1,
			       (units >> (top - COLUMN_BITS)) & (CLASS_COLUMNS - 1) };
}

/* The first class that is not empty, from @class on; false: none. */
static bool next_class(const struct blocks *blocks, struct class *class)
{
	uint32_t columns = 0;
	uint64_t rows;

	if (class->column < CLASS_COLUMNS)
		columns = blocks->columns[class->row] >> class->column << class->column;
	if (!columns) {
		rows = blocks->rows >> (class->row + 1) << (class->row + 1);
		if (!rows)
			return false;
		class->row = (unsigned int)__builtin_ctzll(rows);
		columns = blocks->columns[class->row];
	}
	class->column = (unsigned int)__builtin_ctz(columns);
	return true;
}

static void link_free(struct blocks *blocks, struct block *block)
{
	struct class class = class_of(block->length);
	struct block **head = &blocks->classes[class.row][class.column];

	block->asked = 0;
	block->previous = NULL;
	block->next = *head;
	if (*head)
		(*head)->previous = block;
	*head = block;
	blocks->rows |= 1ULL << class.row;
	blocks->columns[class.row] |= 1U << class.column;
}

static void unlink_free(struct blocks *blocks, struct block *block)
{
	struct class class = class_of(block->length);
	struct block **head = &blocks->classes[class.row][class.column];

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
	unsigned int i;

	if (blocks->spare_count >= count)
		return true;
	chunk = malloc(sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->next = blocks->chunks;
	blocks->chunks = chunk;
	for (i = 0; i < CHUNK_BLOCKS; i++) {
		chunk->blocks[i].next = blocks->spare;
		blocks->spare = &chunk->blocks[i];
	}
	blocks->spare_count += CHUNK_BLOCKS;
	return true;
}

static struct block *take_spare(struct blocks *blocks)
{
	struct block *block = blocks->spare;

	blocks->spare = block->next;
	blocks->spare_count--;
	memset(block, 0, sizeof(*block));
	return block;
}

static void give_spare(struct blocks *blocks, struct block *block)
{
	block->next = blocks->spare;
	blocks->spare = block;
	blocks->spare_count++;
}

static struct block **bucket_of(const struct blocks *blocks, const void *address)
{
	/* Fibonacci hashing: the high bits of the product are well mixed. */
	uint64_t hash = (uintptr_t)address / BLOCK_UNIT * 0x9e3779b97f4a7c15ULL;

	return &blocks->buckets[(hash >> 32) & (blocks->bucket_count - 1)];
}

/* Without memory for more buckets the chains only become longer. */
static void grow_buckets(struct blocks *blocks)
{
	struct blocks larger = { .bucket_count = blocks->bucket_count * 2 };
	struct block *block, *next, **bucket;
	size_t i;

	larger.buckets = calloc(larger.bucket_count, sizeof(*larger.buckets));
	if (!larger.buckets)
		return;
	for (i = 0; i < blocks->bucket_count; i++) {
		for (block = blocks->buckets[i]; block; block = next) {
			next = block->next;
			bucket = bucket_of(&larger, block->address);
			block->next = *bucket;
			*bucket = block;
		}
	}
	free(blocks->buckets);
	blocks->buckets = larger.buckets;
	blocks->bucket_count = larger.bucket_count;
}

static void link_taken(struct blocks *blocks, struct block *block)
{
	struct block **bucket;

	if (blocks->taken++ >= blocks->bucket_count)
		grow_buckets(blocks);
	bucket = bucket_of(blocks, block->address);
	block->next = *bucket;
	*bucket = block;
}

static void unlink_taken(struct blocks *blocks, struct block *block)
{
	struct block **link = bucket_of(blocks, block->address);

	while (*link != block)
		link = &(*link)->next;
	*link = block->next;
	blocks->taken--;
}

int blocks_init(struct blocks *blocks)
{
	memset(blocks, 0, sizeof(*blocks));
	blocks->bucket_count = BUCKETS_FIRST;
	blocks->buckets = calloc(BUCKETS_FIRST, sizeof(*blocks->buckets));
	return blocks->buckets ? 0 : -ENOMEM;
}

void blocks_destroy(struct blocks *blocks)
{
	struct block_chunk *chunk;

	while ((chunk = blocks->chunks)) {
		blocks->chunks = chunk->next;
		free(chunk);
	}
	free(blocks->buckets);
}

struct block *blocks_add_range(struct blocks *blocks, void *address, uint64_t length)
{
	struct block *block;

	if (!have_spare(blocks, 1))
		return NULL;
	block = take_spare(blocks);
	block->address = address;
	block->length = length;
	link_free(blocks, block);
	return block;
}

bool blocks_range_is_free(const struct block *first)
{
	return !first->asked && !first->after;
}

void blocks_remove_range(struct blocks *blocks, struct block *first)
{
	unlink_free(blocks, first);
	give_spare(blocks, first);
}

/* Bytes before the first aligned address in the block. */
static uint64_t gap(const struct block *block, uint64_t align)
{
	return -(uintptr_t)block->address % align;
}

static bool fits(const struct block *block, uint64_t length, uint64_t align)
{
	return gap(block, align) + length <= block->length;
}

/* The first block that fits, of at most @tries in each class. */
static struct block *search(const struct blocks *blocks, uint64_t length, uint64_t align,
			    size_t tries)
{
	struct class class = class_of(length);
	struct block *block;
	size_t try;

	for (; next_class(blocks, &class); class.column++) {
		block = blocks->classes[class.row][class.column];
		for (try = 0; block && try < tries; try++) {
			if (fits(block, length, align))
				return block;
			block = block->next;
		}
	}
	return NULL;
}

/* Makes the part of a free, unlinked block behind @length a free block. */
static void cut(struct blocks *blocks, struct block *block, uint64_t length)
{
	struct block *rest = take_spare(blocks);

	rest->address = block->address + length;
	rest->length = block->length - length;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	block->after = rest;
	block->length = length;
}

int blocks_take(struct blocks *blocks, uint64_t bytes, uint64_t align, struct block **result)
{
	uint64_t length = (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
	struct block *block, *front;
	uint64_t unaligned;

	if (!have_spare(blocks, SPARE_FOR_TAKE))
		return -ENOMEM;
	block = search(blocks, length, align, FEW);
	if (!block)
		block = search(blocks, length, align, SIZE_MAX);
	if (!block)
		return -ENOSPC;
	unlink_free(blocks, block);
	unaligned = gap(block, align);
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
	block->asked = bytes;
	link_taken(blocks, block);
	*result = block;
	return 0;
}

struct block *blocks_find(const struct blocks *blocks, const void *address)
{
	struct block *block = *bucket_of(blocks, address);

	while (block && block->address != address)
		block = block->next;
	return block;
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
	if (block->after && !block->after->asked) {
		unlink_free(blocks, block->after);
		join(blocks, block);
	}
	if (block->before && !block->before->asked) {
		block = block->before;
		unlink_free(blocks, block);
		join(blocks, block);
	}
	link_free(blocks, block);
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
