/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Stores when files cannot be had, written or read: who learns of it and how, what
 * is kept, and that all is as before when the fault is gone; and every error path
 * unwinds.
 */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem_store.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define BUDGET		(4 * MIB)
#define BLOCK		MIB
#define FOLDER		"build/tests/unit"

struct rig {
	struct actmem *am;
	struct actmem_store *store;
	struct held before;
	uint64_t spill_limit;
	uint32_t flags;
	const char *heap_name;
	uint64_t grow;
	atomic_uint under_way;
};

static void count_transfers(const struct actmem_store_event *event, void *data)
{
	struct rig *rig = data;

	if (event->kind == ACTMEM_STORE_SPILL_BEGIN || event->kind == ACTMEM_STORE_FILL_BEGIN)
		rig->under_way++;
	if (event->kind == ACTMEM_STORE_SPILL_END || event->kind == ACTMEM_STORE_FILL_END)
		rig->under_way--;
}

static struct actmem_key key_of(uint64_t name)
{
	return (struct actmem_key){ .name = name };
}

static int set_up(struct rig *rig)
{
	const char *path = FOLDER;
	struct actmem_store_options options;
	struct actmem_options open_options;
	int error;

	rig->before = held_now();
	rig->store = NULL;
	ACTMEM_INIT(&open_options);
	open_options.backend = ACTMEM_BACKEND_MEMFD;
	open_options.pages = ACTMEM_PAGES_4K;
	open_options.heap_name = rig->heap_name;
	rig->am = NULL;
	error = actmem_open(&rig->am, &open_options);
	if (error)
		return error;
	ACTMEM_INIT(&options);
	options.budget_bytes = BUDGET;
	options.spill_paths = &path;
	options.spill_path_count = 1;
	options.spill_limit_bytes = rig->spill_limit;
	options.grow_bytes = rig->grow;
	options.flags = rig->flags | ACTMEM_STORE_ALLOW_BUFFERED;
	error = actmem_store_create(rig->am, &options, &rig->store);
	if (!error)
		actmem_store_observe(rig->store, count_transfers, rig);
	return error;
}

static void tear_down(struct rig *rig)
{
	fail_nothing();
	if (rig->store)
		assert_int_equal(actmem_store_destroy(rig->store), 0);
	if (rig->am)
		assert_int_equal(actmem_close(rig->am), 0);
	assert_same_held(rig->before);
}

static struct actmem_store_stats stats_of(struct rig *rig)
{
	struct actmem_store_stats stats;

	ACTMEM_INIT(&stats);
	assert_int_equal(actmem_store_stats(rig->store, &stats), 0);
	return stats;
}

static int put(struct rig *rig, uint64_t name)
{
	void *memory;
	int error = actmem_store_reserve(rig->store, key_of(name), BLOCK, &memory);

	if (error)
		return error;
	memset(memory, (int)name + 1, BLOCK);
	return actmem_store_commit(rig->store, key_of(name));
}

static int take(struct rig *rig, uint64_t name)
{
	const unsigned char *memory;
	const void *held;
	uint64_t bytes, i;
	int error = actmem_store_hold(rig->store, key_of(name), &held, &bytes);

	if (error)
		return error;
	assert_int_equal(bytes, BLOCK);
	for (memory = held, i = 0; i < bytes; i++)
		if (memory[i] != (unsigned char)(name + 1))
			fail_msg("byte %u of block %u is wrong", (unsigned int)i,
				 (unsigned int)name);
	return actmem_store_release(rig->store, key_of(name));
}

/* Nothing is under way, so that what fails next is what the test does. */
static void settle(struct rig *rig)
{
	while (rig->under_way)
		usleep(1000);
}

static void take_all(struct rig *rig, uint64_t count)
{
	uint64_t name;

	for (name = count; name--; )
		assert_int_equal(take(rig, name), 0);
}

/* Puts until it fails; how many there are then. */
static uint64_t put_until(struct rig *rig, int error, const char *part)
{
	uint64_t count = 0;
	int result;

	while (!(result = put(rig, count)))
		assert_true(++count < 100);
	assert_fails(result, error, part);
	return count;
}

static void test_failed_spill(void **state)
{
	struct rig rig = { 0 };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
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
	tear_down(&rig);
}

static void fill_disk(int error, const char *part)
{
	struct rig rig = { 0 };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
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
	tear_down(&rig);
}

static void test_full_disk(void **state)
{
	fill_disk(ENOSPC, "no room for");
}

static void test_full_quota(void **state)
{
	fill_disk(EDQUOT, "fallocate: ");
}

static void test_spill_limit(void **state)
{
	struct rig rig = { .spill_limit = 3 * BLOCK };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	count = put_until(&rig, ENOSPC, "spill_limit_bytes");
	assert_int_equal(count, (BUDGET + rig.spill_limit) / BLOCK);
	assert_int_equal(stats_of(&rig).file_bytes, rig.spill_limit);
	take_all(&rig, count);
	tear_down(&rig);
}

static void test_allow_memory(void **state)
{
	struct rig rig = { .flags = ACTMEM_STORE_ALLOW_MEMORY };
	struct actmem_store_stats stats;
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	fail_every("fallocate", ENOSPC);
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
	stats = stats_of(&rig);
	assert_int_equal(stats.resident_bytes, count * BLOCK);
	assert_in_range(stats.beyond_budget_bytes, count * BLOCK - BUDGET, stats.memory_bytes);
	fail_nothing();
	take_all(&rig, count);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	/* From now on the budget holds again. */
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_int_equal(stats_of(&rig).beyond_budget_bytes, 0);
	take_all(&rig, count);
	tear_down(&rig);
}

/* Files are opened while the process is in another directory. */
static void test_other_directory(void **state)
{
	struct rig rig = { 0 };
	char path[PATH_MAX];
	uint64_t count;

	assert_non_null(getcwd(path, sizeof(path)));
	assert_int_equal(set_up(&rig), 0);
	assert_int_equal(chdir("/"), 0);
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_true(stats_of(&rig).file_bytes > 0);
	take_all(&rig, count);
	assert_int_equal(chdir(path), 0);
	tear_down(&rig);
}

static void test_too_many_paths(void **state)
{
	struct actmem_store_options options;
	struct rig rig = { 0 };
	const char *path = FOLDER;

	assert_int_equal(set_up(&rig), 0);
	assert_int_equal(actmem_store_destroy(rig.store), 0);
	ACTMEM_INIT(&options);
	options.budget_bytes = BUDGET;
	options.spill_paths = &path;
	options.spill_path_count = UINT32_MAX;
	assert_fails(actmem_store_create(rig.am, &options, &rig.store), EINVAL,
		     "spill_path_count is 4294967295");
	rig.store = NULL;
	tear_down(&rig);
}

/* Where a disk failed is used again in the end, or its files would grow and grow. */
static void test_bad_disk(void **state)
{
	struct rig rig = { .flags = ACTMEM_STORE_ALLOW_MEMORY, .spill_limit = 3 * BLOCK };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
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
	tear_down(&rig);
}

/* Nor do they grow while there is room elsewhere. */
static void test_files_of_bad_disk(void **state)
{
	struct rig rig = { .flags = ACTMEM_STORE_ALLOW_MEMORY };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	fail_transfers(1, 1000, -EIO);
	for (count = 0; stats_of(&rig).failed_spills_total < 70; count++)
		assert_int_equal(put(&rig, count), 0);
	assert_int_equal(stats_of(&rig).file_bytes, 64 * MIB);
	fail_nothing();
	take_all(&rig, count);
	tear_down(&rig);
}

static void test_failed_fill(void **state)
{
	struct rig rig = { 0 };
	const void *memory;
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
	settle(&rig);
	fail_transfers(1, 1000, -EIO);
	assert_fails(actmem_store_hold(rig.store, key_of(0), &memory, NULL), EIO,
		     "block 0 of 1.0 MiB");
	assert_int_equal(stats_of(&rig).blocks, count);
	fail_nothing();
	take_all(&rig, count);
	tear_down(&rig);
}

/* What fails while it is read ahead is tried again for who wants it. */
static void test_failed_prefetch(void **state)
{
	struct rig rig = { 0 };
	uint64_t count;

	assert_int_equal(set_up(&rig), 0);
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
	settle(&rig);
	assert_int_equal(take(&rig, --count), 0);
	fail_transfers(1, 1000, -EIO);
	assert_int_equal(actmem_store_prefetch(rig.store, key_of(0)), 0);
	while (!stats_of(&rig).failed_fills_total)
		usleep(1000);
	fail_nothing();
	take_all(&rig, count);
	tear_down(&rig);
}

/* What is free and too short stays, if it has a name: the store says so. */
static void test_named_regions(void **state)
{
	struct rig rig = { .heap_name = NAMES_PREFIX "-store", .grow = BUDGET / 2 };
	uint64_t count;
	void *memory;

	assert_int_equal(set_up(&rig), 0);
	for (count = 0; count < 8; count++)
		assert_int_equal(put(&rig, count), 0);
	take_all(&rig, count);
	assert_fails(actmem_store_reserve(rig.store, key_of(0), BUDGET, &memory), ENOMEM,
		     NAMES_PREFIX "-store.*");
	assert_int_equal(actmem_store_reserve(rig.store, key_of(0), BUDGET / 2, &memory), 0);
	/* With a block in use it is that one which is in the way. */
	assert_fails(actmem_store_reserve(rig.store, key_of(1), BUDGET, &memory), EDEADLK,
		     "this thread");
	assert_int_equal(actmem_store_drop(rig.store, key_of(0)), 0);
	tear_down(&rig);
	assert_int_equal(unlink(NAMES_PREFIX "-store.0"), 0);
	assert_int_equal(unlink(NAMES_PREFIX "-store.1"), 0);
}

static void test_checksum(void **state)
{
	struct rig rig = { .flags = ACTMEM_STORE_CHECKSUM };
	const void *memory;

	assert_int_equal(set_up(&rig), 0);
	assert_int_equal(put(&rig, 1), 0);
	assert_int_equal(actmem_store_hold(rig.store, key_of(1), &memory, NULL), 0);
	*((char *)(uintptr_t)memory + BLOCK - 1) ^= 1;
	assert_int_equal(actmem_store_put_back(rig.store, key_of(1)), 0);
	assert_fails(actmem_store_hold(rig.store, key_of(1), &memory, NULL), EBADMSG, "block 1 of");
	assert_int_equal(stats_of(&rig).checksums_total, 2);
	assert_int_equal(actmem_store_drop(rig.store, key_of(1)), 0);
	tear_down(&rig);
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
	for (count = 0; count < 12; count++)
		assert_int_equal(put(&rig, count), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failed_spill),
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
