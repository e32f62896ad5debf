/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a store learns of a disk: where it failed it writes no more for a while, and once
 * it works again blocks go there ahead of time as before.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "store_rig.h"

#define BLOCKS		12
#define FAILURES	6

static uint64_t spilled_of_all(struct rig *rig)
{
	uint64_t spilled;

	put_all(rig, BLOCKS);
	settle(rig);
	spilled = stats_of(rig).spilled_bytes_total;
	drop_all(rig, BLOCKS);
	return spilled;
}

/* One block that failed to be written ahead of time does not end that. */
static void test_ahead_again(void **state)
{
	struct rig rig = { 0 };
	uint64_t spilled;

	assert_int_equal(set_up(&rig), 0);
	spilled = spilled_of_all(&rig);
	assert_true(spilled > BLOCKS * BLOCK - BUDGET);
	tear_down(&rig);
	assert_int_equal(set_up(&rig), 0);
	fail_transfers(1, 1, -EIO);
	assert_int_equal(spilled_of_all(&rig), spilled);
	assert_int_equal(stats_of(&rig).failed_spills_total, 1);
	tear_down(&rig);
}

/* "... 1048576 bytes at 0 of 'FILE': ..." */
static uint64_t offset_told(void)
{
	const char *at = strstr(actmem_error(), " bytes at ");

	assert_non_null(at);
	return strtoull(at + strlen(" bytes at "), NULL, 10);
}

static void test_elsewhere(void **state)
{
	uint64_t offsets[FAILURES], name;
	unsigned int failures, i;
	RIG(rig);

	fail_transfers(1, 1000, -EIO);
	name = put_until(&rig, EIO, "cannot be spilled");
	for (failures = 0; failures < FAILURES; failures++) {
		assert_fails(put(&rig, name), EIO, "cannot be spilled");
		offsets[failures] = offset_told();
		for (i = 0; i < failures; i++)
			assert_true(offsets[i] != offsets[failures]);
	}
	fail_nothing();
	assert_int_equal(put(&rig, name), 0);
}

/* What a disk found for more than it has goes back to it, and is there for less. */
static void test_nearly_full(void **state)
{
	uint64_t count, more;
	RIG(rig);

	limit_disk(BLOCK);
	count = put_until(&rig, ENOSPC, "no space for");
	settle(&rig);
	limit_disk(6 * BLOCK);
	for (more = 0; more < 5; more++)
		assert_int_equal(put(&rig, count++), 0);
	settle(&rig);
	fail_nothing();
	while (count)
		assert_int_equal(actmem_store_drop(rig.store, key_of(--count)), 0);
}

/* On a disk that is full from the start, a store begins if blocks may stay in memory. */
static void test_full_from_the_start(void **state)
{
	struct rig rig = { .spill_bytes = BLOCK };

	limit_disk(0);
	assert_int_equal(set_up(&rig), -ENOSPC);
	tear_down(&rig);
	/* What failed gave its part back. */
	limit_disk(0);
	rig.flags = ACTMEM_STORE_ALLOW_MEMORY;
	assert_int_equal(set_up(&rig), 0);
	assert_non_null(strstr(actmem_error(), "no space for 1.0 MiB in '"));
	assert_non_null(strstr(actmem_error(), "stay in memory, as ALLOW_MEMORY permits"));
	put_all(&rig, BLOCKS);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, BLOCKS * BLOCK - BUDGET);
	assert_int_equal(stats_of(&rig).file_bytes, 0);
	limit_disk(UINT64_MAX);
	drop_all(&rig, BLOCKS);
	assert_true(spilled_of_all(&rig) > 0);
	fail_nothing();
	tear_down(&rig);
}

/* Where files may not be as long as would be good, there are more of them. */
static void test_short_files(void **state)
{
	struct actmem_store_stats stats;
	struct rlimit before, limit;
	RIG(rig);

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 8 * MIB;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(spilled_of_all(&rig) > limit.rlim_cur);
	stats = stats_of(&rig);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(stats.failed_spills_total, 0);
	/* The disk has it back by and by, now that all blocks are dropped. */
	assert_int_equal(stats.file_bytes_peak, 2 * limit.rlim_cur);
}

/* What the ring has no room to register is written without that. */
static void test_no_slots(void **state)
{
	struct rig rig = { 0 };

	assert_int_equal(set_up(&rig), 0);
	if (strncmp(actmem_store_describe(rig.store), "io_uring", 8)) {
		tear_down(&rig);
		skip();
	}
	fail_every("register_buffer", EMFILE);
	assert_true(spilled_of_all(&rig) > 0);
	assert_non_null(strstr(actmem_store_describe(rig.store), "without registered buffers"));
	assert_int_equal(stats_of(&rig).failed_spills_total, 0);
	tear_down(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ahead_again),
		cmocka_unit_test(test_elsewhere),
		cmocka_unit_test(test_nearly_full),
		cmocka_unit_test(test_full_from_the_start),
		cmocka_unit_test(test_short_files),
		cmocka_unit_test(test_no_slots),
	};

	return cmocka_run_group_tests_name("store_disk", tests, NULL, NULL);
}
