/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The stores that hold the blocks; see memory.h.
 *
 * actmem_xla_trim() ends a store without blocks, and the next use makes a new store. A thread holds
 * @in_use for reading while it calls a store, so that the store is not ended.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "xla/actmem_xla.h"
#include "xla/arrays.h"
#include "xla/counts.h"
#include "xla/forked.h"
#include "xla/grow.h"
#include "xla/memory.h"
#include "xla/stores.h"

/*
 * Each store has a share of the budget (shares.h). actmem_put can wait until stores on other nodes
 * have released memory that belongs to the share of its own store. It tries again every
 * SHARE_WAIT_US, at most SHARE_WAITS times.
 */
#define SHARE_WAIT_US	1000
#define SHARE_WAITS	60000

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static struct share share_list[PLACES_MAX];
static struct stores stores = { .shares.list = share_list };
static pthread_mutex_t dividing = PTHREAD_MUTEX_INITIALIZER;	/* taken while @in_use is held */
static atomic_uint loans[PLACES_MAX];	/* how often each store has borrowed memory */
static atomic_int waits;	/* 1: calls can wait for spilled blocks or for a GPU */
static atomic_int spills;

static bool memory_is_free(void)
{
	return forked_lock_is_free(&dividing) && forked_rwlock_is_free(&in_use);
}
FORKED_WATCH(memory_is_free)

/* Returns the store of a key, or NULL. Caller holds @in_use. */
static struct actmem_store *store_of(struct actmem_key key)
{
	unsigned int place = stores_place(&stores, key);

	return place < PLACES_MAX ? share_list[place].store : NULL;
}

static int memory_make_store(struct actmem_key key, char *words, size_t words_size)
{
	int error = 0;

	pthread_rwlock_wrlock(&in_use);
	if (!store_of(key))
		error = stores_make(&stores, key, words, words_size);
	if (!error) {
		spills = !!stores.chosen.spill_path_count;
		waits = spills || stores.has_devices;
	}
	pthread_rwlock_unlock(&in_use);
	return error;
}

/*
 * Locks @in_use for reading and sets *@store to the store of the key. Creates the store if there is
 * none. After a failure, the lock is not held.
 */
static int enter_store(struct actmem_key key, struct actmem_store **store, char *words,
		       size_t words_size)
{
	unsigned int waited = 0;
	int error = forked_check(words, words_size);

	if (error)
		return error;
	pthread_rwlock_rdlock(&in_use);
	while (!(*store = store_of(key))) {
		pthread_rwlock_unlock(&in_use);
		error = memory_make_store(key, words, words_size);
		if (error == -EAGAIN && spills && waited++ < SHARE_WAITS)
			usleep(SHARE_WAIT_US);
		else if (error)
			return error == -EAGAIN ? -ENOMEM : error;
		pthread_rwlock_rdlock(&in_use);
	}
	return 0;
}

static int leave_store(int error, char *words, size_t words_size)
{
	if (error)
		stores_explain(&stores, error, words, words_size);
	pthread_rwlock_unlock(&in_use);
	return error;
}

/* Returns true if several stores share a budget. Caller holds @in_use. */
static bool is_divided(void)
{
	return stores.shares.count > 1 && stores.shares.total[SHARE_MEMORY];
}

/*
 * Returns true if a failed reservation can succeed at the next attempt. If blocks spill, returns
 * true if the store @had_less than its share before the reservation. Otherwise, borrows unused
 * memory of other stores, and returns true if there was some, now or since the store had borrowed
 * @borrowed times. Caller holds @in_use.
 */
static bool has_more(unsigned int place, bool had_less, unsigned int borrowed)
{
	bool more;

	if (!is_divided())
		return false;
	pthread_mutex_lock(&dividing);
	if (spills) {
		more = shares_divide(&stores.shares) >= 0 && had_less;
	} else {
		loans[place] += shares_borrow(&stores.shares, place);
		more = loans[place] != borrowed;
	}
	pthread_mutex_unlock(&dividing);
	return more;
}

/*
 * If blocks spill, gives a store the memory that other stores released. Returns true if the store
 * may still have less than its share. Caller holds @in_use.
 */
static bool divide_shares(unsigned int place)
{
	bool has_less;

	if (!spills || !is_divided())
		return false;
	if (pthread_mutex_trylock(&dividing))
		return true;
	if (!shares_has_all(&stores.shares, place))
		shares_divide(&stores.shares);
	has_less = !shares_has_all(&stores.shares, place);
	pthread_mutex_unlock(&dividing);
	return has_less;
}

/*
 * Reserves a block and unlocks @in_use. If the reservation fails, sets *@may_try to whether another
 * attempt can succeed.
 */
static int reserve_block(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		   void **memory, bool *may_try, char *words, size_t words_size)
{
	unsigned int place = stores_place(&stores, key);
	bool has_less = divide_shares(place);
	unsigned int borrowed = loans[place];
	int error;

	error = actmem_store_reserve(store, key, bytes, memory, ACTMEM_WAIT_FOREVER);
	if (error) {
		stores_explain(&stores, error, words, words_size);
		*may_try = error == -ENOMEM && has_more(place, has_less, borrowed);
	} else {
		grow_want(stores.there[place].grow, bytes);
		stores_tell_far(&stores, place);
	}
	pthread_rwlock_unlock(&in_use);
	return error;
}

int memory_reserve(struct actmem_key key, uint64_t bytes, void **memory, bool *has_store,
		   char *words, size_t words_size)
{
	struct actmem_store *store;
	unsigned int waited = 0;
	bool may_try = false;
	int error;

	do {
		if (may_try && spills)
			usleep(SHARE_WAIT_US);
		may_try = false;
		error = enter_store(key, &store, words, words_size);
		*has_store = !error;
		if (!error)
			error = reserve_block(store, key, bytes, memory, &may_try, words, words_size);
	} while (may_try && waited++ < SHARE_WAITS);
	return error;
}

int memory_hold(struct actmem_key key, const void **memory, char *words,
		size_t words_size)
{
	struct actmem_store *store;
	uint64_t bytes;
	int error = enter_store(key, &store, words, words_size);

	if (error)
		return error;
	error = actmem_store_hold(store, key, memory, &bytes, ACTMEM_WAIT_FOREVER);
	return leave_store(error, words, words_size);
}

/*
 * Calls @end for a block. Does nothing in a forked child, because the blocks belong to the parent.
 */
static void end_step(struct actmem_key key,
		     int (*end)(struct actmem_store *store, struct actmem_key key))
{
	if (is_forked())
		return;
	pthread_rwlock_rdlock(&in_use);
	end(store_of(key), key);
	pthread_rwlock_unlock(&in_use);
}

void memory_commit(struct actmem_key key)
{
	end_step(key, actmem_store_commit);
}

void memory_release(struct actmem_key key)
{
	end_step(key, actmem_store_release);
}

void memory_put_back(struct actmem_key key)
{
	end_step(key, actmem_store_put_back);
}

void memory_drop(struct actmem_key key)
{
	end_step(key, actmem_store_drop);
}

uint64_t memory_budget(void)
{
	uint64_t bytes;

	pthread_rwlock_rdlock(&in_use);
	bytes = stores.shares.total[SHARE_MEMORY];
	pthread_rwlock_unlock(&in_use);
	return bytes;
}

int memory_node(struct actmem_key key)
{
	unsigned int place;
	int node = -1;

	pthread_rwlock_rdlock(&in_use);
	place = stores_place(&stores, key);
	if (place < stores.places.count)
		node = stores.places.list[place].node;
	pthread_rwlock_unlock(&in_use);
	return node;
}

void memory_set_checksum(int on)
{
	unsigned int i;

	pthread_rwlock_rdlock(&in_use);
	atomic_store(&stores.checksum, on);
	for (i = 0; i < PLACES_MAX; i++)
		if (share_list[i].store)
			actmem_store_set_checksum(share_list[i].store, on);
	pthread_rwlock_unlock(&in_use);
}

void memory_name_blocks(void (*name_block)(struct actmem_key key, char *name, size_t size))
{
	stores.name_block = name_block;
}

bool memory_waits(void)
{
	return waits;
}

/* Sums up all stores, including those that have ended. Caller holds @in_use. */
static int sum_stores(struct actmem_store_stats *sum)
{
	struct actmem_store_stats its;
	unsigned int i;
	int error = 0;

	for (i = 0; i < PLACES_MAX && !error; i++) {
		ACTMEM_INIT(&its);
		if (share_list[i].store)
			error = actmem_store_get_stats(share_list[i].store, &its);
		counts_add_store(&its, &stores.there[i].ended);
		counts_sum_store(sum, &its);
	}
	return error;
}

int actmem_xla_store_stats(struct actmem_store_stats *stats)
{
	struct actmem_store_stats now;
	int error;

	if (is_forked())
		return -EOWNERDEAD;
	ACTMEM_INIT(&now);
	pthread_rwlock_rdlock(&in_use);
	error = sum_stores(&now);
	pthread_rwlock_unlock(&in_use);
	return error ? error : counts_copy(stats, stats->size, &now, sizeof(now));
}

int actmem_xla_trim(void)
{
	int error = is_forked() ? -EOWNERDEAD : arrays_trim();

	/* If another thread holds the lock, it uses a store, so do not wait for the lock. */
	if (error || pthread_rwlock_trywrlock(&in_use))
		return error;
	if (!stores.am || !stores.chosen.named)
		error = stores_end(&stores);
	pthread_rwlock_unlock(&in_use);
	return error;
}

int memory_pin(uint32_t device, uint64_t *ring_bytes, char *words, size_t words_size)
{
	struct actmem_key key = { .name = memory_name(0, device, 1, 0) };
	struct actmem_store *store;
	int error = enter_store(key, &store, words, words_size);

	if (error)
		return error;
	*ring_bytes = stores.chosen.ring_bytes;
	return leave_store(0, words, words_size);
}
