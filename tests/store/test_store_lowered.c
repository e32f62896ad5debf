/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Budgets and spill limits that change while stores have blocks: memory and files come back,
 * and no call fails because of it.
 */
#include <pthread.h>

#include "store_rig.h"

#define GROW	(2 * MIB)
#define LESS	GROW
#define COUNT	12
#define WAITS	60000

static void await_memory(struct rig *rig, uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < WAITS && stats_of(rig).memory_bytes > bytes; i++)
		usleep(1000);
	assert_true(stats_of(rig).memory_bytes <= bytes);
}

static void test_lowered(void **state)
{
	RIG(rig, .grow = GROW);

	put_all(&rig, COUNT);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	assert_int_equal(actmem_store_set_budget(rig.store, LESS), 0);
	assert_int_equal(stats_of(&rig).budget_bytes, LESS);
	await_memory(&rig, LESS);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	take_all(&rig, COUNT);
	put_all(&rig, COUNT);
	assert_true(stats_of(&rig).memory_bytes <= LESS);
	/* And raised: it is used again. */
	assert_int_equal(actmem_store_set_budget(rig.store, BUDGET), 0);
	take_all(&rig, COUNT);
	put_all(&rig, COUNT);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	take_all(&rig, COUNT);
}

/* Two blocks fit the budget, but they may lie in two regions that have twice that. */
static void test_scattered(void **state)
{
	RIG(rig, .grow = GROW);
	unsigned int pair, i;

	for (pair = 0; pair < 16; pair++) {
		if (__builtin_popcount(pair) != 2)
			continue;
		for (i = 0; i < 4; i++)
			assert_int_equal(put(&rig, i), 0);
		for (i = 0; i < 4; i++)
			if (!(pair & 1U << i))
				assert_int_equal(take(&rig, i), 0);
		assert_int_equal(actmem_store_set_budget(rig.store, LESS), 0);
		await_memory(&rig, LESS);
		for (i = 0; i < 4; i++)
			if (pair & 1U << i)
				assert_int_equal(take(&rig, i), 0);
		assert_int_equal(actmem_store_set_budget(rig.store, BUDGET), 0);
	}
}

/* A block that is held stays until its release. Blocks that are put meanwhile get the rest. */
static void test_held(void **state)
{
	RIG(rig, .grow = GROW);
	unsigned int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(put(&rig, i), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(hold(&rig, i), 0);
	assert_int_equal(actmem_store_set_budget(rig.store, LESS), 0);
	settle(&rig);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, BUDGET - LESS);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_store_release(rig.store, key_of(i)), 0);
	await_memory(&rig, LESS);
	assert_int_equal(put(&rig, 4), 0);
	assert_int_equal(take(&rig, 3), 0);
	assert_int_equal(actmem_store_put_back(rig.store, key_of(2)), 0);
	assert_int_equal(take(&rig, 2), 0);
	assert_int_equal(take(&rig, 4), 0);
	assert_true(stats_of(&rig).memory_bytes <= LESS);
}

static void *reserve_one(void *data)
{
	struct rig *rig = data;

	return (void *)(intptr_t)reserve(rig, 100, BLOCK);
}

/* A thread that waits for memory has that of a raised budget. */
static void test_raised(void **state)
{
	RIG(rig, .grow = GROW, .flags = ACTMEM_STORE_HANDED_ON);
	pthread_t thread;
	void *result;
	unsigned int i;

	assert_int_equal(actmem_store_set_budget(rig.store, LESS), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(reserve(&rig, i, BLOCK), 0);
	assert_int_equal(pthread_create(&thread, NULL, reserve_one, &rig), 0);
	usleep(20000);
	assert_int_equal(stats_of(&rig).memory_bytes, LESS);
	assert_int_equal(actmem_store_set_budget(rig.store, BUDGET), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	assert_int_equal(actmem_store_drop(rig.store, key_of(100)), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_store_drop(rig.store, key_of(i)), 0);
}

/* Without files blocks stay, and regions go as these end. */
static void test_no_files(void **state)
{
	RIG(rig, .stripes = NO_FILES, .grow = GROW);
	unsigned int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(put(&rig, i), 0);
	assert_int_equal(actmem_store_set_budget(rig.store, LESS), 0);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, BUDGET - LESS);
	assert_fails(put(&rig, 4), ENOMEM, "budget_bytes of 2.0 MiB is used up");
	for (i = 0; i < 2; i++)
		assert_int_equal(take(&rig, i), 0);
	assert_int_equal(stats_of(&rig).memory_bytes, LESS);
	assert_fails(put(&rig, 4), ENOMEM, "is used up");
	assert_int_equal(take(&rig, 2), 0);
	assert_int_equal(put(&rig, 4), 0);
	assert_int_equal(take(&rig, 3), 0);
	assert_int_equal(take(&rig, 4), 0);
	assert_true(stats_of(&rig).memory_bytes <= LESS);
	assert_fails(actmem_store_set_spill_limit(rig.store, MIB), EINVAL, "nothing is spilled");
}

static void test_refused(void **state)
{
	RIG(rig, .grow = GROW);

	assert_fails(actmem_store_set_budget(rig.store, 4096), EINVAL, "two pages");
	assert_fails(actmem_store_set_budget(rig.store, 0), EINVAL, "too small");
	assert_fails(actmem_store_set_budget(NULL, BUDGET), EINVAL, "no store");
	assert_int_equal(stats_of(&rig).budget_bytes, BUDGET);
}

/* Files that are too long go back as their blocks end, and grow no more. */
static void test_spill_limit(void **state)
{
	RIG(rig, .grow = GROW);
	unsigned int i, count;

	for (i = 0; i < 80; i++)
		assert_int_equal(put(&rig, i), 0);
	assert_true(stats_of(&rig).file_bytes > 64 * MIB);
	assert_int_equal(actmem_store_set_spill_limit(rig.store, 8 * MIB), 0);
	for (; i-- > 0; )
		assert_int_equal(take(&rig, i), 0);
	for (i = 0; i < WAITS && stats_of(&rig).file_bytes > 8 * MIB; i++)
		usleep(1000);
	assert_true(stats_of(&rig).file_bytes <= 8 * MIB);
	for (count = 0; count < 80 && !put(&rig, count); count++)
		;
	assert_true(count >= 8 && count <= 13);
	assert_non_null(strstr(actmem_error(), "spill_limit_bytes is 8.0 MiB"));
	assert_int_equal(actmem_store_set_spill_limit(rig.store, 0), 0);
	for (; count < 40; count++)
		assert_int_equal(put(&rig, count), 0);
	while (count-- > 0)
		assert_int_equal(take(&rig, count), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lowered),
		cmocka_unit_test(test_scattered),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_raised),
		cmocka_unit_test(test_no_files),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_spill_limit),
	};

	return cmocka_run_group_tests_name("store_lowered", tests, NULL, NULL);
}
