// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory that is made ahead; see grow.h.
 */
#include <pthread.h>

#include "base/base.h"
#include "xla/grow.h"

#define GROW_DEFAULT	(UINT64_C(64) << 20)
/* Free are two blocks, half of what the store grows by, or this part of it. */
#define HELD_PART	64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wanted = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static struct actmem_store *store;	/* NULL: there is no thread */
static uint64_t least_bytes;
static uint64_t block_bytes;		/* of the block that wants it; 0: none does */
static int is_ending;

static uint64_t memory_bytes(void)
{
	struct actmem_store_stats stats;

	ACTMEM_INIT(&stats);
	return actmem_store_get_stats(store, &stats) ? 0 : stats.memory_bytes;
}

static uint64_t bytes_to_have(uint64_t bytes, uint64_t held)
{
	uint64_t most = 2 * bytes > least_bytes ? 2 * bytes : least_bytes;

	return most > held / HELD_PART ? most : held / HELD_PART;
}

static void *grow_store(void *unused)
{
	uint64_t bytes, held, failed_at = 0;

	pthread_mutex_lock(&lock);
	while (!is_ending) {
		bytes = block_bytes;
		block_bytes = 0;
		if (!bytes) {
			pthread_cond_wait(&wanted, &lock);
			continue;
		}
		pthread_mutex_unlock(&lock);
		held = memory_bytes();
		/* Not for each put anew, unless one has had more luck since this began. */
		if (held > failed_at &&
		    actmem_store_grow(store, bytes, bytes_to_have(bytes, held)))
			failed_at = held;
		pthread_mutex_lock(&lock);
	}
	pthread_mutex_unlock(&lock);
	return unused;
}

int grow_begin(struct actmem_store *its, uint64_t grow_bytes)
{
	int ret;

	least_bytes = (grow_bytes ? grow_bytes : GROW_DEFAULT) / 2;
	is_ending = 0;
	block_bytes = 0;
	store = its;
	ret = thread_create(&thread, "actmem-grow", grow_store, NULL);
	if (ret)
		store = NULL;
	return -ret;
}

void grow_end(void)
{
	if (!store)
		return;
	pthread_mutex_lock(&lock);
	is_ending = 1;
	pthread_cond_signal(&wanted);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	store = NULL;
}

void grow_want(uint64_t bytes)
{
	if (!store)
		return;
	pthread_mutex_lock(&lock);
	block_bytes = bytes;
	pthread_cond_signal(&wanted);
	pthread_mutex_unlock(&lock);
}
