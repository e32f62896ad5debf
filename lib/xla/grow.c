/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Allocates memory for blocks before the program puts values into them; see grow.h.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/base.h"
#include "xla/grow.h"

#define GROW_DEFAULT	(UINT64_C(64) << 20)
/*
 * The thread keeps this much memory free: the length of two blocks, half of @grow_bytes, or
 * 1/HELD_PART of the store's memory, whichever is largest.
 */
#define HELD_PART	64

struct grow {
	pthread_mutex_t lock;
	pthread_cond_t wanted;
	pthread_t thread;
	struct actmem_store *store;
	uint64_t least_bytes;
	uint64_t block_bytes;		/* length of the last reserved block; 0: no request */
	bool is_ending;
};

static uint64_t memory_bytes(struct actmem_store *store)
{
	struct actmem_store_stats stats;

	ACTMEM_INIT(&stats);
	return actmem_store_get_stats(store, &stats) ? 0 : stats.memory_bytes;
}

static uint64_t bytes_to_have(const struct grow *grow, uint64_t bytes, uint64_t held)
{
	uint64_t most = 2 * bytes > grow->least_bytes ? 2 * bytes : grow->least_bytes;

	return most > held / HELD_PART ? most : held / HELD_PART;
}

static void *grow_store(void *data)
{
	uint64_t bytes, held, failed_at = 0;
	struct grow *grow = data;

	pthread_mutex_lock(&grow->lock);
	while (!grow->is_ending) {
		bytes = grow->block_bytes;
		grow->block_bytes = 0;
		if (!bytes) {
			pthread_cond_wait(&grow->wanted, &grow->lock);
			continue;
		}
		pthread_mutex_unlock(&grow->lock);
		held = memory_bytes(grow->store);
		/*
		 * After a failure, try again only when the store has more memory than at the
		 * failure.
		 */
		if (held > failed_at &&
		    actmem_store_grow(grow->store, bytes, bytes_to_have(grow, bytes, held)))
			failed_at = held;
		pthread_mutex_lock(&grow->lock);
	}
	pthread_mutex_unlock(&grow->lock);
	return NULL;
}

static void free_grow(struct grow *grow)
{
	pthread_cond_destroy(&grow->wanted);
	pthread_mutex_destroy(&grow->lock);
	free(grow);
}

int grow_begin(struct actmem_store *store, uint64_t grow_bytes, struct grow **result)
{
	struct grow *grow = calloc(1, sizeof(*grow));
	int error;

	if (!grow)
		return -ENOMEM;
	pthread_mutex_init(&grow->lock, NULL);
	pthread_cond_init(&grow->wanted, NULL);
	grow->store = store;
	grow->least_bytes = (grow_bytes ? grow_bytes : GROW_DEFAULT) / 2;
	error = thread_create(&grow->thread, "actmem-grow", grow_store, grow);
	if (error)
		free_grow(grow);
	else
		*result = grow;
	return -error;
}

void grow_end(struct grow *grow)
{
	if (!grow)
		return;
	pthread_mutex_lock(&grow->lock);
	grow->is_ending = true;
	pthread_cond_signal(&grow->wanted);
	pthread_mutex_unlock(&grow->lock);
	pthread_join(grow->thread, NULL);
	free_grow(grow);
}

void grow_want(struct grow *grow, uint64_t bytes)
{
	if (!grow)
		return;
	pthread_mutex_lock(&grow->lock);
	grow->block_bytes = bytes;
	pthread_cond_signal(&grow->wanted);
	pthread_mutex_unlock(&grow->lock);
}
