/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A limit of the handle that falls below the usage while stores have blocks: stores that spill
 * return memory, no call fails, and they use memory again when the limit rises.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "store_rig.h"
#include "watch/watch.h"

#define GROW	(2 * MIB)
#define LESS	(2 * MIB)
#define COUNT	12
#define WAITS	60000		/* of a millisecond: a disk may stall for many seconds */

static void set_limit(uint64_t bytes)
{
	assert_int_equal(published_set_limit(getpid(), bytes), 1);
}

/* Waits until the regions of the handle have at most @bytes. */
static void await_bytes(struct rig *rig, uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < WAITS && rig->am->counters->region_bytes > bytes; i++)
		usleep(1000);
	if (i == WAITS)
		fail_msg("the regions have %llu bytes, %llu of them of a store that has a budget of %llu, blocks of %llu, and %u transfers under way",
			 (unsigned long long)rig->am->counters->region_bytes,
			 (unsigned long long)heap_bytes(rig->store->heap),
			 (unsigned long long)stats_of(rig).budget_bytes,
			 (unsigned long long)stats_of(rig).memory_bytes, rig->under_way);
}

/* Waits until the store describes itself with @part, which its background thread adds. */
static void await_description(struct rig *rig, const char *part)
{
	unsigned int i;

	for (i = 0; i < WAITS && !strstr(actmem_store_describe(rig->store), part); i++)
		usleep(1000);
	if (i == WAITS)
		fail_msg("no '%s' in '%s'", part, actmem_store_describe(rig->store));
}

static void test_returns(void **state)
{
	RIG(rig, .grow = GROW);
	unsigned int round;

	assert_int_equal(rig.am->counters->spilling_stores, 1);
	put_all(&rig, COUNT);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	set_limit(LESS);
	await_bytes(&rig, LESS);
	assert_int_equal(stats_of(&rig).budget_bytes, BUDGET);
	assert_int_equal(stats_of(&rig).refused_bytes, BUDGET - LESS);
	await_description(&rig, "'actmem limit --pid' allows this process 2.0 MiB");
	for (round = 0; round < 3; round++) {
		take_all(&rig, COUNT);
		put_all(&rig, COUNT);
		assert_true(stats_of(&rig).memory_bytes <= LESS);
	}
	take_all(&rig, COUNT);
	/* Without the limit, the next rounds use the whole budget again. */
	set_limit(0);
	usleep(300000);
	for (round = 0; round < 3; round++) {
		put_all(&rig, COUNT);
		take_all(&rig, COUNT);
	}
	assert_int_equal(stats_of(&rig).memory_bytes_peak, BUDGET);
	put_all(&rig, COUNT);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	take_all(&rig, COUNT);
}

/* Two stores of one handle return half of the excess each. */
static void test_shares(void **state)
{
	RIG(rig, .grow = GROW);
	struct rig other = rig;
	const char *paths[] = { FOLDER };
	struct actmem_store_options options = {
		.size = sizeof(options), .budget_bytes = BUDGET, .spill_paths = paths,
		.spill_path_count = 1, .grow_bytes = GROW, .flags = ACTMEM_STORE_ALLOW_BUFFERED,
	};

	assert_int_equal(actmem_store_create(rig.am, &options, &other.store), 0);
	assert_int_equal(rig.am->counters->spilling_stores, 2);
	put_all(&rig, COUNT);
	put_all(&other, COUNT);
	set_limit(BUDGET);
	await_bytes(&rig, BUDGET);
	assert_true(stats_of(&rig).memory_bytes >= MIB);
	assert_true(stats_of(&other).memory_bytes >= MIB);
	take_all(&rig, COUNT);
	take_all(&other, COUNT);
	assert_int_equal(actmem_store_destroy(other.store), 0);
	assert_int_equal(rig.am->counters->spilling_stores, 1);
}

/* Blocks that are held need more than the limit: no call fails, and the store returns it later. */
static void test_exceeds(void **state)
{
	RIG(rig, .grow = GROW);
	unsigned int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(put(&rig, i), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(hold(&rig, i), 0);
	set_limit(LESS);
	usleep(300000);
	assert_int_equal(put(&rig, 4), 0);
	assert_int_equal(hold(&rig, 3), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(actmem_store_put_back(rig.store, key_of(i)), 0);
	await_bytes(&rig, LESS);
	for (i = 0; i < 5; i++)
		assert_int_equal(take(&rig, i), 0);
}

/* A store that does not spill keeps its blocks, and works on. */
static void test_keeps(void **state)
{
	RIG(rig, .grow = GROW, .stripes = NO_FILES);
	unsigned int i;

	assert_int_equal(rig.am->counters->spilling_stores, 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(put(&rig, i), 0);
	set_limit(LESS);
	usleep(300000);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET);
	for (i = 0; i < 4; i++)
		assert_int_equal(take(&rig, i), 0);
	assert_int_equal(put(&rig, 4), 0);
	assert_int_equal(take(&rig, 4), 0);
}

static void *use_all(void *rig)
{
	put_all(rig, COUNT);
	take_all(rig, COUNT);
	put_all(rig, COUNT);
	take_all(rig, COUNT);
	return NULL;
}

/* The limit falls again while the background thread creates a region. */
static void test_falls_again(void **state)
{
	pthread_t user;
	RIG(rig, .grow = GROW);

	put_all(&rig, COUNT);
	set_limit(LESS);
	await_bytes(&rig, LESS);
	take_all(&rig, COUNT);
	slow_call("memfd_create", SLOW_HELD);
	set_limit(0);
	usleep(300000);
	assert_int_equal(pthread_create(&user, NULL, use_all, &rig), 0);
	while (!slow_calls_of("actmem-bg-work"))
		usleep(1000);
	set_limit(LESS);
	usleep(300000);
	fail_nothing();
	assert_int_equal(pthread_join(user, NULL), 0);
	await_bytes(&rig, LESS);
	set_limit(0);
}

static void test_no_process(void **state)
{
	(void)state;
	assert_int_equal(published_set_limit(INT32_MAX, LESS), -ESRCH);
	assert_int_equal(published_set_limit(getpid(), LESS), 0);
}

/* A limit of which only a part could be written is not written at all. */
static void test_written_in_part(void **state)
{
	struct rlimit was, limit;
	RIG(rig, .grow = GROW);

	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = was;
	limit.rlim_cur = offsetof(struct stats_header, limit_bytes) + 4;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(published_set_limit(getpid(), (1ULL << 40) + LESS), -EFBIG);
	assert_int_equal(rig.am->stats.header->limit_bytes, 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	set_limit(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_returns),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_exceeds),
		cmocka_unit_test(test_falls_again),
		cmocka_unit_test(test_keeps),
		cmocka_unit_test(test_no_process),
		cmocka_unit_test(test_written_in_part),
	};

	return cmocka_run_group_tests_name("store_limits", tests, NULL, NULL);
}
