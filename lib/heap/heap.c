/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Heaps: blocks of regions, for any number of threads. base/blocks.c says which
 * parts are taken; cache.c what a thread keeps at hand, so that most calls meet
 * no other thread; here are the calls, and what they count.
 *
 * Making a region takes long, so it happens under grow_lock alone: other
 * threads go on with the blocks that are there. Before the heap grows, it
 * recalls what the threads keep, so that keeping costs no memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef ACTMEM_DEBUG
#include <stdio.h>
#endif

#include "base/base.h"
#include "heap/count.h"
#include "heap/inside.h"
#include "region/region.h"

#define GROW_DEFAULT	(64ULL << 20)
#define CHUNK_DEFAULT	(64ULL << 30)
/* Of so many blocks the thread has to have had a half at hand to keep any more. */
#define MISSES_JUDGED	512

static int take_options(struct actmem_heap *heap, const struct actmem_heap_options *options)
{
	struct actmem_heap_options taken;
	int error = 0;

	ACTMEM_INIT(&taken);
	if (options)
		error = take_struct(&taken, sizeof(taken), options, "heap options");
	if (error)
		return error;
	taken.region.length = taken.grow_bytes ? taken.grow_bytes : GROW_DEFAULT;
	if (taken.region.length % HUGE_PAGE_BYTES || taken.region.length > BLOCK_BYTES_MAX)
		return fail(EINVAL, "%s is %llu; it must be a multiple of 2 MiB up to 128 TiB",
			    KNOB(HEAP_GROW), (unsigned long long)taken.region.length);
	if (options_pages(&heap->am->options, taken.region.pages) == ACTMEM_PAGES_1G)
		taken.region.length = round_up(taken.region.length, GIANT_PAGE_BYTES);
	if (!taken.region.name)
		taken.region.name = "heap";
	heap->limit = taken.limit_bytes ? taken.limit_bytes : UINT64_MAX;
	heap->chunk_bytes = CHUNK_DEFAULT;
	return options_resolve(&heap->am->options, &taken.region, false, &heap->request);
}

int actmem_heap_create(struct actmem *am, const struct actmem_heap_options *options,
		       struct actmem_heap **result)
{
	struct actmem_heap *heap;
	int error;

	if (!am || !result)
		return fail(EINVAL, "actmem_heap_create: no handle or place for the heap");
	error = check_owner(am);
	if (!error)
		error = heap_watch_threads();
	if (error)
		return error;
	heap = calloc(1, sizeof(*heap));
	if (!heap)
		return fail(ENOMEM, "no memory for a heap's handle");
	heap->am = am;
	error = take_options(heap, options);
	if (!error && blocks_init(&heap->blocks))
		error = fail(ENOMEM, "no memory for a heap's bookkeeping");
	if (error) {
		free(heap);
		return error;
	}
	pthread_mutex_init(&heap->grow_lock, NULL);
	pthread_cond_init(&heap->none_grows, NULL);
	pthread_mutex_init(&heap->lock, NULL);
	handles_lock();
	heap->next = am->heaps;
	if (heap->next)
		heap->next->previous = heap;
	am->heaps = heap;
	handles_unlock();
	counter_add(&am->counters->heaps, 1);
	*result = heap;
	return 0;
}

static int __attribute__((cold)) refuse(const struct actmem_heap *heap, const char *call)
{
	return heap ? check_owner(heap->am) : fail(EINVAL, "%s: no heap", call);
}

static inline int check_heap(const struct actmem_heap *heap, const char *call)
{
	return heap && is_owner(heap->am) ? 0 : refuse(heap, call);
}

#ifdef ACTMEM_DEBUG
void heap_check(struct actmem_heap *heap)
{
	const char *wrong = "no memory to check the bookkeeping";
	const struct range *range;
	struct block **firsts;
	size_t count = 0, i;

	for (range = heap->ranges; range; range = range->next)
		count += range->chunks;
	firsts = malloc((count + 1) * sizeof(*firsts));
	if (!firsts)
		return;
	count = 0;
	for (range = heap->ranges; range; range = range->next)
		for (i = 0; i < range->chunks; i++)
			firsts[count++] = range->first[i];
	wrong = blocks_wrong(&heap->blocks, firsts, count);
	free(firsts);
	if (!wrong)
		return;
	fprintf(stderr, "actmem: a heap's bookkeeping is broken: %s\n", wrong);
	abort();
}
#else
void heap_check(struct actmem_heap *heap)
{
}
#endif

int actmem_heap_tune(struct actmem_heap *heap, const struct actmem_heap_tuning *tuning)
{
	struct actmem_heap_tuning taken;
	int error = check_heap(heap, "actmem_heap_tune");

	if (error)
		return error;
	if (!tuning)
		return fail(EINVAL, "actmem_heap_tune: nothing to take");
	error = take_struct(&taken, sizeof(taken), tuning, "heap tuning");
	if (error)
		return error;
	if (taken.chunk_bytes % HUGE_PAGE_BYTES || taken.chunk_bytes > BLOCK_BYTES_MAX)
		return fail(EINVAL, "chunk_bytes is %llu; it must be a multiple of 2 MiB up to 128 TiB",
			    (unsigned long long)taken.chunk_bytes);
	heap_tune(heap, taken.chunk_bytes ? taken.chunk_bytes : CHUNK_DEFAULT, taken.cache_bytes);
	return 0;
}

static void recall(struct actmem_heap *heap)
{
	pthread_mutex_lock(&heap->lock);
	heap_recall_all(heap);
	heap_check(heap);
	pthread_mutex_unlock(&heap->lock);
}

int actmem_heap_trim(struct actmem_heap *heap)
{
	int error = check_heap(heap, "actmem_heap_trim");

	if (error)
		return error;
	recall(heap);
	heap_shrink(heap, false);
	return 0;
}

int actmem_heap_trim_to(struct actmem_heap *heap, uint64_t keep_bytes)
{
	int error = check_heap(heap, "actmem_heap_trim_to");

	if (error)
		return error;
	recall(heap);
	heap_shrink_to(heap, keep_bytes);
	return 0;
}

static void unlist(struct actmem_heap *heap)
{
	if (heap->previous)
		heap->previous->next = heap->next;
	else
		heap->am->heaps = heap->next;
	if (heap->next)
		heap->next->previous = heap->previous;
}

int actmem_heap_destroy(struct actmem_heap *heap)
{
	struct tally sum;
	uint64_t cached, live;
	unsigned int attached;
	int error = check_heap(heap, "actmem_heap_destroy");

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	heap_check(heap);
	heap_sum(heap, &sum, &cached);
	live = tally_read(&sum.taken) - tally_read(&sum.given);
	attached = heap_attached(heap);
	if (attached)
		error = fail(EBUSY, "%u of the heap's regions are attached to a queue; actmem_queue_detach() goes first",
			     attached);
	if (live)
		error = fail(EBUSY, "%llu blocks of %s are still live", (unsigned long long)live,
			     BYTES_TEXT(tally_read(&sum.block_bytes)));
	pthread_mutex_unlock(&heap->lock);
	if (error)
		return error;
	handles_lock();
	unlist(heap);
	heap_forget_caches(heap);
	handles_unlock();
	heap_shrink(heap, true);
	heap_end_runtime(heap);
	counter_subtract(&heap->am->counters->heaps, 1);
	pthread_mutex_destroy(&heap->lock);
	pthread_cond_destroy(&heap->none_grows);
	pthread_mutex_destroy(&heap->grow_lock);
	blocks_destroy(&heap->blocks);
	free(heap);
	return 0;
}

/*
 * Under lock: by what the heap has, with what the threads keep if need be. A thread
 * that wants another length than before gives back what it keeps of the others rather
 * than put a block where it is in the way of those that belong there.
 */
static int take_or_recall(struct actmem_heap *heap, struct cache *cache, uint64_t length,
			  uint64_t align, struct block **block)
{
	bool keeps = cache && tally_read(&cache->bytes);
	int error = blocks_take(&heap->blocks, length, align, keeps ? FIT_WELL : FIT_ANY, block);

	if (error == -ENOSPC && keeps) {
		heap_give_all(heap, cache_drain(cache));
		error = blocks_take(&heap->blocks, length, align, FIT_ANY, block);
	}
	if (error != -ENOSPC || !heap_recall(heap, cache, length, align, block))
		return error;
	return *block ? 0 : blocks_take(&heap->blocks, length, align, FIT_ANY, block);
}

/*
 * Under lock. Once most of the blocks that a thread wants are not in its cache, the
 * cache gives back the lengths that it no longer wants.
 */
static void miss(struct actmem_heap *heap, struct cache *cache, uint64_t length)
{
	tally_add(&cache->tally.misses, 1);
	if (!(tally_read(&cache->tally.misses) % MISSES_JUDGED)) {
		if (tally_read(&cache->tally.taken) - cache->judged < 2 * MISSES_JUDGED)
			heap_give_all(heap, cache_drain(cache));
		cache->judged = tally_read(&cache->tally.taken);
	}
	heap_give_all(heap, cache_expect(cache, length));
}

/*
 * A block that the thread did not have at hand, or had while another thread recalled what
 * it keeps: that is over as soon as this one has the lock.
 */
static int take(struct actmem_heap *heap, struct cache *cache, uint64_t length, uint64_t align,
		struct block **block)
{
	int error = 0;

	pthread_mutex_lock(&heap->lock);
	*block = cache ? cache_take(cache, length, align) : NULL;
	if (!*block) {
		error = take_or_recall(heap, cache, length, align, block);
		if (!error && cache)
			miss(heap, cache, length);
	}
	heap_check(heap);
	pthread_mutex_unlock(&heap->lock);
	return error == -ENOMEM ? fail(ENOMEM, "no memory for a heap's bookkeeping") : error;
}

static int take_or_grow(struct actmem_heap *heap, struct cache *cache, uint64_t length,
			uint64_t align, struct block **block, bool *is_full)
{
	int error = take(heap, cache, length, align, block);

	if (error != -ENOSPC)
		return error;
	atomic_fetch_add(&heap->growers, 1);
	heap_lock_growth(heap);
	/* Another thread may have grown it meanwhile, or take what this one made. */
	while ((error = take(heap, cache, length, align, block)) == -ENOSPC) {
		error = heap_grow(heap, length, align, is_full);
		if (error)
			break;
	}
	if (atomic_fetch_sub(&heap->growers, 1) == 1)
		pthread_cond_broadcast(&heap->none_grows);
	heap_unlock_growth(heap);
	return error;
}

/* @is_full NULL: it is not to grow. */
static int alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address,
		 bool *is_full)
{
	uint64_t length = block_length(bytes);
	/* Two, as what others are to fill in is in no register. */
	struct block *block = NULL, *missed;
	struct cache *cache;
	bool had;
	int error = check_heap(heap, "actmem_heap_alloc");

	if (error)
		return error;
	if (!address || !bytes || bytes > BLOCK_BYTES_MAX)
		return fail(EINVAL, "actmem_heap_alloc: %llu bytes; 1 to %llu can be had, at an address to be stored",
			    (unsigned long long)bytes, (unsigned long long)BLOCK_BYTES_MAX);
	if (align & (align - 1) || align > BLOCK_ALIGN_MAX)
		return fail(EINVAL, "actmem_heap_alloc: align is %llu; it must be a power of two up to 2 MiB",
			    (unsigned long long)align);
	if (align < BLOCK_UNIT)
		align = BLOCK_UNIT;
	cache = heap_cache(heap);
	if (cache)
		block = cache_take(cache, length, align);
	had = block;
	if (UNLIKELY(!had)) {
		error = is_full ? take_or_grow(heap, cache, length, align, &missed, is_full) :
			take(heap, cache, length, align, &missed);
		if (error)
			return error;
		block = missed;
	}
	block_begin(block, bytes);
	*address = atomic_load_explicit(&block->address, memory_order_relaxed);
	if (cache)
		count_taken(cache, bytes, had);
	else
		count_taken_alone(heap, bytes);
	return 0;
}

int actmem_heap_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	bool is_full;

	return alloc(heap, bytes, align, address, &is_full);
}

int heap_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address,
	       bool *is_full)
{
	*is_full = false;
	return alloc(heap, bytes, align, address, is_full);
}

int heap_take(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	return alloc(heap, bytes, align, address, NULL);
}

/* The thread's cache would not have it. */
static void give(struct actmem_heap *heap, struct cache *cache, struct block *block,
		 uint64_t bytes)
{
	pthread_mutex_lock(&heap->lock);
	blocks_give(&heap->blocks, block);
	if (!cache)
		count_given_alone(heap, bytes);
	heap_check(heap);
	pthread_mutex_unlock(&heap->lock);
}

static struct block *__attribute__((cold)) end_surely(struct actmem_heap *heap,
						      const void *address, uint64_t *bytes)
{
	struct block *block;

	pthread_mutex_lock(&heap->lock);
	block = blocks_end(&heap->blocks, address, bytes);
	pthread_mutex_unlock(&heap->lock);
	return block;
}

int actmem_heap_free(struct actmem_heap *heap, void *address)
{
	uint64_t bytes, limit;
	struct block *block;
	struct cache *cache;
	bool kept;
	int error = check_heap(heap, "actmem_heap_free");

	if (error)
		return error;
	block = blocks_end(&heap->blocks, address, &bytes);
	if (!block)
		block = end_surely(heap, address, &bytes);
	if (!block)
		return fail(EINVAL, "%p is not the start of a live block of this heap: freed before, or from elsewhere",
			    address);
	limit = atomic_load_explicit(&heap->cache_limit, memory_order_relaxed);
	cache = heap_cache(heap);
	kept = cache && cache_keep(cache, block, limit);
	if (!kept)
		give(heap, cache, block, bytes);
	if (cache)
		count_given(cache, bytes, kept);
	return 0;
}

int actmem_heap_get_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats)
{
	struct actmem_heap_stats now;
	struct tally sum;
	int error = check_heap(heap, "actmem_heap_get_stats");

	if (error)
		return error;
	if (!stats)
		return fail(EINVAL, "actmem_heap_get_stats: nowhere to put them");
	ACTMEM_INIT(&now);
	pthread_mutex_lock(&heap->lock);
	heap_sum(heap, &sum, &now.cached_bytes);
	now.regions = heap->regions;
	now.region_bytes = heap->region_bytes;
	now.region_bytes_peak = heap->region_bytes_peak;
	now.blocks = tally_read(&sum.taken) - tally_read(&sum.given);
	now.block_bytes = tally_read(&sum.block_bytes);
	now.used_bytes = heap->blocks.taken_bytes - now.cached_bytes;
	now.used_bytes_peak = heap->blocks.taken_bytes_peak;
	now.largest_free = blocks_largest_free(&heap->blocks);
	now.free_pieces = heap->blocks.free;
	now.blocks_total = tally_read(&sum.taken);
	now.cache_misses = tally_read(&sum.misses);
	now.recalls = heap->recalls;
	pthread_mutex_unlock(&heap->lock);
	return give_struct(stats, &now, sizeof(now), "heap stats");
}
