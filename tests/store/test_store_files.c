/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The spill files of a store: who waits while they are allocated, and what the disk gets
 * back when less is needed.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "store_rig.h"

#define MANY	150
#define FEW	12
#define SLOW_US	20000
#define WAITS	2000

/* What the file system has allocated for the spill files of this process, so many. */
static uint64_t allocated_bytes_of(unsigned int *count)
{
	DIR *descriptors = opendir("/proc/self/fd");
	char target[PATH_MAX], name[64];
	const struct dirent *entry;
	struct stat file;
	uint64_t bytes = 0;
	ssize_t length;

	assert_non_null(descriptors);
	*count = 0;
	while ((entry = readdir(descriptors))) {
		snprintf(name, sizeof(name), "/proc/self/fd/%.20s", entry->d_name);
		length = readlink(name, target, sizeof(target) - 1);
		target[length > 0 ? length : 0] = '\0';
		if (!strstr(target, FOLDER "/#") || stat(name, &file))
			continue;
		bytes += (uint64_t)file.st_blocks * 512;
		++*count;
	}
	closedir(descriptors);
	return bytes;
}

static uint64_t allocated_bytes(void)
{
	unsigned int count;

	return allocated_bytes_of(&count);
}

static void put_and_take(struct rig *rig, uint64_t count)
{
	put_all(rig, count);
	take_all(rig, count);
}

static void put_and_drop(struct rig *rig, uint64_t count)
{
	put_all(rig, count);
	drop_all(rig, count);
}

static void await_file_bytes(struct rig *rig, uint64_t most)
{
	unsigned int i;

	for (i = 0; i < WAITS && stats_of(rig).file_bytes > most; i++)
		usleep(1000);
	assert_in_range(stats_of(rig).file_bytes, 0, most);
}

/* Neither who puts blocks nor who sees to what has come back does it itself. */
static void test_slow_allocation(void **state)
{
	char own[16];
	unsigned int by_store, by_caller;
	RIG(rig, .spill_bytes = BLOCK);

	assert_int_equal(pthread_getname_np(pthread_self(), own, sizeof(own)), 0);
	slow_call("fallocate", SLOW_US);
	put_and_take(&rig, MANY);
	by_store = slow_calls_of("actmem-queue");
	by_caller = slow_calls_of(own);
	print_message("# blocked by allocation: completions %u ms, callers %u ms, of %u ms\n",
		      by_store * SLOW_US / 1000, by_caller * SLOW_US / 1000,
		      (by_store + by_caller + slow_calls_of("actmem-bg-work")) * SLOW_US / 1000);
	assert_int_equal(by_store, 0);
	assert_int_equal(by_caller, 0);
	assert_true(slow_calls_of("actmem-bg-work") > 0);
}

/* The store counts as withheld just the pieces that the disks have back. */
static void assert_withheld(struct rig *rig)
{
	const struct spillfile *files = &rig->store->files;
	const struct extent *piece;
	uint64_t bytes = 0;

	pthread_mutex_lock(&rig->store->lock);
	for (piece = files->withheld; piece; piece = piece->next)
		bytes += piece->length;
	assert_int_equal(files->withheld_bytes, bytes);
	pthread_mutex_unlock(&rig->store->lock);
}

/* After a large step come small ones: what they do not need goes, and comes again. */
static void less_is_needed(uint32_t stripes)
{
	struct actmem_store_stats stats;
	uint64_t most;
	unsigned int i;
	RIG(rig, .stripes = stripes);

	put_and_take(&rig, MANY);
	most = stats_of(&rig).file_bytes;
	assert_true(most >= (MANY - BUDGET / BLOCK) * BLOCK);
	assert_in_range(allocated_bytes(), most, most + most / 16);
	/* One such step tells nothing yet. */
	put_and_take(&rig, FEW);
	put_and_take(&rig, FEW);
	assert_int_equal(stats_of(&rig).file_bytes, most);
	for (i = 0; i < 4; i++)
		put_and_take(&rig, FEW);
	await_file_bytes(&rig, 2 * FEW * BLOCK);
	assert_in_range(allocated_bytes(), 0, 2 * FEW * BLOCK + most / 16);
	stats = stats_of(&rig);
	assert_int_equal(stats.file_bytes_peak, most);
	assert_int_equal(stats.file_bytes + stats.given_back_bytes_total, most);
	/* The room that is left is enough. */
	put_and_take(&rig, FEW);
	assert_int_equal(stats_of(&rig).file_bytes, stats.file_bytes);
	put_and_take(&rig, MANY);
	assert_in_range(stats_of(&rig).file_bytes, (MANY - BUDGET / BLOCK) * BLOCK, most);
	assert_in_range(allocated_bytes(), (MANY - BUDGET / BLOCK) * BLOCK, most + most / 16);
	assert_withheld(&rig);
}

static void test_less_is_needed(void **state)
{
	less_is_needed(1);
	less_is_needed(2);
}

static void test_all_dropped(void **state)
{
	uint64_t name;
	RIG(rig, .spill_bytes = 2 * BLOCK);

	put_and_drop(&rig, FEW);
	/* What it was told to have stays. */
	await_file_bytes(&rig, 2 * BLOCK);
	assert_int_equal(stats_of(&rig).file_bytes, 2 * BLOCK);
	assert_in_range(allocated_bytes(), 0, 2 * BLOCK + BLOCK / 2);
	/* On a full disk that is all there is. */
	fail_every("fallocate", ENOSPC);
	name = put_until(&rig, ENOSPC, "no space for");
	assert_int_equal(name, BUDGET / BLOCK + 2);
	fail_nothing();
	take_all(&rig, name);
	put_and_take(&rig, FEW);
}

/* A block that stays in a file keeps its own room, and no more. */
static void test_one_stays(void **state)
{
	uint64_t name;
	unsigned int i;
	RIG(rig);

	put_and_take(&rig, MANY);
	/* Never taken, and put first, it is expected last, and spilled. */
	assert_int_equal(put(&rig, 1000), 0);
	for (i = 0; i < 8; i++) {
		for (name = 0; name < FEW; name++)
			assert_int_equal(put(&rig, name), 0);
		take_all(&rig, FEW);
	}
	await_file_bytes(&rig, 2 * FEW * BLOCK);
	assert_int_equal(take(&rig, 1000), 0);
}

static void test_file_system_keeps_it(void **state)
{
	unsigned int i;
	RIG(rig);

	fail_every("punch", EOPNOTSUPP);
	put_and_drop(&rig, FEW);
	for (i = 0; i < WAITS && !strstr(actmem_store_describe(rig.store), "never get"); i++)
		usleep(1000);
	assert_non_null(strstr(actmem_store_describe(rig.store),
			       "spill files never get shorter: cannot free space in '"));
	assert_non_null(strstr(actmem_store_describe(rig.store), "Operation not supported"));
	assert_int_equal(stats_of(&rig).file_bytes, 64 * MIB);
	assert_int_equal(stats_of(&rig).given_back_bytes_total, 0);
	fail_nothing();
	/* It is not tried again, and all room is used. */
	put_and_drop(&rig, FEW);
	put_and_take(&rig, 60);
	assert_int_equal(stats_of(&rig).file_bytes, 64 * MIB);
}

/* What the other one of two has taken is wanted again. */
static void test_one_of_two_keeps_it(void **state)
{
	unsigned int i;
	RIG(rig, .stripes = 2);

	fail_call("punch", 2, EOPNOTSUPP);
	put_and_drop(&rig, FEW);
	for (i = 0; i < WAITS && !strstr(actmem_store_describe(rig.store), "never get"); i++)
		usleep(1000);
	assert_non_null(strstr(actmem_store_describe(rig.store), "Operation not supported"));
	assert_int_equal(stats_of(&rig).file_bytes, 64 * MIB);
	assert_in_range(allocated_bytes(), 64 * MIB, 65 * MIB);
	put_and_take(&rig, 60);
}

/* A queue has 256 files at most, and a disk may be full, and less so, any number of times. */
static void test_full_again_and_again(void **state)
{
	unsigned int files;
	uint64_t count;
	int error;
	RIG(rig, .stripes = 2);

	limit_disk(0);
	count = put_until(&rig, ENOSPC, "no space for");
	for (; count < MANY; count++) {
		settle(&rig);
		limit_disk(BLOCK);
		assert_int_equal(put(&rig, count), 0);
	}
	settle(&rig);
	limit_disk(0);
	while (!(error = put(&rig, count)))
		count++;
	assert_fails(error, ENOSPC, "no space for");
	assert_int_equal(stats_of(&rig).file_bytes, (count - BUDGET / BLOCK) * BLOCK);
	assert_true(allocated_bytes_of(&files) >= stats_of(&rig).file_bytes);
	assert_int_equal(files, 2);
	fail_nothing();
	take_all(&rig, count);
	put_and_take(&rig, 2 * MANY);
}

/* Of several blocks that are to make room one is tried. */
static void test_tried_once(void **state)
{
	uint64_t count, before;
	RIG(rig);

	limit_disk(0);
	put_all(&rig, BUDGET / BLOCK);
	count = BUDGET / BLOCK;
	settle(&rig);
	/* Ahead of time one may have been. */
	before = stats_of(&rig).failed_spills_total;
	assert_fails(reserve(&rig, count, BUDGET), ENOSPC, "no space for");
	assert_int_equal(rig.under_way, 0);
	assert_int_equal(stats_of(&rig).failed_spills_total, before + 1);
	fail_nothing();
	assert_int_equal(reserve(&rig, count, BUDGET), 0);
	assert_int_equal(stats_of(&rig).failed_spills_total, before + 1);
	assert_int_equal(actmem_store_drop(rig.store, key_of(count)), 0);
	take_all(&rig, count);
}

/* If no more files can be open, the last ones get longer. */
static void test_no_more_files(void **state)
{
	struct rlimit before, now;
	unsigned int files, more;
	RIG(rig, .spill_bytes = 0);

	put_all(&rig, FEW);
	allocated_bytes_of(&files);
	assert_true(files > 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	now = (struct rlimit){ .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	put_more(&rig, FEW, MANY);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	allocated_bytes_of(&more);
	assert_int_equal(more, files);
	take_all(&rig, MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slow_allocation),
		cmocka_unit_test(test_less_is_needed),
		cmocka_unit_test(test_all_dropped),
		cmocka_unit_test(test_one_stays),
		cmocka_unit_test(test_file_system_keeps_it),
		cmocka_unit_test(test_one_of_two_keeps_it),
		cmocka_unit_test(test_full_again_and_again),
		cmocka_unit_test(test_tried_once),
		cmocka_unit_test(test_no_more_files),
	};

	return cmocka_run_group_tests_name("store_files", tests, NULL, NULL);
}
