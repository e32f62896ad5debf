/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which thread has which cache, and what becomes of it when the thread ends,
 * when the heap ends, and when another thread needs the memory.
 *
 * A cache belongs to its thread, which frees it when it or the heap has ended,
 * whichever is later. The handles lock keeps the two ends apart: until one of
 * them sets cache->heap to NULL, both may use the cache's place in the heap's
 * list. In a forked child nothing of the parent's is used: its caches stay.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "heap/inside.h"

/* Blocks besides the one that is wanted, which a thread takes over from another one. */
#define TAKEN_OVER	7

__thread struct cache *heap_own_caches __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;

void heap_publish(struct cache *cache)
{
	struct actmem_heap *heap = atomic_load_explicit(&cache->heap, memory_order_relaxed);
	struct counters *counters = heap->am->counters;
	struct tally *now = &cache->tally, *before = &cache->published;
	uint64_t bytes = tally_read(&now->block_bytes) - tally_read(&before->block_bytes);
	uint64_t taken = tally_read(&now->taken) - tally_read(&before->taken);
	uint64_t given = tally_read(&now->given) - tally_read(&before->given);
	int64_t peak;

	counter_add(&counters->blocks, taken - given);
	counter_add(&counters->blocks_total, taken);
	peak = (int64_t)(counter_add(&counters->block_bytes, bytes) - bytes) + cache->rise;
	/* Negative while the thread that took what this one gave has not published. */
	if (peak > 0)
		counter_raise(&counters->block_bytes_peak, (uint64_t)peak);
	tally_add(&before->block_bytes, bytes);
	tally_add(&before->taken, taken);
	tally_add(&before->given, given);
	cache->rise = 0;
}

void heap_publish_own(const struct actmem *am)
{
	struct actmem_heap *heap;
	struct cache *cache;

	for (cache = heap_own_caches; cache; cache = cache->of_thread) {
		heap = atomic_load_explicit(&cache->heap, memory_order_relaxed);
		if (heap && heap->am == am)
			heap_publish(cache);
	}
}

void heap_give_all(struct actmem_heap *heap, struct block *block)
{
	struct block *next;

	for (; block; block = next) {
		next = block->next;
		blocks_give(&heap->blocks, block);
	}
}

static bool keep_any(const struct actmem_heap *heap)
{
	const struct cache *cache;

	for (cache = heap->caches; cache; cache = cache->next)
		if (tally_read(&cache->bytes))
			return true;
	return false;
}

/* Has all threads stay out of their caches until end_recall(); false: nothing to be had. */
static bool begin_recall(struct actmem_heap *heap)
{
	struct cache *cache;

	if (!keep_any(heap))
		return false;
	for (cache = heap->caches; cache; cache = cache->next)
		cache_recall(cache);
	if (!fence_seldom()) {
		/* A cache that can no longer be recalled keeps nothing. */
		heap->cache_bytes = 1;
		return false;
	}
	for (cache = heap->caches; cache; cache = cache->next)
		cache_await(cache);
	heap->recalls++;
	return true;
}

static void end_recall(struct actmem_heap *heap)
{
	struct cache *cache;

	for (cache = heap->caches; cache; cache = cache->next)
		cache_release(cache);
	heap_limit_caches(heap);
}

static void drain_caches(struct actmem_heap *heap)
{
	struct cache *cache;

	for (cache = heap->caches; cache; cache = cache->next)
		heap_give_all(heap, cache_drain(cache));
}

static struct block *take_over(struct actmem_heap *heap, struct cache *own, uint64_t length,
			       uint64_t align)
{
	uint64_t limit = atomic_load_explicit(&heap->cache_limit, memory_order_relaxed);
	uint64_t room = own && limit > tally_read(&own->bytes) ?
			(limit - tally_read(&own->bytes)) / length : 0;
	unsigned int most = 1 + (unsigned int)(room < TAKEN_OVER ? room : TAKEN_OVER);
	struct block *first = NULL;
	struct cache *cache;

	for (cache = heap->caches; cache && !first; cache = cache->next)
		if (cache != own)
			first = cache_pass_on(cache, length, align, most);
	if (first && first->next) {
		heap_give_all(heap, cache_expect(own, length));
		cache_adopt(own, first->next);
	}
	return first;
}

bool heap_recall(struct actmem_heap *heap, struct cache *own, uint64_t length, uint64_t align,
		 struct block **block)
{
	bool recalled = begin_recall(heap);

	if (recalled) {
		*block = take_over(heap, own, length, align);
		if (!*block)
			drain_caches(heap);
	}
	end_recall(heap);
	return recalled;
}

void heap_recall_all(struct actmem_heap *heap)
{
	if (begin_recall(heap))
		drain_caches(heap);
	end_recall(heap);
}

static void add_tally(struct tally *sum, const struct tally *more)
{
	tally_add(&sum->taken, tally_read(&more->taken));
	tally_add(&sum->given, tally_read(&more->given));
	tally_add(&sum->block_bytes, tally_read(&more->block_bytes));
	tally_add(&sum->misses, tally_read(&more->misses));
}

void heap_sum(const struct actmem_heap *heap, struct tally *sum, uint64_t *cached_bytes)
{
	const struct cache *cache;

	memset(sum, 0, sizeof(*sum));
	*cached_bytes = 0;
	add_tally(sum, &heap->others);
	for (cache = heap->caches; cache; cache = cache->next) {
		add_tally(sum, &cache->tally);
		*cached_bytes += tally_read(&cache->bytes);
	}
}

/* Under the heap's lock. */
static void unlink_from_heap(struct actmem_heap *heap, struct cache *cache)
{
	if (cache->previous)
		cache->previous->next = cache->next;
	else
		heap->caches = cache->next;
	if (cache->next)
		cache->next->previous = cache->previous;
	add_tally(&heap->others, &cache->tally);
}

static void end_of_thread(void *unused)
{
	struct actmem_heap *heap;
	struct cache *cache, *next;

	handles_lock();
	for (cache = heap_own_caches; cache; cache = next) {
		next = cache->of_thread;
		heap = atomic_load_explicit(&cache->heap, memory_order_relaxed);
		if (heap && is_owner(heap->am)) {
			heap_publish(cache);
			pthread_mutex_lock(&heap->lock);
			heap_give_all(heap, cache_drain(cache));
			unlink_from_heap(heap, cache);
			heap_check(heap);
			pthread_mutex_unlock(&heap->lock);
		}
		cache_destroy(cache);
	}
	heap_own_caches = NULL;
	handles_unlock();
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, end_of_thread);
}

int heap_watch_threads(void)
{
	fence_prepare();
	pthread_once(&key_once, make_key);
	return key_error ? fail(key_error, "cannot watch for threads that end (pthread_key_create: %s)",
				strerror(key_error)) : 0;
}

void heap_forget_caches(struct actmem_heap *heap)
{
	struct cache *cache;

	while ((cache = heap->caches)) {
		heap->caches = cache->next;
		heap_publish(cache);
		heap_give_all(heap, cache_drain(cache));
		/* From then on its thread may free it. */
		atomic_store_explicit(&cache->heap, NULL, memory_order_release);
	}
}

static struct cache *make_cache(struct actmem_heap *heap)
{
	struct cache *cache = cache_create(heap);

	if (!cache)
		return NULL;
	/* Any value will do: it is what has end_of_thread() called. */
	if (pthread_setspecific(key, cache)) {
		cache_destroy(cache);
		return NULL;
	}
	pthread_mutex_lock(&heap->lock);
	cache->next = heap->caches;
	if (cache->next)
		cache->next->previous = cache;
	heap->caches = cache;
	pthread_mutex_unlock(&heap->lock);
	return cache;
}

struct cache *heap_cache_find(struct actmem_heap *heap)
{
	struct cache **link = &heap_own_caches, *cache;
	struct actmem_heap *its;

	while ((cache = *link)) {
		its = atomic_load_explicit(&cache->heap, memory_order_acquire);
		if (its == heap)
			break;
		if (its) {
			link = &cache->of_thread;
			continue;
		}
		*link = cache->of_thread;
		cache_destroy(cache);
	}
	if (cache)
		*link = cache->of_thread;
	else
		cache = make_cache(heap);
	if (cache) {
		cache->of_thread = heap_own_caches;
		heap_own_caches = cache;
	}
	return cache;
}
