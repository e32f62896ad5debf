// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The stores that blocks live in; see memory.h.
 *
 * actmem_xla_trim() ends a store without blocks, and the next use makes a new one. A thread that
 * calls a store holds @in_use for reading, which keeps the store.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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
 * How often, and at which interval, a put checks whether stores on other nodes have released its
 * share of the budget.
 */
#define SHARE_WAIT_US	1000
#define SHARE_WAITS	60000

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static struct share share_list[PLACES_MAX];
static struct stores stores = { .shares.list = share_list };
static pthread_mutex_t dividing = PTHREAD_MUTEX_INITIALIZER;	/* nested in @in_use */
static atomic_int waits;	/* 1: calls may wait, for spilled blocks or for a GPU */
static atomic_int spills;

static int is_free(void)
{
	int is;

	if (pthread_mutex_trylock(&dividing))
		return 0;
	is = !pthread_rwlock_trywrlock(&in_use);
	if (is)
		pthread_rwlock_unlock(&in_use);
	pthread_mutex_unlock(&dividing);
	return is;
}

FORKED_WATCH(is_free)

/* Returns the store of a key, or NULL. Caller holds @in_use. */
static struct actmem_store *store_of(struct actmem_key key)
{
	unsigned int place = stores_place(&stores, key);

	return place < PLACES_MAX ? share_list[place].store : NULL;
}

static int make_store(struct actmem_key key, char *words, size_t words_size)
{
	int ret = 0;

	pthread_rwlock_wrlock(&in_use);
	if (!store_of(key))
		ret = stores_make(&stores, key, words, words_size);
	if (!ret) {
		spills = !!stores.chosen.spill_path_count;
		waits = spills || stores.has_devices;
	}
	pthread_rwlock_unlock(&in_use);
	return ret;
}

/*
 * Locks @in_use for reading and stores the key's store in *@store, which it makes if necessary.
 * After a failure, the lock is not held.
 */
static int enter_store(struct actmem_key key, struct actmem_store **store, char *words,
		       size_t words_size)
{
	unsigned int waited = 0;
	int ret = forked_check(words, words_size);

	if (ret)
		return ret;
	pthread_rwlock_rdlock(&in_use);
	while (!(*store = store_of(key))) {
		pthread_rwlock_unlock(&in_use);
		ret = make_store(key, words, words_size);
		if (ret == -EAGAIN && spills && waited++ < SHARE_WAITS)
			usleep(SHARE_WAIT_US);
		else if (ret)
			return ret == -EAGAIN ? -ENOMEM : ret;
		pthread_rwlock_rdlock(&in_use);
	}
	return 0;
}

static int leave_store(int ret, char *words, size_t words_size)
{
	if (ret)
		stores_explain(&stores, ret, words, words_size);
	pthread_rwlock_unlock(&in_use);
	return ret;
}

/* Returns true if several stores share a budget. Caller holds @in_use. */
static int is_divided(void)
{
	return stores.shares.count > 1 && stores.shares.total[SHARE_MEMORY];
}

/* Returns true if a store gets more memory now, or soon. Caller holds @in_use. */
static int has_more(unsigned int place)
{
	int more;

	if (!is_divided())
		return 0;
	pthread_mutex_lock(&dividing);
	if (spills)
		more = shares_divide(&stores.shares) >= 0 && !shares_has_all(&stores.shares, place);
	else
		more = shares_borrow(&stores.shares, place);
	pthread_mutex_unlock(&dividing);
	return more;
}

/* Passes memory on that stores on other nodes have released. Caller holds @in_use. */
static void divide(unsigned int place)
{
	if (!spills || !is_divided() || pthread_mutex_trylock(&dividing))
		return;
	if (!shares_has_all(&stores.shares, place))
		shares_divide(&stores.shares);
	pthread_mutex_unlock(&dividing);
}

/*
 * Reserves a block and unlocks @in_use. Sets *@may_try if that failed, and more memory will be
 * available.
 */
static int reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
		   void **block, int *may_try, char *words, size_t words_size)
{
	unsigned int place = stores_place(&stores, key);
	int ret;

	divide(place);
	ret = actmem_store_reserve(store, key, bytes, block, ACTMEM_WAIT_FOREVER);
	if (ret) {
		stores_explain(&stores, ret, words, words_size);
		*may_try = ret == -ENOMEM && has_more(place);
	} else {
		grow_want(stores.there[place].grow, bytes);
		stores_tell_far(&stores, place);
	}
	pthread_rwlock_unlock(&in_use);
	return ret;
}

int memory_reserve(struct actmem_key key, uint64_t bytes, void **block, int *has_store,
		   char *words, size_t words_size)
{
	struct actmem_store *store;
	unsigned int waited = 0;
	int may_try = 0, ret;

	do {
		if (may_try && spills)
			usleep(SHARE_WAIT_US);
		may_try = 0;
		ret = enter_store(key, &store, words, words_size);
		*has_store = !ret;
		if (!ret)
			ret = reserve(store, key, bytes, block, &may_try, words, words_size);
	} while (may_try && waited++ < SHARE_WAITS);
	return ret;
}

int memory_hold(struct actmem_key key, const void **block, char *words,
		size_t words_size)
{
	struct actmem_store *store;
	uint64_t bytes;
	int ret = enter_store(key, &store, words, words_size);

	if (ret)
		return ret;
	ret = actmem_store_hold(store, key, block, &bytes, ACTMEM_WAIT_FOREVER);
	return leave_store(ret, words, words_size);
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

int memory_waits(void)
{
	return waits;
}

/* Sums up all stores, including those that have ended. Caller holds @in_use. */
static int sum_stores(struct actmem_store_stats *sum)
{
	struct actmem_store_stats its;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < PLACES_MAX && !ret; i++) {
		ACTMEM_INIT(&its);
		if (share_list[i].store)
			ret = actmem_store_get_stats(share_list[i].store, &its);
		counts_add_store(&its, &stores.there[i].ended);
		counts_sum_store(sum, &its);
	}
	return ret;
}

int actmem_xla_store_stats(struct actmem_store_stats *stats)
{
	struct actmem_store_stats now;
	int ret;

	if (is_forked())
		return -EOWNERDEAD;
	ACTMEM_INIT(&now);
	pthread_rwlock_rdlock(&in_use);
	ret = sum_stores(&now);
	pthread_rwlock_unlock(&in_use);
	return ret ? ret : counts_copy(stats, stats->size, &now, sizeof(now));
}

int actmem_xla_trim(void)
{
	int ret = is_forked() ? -EOWNERDEAD : arrays_trim();

	/* A thread that holds the lock uses blocks. */
	if (ret || pthread_rwlock_trywrlock(&in_use))
		return ret;
	if (!stores.am || !stores.chosen.named)
		ret = stores_end(&stores);
	pthread_rwlock_unlock(&in_use);
	return ret;
}

int memory_pin(uint32_t device, uint64_t *ring_bytes, char *words, size_t words_size)
{
	struct actmem_key key = { .name = memory_name(0, device, 1, 0) };
	struct actmem_store *store;
	int ret = enter_store(key, &store, words, words_size);

	if (ret)
		return ret;
	*ring_bytes = stores.chosen.ring_bytes;
	return leave_store(0, words, words_size);
}
