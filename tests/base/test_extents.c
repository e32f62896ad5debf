/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Extents beside a simple reference, at random: a map with the owner of each unit
 * of memory. No memory is needed, as extents never touch theirs. SEED=
 * repeats a run. And that what checks the bookkeeping finds what is wrong.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/extents.h"
#include "faults.h"
#include "random.h"

#define STEPS		2000000
#define CHECK_EACH	4096
#define SLOTS		400
#define RANGES		3
#define RANGE_BYTES	(8ULL << 20)
#define RANGE_UNITS	(RANGE_BYTES / EXTENT_UNIT)
#define BASE		(1ULL << 40)
#define LONG_UNITS	4096ULL

static struct extents extents;
static struct extent *firsts[RANGES];
/* Of each unit: 0, or 1 + the slot of the extent that has it. */
static uint16_t owner[RANGES * RANGE_UNITS];

static struct slot {
	struct extent *extent;
	uint64_t length;
} slots[SLOTS];

/* The ranges adjoin, so that an extent across an edge would be seen. */
static void *range_at(size_t range)
{
	return (void *)(uintptr_t)(BASE + range * RANGE_BYTES);
}

/* For extents of @home, of twice that, and so on. */
static void add_ranges(uint64_t home)
{
	size_t i;

	assert_int_equal(extents_init(&extents), 0);
	for (i = 0; i < RANGES; i++) {
		firsts[i] = extents_add_range(&extents, range_at(i), RANGE_BYTES, home << i);
		assert_non_null(firsts[i]);
	}
}

static size_t unit_of(const struct extent *extent)
{
	return ((uintptr_t)extent->address - BASE) / EXTENT_UNIT;
}

/* Whether the reference has room where the extents had none. */
static bool reference_has(uint64_t length, uint64_t align)
{
	size_t units = length / EXTENT_UNIT, step = align / EXTENT_UNIT, range, first, i;

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

/* The longest free run of units in a range. */
static uint64_t reference_largest(void)
{
	size_t longest = 0, run = 0, i;

	for (i = 0; i < RANGES * RANGE_UNITS; i++) {
		run = owner[i] ? 0 : i % RANGE_UNITS ? run + 1 : 1;
		if (run > longest)
			longest = run;
	}
	return longest * EXTENT_UNIT;
}

static void take(uint16_t slot, uint64_t *state)
{
	uint64_t bytes = 1 + next_random(state) % (1ULL << (next_random(state) % 21));
	uint64_t align = next_random(state) % 4 ? EXTENT_UNIT :
			 EXTENT_UNIT << next_random(state) % 14;
	uint64_t length = extent_length(bytes);
	struct extent *extent;
	size_t first, i;

	if (extents_take(&extents, length, align, &extent)) {
		assert_false(reference_has(length, align));
		return;
	}
	assert_int_equal(extent->length, length);
	assert_int_equal((uintptr_t)extent->address % align, 0);
	first = unit_of(extent);
	assert_int_equal(first / RANGE_UNITS, (first + length / EXTENT_UNIT - 1) / RANGE_UNITS);
	for (i = first; i < first + length / EXTENT_UNIT; i++) {
		assert_int_equal(owner[i], 0);
		owner[i] = slot + 1;
	}
	slots[slot] = (struct slot){ extent, length };
}

static void give(uint16_t slot)
{
	struct extent *extent = slots[slot].extent;
	char *address = extent->address;
	uint64_t length = extent->length;

	/* Neither before its start, nor within, nor twice. */
	assert_null(extents_at(&extents, address + 1));
	if (length > EXTENT_UNIT)
		assert_null(extents_at(&extents, address + EXTENT_UNIT));
	assert_ptr_equal(extents_at(&extents, address), extent);
	assert_int_equal(length, slots[slot].length);
	memset(&owner[unit_of(extent)], 0, length / EXTENT_UNIT * sizeof(owner[0]));
	extents_give(&extents, extent);
	assert_null(extents_at(&extents, address));
	slots[slot].extent = NULL;
}

/* Longer only into what is free behind it, in its own range. */
static void resize(uint16_t slot, uint64_t *state)
{
	struct extent *extent = slots[slot].extent;
	uint64_t bytes = 1 + next_random(state) % (2 * extent->length);
	size_t units = extent->length / EXTENT_UNIT, wanted = extent_length(bytes) / EXTENT_UNIT;
	size_t first = unit_of(extent), room = units, i;

	while ((first + room) % RANGE_UNITS && !owner[first + room])
		room++;
	assert_int_equal(extents_resize(&extents, extent, wanted * EXTENT_UNIT), wanted <= room);
	if (wanted <= room) {
		for (i = wanted; i < units; i++)
			owner[first + i] = 0;
		for (i = units; i < wanted; i++)
			owner[first + i] = slot + 1;
	}
	assert_int_equal(extent->length, (wanted <= room ? wanted : units) * EXTENT_UNIT);
	slots[slot].length = extent->length;
}

static void test_random(void **state)
{
	uint64_t seed = seed_given(), taken_bytes = 0;
	const char *wrong;
	uint16_t slot;
	size_t i;

	add_ranges(64 << 10);
	for (i = 0; i < STEPS; i++) {
		slot = (uint16_t)(next_random(&seed) % SLOTS);
		if (!slots[slot].extent)
			take(slot, &seed);
		else if (next_random(&seed) % 4)
			give(slot);
		else
			resize(slot, &seed);
		if (i % CHECK_EACH)
			continue;
		wrong = extents_wrong(&extents, firsts, RANGES);
		if (wrong)
			fail_msg("step %zu: %s", i, wrong);
		assert_int_equal(extents_largest_free(&extents), reference_largest());
	}
	for (slot = 0; slot < SLOTS; slot++)
		taken_bytes += slots[slot].extent ? slots[slot].extent->length : 0;
	assert_int_equal(extents.taken_bytes, taken_bytes);
	assert_true(extents.taken_bytes_peak >= taken_bytes);
	for (slot = 0; slot < SLOTS; slot++)
		if (slots[slot].extent)
			give(slot);
	assert_int_equal(extents.taken, 0);
	assert_int_equal(extents.free, RANGES);
	assert_int_equal(extents_largest_free(&extents), RANGE_BYTES);
	for (i = 0; i < RANGES; i++) {
		assert_true(extents_range_is_free(firsts[i]));
		extents_remove_range(&extents, firsts[i]);
	}
	assert_int_equal(extents_largest_free(&extents), 0);
	extents_destroy(&extents);
}

/* The shortest of the free extents that fit, so that long ones stay for long ones. */
static void test_fit(void **state)
{
	struct extent *all[6], *again;
	size_t i;

	add_ranges(EXTENT_UNIT);
	for (i = 0; i < 6; i++)
		assert_int_equal(extents_take(&extents, i % 2 ? EXTENT_UNIT :
					      (1000 + 10 * (6 - i)) * EXTENT_UNIT, EXTENT_UNIT,
					      &all[i]), 0);
	for (i = 0; i < 6; i += 2)
		extents_give(&extents, all[i]);
	assert_int_equal(extents_take(&extents, 1015 * EXTENT_UNIT, EXTENT_UNIT, &again), 0);
	assert_int_equal(again->length, 1015 * EXTENT_UNIT);
	assert_ptr_equal(again->after->after, all[5]);
	extents_destroy(&extents);
}

static struct extent *taken(uint64_t units)
{
	struct extent *extent;

	assert_int_equal(extents_take(&extents, units * EXTENT_UNIT, EXTENT_UNIT, &extent), 0);
	return extent;
}

static size_t range_of(const struct extent *extent)
{
	return unit_of(extent) / RANGE_UNITS;
}

/* Extents lie in the ranges that were made for such. */
static void test_home(void **state)
{
	struct extent *long_extent, *extent;

	add_ranges(LONG_UNITS / 4 * EXTENT_UNIT);
	long_extent = taken(LONG_UNITS);
	assert_int_equal(range_of(long_extent), 2);
	assert_int_equal(range_of(taken(LONG_UNITS / 4)), 0);
	assert_int_equal(range_of(taken(LONG_UNITS / 2)), 1);
	assert_ptr_equal(taken(LONG_UNITS), long_extent->after);
	/* Each leaves something unused wherever it lies. */
	extent = taken(LONG_UNITS + 600);
	assert_int_equal(range_of(extent), 2);
	assert_null(extents_wrong(&extents, firsts, RANGES));
	extents_destroy(&extents);
}

static void test_check(void **state)
{
	struct extent *extent;

	add_ranges(EXTENT_UNIT);
	assert_int_equal(extents_take(&extents, EXTENT_UNIT, EXTENT_UNIT, &extent), 0);
	assert_null(extents_wrong(&extents, firsts, RANGES));
	extent->after->length -= EXTENT_UNIT;
	assert_non_null(extents_wrong(&extents, firsts, RANGES));
	extent->after->length += EXTENT_UNIT;
	extents.taken_bytes++;
	assert_string_equal(extents_wrong(&extents, firsts, RANGES),
			    "the sums do not match the extents");
	extents.taken_bytes--;
	extent->address += EXTENT_UNIT;
	assert_non_null(extents_wrong(&extents, firsts, RANGES));
	extent->address -= EXTENT_UNIT;
	extents.rows ^= 1;
	assert_string_equal(extents_wrong(&extents, firsts, RANGES),
			    "a row's bit does not match its classes");
	extents.rows ^= 1;
	extent->after->is_free = false;
	assert_non_null(extents_wrong(&extents, firsts, RANGES));
	extent->after->is_free = true;
	extents_destroy(&extents);
}

/* Without memory for more buckets, and for more descriptors. */
static void test_no_memory(void **state)
{
	struct extent *extent;
	unsigned int i;
	int error = 0;

	add_ranges(EXTENT_UNIT);
	fail_every("calloc", ENOMEM);
	for (i = 0; !error; i++)
		error = extents_take(&extents, EXTENT_UNIT, EXTENT_UNIT, &extent);
	fail_nothing();
	assert_int_equal(error, -ENOMEM);
	assert_null(extents_wrong(&extents, firsts, RANGES));
	for (; i < 1000; i++)
		assert_int_equal(extents_take(&extents, EXTENT_UNIT, EXTENT_UNIT, &extent), 0);
	assert_ptr_equal(extents_at(&extents, extent->address), extent);
	assert_null(extents_wrong(&extents, firsts, RANGES));
	extents_destroy(&extents);
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

	return cmocka_run_group_tests_name("extents", tests, NULL, NULL);
}
