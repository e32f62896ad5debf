/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a thread keeps at hand; see cache.h, which has what every call passes.
 */
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "heap/cache.h"

#define TRIES_AWAKE	100
#define SLEEP_NS	20000

void cache_recall(struct cache *cache)
{
	atomic_store_explicit(&cache->recalled, true, memory_order_seq_cst);
}

/* Sleeps where the thread was stopped inside, as it may have the lower priority. */
void cache_await(struct cache *cache)
{
	const struct timespec moment = { 0, SLEEP_NS };
	unsigned int tries;

	thread_hold_cancellation();
	for (tries = 0; atomic_load_explicit(&cache->inside, memory_order_seq_cst); tries++)
		if (tries >= TRIES_AWAKE)
			nanosleep(&moment, NULL);
	thread_let_cancellation();
}

void cache_release(struct cache *cache)
{
	atomic_store_explicit(&cache->recalled, false, memory_order_release);
}

struct cache *cache_create(struct actmem_heap *heap)
{
	struct cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return NULL;
	atomic_store_explicit(&cache->heap, heap, memory_order_relaxed);
	return cache;
}

void cache_destroy(struct cache *cache)
{
	free(cache);
}

static struct block *drain_way(struct cache *cache, struct cache_set *set, unsigned int way)
{
	struct block *first = set->first[way], *block;

	for (block = first; block; block = block->next)
		tally_add(&cache->bytes, -(uint64_t)block->length);
	set->first[way] = NULL;
	return first;
}

/* NULL: the length is not expected. */
static struct block **kept_of(struct cache *cache, uint64_t length)
{
	struct cache_set *set = cache_set_of(cache, length);
	unsigned int way;

	for (way = 0; way < CACHE_WAYS; way++)
		if (set->length[way] == length)
			return &set->first[way];
	return NULL;
}

/*
 * The first that no length has, as that is where each call looks first; or where nothing
 * is kept now; or one that has had its turn. All blocks of a length that is wanted may be
 * live, so the second is not taken before the first.
 */
static unsigned int choose_way(struct cache *cache, const struct cache_set *set)
{
	unsigned int way;

	for (way = 0; way < CACHE_WAYS; way++)
		if (!set->length[way])
			return way;
	for (way = 0; way < CACHE_WAYS; way++)
		if (!set->first[way])
			return way;
	return cache->turn++ % CACHE_WAYS;
}

struct block *cache_expect(struct cache *cache, uint64_t length)
{
	struct cache_set *set = cache_set_of(cache, length);
	struct block *evicted;
	unsigned int way;

	if (kept_of(cache, length))
		return NULL;
	way = choose_way(cache, set);
	evicted = drain_way(cache, set, way);
	set->length[way] = length;
	return evicted;
}

struct block *cache_drain(struct cache *cache)
{
	struct block *drained = NULL, *first, *last;
	unsigned int set, way;

	for (set = 0; set < CACHE_SETS; set++) {
		for (way = 0; way < CACHE_WAYS; way++) {
			first = drain_way(cache, &cache->sets[set], way);
			if (!first)
				continue;
			for (last = first; last->next; last = last->next)
				;
			last->next = drained;
			drained = first;
		}
	}
	return drained;
}

struct block *cache_pass_on(struct cache *cache, uint64_t length, uint64_t align,
			    unsigned int most)
{
	struct block **kept = kept_of(cache, length), *first, *last;

	first = kept ? *kept : NULL;
	if (!first || (uintptr_t)first->address & (align - 1))
		return NULL;
	for (last = first; --most && last->next; last = last->next)
		tally_add(&cache->bytes, -length);
	tally_add(&cache->bytes, -length);
	*kept = last->next;
	last->next = NULL;
	return first;
}

void cache_adopt(struct cache *cache, struct block *list)
{
	struct block **kept = kept_of(cache, list->length), *next;

	for (; list; list = next) {
		next = list->next;
		list->next = *kept;
		*kept = list;
		tally_add(&cache->bytes, list->length);
	}
}
