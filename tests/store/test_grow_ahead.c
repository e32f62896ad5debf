/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store whose memory threads have made ahead: it is not ended meanwhile, and who waits for
 * memory gets what they made.
 */
#include <pthread.h>

#include "store_rig.h"

#define AHEAD		(60 * MIB)
#define PAUSE_US	50000
#define THREAD		"ahead"

static struct actmem *am;

static int setup(void **state)
{
	return open_small(&am);
}

static int teardown(void **state)
{
	fail_nothing();
	return actmem_close(am);
}

static void *grow(void *store)
{
	pthread_setname_np(pthread_self(), THREAD);
	return actmem_store_grow(store, MIB, AHEAD) ? store : NULL;
}

/* Each region takes a while, so that there are more to come. */
static void test_store_stays(void **state)
{
	struct actmem_store_options options = { .size = sizeof(options), .grow_bytes = 2 * MIB };
	struct actmem_store *store;
	pthread_t thread;
	void *failed;
	int error;

	assert_int_equal(actmem_store_create(am, &options, &store), 0);
	slow_call("memfd_create", PAUSE_US);
	assert_int_equal(pthread_create(&thread, NULL, grow, store), 0);
	while (!slow_calls_of(THREAD))
		usleep(1000);
	error = actmem_store_destroy(store);
	slow_call("", 0);
	assert_int_equal(pthread_join(thread, &failed), 0);
	assert_null(failed);
	assert_int_equal(error, -EBUSY);
	assert_int_equal(actmem_store_destroy(store), 0);
}

#define FIRST		"first"
#define SECOND		"second"
#define PATIENCE_S	20

static atomic_bool is_stalled;

static void *grow_as(struct actmem_store *store, const char *name)
{
	pthread_setname_np(pthread_self(), name);
	/* A block of a whole region: there is no shorter region to try after a failure. */
	return actmem_store_grow(store, BUDGET / 2, BUDGET) ? store : NULL;
}

static void *grow_first(void *store)
{
	return grow_as(store, FIRST);
}

static void *grow_second(void *store)
{
	return grow_as(store, SECOND);
}

static void *reserve_region(void *store)
{
	void *memory;

	return actmem_store_reserve(store, key_of(7), 2 * MIB, &memory, ACTMEM_WAIT_FOREVER) ?
	       store : NULL;
}

static pthread_t start(struct rig *rig, void *(*body)(void *store))
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, body, rig->store), 0);
	return thread;
}

static void await_call_of(const char *thread)
{
	while (!slow_calls_of(thread))
		usleep(1000);
}

/*
 * Under the store's lock, for which the first of two that grow has to wait when it has
 * failed. By then the second grows.
 */
static void fail_first(const struct actmem_store_event *event, void *data)
{
	count_transfers(event, data);
	if (event->kind == ACTMEM_STORE_STALL_BEGIN)
		is_stalled = true;
	if (event->kind != ACTMEM_STORE_FILL_BEGIN)
		return;
	let_slow_call();
	await_call_of(SECOND);
}

/*
 * A block of which nothing is in memory, and as much memory for it; the rest is reserved,
 * at last for a block with which a round begins: for that more memory would be tried.
 */
static void put_away(struct rig *rig)
{
	assert_int_equal(reserve(rig, 0, BLOCK / 2), 0);
	assert_int_equal(put(rig, 1), 0);
	assert_fails(reserve(rig, 2, BUDGET), EDEADLK, "");
	assert_int_equal(reserve(rig, 3, BLOCK / 2), 0);
	settle(rig);
	assert_int_equal(stats_of(rig).spilled_bytes, BLOCK);
	assert_int_equal(stats_of(rig).memory_bytes, BUDGET / 2);
}

static void await_callers(struct rig *rig, const char *count)
{
	int error;

	do {
		usleep(1000);
		error = actmem_store_destroy(rig->store);
		assert_int_equal(error, -EBUSY);
	} while (!strstr(actmem_error(), count));
}

/*
 * Of two that grow the first gets nothing, so the store makes do with what it has, and a
 * reserve waits for a block that another thread has. The second gets its region all the
 * same: nothing but its end tells of that.
 */
static void test_waiter_is_woken(void **state)
{
	pthread_t first, second, waiter;
	struct timespec until;
	void *failed;
	RIG(rig, .grow = BUDGET / 2);

	put_away(&rig);
	slow_call("memfd_create", SLOW_HELD);
	fail_call("memfd_create", 1, ENOMEM);
	first = start(&rig, grow_first);
	await_call_of(FIRST);
	second = start(&rig, grow_second);
	await_callers(&rig, "2 threads wait");
	actmem_store_observe(rig.store, fail_first, &rig);
	assert_int_equal(actmem_store_prefetch(rig.store, key_of(1)), 0);
	assert_int_equal(pthread_join(first, &failed), 0);
	assert_null(failed);
	settle(&rig);
	assert_int_equal(stats_of(&rig).refused_bytes, BUDGET / 2);
	waiter = start(&rig, reserve_region);
	while (!is_stalled)
		usleep(1000);
	assert_int_equal(stats_of(&rig).memory_bytes, BUDGET / 2);
	let_slow_call();
	assert_int_equal(pthread_join(second, &failed), 0);
	assert_null(failed);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	assert_int_equal(pthread_timedjoin_np(waiter, &failed, &until), 0);
	assert_null(failed);
	assert_int_equal(actmem_store_drop(rig.store, key_of(7)), 0);
	assert_int_equal(actmem_store_drop(rig.store, key_of(3)), 0);
	assert_int_equal(actmem_store_drop(rig.store, key_of(0)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_store_stays, setup, teardown),
		cmocka_unit_test(test_waiter_is_woken),
	};

	return cmocka_run_group_tests_name("grow_ahead", tests, NULL, NULL);
}
