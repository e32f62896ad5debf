/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks beside a simple reference, at random: a map with the owner of each unit
 * of memory. No memory is needed, as blocks never touch theirs. BLOCKS_SEED
 * repeats a run. And that what checks the bookkeeping finds what is wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/blocks.h"
#include "faults.h"

#define STEPS		2000000
#define CHECK_EACH	4096
#define SLOTS		400
#define RANGES		3
#define RANGE_BYTES	(8ULL << 20)
#define RANGE_UNITS	(RANGE_BYTES / BLOCK_UNIT)
#define BASE		(1ULL << 40)
#define LONG_UNITS	4096ULL

static struct blocks blocks;
static struct block *firsts[RANGES];
/* Of each unit: 0, or 1 + the slot of the block that has it. */
static uint16_t owner[RANGES * RANGE_UNITS];

static struct slot {
	struct block *block;
	uint64_t length;
} slots[SLOTS];

static uint64_t next_random(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/* The ranges adjoin, so that a block across an edge would be seen. */
static void *range_at(size_t range)
{
	return (void *)(uintptr_t)(BASE + range * RANGE_BYTES);
}

/* For blocks of @home, of twice that, and so on. */
static void add_ranges(uint64_t home)
{
	size_t i;

	assert_int_equal(blocks_init(&blocks), 0);
	for (i = 0; i < RANGES; i++) {
		firsts[i] = blocks_add_range(&blocks, range_at(i), RANGE_BYTES, home << i);
		assert_non_null(firsts[i]);
	}
}

static size_t unit_of(const struct block *block)
{
	return ((uintptr_t)block->address - BASE) / BLOCK_UNIT;
}

/* Whether the reference has room where the blocks had none. */
static bool reference_has(uint64_t length, uint64_t align)
{
	size_t units = length / BLOCK_UNIT, step = align / BLOCK_UNIT, range, first, i;

	for (range = 0; range < RANGES; range++) {
		for (first = 0; first + units <= RANGE_UNITS; first += step) {
			for (i = 0; i < units && !owner[range * RANGE_UNITS + first + i]; i++)
				;
			if (i == units)
				return true;
		}
	}
	return false;
}

static void take(uint16_t slot, uint64_t *state)
{
	uint64_t bytes = 1 + next_random(state) % (1ULL << (next_random(state) % 21));
	uint64_t align = next_random(state) % 4 ? BLOCK_UNIT :
			 BLOCK_UNIT << next_random(state) % 14;
	uint64_t length = block_length(bytes);
	struct block *block;
	size_t first, i;

	if (blocks_take(&blocks, length, align, &block)) {
		assert_false(reference_has(length, align));
		return;
	}
	assert_int_equal(block->length, length);
	assert_int_equal((uintptr_t)block->address % align, 0);
	first = unit_of(block);
	assert_int_equal(first / RANGE_UNITS, (first + length / BLOCK_UNIT - 1) / RANGE_UNITS);
	for (i = first; i < first + length / BLOCK_UNIT; i++) {
		assert_int_equal(owner[i], 0);
		owner[i] = slot + 1;
	}
	slots[slot] = (struct slot){ block, length };
}

static void give(uint16_t slot)
{
	struct block *block = slots[slot].block;
	char *address = block->address;
	uint64_t length = block->length;

	/* Neither before its start, nor within, nor twice. */
	assert_null(blocks_at(&blocks, address + 1));
	if (length > BLOCK_UNIT)
		assert_null(blocks_at(&blocks, address + BLOCK_UNIT));
	assert_ptr_equal(blocks_at(&blocks, address), block);
	assert_int_equal(length, slots[slot].length);
	memset(&owner[unit_of(block)], 0, length / BLOCK_UNIT * sizeof(owner[0]));
	blocks_give(&blocks, block);
	assert_null(blocks_at(&blocks, address));
	slots[slot].block = NULL;
}

/* Longer only into what is free behind it, in its own range. */
static void resize(uint16_t slot, uint64_t *state)
{
	struct block *block = slots[slot].block;
	uint64_t bytes = 1 + next_random(state) % (2 * block->length);
	size_t units = block->length / BLOCK_UNIT, wanted = block_length(bytes) / BLOCK_UNIT;
	size_t first = unit_of(block), room = units, i;

	while ((first + room) % RANGE_UNITS && !owner[first + room])
		room++;
	assert_int_equal(blocks_resize(&blocks, block, wanted * BLOCK_UNIT), wanted <= room);
	if (wanted <= room) {
		for (i = wanted; i < units; i++)
			owner[first + i] = 0;
		for (i = units; i < wanted; i++)
			owner[first + i] = slot + 1;
	}
	assert_int_equal(block->length, (wanted <= room ? wanted : units) * BLOCK_UNIT);
	slots[slot].length = block->length;
}

static void test_random(void **state)
{
	const char *given = getenv("BLOCKS_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) :
			(uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
	uint64_t taken_bytes = 0;
	const char *wrong;
	uint16_t slot;
	size_t i;

	printf("# BLOCKS_SEED=%llu\n", (unsigned long long)seed);
	add_ranges(64 << 10);
	for (i = 0; i < STEPS; i++) {
		slot = (uint16_t)(next_random(&seed) % SLOTS);
		if (!slots[slot].block)
			take(slot, &seed);
		else if (next_random(&seed) % 4)
			give(slot);
		else
			resize(slot, &seed);
		if (i % CHECK_EACH)
			continue;
		wrong = blocks_wrong(&blocks, firsts, RANGES);
		if (wrong)
			fail_msg("step %zu: %s", i, wrong);
	}
	for (slot = 0; slot < SLOTS; slot++)
		taken_bytes += slots[slot].block ? slots[slot].block->length : 0;
	assert_int_equal(blocks.taken_bytes, taken_bytes);
	assert_true(blocks.taken_bytes_peak >= taken_bytes);
	for (slot = 0; slot < SLOTS; slot++)
		if (slots[slot].block)
			give(slot);
	assert_int_equal(blocks.taken, 0);
	assert_int_equal(blocks.free, RANGES);
	assert_int_equal(blocks_largest_free(&blocks), RANGE_BYTES);
	for (i = 0; i < RANGES; i++) {
		assert_true(blocks_range_is_free(firsts[i]));
		blocks_remove_range(&blocks, firsts[i]);
	}
	assert_int_equal(blocks_largest_free(&blocks), 0);
	blocks_destroy(&blocks);
}

/* The shortest of the free blocks that fit, so that long ones stay for long ones. */
static void test_fit(void **state)
{
	struct block *all[6], *again;
	size_t i;

	add_ranges(BLOCK_UNIT);
	for (i = 0; i < 6; i++)
		assert_int_equal(blocks_take(&blocks, i % 2 ? BLOCK_UNIT :
					     (1000 + 10 * (6 - i)) * BLOCK_UNIT, BLOCK_UNIT,
					     &all[i]), 0);
	for (i = 0; i < 6; i += 2)
		blocks_give(&blocks, all[i]);
	assert_int_equal(blocks_take(&blocks, 1015 * BLOCK_UNIT, BLOCK_UNIT, &again), 0);
	assert_int_equal(again->length, 1015 * BLOCK_UNIT);
	assert_ptr_equal(again->after->after, all[5]);
	blocks_destroy(&blocks);
}

static struct block *taken(uint64_t units)
{
	struct block *block;

	assert_int_equal(blocks_take(&blocks, units * BLOCK_UNIT, BLOCK_UNIT, &block), 0);
	return block;
}

static size_t range_of(const struct block *block)
{
	return unit_of(block) / RANGE_UNITS;
}

/* Blocks lie in the ranges that were made for such. */
static void test_home(void **state)
{
	struct block *long_block, *block;

	add_ranges(LONG_UNITS / 4 * BLOCK_UNIT);
	long_block = taken(LONG_UNITS);
	assert_int_equal(range_of(long_block), 2);
	assert_int_equal(range_of(taken(LONG_UNITS / 4)), 0);
	assert_int_equal(range_of(taken(LONG_UNITS / 2)), 1);
	assert_ptr_equal(taken(LONG_UNITS), long_block->after);
	/* Each leaves something unused wherever it lies. */
	block = taken(LONG_UNITS + 600);
	assert_int_equal(range_of(block), 2);
	assert_null(blocks_wrong(&blocks, firsts, RANGES));
	blocks_destroy(&blocks);
}

static void test_check(void **state)
{
	struct block *block;

	add_ranges(BLOCK_UNIT);
	assert_int_equal(blocks_take(&blocks, BLOCK_UNIT, BLOCK_UNIT, &block), 0);
	assert_null(blocks_wrong(&blocks, firsts, RANGES));
	block->after->length -= BLOCK_UNIT;
	assert_non_null(blocks_wrong(&blocks, firsts, RANGES));
	block->after->length += BLOCK_UNIT;
	blocks.taken_bytes++;
	assert_string_equal(blocks_wrong(&blocks, firsts, RANGES),
			    "the sums are not those of the blocks");
	blocks.taken_bytes--;
	block->address += BLOCK_UNIT;
	assert_non_null(blocks_wrong(&blocks, firsts, RANGES));
	block->address -= BLOCK_UNIT;
	blocks.rows ^= 1;
	assert_string_equal(blocks_wrong(&blocks, firsts, RANGES),
			    "a row's bit is not that of its classes");
	blocks.rows ^= 1;
	block->after->is_free = false;
	assert_non_null(blocks_wrong(&blocks, firsts, RANGES));
	block->after->is_free = true;
	blocks_destroy(&blocks);
}

/* Without memory for more buckets, and for more descriptors. */
static void test_no_memory(void **state)
{
	struct block *block;
	unsigned int i;
	int error = 0;

	add_ranges(BLOCK_UNIT);
	fail_every("calloc", ENOMEM);
	for (i = 0; !error; i++)
		error = blocks_take(&blocks, BLOCK_UNIT, BLOCK_UNIT, &block);
	fail_nothing();
	assert_int_equal(error, -ENOMEM);
	assert_null(blocks_wrong(&blocks, firsts, RANGES));
	for (; i < 1000; i++)
		assert_int_equal(blocks_take(&blocks, BLOCK_UNIT, BLOCK_UNIT, &block), 0);
	assert_ptr_equal(blocks_at(&blocks, block->address), block);
	assert_null(blocks_wrong(&blocks, firsts, RANGES));
	blocks_destroy(&blocks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_fit),
		cmocka_unit_test(test_home),
		cmocka_unit_test(test_check),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
