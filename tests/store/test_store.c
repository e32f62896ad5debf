/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Stores when files cannot be had, written or read: who learns of it and how, what
 * is kept, and that all is as before when the fault is gone; and every error path
 * unwinds.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store.h"
#include "store_rig.h"

#define LATE_NS		(20 * NS_PER_MS)

/* What others read of the process is what the store itself tells. */
static void assert_published(struct rig *rig)
{
	const struct published_traffic *traffic = &rig->store->am->stats.header->traffic;
	const struct actmem_store_stats stats = stats_of(rig);

	assert_int_equal(traffic->count, TRAFFIC_TOTALS);
	assert_memory_equal(traffic->totals, (const char *)&stats + TRAFFIC_FIRST,
			    sizeof(traffic->totals));
}

static void test_failed_spill(void **state)
{
	uint64_t count;
	RIG(rig);

	fail_transfers(1, 1000, -EIO);
	count = put_until(&rig, EIO, "cannot be spilled: ");
	assert_non_null(strstr(actmem_error(), " of 1.0 MiB cannot be spilled"));
	assert_non_null(strstr(actmem_error(), FOLDER));
	assert_int_equal(count, BUDGET / BLOCK);
	assert_true(stats_of(&rig).failed_spills_total > 0);
	/* It fails again as long as the disk does, and no longer. */
	assert_fails(put(&rig, count), EIO, "cannot be spilled");
	assert_int_equal(stats_of(&rig).blocks, count);
	fail_nothing();
	while (count < 10)
		assert_int_equal(put(&rig, count++), 0);
	assert_true(stats_of(&rig).spilled_bytes_total > 0);
	take_all(&rig, count);
	settle(&rig);
	assert_published(&rig);
}

/* A spill that fails gives back its part of the files, even if no disk failed. */
static void test_failed_spill_room(void **state)
{
	uint64_t count;
	unsigned int i;
	RIG(rig, .spill_limit = 3 * BLOCK);

	fail_transfers(1, 1000, -ENOMEM);
	count = put_until(&rig, ENOMEM, "cannot be spilled");
	for (i = 0; i < 4; i++)
		assert_fails(put(&rig, count), ENOMEM, "cannot be spilled");
	settle(&rig);
	fail_nothing();
	while (count < (BUDGET + rig.spill_limit) / BLOCK)
		assert_int_equal(put(&rig, count++), 0);
	take_all(&rig, count);
}

static void test_window(void **state)
{
	RIG(rig, .window = BLOCK);

	assert_int_equal(stats_of(&rig).window_bytes, BLOCK);
}

/* With HANDED_ON, another thread may free what this one uses. */
static void test_handed_on(void **state)
{
	void *memory;
	RIG(rig, .flags = ACTMEM_STORE_HANDED_ON);

	assert_int_equal(reserve(&rig, 0, BUDGET), 0);
	assert_fails(actmem_store_reserve(rig.store, key_of(1), BLOCK, &memory, NS_PER_MS),
		     ETIMEDOUT, "has no memory yet");
	assert_int_equal(actmem_store_drop(rig.store, key_of(0)), 0);
}

static void fill_disk(int error, const char *part)
{
	uint64_t count;
	RIG(rig);

	fail_every("fallocate", error);
	count = put_until(&rig, error, part);
	assert_int_equal(count, BUDGET / BLOCK);
	assert_int_equal(stats_of(&rig).file_bytes, 0);
	fail_nothing();
	/* After a full disk a block is tried, then more; where that is not there, less. */
	fail_call("fallocate", 2, error);
	while (count < 20)
		assert_int_equal(put(&rig, count++), 0);
	assert_int_equal(stats_of(&rig).file_bytes, BLOCK + 32 * MIB);
	fail_nothing();
	while (count < 50)
		assert_int_equal(put(&rig, count++), 0);
	assert_int_equal(stats_of(&rig).file_bytes, BLOCK + 96 * MIB);
	take_all(&rig, count);
}

static void test_full_disk(void **state)
{
	fill_disk(ENOSPC, "no space for");
}

static void test_full_quota(void **state)
{
	fill_disk(EDQUOT, "fallocate: ");
}

static void test_spill_limit(void **state)
{
	struct actmem_counters counters = { .size = sizeof(counters) };
	uint64_t count;
	int round;
	RIG(rig, .spill_limit = 3 * BLOCK);

	/* A taken block leaves room in the files for the next. */
	for (round = 0; round < 3; round++) {
		count = put_until(&rig, ENOSPC, "spill_limit_bytes");
		assert_int_equal(count, (BUDGET + rig.spill_limit) / BLOCK);
		assert_int_equal(stats_of(&rig).file_bytes, rig.spill_limit);
		assert_int_equal(stats_of(&rig).file_bytes_peak, rig.spill_limit);
		assert_int_equal(stats_of(&rig).spilled_bytes, rig.spill_limit);
		assert_int_equal(actmem_get_counters(rig.am, &counters), 0);
		assert_int_equal(counters.spilled_bytes, rig.spill_limit);
		take_all(&rig, count);
		assert_int_equal(actmem_get_counters(rig.am, &counters), 0);
		assert_int_equal(counters.spilled_bytes, 0);
	}
}

static void test_allow_memory(void **state)
{
	struct actmem_store_stats stats;
	uint64_t count;
	RIG(rig, .flags = ACTMEM_STORE_ALLOW_MEMORY);

	fail_every("fallocate", ENOSPC);
	count = put_all(&rig, 12);
	stats = stats_of(&rig);
	assert_int_equal(stats.resident_bytes, count * BLOCK);
	assert_in_range(stats.beyond_budget_bytes, count * BLOCK - BUDGET, stats.memory_bytes);
	fail_nothing();
	take_all(&rig, count);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	/* From now on the budget holds again. */
	count = put_all(&rig, 12);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	take_all(&rig, count);
}

/* Files are opened while the process is in another directory. */
static void test_other_directory(void **state)
{
	char path[PATH_MAX];
	uint64_t count;

	assert_non_null(getcwd(path, sizeof(path)));
	RIG(rig);

	assert_int_equal(chdir("/"), 0);
	count = put_all(&rig, 12);
	assert_true(stats_of(&rig).file_bytes > 0);
	take_all(&rig, count);
	assert_int_equal(chdir(path), 0);
}

static void test_too_many_paths(void **state)
{
	const char *path = FOLDER;
	struct actmem_store_options options = {
		.size = sizeof(options), .budget_bytes = BUDGET, .spill_paths = &path,
		.spill_path_count = UINT32_MAX,
	};
	RIG(rig);

	assert_int_equal(actmem_store_destroy(rig.store), 0);
	assert_fails(actmem_store_create(rig.am, &options, &rig.store), EINVAL,
		     "spill_path_count is 4294967295");
	rig.store = NULL;
}

/* Where a disk failed is used again in the end, or its files would grow and grow. */
static void test_bad_disk(void **state)
{
	uint64_t count;
	RIG(rig, .flags = ACTMEM_STORE_ALLOW_MEMORY, .spill_limit = 3 * BLOCK);

	fail_transfers(1, 1000, -EIO);
	for (count = 0; stats_of(&rig).failed_spills_total < 20; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_true(stats_of(&rig).beyond_budget_bytes > 0);
	fail_nothing();
	take_all(&rig, count);
	for (count = 0; count < (BUDGET + rig.spill_limit) / BLOCK; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	take_all(&rig, count);
}

/* Nor do they grow while there is room elsewhere. */
static void test_files_of_bad_disk(void **state)
{
	uint64_t count;
	RIG(rig, .flags = ACTMEM_STORE_ALLOW_MEMORY);

	fail_transfers(1, 1000, -EIO);
	for (count = 0; stats_of(&rig).failed_spills_total < 70; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_int_equal(stats_of(&rig).file_bytes, 64 * MIB);
	fail_nothing();
	take_all(&rig, count);
}

static void test_failed_fill(void **state)
{
	uint64_t count;
	RIG(rig);

	count = put_all(&rig, 12);
	settle(&rig);
	fail_transfers(1, 1000, -EIO);
	assert_fails(hold(&rig, 0), EIO, "block 0 of 1.0 MiB");
	assert_int_equal(stats_of(&rig).blocks, count);
	fail_nothing();
	take_all(&rig, count);
}

/* What fails while it is read ahead is tried again for who wants it. */
static void test_failed_prefetch(void **state)
{
	uint64_t count, misses;
	RIG(rig);

	count = put_all(&rig, 12);
	settle(&rig);
	assert_int_equal(take(&rig, --count), 0);
	fail_transfers(1, 1000, -EIO);
	assert_int_equal(actmem_store_prefetch(rig.store, key_of(0)), 0);
	while (!stats_of(&rig).failed_fills_total)
		usleep(1000);
	fail_nothing();
	/* Or for who says once more that it will be wanted. */
	misses = stats_of(&rig).misses_total;
	assert_int_equal(actmem_store_prefetch(rig.store, key_of(0)), 0);
	assert_int_equal(take(&rig, 0), 0);
	assert_int_equal(stats_of(&rig).misses_total, misses);
	while (--count)
		assert_int_equal(take(&rig, count), 0);
}

/* A free region that is too short stays, if it has a name: the store says so. */
static void test_named_regions(void **state)
{
	struct rig rig = { .heap_name = NAMES_PREFIX "-store", .grow = BUDGET / 2 };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	count = put_all(&rig, 8);
	take_all(&rig, count);
	assert_fails(reserve(&rig, 0, BUDGET), ENOMEM, NAMES_PREFIX "-store.*");
	assert_int_equal(reserve(&rig, 0, BUDGET / 2), 0);
	/* With a block in use it is that one which is in the way. */
	assert_fails(reserve(&rig, 1, BUDGET), EDEADLK, "this thread");
	assert_int_equal(actmem_store_drop(rig.store, key_of(0)), 0);
	tear_down(&rig);
	assert_int_equal(unlink(NAMES_PREFIX "-store.0"), 0);
	assert_int_equal(unlink(NAMES_PREFIX "-store.1"), 0);
}

static void test_checksum(void **state)
{
	const void *memory;
	RIG(rig, .flags = ACTMEM_STORE_CHECKSUM);

	assert_int_equal(put(&rig, 1), 0);
	assert_int_equal(actmem_store_hold(rig.store, key_of(1), &memory, NULL,
					   ACTMEM_WAIT_FOREVER), 0);
	*((char *)(uintptr_t)memory + BLOCK - 1) ^= 1;
	assert_int_equal(actmem_store_put_back(rig.store, key_of(1)), 0);
	assert_fails(hold(&rig, 1), EBADMSG, "block 1 of");
	assert_int_equal(stats_of(&rig).checksums_total, 2);
	assert_int_equal(actmem_store_drop(rig.store, key_of(1)), 0);
}

static void test_without_registered_memory(void **state)
{
	struct rig rig = { 0 };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	if (strncmp(actmem_store_describe(rig.store), "io_uring", 8)) {
		tear_down(&rig);
		skip();
	}
	assert_null(strstr(actmem_store_describe(rig.store), "without registered"));
	fail_every("register_buffer", ENOMEM);
	count = put_all(&rig, 12);
	assert_non_null(strstr(actmem_store_describe(rig.store), "RLIMIT_MEMLOCK"));
	take_all(&rig, count);
	tear_down(&rig);
}

/* All that a program does. */
static int run(void *unused)
{
	struct rig rig = { 0 };
	uint64_t name;
	int error = set_up(&rig);

	for (name = 0; !error && name < 6; name++)
		error = put(&rig, name);
	for (name = 6; !error && name--; )
		error = take(&rig, name);
	tear_down(&rig);
	return error;
}

static void test_sweep(void **state)
{
	fail_each(run, NULL, 20);
}

/* A call that gives up after @timeout_ns, not before, and tells of block @name. */
static void assert_late(struct rig *rig, uint64_t name, bool reserves, uint64_t timeout_ns,
			const char *words)
{
	uint64_t begun = clock_ns();
	const void *held = NULL;
	void *memory = NULL;
	char block[32];

	snprintf(block, sizeof(block), "block %llu of 1.0 MiB", (unsigned long long)name);
	if (reserves)
		assert_fails(actmem_store_reserve(rig->store, key_of(name), BLOCK, &memory,
						  timeout_ns), ETIMEDOUT, words);
	else
		assert_fails(actmem_store_hold(rig->store, key_of(name), &held, NULL, timeout_ns),
			     ETIMEDOUT, words);
	assert_non_null(strstr(actmem_error(), block));
	assert_true(clock_ns() - begun >= timeout_ns);
	assert_null(held);
	assert_null(memory);
}

/* A disk that hangs keeps those who say so no longer than they say, and nothing is lost. */
static void test_late(void **state)
{
	const uint64_t count = 6;
	uint64_t before, away, extra = 0;
	void *memory;
	RIG(rig, .engine = ACTMEM_ENGINE_WORKERS);

	put_all(&rig, count);
	settle(&rig);
	hold_transfers(true);
	/* It is in memory, which is no wait. */
	assert_int_equal(actmem_store_hold(rig.store, key_of(count - 1),
					   (const void **)&memory, NULL, 0), 0);
	assert_int_equal(actmem_store_release(rig.store, key_of(count - 1)), 0);
	away = find_away(&rig, count - 1);
	before = stats_of(&rig).takes_total;
	assert_late(&rig, away, false, 0, "is still being read from its file");
	assert_late(&rig, away, false, LATE_NS, "is still being read");
	/* Of blocks that are in files as well the memory is there at once. */
	while (!actmem_store_reserve(rig.store, key_of(100 + extra), BLOCK, &memory, 0))
		assert_true(++extra < BUDGET / BLOCK);
	assert_late(&rig, 200, true, 0, "has no memory yet");
	assert_late(&rig, 200, true, LATE_NS, "budget_bytes of 4.0 MiB is used up");
	assert_fails(actmem_store_drop(rig.store, key_of(200)), ENOENT, "not in the store");
	assert_late(&rig, away, false, LATE_NS, "is still being read");
	assert_int_equal(stats_of(&rig).takes_total, before);
	assert_int_equal(stats_of(&rig).blocks, count - 1 + extra);
	hold_transfers(false);
	assert_int_equal(actmem_store_reserve(rig.store, key_of(200), BLOCK, &memory,
					      30 * NS_PER_SECOND), 0);
	assert_int_equal(actmem_store_drop(rig.store, key_of(200)), 0);
	while (extra--)
		assert_int_equal(actmem_store_drop(rig.store, key_of(100 + extra)), 0);
	take_all(&rig, count - 1);
}

/* Has half of the budget, and gives it back after waiting for more in vain. */
static void *give_up(void *context)
{
	struct rig *rig = context;
	void *memory;

	assert_int_equal(actmem_store_reserve(rig->store, key_of(1), BUDGET / 2, &memory, 0), 0);
	while (!has_waiter(&rig->store->waiters, rig->store))
		usleep(1000);
	assert_late(rig, 2, true, LATE_NS, "has no memory yet");
	assert_int_equal(actmem_store_drop(rig->store, key_of(1)), 0);
	return NULL;
}

/* A thread that waits for a while may give memory back afterwards: that is no deadlock. */
static void test_waits_for_late(void **state)
{
	pthread_t thread;
	void *memory;
	RIG(rig);

	assert_int_equal(actmem_store_reserve(rig.store, key_of(0), BUDGET / 2, &memory, 0), 0);
	assert_int_equal(pthread_create(&thread, NULL, give_up, &rig), 0);
	while (stats_of(&rig).blocks < 2)
		usleep(1000);
	assert_int_equal(reserve(&rig, 3, BUDGET / 2), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(actmem_store_drop(rig.store, key_of(0)), 0);
	assert_int_equal(actmem_store_drop(rig.store, key_of(3)), 0);
}

/* A fill that fails after its taker has given up is told to nobody, and tried again. */
static void test_late_failure(void **state)
{
	RIG(rig, .engine = ACTMEM_ENGINE_WORKERS);

	put_all(&rig, 6);
	settle(&rig);
	hold_transfers(true);
	assert_int_equal(take(&rig, 5), 0);
	assert_late(&rig, find_away(&rig, 5), false, LATE_NS, "is still being read");
	fail_transfers(1, 1, -EIO);
	hold_transfers(false);
	settle(&rig);
	fail_nothing();
	take_all(&rig, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_waits_for_late),
		cmocka_unit_test(test_late_failure),
		cmocka_unit_test(test_failed_spill),
		cmocka_unit_test(test_failed_spill_room),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_handed_on),
		cmocka_unit_test(test_full_disk),
		cmocka_unit_test(test_full_quota),
		cmocka_unit_test(test_spill_limit),
		cmocka_unit_test(test_allow_memory),
		cmocka_unit_test(test_other_directory),
		cmocka_unit_test(test_too_many_paths),
		cmocka_unit_test(test_bad_disk),
		cmocka_unit_test(test_files_of_bad_disk),
		cmocka_unit_test(test_failed_fill),
		cmocka_unit_test(test_failed_prefetch),
		cmocka_unit_test(test_named_regions),
		cmocka_unit_test(test_checksum),
		cmocka_unit_test(test_without_registered_memory),
		cmocka_unit_test(test_sweep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
