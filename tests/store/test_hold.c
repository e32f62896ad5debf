/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Threads that hold a block at the same time, while the first of them reads it or cannot. */
#include <pthread.h>
#include <unistd.h>

#include "store_rig.h"

struct hold_call {
	struct rig *rig;
	uint64_t name;
	pthread_t thread;
	int error;
};

static void *hold_and_put_back(void *data)
{
	struct hold_call *call = data;

	call->error = hold(call->rig, call->name);
	if (!call->error)
		actmem_store_put_back(call->rig->store, key_of(call->name));
	return NULL;
}

/* While one thread reads a block, others wait for it and then have it too. */
static void test_hold_during_read(void **state)
{
	struct hold_call calls[3];
	const void *memory;
	uint64_t away;
	unsigned int i;
	RIG(rig, .engine = ACTMEM_ENGINE_WORKERS);

	put_all(&rig, 6);
	settle(&rig);
	hold_transfers(true);
	away = find_away(&rig, 6);
	for (i = 0; i < 3; i++) {
		calls[i] = (struct hold_call){ .rig = &rig, .name = away };
		assert_int_equal(pthread_create(&calls[i].thread, NULL, hold_and_put_back,
						&calls[i]), 0);
	}
	while (!has_waiter(&rig.store->claim_waiters, rig.store))
		usleep(1000);
	assert_fails(actmem_store_hold(rig.store, key_of(away), &memory, NULL, NS_PER_MS),
		     ETIMEDOUT, "is still being read for another thread");
	hold_transfers(false);
	for (i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(calls[i].thread, NULL), 0);
		assert_int_equal(calls[i].error, 0);
	}
	take_all(&rig, 6);
}

/* A thread that waits for another one's hold gives no memory back: that hold must not wait for it. */
static void test_hold_deadlock(void **state)
{
	struct hold_call call = { .name = 0 };
	const uint64_t count = 6;
	void *memory;
	RIG(rig, .engine = ACTMEM_ENGINE_WORKERS);

	call.rig = &rig;
	put_all(&rig, count);
	settle(&rig);
	while (actmem_store_reserve(rig.store, key_of(100), BUDGET, &memory, NS_PER_SECOND))
		;
	assert_int_equal(pthread_create(&call.thread, NULL, hold_and_put_back, &call), 0);
	while (!has_waiter(&rig.store->waiters, rig.store))
		usleep(1000);
	/* It waits for this thread, until this thread waits for its block. */
	assert_fails(hold(&rig, call.name), EDEADLK, "is used up by blocks that are reserved or held by");
	assert_int_equal(pthread_join(call.thread, NULL), 0);
	assert_int_equal(call.error, -EDEADLK);
	assert_int_equal(actmem_store_drop(rig.store, key_of(100)), 0);
	take_all(&rig, count);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hold_during_read),
		cmocka_unit_test(test_hold_deadlock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
