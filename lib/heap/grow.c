/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The regions of a heap: how long the next one is, where its blocks may lie, and
 * which go back.
 *
 * Regions are registered with devices in chunks, so each chunk of a region is a
 * range of its own, and no block lies across two.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/base.h"
#include "heap/inside.h"
#include "region/region.h"

/* A region whose last 1/128 holds no block is as good as filled. */
#define WASTE_ACCEPTED	128
/* A large heap grows by this part of it: many regions are no use to anybody. */
#define HELD_PART	128
#define HELD_PART_MOST	16
/*
 * Where so much of it is free and yet does not do, lengths are mixed: long regions
 * then leave less that is too short.
 */
#define UNUSED_PART	16
#define HELD_PART_MIXED	8

/* The bytes left unused by @count blocks of @stride in the shortest region for them. */
static uint64_t whole_of(uint64_t count, uint64_t stride, uint64_t *waste)
{
	uint64_t whole = round_up(count * stride, HUGE_PAGE_BYTES);

	*waste = whole - whole / stride * stride;
	return whole;
}

/*
 * What is wanted now is likely to be wanted again: the longest region up to @most
 * that such blocks fill, else the next one up to @at_most that they do, else the
 * one up to @most that they fill best. 0: not even one goes into @most.
 */
static uint64_t best_length(uint64_t stride, uint64_t most, uint64_t at_most)
{
	uint64_t count, whole, waste, best = 0, best_waste = 0;

	for (count = most / stride; count; count--) {
		whole = whole_of(count, stride, &waste);
		if (whole > most)
			continue;
		/* Compared as parts of the whole, by multiplying crosswise. */
		if (!best || (__uint128_t)waste * best < (__uint128_t)best_waste * whole) {
			best = whole;
			best_waste = waste;
		}
		if (best_waste * WASTE_ACCEPTED <= best)
			return best;
	}
	for (count = most / stride + 1; (whole = whole_of(count, stride, &waste)) <= at_most; count++)
		if (waste * WASTE_ACCEPTED <= whole)
			return whole;
	return best;
}

static uint64_t unit_of(const struct actmem_heap *heap)
{
	return heap->request.pages == ACTMEM_PAGES_1G ? GIANT_PAGE_BYTES : HUGE_PAGE_BYTES;
}

/* Of the next region, and what is left to the heap of its limit. */
static int grown_length(struct actmem_heap *heap, uint64_t length, uint64_t align,
			uint64_t *result, uint64_t *still_left)
{
	uint64_t unit = unit_of(heap), needed = round_up(length, unit);
	uint64_t limit, held, unused, left, most, grown;

	pthread_mutex_lock(&heap->lock);
	held = heap->region_bytes;
	limit = heap->limit;
	unused = held - heap->blocks.taken_bytes;
	pthread_mutex_unlock(&heap->lock);
	left = limit > held ? limit - held : 0;
	if (needed > left)
		return fail(ENOMEM, "the heap may have %s, its regions have %s, and %s more are wanted; raise %s or free blocks",
			    BYTES_TEXT(limit), BYTES_TEXT(held), BYTES_TEXT(needed), KNOB(HEAP_LIMIT));
	most = held / (unused > held / UNUSED_PART ? HELD_PART_MIXED : HELD_PART);
	if (most < heap->request.length)
		most = heap->request.length;
	grown = round_up(best_length(round_up(length, align), most, held / HELD_PART_MOST), unit);
	if (grown < needed)
		grown = needed;
	if (grown > left)
		grown = left / unit * unit;
	*result = grown;
	*still_left = left;
	return 0;
}

/* Under lock. All its chunks or none. */
static bool add_chunks(struct actmem_heap *heap, struct range *range, char *address,
		       uint64_t length, uint64_t home)
{
	uint64_t at, bytes;
	size_t i;

	for (i = 0; i < range->chunks; i++) {
		at = i * heap->chunk_bytes;
		bytes = length - at < heap->chunk_bytes ? length - at : heap->chunk_bytes;
		range->first[i] = blocks_add_range(&heap->blocks, address + at, bytes, home);
		if (!range->first[i])
			break;
	}
	if (i == range->chunks)
		return true;
	while (i--)
		blocks_remove_range(&heap->blocks, range->first[i]);
	return false;
}

void heap_limit_caches(struct actmem_heap *heap)
{
	atomic_store_explicit(&heap->cache_limit,
			      heap->cache_bytes ? heap->cache_bytes : heap->region_bytes,
			      memory_order_relaxed);
}

void heap_tune(struct actmem_heap *heap, uint64_t chunk_bytes, uint64_t cache_bytes)
{
	heap_lock_growth(heap);
	heap->chunk_bytes = chunk_bytes;
	pthread_mutex_lock(&heap->lock);
	heap->cache_bytes = cache_bytes;
	heap_limit_caches(heap);
	heap_recall_all(heap);
	pthread_mutex_unlock(&heap->lock);
	heap_unlock_growth(heap);
}

/* Under lock. */
static void count_region(struct actmem_heap *heap, uint64_t length, bool more)
{
	heap->regions += more ? 1 : -1ULL;
	heap->region_bytes += more ? length : -length;
	if (heap->region_bytes > heap->region_bytes_peak)
		heap->region_bytes_peak = heap->region_bytes;
	heap_limit_caches(heap);
}

static bool add_range(struct actmem_heap *heap, struct range *range, void *address,
		      uint64_t length, uint64_t home)
{
	bool added;

	pthread_mutex_lock(&heap->lock);
	added = add_chunks(heap, range, address, length, home);
	if (added) {
		range->next = heap->ranges;
		heap->ranges = range;
		count_region(heap, length, true);
	}
	pthread_mutex_unlock(&heap->lock);
	return added;
}

/*
 * For blocks of the length @home. A region found under a name may have another length
 * than the one asked for.
 */
static int make_range(struct actmem_heap *heap, uint64_t length, uint64_t left, uint64_t home)
{
	struct heap_region its;
	struct range *range;
	size_t chunks;
	void *address;
	int error = heap_region_open(heap, length, left, &its);

	if (error)
		return error;
	error = actmem_region_map(its.region, &address);
	if (error)
		goto close_region;
	length = actmem_region_length(its.region);
	chunks = (length + heap->chunk_bytes - 1) / heap->chunk_bytes;
	range = malloc(sizeof(*range) + chunks * sizeof(range->first[0]));
	if (!range) {
		error = fail(ENOMEM, "no memory for a heap's bookkeeping");
		goto close_region;
	}
	range->its = its;
	range->address = address;
	range->chunks = chunks;
	if (add_range(heap, range, address, length, home))
		return 0;
	error = fail(ENOMEM, "no memory for a heap's bookkeeping");
	free(range);
close_region:
	heap_region_close(heap, &its);
	return error;
}

/*
 * Others that share a limit may have left what the block needs and no more. Only the
 * first region is as long as it was asked for, or none.
 */
static int make_room(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full)
{
	uint64_t needed = round_up(length, unit_of(heap)), grown = 0, left = 0;
	bool is_first;
	int error = grown_length(heap, length, align, &grown, &left);

	*is_full = error;
	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	is_first = !heap->ranges;
	pthread_mutex_unlock(&heap->lock);
	error = make_range(heap, grown, left, length);
	if (!is_out_of_memory(error) || grown <= needed)
		return error;
	if (!is_first)
		return make_range(heap, needed, left, length);
	fail_more("; %s are needed now, and regions are made of %s: lower %s",
		  BYTES_TEXT(needed), BYTES_TEXT(grown), KNOB(HEAP_GROW));
	return error;
}

int heap_grow(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full)
{
	int error;

	if (length > heap->chunk_bytes)
		return fail(EINVAL, "a block of %s would lie across chunks of %s, in which regions are registered; raise chunk_bytes",
			    BYTES_TEXT(length), BYTES_TEXT(heap->chunk_bytes));
	error = make_room(heap, length, align, is_full);
	/* Regions that are free, and too short for this block, may be in its way. */
	if (is_out_of_memory(error) && heap_shrink(heap, false))
		error = make_room(heap, length, align, is_full);
	return error;
}

int heap_grow_ahead(struct actmem_heap *heap, uint64_t length, uint64_t align,
		    uint64_t free_bytes)
{
	uint64_t needed = round_up(length, unit_of(heap));
	bool is_short, is_full;
	int error = 0;

	if (length > heap->chunk_bytes)
		return 0;
	do {
		heap_lock_growth(heap);
		/* A mutex may well go to the thread that has just unlocked it again. */
		while (atomic_load(&heap->growers))
			pthread_cond_wait(&heap->none_grows, &heap->grow_lock);
		pthread_mutex_lock(&heap->lock);
		is_short = heap->region_bytes - heap->blocks.taken_bytes < free_bytes &&
			   heap->limit >= heap->region_bytes &&
			   heap->limit - heap->region_bytes >= needed;
		pthread_mutex_unlock(&heap->lock);
		/* Free regions stay, whether this succeeds or not. */
		if (is_short)
			error = make_room(heap, length, align, &is_full);
		heap_unlock_growth(heap);
	} while (is_short && !error);
	return error;
}

static bool range_is_free(const struct range *range)
{
	size_t i;

	for (i = 0; i < range->chunks; i++)
		if (!blocks_range_is_free(range->first[i]))
			return false;
	return true;
}

/* Where the heap's owner is told of regions that go, he detaches them. */
static bool is_kept_by_queue(const struct actmem_heap *heap, const struct range *range)
{
	return !heap->closing && region_attachments(range->its.region);
}

unsigned int heap_attached(const struct actmem_heap *heap)
{
	const struct range *range;
	unsigned int count = 0;

	for (range = heap->ranges; range; range = range->next)
		count += is_kept_by_queue(heap, range);
	return count;
}

static bool may_go(const struct actmem_heap *heap, const struct range *range, bool named_too)
{
	return (named_too || !range->its.named) && !is_kept_by_queue(heap, range) &&
	       range_is_free(range);
}

/* Takes a range out of the heap, to the others in @detached. Under lock. */
static void detach(struct actmem_heap *heap, struct range **link, struct range **detached)
{
	struct range *range = *link;
	size_t i;

	*link = range->next;
	range->next = *detached;
	*detached = range;
	for (i = 0; i < range->chunks; i++)
		blocks_remove_range(&heap->blocks, range->first[i]);
	count_region(heap, actmem_region_length(range->its.region), false);
}

/* All of which nothing is taken. */
static struct range *detach_free_ranges(struct actmem_heap *heap, bool named_too)
{
	struct range **link = &heap->ranges, *range, *detached = NULL;

	pthread_mutex_lock(&heap->lock);
	while ((range = *link)) {
		if (may_go(heap, range, named_too))
			detach(heap, link, &detached);
		else
			link = &range->next;
	}
	pthread_mutex_unlock(&heap->lock);
	return detached;
}

/* The shortest that is as long as @excess, or else the longest; NULL: none may go. */
static struct range **choose_free_range(struct actmem_heap *heap, uint64_t excess)
{
	struct range **link, **chosen = NULL;
	uint64_t length, best = 0;

	for (link = &heap->ranges; *link; link = &(*link)->next) {
		if (!may_go(heap, *link, false))
			continue;
		length = actmem_region_length((*link)->its.region);
		if (best < excess ? length > best : length >= excess && length < best) {
			chosen = link;
			best = length;
		}
	}
	return chosen;
}

/* As few as will do for the heap to have no more than @keep_bytes free. */
static struct range *detach_excess(struct actmem_heap *heap, uint64_t keep_bytes)
{
	struct range *detached = NULL, **link = NULL;
	uint64_t unused;

	pthread_mutex_lock(&heap->lock);
	do {
		unused = heap->region_bytes - heap->blocks.taken_bytes;
		link = unused > keep_bytes ? choose_free_range(heap, unused - keep_bytes) : NULL;
		if (link)
			detach(heap, link, &detached);
	} while (link);
	pthread_mutex_unlock(&heap->lock);
	return detached;
}

static void close_ranges(struct actmem_heap *heap, struct range *range)
{
	struct range *next;

	for (; range; range = next) {
		next = range->next;
		if (heap->closing)
			heap->closing(heap->closing_data, range->its.region);
		heap_region_close(heap, &range->its);
		free(range);
	}
}

bool heap_shrink(struct actmem_heap *heap, bool named_too)
{
	struct range *range = detach_free_ranges(heap, named_too);
	bool any = range;

	close_ranges(heap, range);
	return any;
}

void heap_shrink_to(struct actmem_heap *heap, uint64_t keep_bytes)
{
	close_ranges(heap, detach_excess(heap, keep_bytes));
}

bool heap_may_grow(struct actmem_heap *heap, uint64_t bytes)
{
	uint64_t needed = round_up(bytes, unit_of(heap)), held;
	const struct range *range;
	bool may;

	pthread_mutex_lock(&heap->lock);
	held = heap->region_bytes;
	for (range = heap->ranges; range && held + needed > heap->limit; range = range->next)
		if (!range->its.named && range_is_free(range))
			held -= actmem_region_length(range->its.region);
	may = held + needed <= heap->limit;
	pthread_mutex_unlock(&heap->lock);
	return may;
}

void heap_raise_limit(struct actmem_heap *heap, uint64_t bytes)
{
	uint64_t needed = round_up(bytes, unit_of(heap));

	pthread_mutex_lock(&heap->lock);
	if (heap->limit < heap->region_bytes + needed)
		heap->limit = heap->region_bytes + needed;
	pthread_mutex_unlock(&heap->lock);
}

void heap_lift_limit(struct actmem_heap *heap, uint64_t limit)
{
	pthread_mutex_lock(&heap->lock);
	if (heap->limit < limit)
		heap->limit = limit;
	pthread_mutex_unlock(&heap->lock);
}

uint64_t heap_stop_growing(struct actmem_heap *heap)
{
	uint64_t held;

	pthread_mutex_lock(&heap->lock);
	held = heap->region_bytes;
	heap->limit = held;
	pthread_mutex_unlock(&heap->lock);
	return held;
}

uint64_t heap_lower_limit(struct actmem_heap *heap, uint64_t limit)
{
	/* A thread that makes room for its own region has to find free regions itself. */
	heap_lock_growth(heap);
	heap_shrink(heap, false);
	pthread_mutex_lock(&heap->lock);
	if (limit < heap->region_bytes)
		limit = heap->region_bytes;
	heap->limit = limit;
	pthread_mutex_unlock(&heap->lock);
	heap_unlock_growth(heap);
	return limit;
}

void heap_locate(struct actmem_heap *heap, const void *address, struct actmem_region **region,
		 uint64_t *offset)
{
	const struct range *range;

	pthread_mutex_lock(&heap->lock);
	range = heap->ranges;
	while ((uintptr_t)address - (uintptr_t)range->address >=
	       actmem_region_length(range->its.region))
		range = range->next;
	*region = range->its.region;
	*offset = (uintptr_t)address - (uintptr_t)range->address;
	pthread_mutex_unlock(&heap->lock);
}

void heap_watch_closing(struct actmem_heap *heap,
			void (*closing)(void *data, struct actmem_region *region), void *data)
{
	heap->closing = closing;
	heap->closing_data = data;
}

/* But for a byte, as 0 would be all that there is. */
void heap_cache_nothing(struct actmem_heap *heap)
{
	heap_tune(heap, heap->chunk_bytes, 1);
}
