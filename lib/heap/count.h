/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How a heap counts the blocks that are taken and given, in the few instructions that
 * each of them may take.
 */
#ifndef LIB_HEAP_COUNT_H
#define LIB_HEAP_COUNT_H

#include "base/base.h"
#include "heap/inside.h"

/*
 * A thread that meets no other tells them what it did at most once in a tick of the
 * kernel, for which it looks after so many blocks: what all threads add to goes from one
 * processor to the other, which takes longer than ten blocks do.
 */
#define LOOK_BLOCKS	16

static inline void tally_taken(struct tally *tally, uint64_t bytes)
{
	tally_add(&tally->taken, 1);
	tally_add(&tally->block_bytes, bytes);
}

static inline void tally_given(struct tally *tally, uint64_t bytes)
{
	tally_add(&tally->given, 1);
	tally_add(&tally->block_bytes, -bytes);
}

static inline bool is_due(struct cache *cache, uint64_t blocks)
{
	uint64_t tick;

	if (blocks % LOOK_BLOCKS)
		return false;
	tick = clock_tick_ns();
	if (tick == cache->tick)
		return false;
	cache->tick = tick;
	return true;
}

static inline void count_taken(struct cache *cache, uint64_t bytes, bool had)
{
	int64_t rise;

	tally_taken(&cache->tally, bytes);
	rise = (int64_t)(tally_read(&cache->tally.block_bytes) -
			 tally_read(&cache->published.block_bytes));
	if (rise > cache->rise)
		cache->rise = rise;
	if (!had || is_due(cache, tally_read(&cache->tally.taken)))
		heap_publish(cache);
}

static inline void count_given(struct cache *cache, uint64_t bytes, bool kept)
{
	tally_given(&cache->tally, bytes);
	if (!kept || is_due(cache, tally_read(&cache->tally.given)))
		heap_publish(cache);
}

/* Without a cache, what the thread does is counted under the heap's lock. */
static void __attribute__((cold)) count_taken_alone(struct actmem_heap *heap, uint64_t bytes)
{
	struct counters *counters = heap->am->counters;
	uint64_t now;

	pthread_mutex_lock(&heap->lock);
	tally_taken(&heap->others, bytes);
	tally_add(&heap->others.misses, 1);
	pthread_mutex_unlock(&heap->lock);
	counter_add(&counters->blocks, 1);
	counter_add(&counters->blocks_total, 1);
	now = counter_add(&counters->block_bytes, bytes);
	if ((int64_t)now > 0)
		counter_raise(&counters->block_bytes_peak, now);
}

static void __attribute__((cold)) count_given_alone(struct actmem_heap *heap, uint64_t bytes)
{
	tally_given(&heap->others, bytes);
	counter_subtract(&heap->am->counters->blocks, 1);
	counter_subtract(&heap->am->counters->block_bytes, bytes);
}

#endif /* LIB_HEAP_COUNT_H */
