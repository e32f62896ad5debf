/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a store learns of a disk: where it failed it writes no more for a while, and once
 * it works again blocks go there ahead of time as before.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "actmem_store.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define BUDGET		(4 * MIB)
#define BLOCK		MIB
#define BLOCKS		12
#define FAILURES	6

static struct actmem *am;
static struct actmem_store *store;
static atomic_uint under_way;

static void count_transfers(const struct actmem_store_event *event, void *data)
{
	if (event->kind == ACTMEM_STORE_SPILL_BEGIN || event->kind == ACTMEM_STORE_FILL_BEGIN)
		under_way++;
	if (event->kind == ACTMEM_STORE_SPILL_END || event->kind == ACTMEM_STORE_FILL_END)
		under_way--;
}

static int open_store(void **state)
{
	static const char *const path = "build/tests/unit";
	struct actmem_store_options store_options;
	struct actmem_options options;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	options.allow = ACTMEM_ALLOW_UNLOCKED;
	ACTMEM_INIT(&store_options);
	store_options.budget_bytes = BUDGET;
	store_options.spill_paths = &path;
	store_options.spill_path_count = 1;
	store_options.flags = ACTMEM_STORE_ALLOW_BUFFERED;
	if (actmem_open(&am, &options) || actmem_store_create(am, &store_options, &store))
		return -1;
	actmem_store_observe(store, count_transfers, NULL);
	return 0;
}

static int close_store(void **state)
{
	fail_nothing();
	return actmem_store_destroy(store) || actmem_close(am);
}

static int put(uint64_t name)
{
	struct actmem_key key = { .name = name };
	void *memory;
	int error = actmem_store_reserve(store, key, BLOCK, &memory);

	return error ? error : actmem_store_commit(store, key);
}

static struct actmem_store_stats settled(void)
{
	struct actmem_store_stats stats;

	while (under_way)
		usleep(1000);
	ACTMEM_INIT(&stats);
	assert_int_equal(actmem_store_stats(store, &stats), 0);
	return stats;
}

static uint64_t spilled_of_all(void)
{
	uint64_t name, spilled;

	for (name = 0; name < BLOCKS; name++)
		assert_int_equal(put(name), 0);
	spilled = settled().spilled_bytes_total;
	for (name = 0; name < BLOCKS; name++)
		assert_int_equal(actmem_store_drop(store, (struct actmem_key){ .name = name }), 0);
	return spilled;
}

/* One block that failed to be written ahead of time does not end that. */
static void test_ahead_again(void **state)
{
	uint64_t spilled = spilled_of_all();

	assert_true(spilled > BLOCKS * BLOCK - BUDGET);
	close_store(NULL);
	assert_int_equal(open_store(NULL), 0);
	fail_transfers(1, 1, -EIO);
	assert_int_equal(spilled_of_all(), spilled);
	assert_int_equal(settled().failed_spills_total, 1);
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
	uint64_t offsets[FAILURES], name = 0;
	unsigned int failures, i;

	fail_transfers(1, 1000, -EIO);
	while (!put(name))
		assert_true(++name < BLOCKS);
	for (failures = 0; failures < FAILURES; failures++) {
		assert_fails(put(name), EIO, "cannot be spilled");
		offsets[failures] = offset_told();
		for (i = 0; i < failures; i++)
			assert_true(offsets[i] != offsets[failures]);
	}
	fail_nothing();
	assert_int_equal(put(name), 0);
}

/* Where files may not be as long as would be good, there are more of them. */
static void test_short_files(void **state)
{
	struct rlimit before, limit;
	struct actmem_store_stats stats;

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = before;
	limit.rlim_cur = 8 * MIB;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(spilled_of_all() > limit.rlim_cur);
	stats = settled();
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(stats.failed_spills_total, 0);
	/* The disk has it back by and by, now that all blocks are dropped. */
	assert_int_equal(stats.file_bytes_peak, 2 * limit.rlim_cur);
}

/* What the ring has no room to register is written without that. */
static void test_no_slots(void **state)
{
	if (strncmp(actmem_store_describe(store), "io_uring", 8))
		skip();
	fail_every("register_buffer", EMFILE);
	assert_true(spilled_of_all() > 0);
	assert_non_null(strstr(actmem_store_describe(store), "without registered buffers"));
	assert_int_equal(settled().failed_spills_total, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ahead_again, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_elsewhere, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_short_files, open_store, close_store),
		cmocka_unit_test_setup_teardown(test_no_slots, open_store, close_store),
	};

	return cmocka_run_group_tests_name("store_disk", tests, NULL, NULL);
}
