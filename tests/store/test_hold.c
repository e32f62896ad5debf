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

static void *reserve_and_drop(void *data)
{
	struct hold_call *call = data;

	call->error = reserve(call->rig, call->name, BLOCK);
	if (!call->error)
		call->error = actmem_store_drop(call->rig->store, key_of(call->name));
	return NULL;
}

static void start(struct hold_call *call, struct rig *rig, uint64_t name, void *(*body)(void *))
{
	*call = (struct hold_call){ .rig = rig, .name = name };
	assert_int_equal(pthread_create(&call->thread, NULL, body, call), 0);
}

static void await_threads(struct rig *rig, unsigned int count)
{
	bool any;

	do {
		usleep(1000);
		pthread_mutex_lock(&rig->store->lock);
		any = rig->store->waiting == count;
		pthread_mutex_unlock(&rig->store->lock);
	} while (!any);
}

static void change_checksum(struct rig *rig, uint64_t name)
{
	pthread_mutex_lock(&rig->store->lock);
	store_find(rig->store, key_of(name))->checksum ^= 1;
	pthread_mutex_unlock(&rig->store->lock);
}

/* The waiter sees a block that is still held, and goes to sleep. */
static void let_others_look(void)
{
	usleep(50000);
}

/* A thread that waits for memory gets that of a block that turns out to be wrong. */
static void test_failed_hold_wakes(void **state)
{
	struct hold_call holds, reserves;
	struct timespec until;
	uint64_t name;
	RIG(rig, .engine = ACTMEM_ENGINE_WORKERS, .flags = ACTMEM_STORE_CHECKSUM);

	put_all(&rig, 2);
	for (name = 100; name < 104; name++)
		assert_int_equal(reserve(&rig, name, BLOCK), 0);
	settle(&rig);
	change_checksum(&rig, 0);
	start(&holds, &rig, 0, hold_and_put_back);
	await_threads(&rig, 1);
	start(&reserves, &rig, 200, reserve_and_drop);
	await_threads(&rig, 2);
	before_checksum(let_others_look);
	assert_int_equal(actmem_store_drop(rig.store, key_of(--name)), 0);
	assert_int_equal(pthread_join(holds.thread, NULL), 0);
	assert_int_equal(holds.error, -EBADMSG);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 20;
	assert_int_equal(pthread_timedjoin_np(reserves.thread, NULL, &until), 0);
	assert_int_equal(reserves.error, 0);
	while (name-- > 100)
		assert_int_equal(actmem_store_drop(rig.store, key_of(name)), 0);
	change_checksum(&rig, 0);
	take_all(&rig, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hold_during_read),
		cmocka_unit_test(test_hold_deadlock),
		cmocka_unit_test(test_failed_hold_wakes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
