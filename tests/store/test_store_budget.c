/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Stores that cannot have the memory of their budget: they make do with what there is, say
 * so once, and have the rest when it is there.
 */
#include "store_rig.h"

#define GROW	(BUDGET / 2)
#define COUNT	12
#define WAITS	60000
#define TOLD	"got only 2.0 MiB: RLIMIT_MEMLOCK is"

static void start(struct rig *rig)
{
	rig->grow = GROW;
	assert_int_equal(set_up(rig), 0);
	assert_int_equal(put(rig, 1000), 0);
	assert_int_equal(stats_of(rig).memory_bytes, GROW);
	fail_every("mlock2", ENOMEM);
}

static unsigned int count_told(struct rig *rig)
{
	const char *words = actmem_store_describe(rig->store);
	unsigned int count = 0;

	while ((words = strstr(words, TOLD))) {
		words++;
		count++;
	}
	return count;
}

static void await_told(struct rig *rig)
{
	unsigned int i;

	for (i = 0; i < WAITS && !count_told(rig); i++)
		usleep(1000);
	assert_int_equal(count_told(rig), 1);
}

static void test_less_memory(void **state)
{
	struct rig rig = { 0 };
	unsigned int i;

	start(&rig);
	for (i = 0; i < 3; i++) {
		put_all(&rig, COUNT);
		assert_int_equal(stats_of(&rig).memory_bytes_peak, GROW);
		assert_int_equal(stats_of(&rig).budget_bytes, BUDGET);
		assert_int_equal(stats_of(&rig).refused_bytes, BUDGET - GROW);
		assert_true(stats_of(&rig).window_bytes <= GROW / 2);
		take_all(&rig, COUNT);
		await_told(&rig);
	}
	assert_int_equal(take(&rig, 1000), 0);
	assert_int_equal(stats_of(&rig).failed_spills_total, 0);
	tear_down(&rig);
}

/* The next round of blocks has it, and nobody waits for it. */
static void test_memory_comes_back(void **state)
{
	struct rig rig = { 0 };
	unsigned int i;

	start(&rig);
	put_all(&rig, COUNT);
	take_all(&rig, COUNT);
	fail_nothing();
	put_all(&rig, 1);
	for (i = 0; i < WAITS && stats_of(&rig).memory_bytes < BUDGET; i++)
		usleep(1000);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	for (i = 0; i < WAITS && stats_of(&rig).refused_bytes; i++)
		usleep(1000);
	assert_int_equal(stats_of(&rig).refused_bytes, 0);
	assert_int_equal(take(&rig, 0), 0);
	put_all(&rig, COUNT);
	take_all(&rig, COUNT);
	assert_int_equal(take(&rig, 1000), 0);
	tear_down(&rig);
}

/* Nor is anybody refused memory that is there by then. */
static void test_last_resort(void **state)
{
	struct rig rig = { 0 };
	uint64_t i;

	start(&rig);
	for (i = 0; i < 2; i++)
		assert_int_equal(reserve(&rig, i, BLOCK), 0);
	assert_fails(reserve(&rig, 2, BLOCK), ENOMEM,
		     "only 2.0 MiB of budget_bytes of 4.0 MiB could be allocated, and are used up by blocks");
	assert_non_null(strstr(actmem_error(), "allocating more failed: RLIMIT_MEMLOCK"));
	fail_nothing();
	assert_int_equal(reserve(&rig, 2, BLOCK), 0);
	assert_int_equal(stats_of(&rig).refused_bytes, 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(actmem_store_drop(rig.store, key_of(i)), 0);
	assert_int_equal(take(&rig, 1000), 0);
	tear_down(&rig);
}

/* One that is longer than all that there is. */
static void test_long_block(void **state)
{
	struct rig rig = { 0 };

	start(&rig);
	assert_fails(reserve(&rig, 0, BUDGET), ENOMEM, "RLIMIT_MEMLOCK");
	/* All that there was went back for it. */
	assert_int_equal(stats_of(&rig).memory_bytes, 0);
	assert_fails(put(&rig, 0), ENOMEM, "RLIMIT_MEMLOCK");
	fail_nothing();
	assert_int_equal(take(&rig, 1000), 0);
	put_all(&rig, COUNT);
	take_all(&rig, COUNT);
	tear_down(&rig);
}

static void test_disk_is_full_too(void **state)
{
	struct rig rig = { .flags = ACTMEM_STORE_ALLOW_MEMORY };
	uint64_t count;

	start(&rig);
	fail_every("mlock2", ENOMEM);
	assert_int_equal(put(&rig, 0), 0);
	fail_transfers(1, 1000, -EIO);
	assert_fails(put(&rig, 1), EIO, "cannot be spilled: ");
	assert_non_null(strstr(actmem_error(), "beyond 2.0 MiB: RLIMIT_MEMLOCK"));
	fail_nothing();
	for (count = 1; count < COUNT; count++)
		assert_int_equal(put(&rig, count), 0);
	take_all(&rig, count);
	assert_int_equal(take(&rig, 1000), 0);
	tear_down(&rig);
}

/* Nobody misses memory that was to be made ahead. */
static void test_ahead(void **state)
{
	struct rig rig = { 0 };

	start(&rig);
	assert_int_equal(actmem_store_grow(rig.store, BLOCK, BUDGET - BLOCK), 0);
	assert_int_equal(stats_of(&rig).refused_bytes, BUDGET - GROW);
	await_told(&rig);
	put_all(&rig, COUNT);
	take_all(&rig, COUNT);
	assert_int_equal(take(&rig, 1000), 0);
	tear_down(&rig);
}

static void test_nothing_at_all(void **state)
{
	RIG(rig, .grow = GROW);

	fail_every("mlock2", ENOMEM);
	assert_fails(put(&rig, 0), ENOMEM, "RLIMIT_MEMLOCK is");
	assert_int_equal(stats_of(&rig).refused_bytes, 0);
	fail_nothing();
	put_all(&rig, COUNT);
	take_all(&rig, COUNT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_less_memory),
		cmocka_unit_test(test_memory_comes_back),
		cmocka_unit_test(test_last_resort),
		cmocka_unit_test(test_long_block),
		cmocka_unit_test(test_disk_is_full_too),
		cmocka_unit_test(test_ahead),
		cmocka_unit_test(test_nothing_at_all),
	};

	return cmocka_run_group_tests_name("store_budget", tests, NULL, NULL);
}
