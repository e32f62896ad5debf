/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Chooses the length and the chunks of a heap's next region, and which regions to close.
 *
 * Regions are registered with devices in chunks. Each chunk of a region has a separate range of
 * extents, so no block crosses two chunks.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "config/config.h"
#include "heap/inside.h"
#include "region/region.h"
#include "runtime/runtime.h"

/* Blocks fill a length if they leave at most 1/WASTE_ACCEPTED of it unused. */
#define WASTE_ACCEPTED	128
/* A large heap grows by 1/HELD_PART of its length, so that it does not get too many regions. */
#define HELD_PART	128
#define HELD_PART_MOST	16
/*
 * If more than 1/UNUSED_PART of the heap is free and a block still does not fit, blocks have mixed
 * lengths. Longer regions then leave less memory in free ranges that are too short.
 */
#define UNUSED_PART	16
#define HELD_PART_MIXED	8

/*
 * Returns the length of the huge pages that hold @count blocks of @stride bytes. Stores in *@waste
 * how many bytes of these pages no whole block can fill.
 */
static uint64_t filled_length(uint64_t count, uint64_t stride, uint64_t *waste)
{
	uint64_t whole = round_up(count * stride, HUGE_PAGE_BYTES);

	*waste = whole - whole / stride * stride;
	return whole;
}

/*
 * Returns the best length of a region for many blocks of @stride. After one such block, more are
 * likely to follow. The candidates are the lengths that whole numbers of blocks need, rounded up to
 * huge pages. The function returns the first of these that exists:
 *
 * 1. the longest candidate up to @most that blocks fill;
 * 2. the shortest candidate up to @at_most that blocks fill, if these blocks together are longer
 *    than @most;
 * 3. the candidate up to @most in which blocks leave the smallest fraction unused; if there are
 *    several, the longest of them;
 * 4. 0.
 */
static uint64_t best_region_length(uint64_t stride, uint64_t most, uint64_t at_most)
{
	uint64_t count, whole, waste, best = 0, best_waste = 0;

	for (count = most / stride; count; count--) {
		whole = filled_length(count, stride, &waste);
		if (whole > most)
			continue;
		/* Compare waste / whole with best_waste / best, without dividing. */
		if (!best || (__uint128_t)waste * best < (__uint128_t)best_waste * whole) {
			best = whole;
			best_waste = waste;
		}
		if (best_waste * WASTE_ACCEPTED <= best)
			return best;
	}
	for (count = most / stride + 1; ; count++) {
		whole = filled_length(count, stride, &waste);
		if (whole > at_most)
			return best;
		if (waste * WASTE_ACCEPTED <= whole)
			return whole;
	}
}

static uint64_t region_unit(const struct actmem_heap *heap)
{
	return pages_bytes(heap->request.pages);
}

/* Returns the length of the regions that no thread is closing. Caller holds heap->lock. */
static uint64_t open_bytes(const struct actmem_heap *heap)
{
	return heap->region_bytes - heap->closing_bytes;
}

/* Caller holds heap->lock. */
static uint64_t free_bytes_now(struct actmem_heap *heap)
{
	heap_give_freed(heap);
	return open_bytes(heap) - heap->extents.taken_bytes;
}

/* Caller holds heap->lock. */
static uint64_t limit_left(const struct actmem_heap *heap)
{
	return heap->limit > heap->region_bytes ? heap->limit - heap->region_bytes : 0;
}

/*
 * Waits until the regions have at most @most bytes, or until no other thread is closing one. The
 * caller may hold grow_lock, because a thread can close a region without grow_lock. Caller holds
 * heap->lock.
 */
static void wait_for_closing(struct actmem_heap *heap, uint64_t most)
{
	while (heap->closing_bytes && heap->region_bytes > most)
		pthread_cond_wait(&heap->region_closed, &heap->lock);
}

/*
 * Returns the chunk length for a region of @length. Blocks of @home bytes should fill a chunk
 * without waste. The limit still permits @left bytes. If @length is more than half of @left,
 * returns the longest chunk that the runtime accepts: later regions may be too short for long
 * blocks.
 */
static uint64_t choose_chunk_bytes(const struct actmem_heap *heap, uint64_t length, uint64_t left,
				   uint64_t home)
{
	uint64_t most, piece;

	if (!heap->runtime)
		return heap->chunk_bytes;
	if (length > left / 2) {
		most = runtime_accepted_bytes(heap->runtime);
		piece = home < most ? most : home;
	} else {
		most = runtime_piece_bytes(heap->runtime);
		piece = home < most ? best_region_length(home, most, most) : home;
	}
	piece = round_up(round_up(piece, HUGE_PAGE_BYTES), region_unit(heap));
	return piece < heap->chunk_bytes ? piece : heap->chunk_bytes;
}

/*
 * Stores the next region's length in *@result. Stores in *@still_left how many bytes the limit
 * still permits.
 */
static int choose_region_length(struct actmem_heap *heap, uint64_t length, uint64_t align,
				uint64_t *result, uint64_t *still_left)
{
	uint64_t unit = region_unit(heap), needed = round_up(length, unit);
	uint64_t wanted = needed > heap->request.length ? needed : heap->request.length;
	uint64_t limit, held, unused, left, most, grown, piece;

	pthread_mutex_lock(&heap->lock);
	wait_for_closing(heap, heap->limit > wanted ? heap->limit - wanted : 0);
	held = heap->region_bytes;
	limit = heap->limit;
	unused = free_bytes_now(heap);
	left = limit_left(heap);
	pthread_mutex_unlock(&heap->lock);
	if (needed > left)
		return fail(ENOMEM, "the heap's limit is %s, its regions have %s, and a block needs %s more; raise %s or free blocks",
			    BYTES_TEXT(limit), BYTES_TEXT(held), BYTES_TEXT(needed), KNOB(HEAP_LIMIT));
	most = held / (unused > held / UNUSED_PART ? HELD_PART_MIXED : HELD_PART);
	if (most < heap->request.length)
		most = heap->request.length;
	grown = best_region_length(round_up(length, align), most, held / HELD_PART_MOST);
	grown = round_up(grown, unit);
	if (grown < needed)
		grown = needed;
	if (grown > left)
		grown = left / unit * unit;
	piece = choose_chunk_bytes(heap, grown, left, length);
	if (grown > piece && !(piece % unit))
		grown = grown / piece * piece;
	*result = grown;
	*still_left = left;
	return 0;
}

/* Adds all chunks of a region, or none. Caller holds heap->lock. */
static bool add_chunks(struct actmem_heap *heap, struct heap_region *its, char *address,
		       uint64_t length, uint64_t home)
{
	uint64_t at, bytes;
	size_t i;

	for (i = 0; i < its->chunks; i++) {
		at = i * its->chunk_bytes;
		bytes = length - at < its->chunk_bytes ? length - at : its->chunk_bytes;
		its->first[i] = extents_add_range(&heap->extents, address + at, bytes, home);
		if (!its->first[i])
			break;
	}
	if (i == its->chunks)
		return true;
	while (i--)
		extents_remove_range(&heap->extents, its->first[i]);
	return false;
}

/* Caller holds heap->lock. */
static void count_region(struct actmem_heap *heap, uint64_t length, bool more)
{
	heap->region_count += more ? 1 : -1ULL;
	heap->region_bytes += more ? length : -length;
	if (heap->region_bytes > heap->region_bytes_peak)
		heap->region_bytes_peak = heap->region_bytes;
}

static bool list_region(struct actmem_heap *heap, struct heap_region *its, char *address,
			uint64_t home)
{
	uint64_t length = actmem_region_length(its->region);
	bool added;

	its->address = address;
	its->chunks = (length + its->chunk_bytes - 1) / its->chunk_bytes;
	its->first = calloc(its->chunks, sizeof(its->first[0]));
	if (!its->first)
		return false;
	pthread_mutex_lock(&heap->lock);
	added = add_chunks(heap, its, address, length, home);
	if (added) {
		its->next = heap->regions;
		heap->regions = its;
		heap->is_charged |= its->region->backend == &backend_memfd &&
				    !pages_are_hugetlb(its->region->backing.pages);
		count_region(heap, length, true);
	}
	pthread_mutex_unlock(&heap->lock);
	return added;
}

/*
 * Adds a region of @length for blocks of length @home. If a region with this name already exists,
 * its length may differ from @length.
 */
static int add_region(struct actmem_heap *heap, uint64_t length, uint64_t left, uint64_t home)
{
	char words[ERROR_TEXT_MAX];
	struct heap_region *its;
	void *address;
	int error = heap_region_open(heap, length, left,
				     choose_chunk_bytes(heap, length, left, home), home, &its);

	if (error)
		return error;
	error = actmem_region_map(its->region, &address);
	if (!error && !list_region(heap, its, address, home))
		error = fail(ENOMEM, "no memory for a heap's bookkeeping");
	if (!error)
		return 0;
	snprintf(words, sizeof(words), "%s", fail_words());
	heap_region_close(heap, its);
	return fail_as_before(error, words);
}

/*
 * Adds a region for a block. Other processes share the kernel's limit, so the kernel may refuse a
 * long region. The function then tries the shortest region that holds the block. The function does
 * not shorten the first region, which must have the length that the options request.
 */
static int add_region_for(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full)
{
	uint64_t needed = round_up(length, region_unit(heap)), grown = 0, left = 0;
	bool is_first;
	int error = choose_region_length(heap, length, align, &grown, &left);

	*is_full = error;
	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	is_first = !heap->regions;
	pthread_mutex_unlock(&heap->lock);
	error = add_region(heap, grown, left, length);
	if (!is_out_of_memory(error) || grown <= needed)
		return error;
	if (!is_first)
		return add_region(heap, needed, left, length);
	fail_more("; %s are needed, but regions are created with %s; lower %s",
		  BYTES_TEXT(needed), BYTES_TEXT(grown), KNOB(HEAP_GROW));
	return error;
}

int heap_check_length(const struct actmem_heap *heap, uint64_t length)
{
	return length <= heap->chunk_bytes ? 0 :
	       fail(EINVAL, "a block of %s does not fit the chunks of %s in which regions are registered; raise chunk_bytes of the runtime",
		    BYTES_TEXT(length), BYTES_TEXT(heap->chunk_bytes));
}

int heap_grow(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full)
{
	int error = heap_check_length(heap, length);

	if (error)
		return error;
	error = add_region_for(heap, length, align, is_full);
	/* Regions that are free, but too short for this block, can use up the limit. */
	if (is_out_of_memory(error) && heap_shrink(heap, false))
		error = add_region_for(heap, length, align, is_full);
	return error;
}

int heap_grow_ahead(struct actmem_heap *heap, uint64_t length, uint64_t align,
		    uint64_t free_bytes)
{
	uint64_t needed = round_up(length, region_unit(heap));
	bool is_short, is_full;
	int error = 0;

	do {
		heap_lock_growth(heap);
		/*
		 * Without this wait, this thread could lock grow_lock again before a thread that
		 * needs a block gets the lock.
		 */
		while (atomic_load(&heap->growers))
			pthread_cond_wait(&heap->none_grows, &heap->grow_lock);
		pthread_mutex_lock(&heap->lock);
		is_short = free_bytes_now(heap) < free_bytes && limit_left(heap) >= needed;
		pthread_mutex_unlock(&heap->lock);
		/* Unlike heap_grow(), do not close free regions if the limit is reached. */
		if (is_short)
			error = heap_check_length(heap, length);
		if (is_short && !error)
			error = add_region_for(heap, length, align, &is_full);
		heap_unlock_growth(heap);
	} while (is_short && !error);
	return error;
}

static bool is_region_free(const struct heap_region *its)
{
	size_t i;

	for (i = 0; i < its->chunks; i++)
		if (!extents_range_is_free(its->first[i]))
			return false;
	return true;
}

/*
 * Returns true if the region must stay because it is attached to a queue, or because the program
 * registered it with a runtime. If the heap has a closing callback, ignores queues, because the
 * callback detaches the region. If the heap has a runtime, the heap made the registration.
 */
static bool is_region_held(const struct actmem_heap *heap, const struct heap_region *its)
{
	return (!heap->closing && region_attachments(its->region)) ||
	       (!heap->runtime && its->region->registration);
}

unsigned int heap_held(const struct actmem_heap *heap)
{
	const struct heap_region *its;
	unsigned int count = 0;

	for (its = heap->regions; its; its = its->next)
		count += is_region_held(heap, its);
	return count;
}

static bool may_close_region(const struct actmem_heap *heap, const struct heap_region *its,
			     bool named_too)
{
	return (named_too || !its->named) && !is_region_held(heap, its) &&
	       is_region_free(its);
}

/* Moves a region from the heap to the list @detached. Caller holds heap->lock. */
static void detach_region(struct actmem_heap *heap, struct heap_region **link,
			  struct heap_region **detached)
{
	struct heap_region *its = *link;
	size_t i;

	*link = its->next;
	its->next = *detached;
	*detached = its;
	for (i = 0; i < its->chunks; i++)
		extents_remove_range(&heap->extents, its->first[i]);
	heap->closing_bytes += actmem_region_length(its->region);
}

/* Removes all free regions from the heap, and returns them as a list. */
static struct heap_region *detach_free_regions(struct actmem_heap *heap, bool named_too)
{
	struct heap_region **link = &heap->regions, *its, *detached = NULL;

	pthread_mutex_lock(&heap->lock);
	heap_give_freed(heap);
	while ((its = *link)) {
		if (may_close_region(heap, its, named_too))
			detach_region(heap, link, &detached);
		else
			link = &its->next;
	}
	pthread_mutex_unlock(&heap->lock);
	return detached;
}

/*
 * Returns the shortest region of at least @excess bytes that may be closed. If all regions that may
 * be closed are shorter, returns the longest. Returns NULL if no region may be closed.
 */
static struct heap_region **choose_free_region(struct actmem_heap *heap, uint64_t excess)
{
	struct heap_region **link, **chosen = NULL;
	uint64_t length, best = 0;

	for (link = &heap->regions; *link; link = &(*link)->next) {
		if (!may_close_region(heap, *link, false))
			continue;
		length = actmem_region_length((*link)->region);
		if (best < excess ? length > best : length >= excess && length < best) {
			chosen = link;
			best = length;
		}
	}
	return chosen;
}

/* Removes as few regions as possible until the heap has at most @keep_bytes free. */
static struct heap_region *detach_excess(struct actmem_heap *heap, uint64_t keep_bytes)
{
	struct heap_region *detached = NULL, **link = NULL;
	uint64_t unused;

	pthread_mutex_lock(&heap->lock);
	do {
		unused = free_bytes_now(heap);
		link = unused > keep_bytes ? choose_free_region(heap, unused - keep_bytes) : NULL;
		if (link)
			detach_region(heap, link, &detached);
	} while (link);
	pthread_mutex_unlock(&heap->lock);
	return detached;
}

/*
 * Closes detached regions. A region counts against the limit until its memory is free. A cancelled
 * thread would leak the regions, so the caller defers cancellation.
 */
static void close_regions(struct actmem_heap *heap, struct heap_region *its)
{
	struct heap_region *next;
	uint64_t length;

	for (; its; its = next) {
		next = its->next;
		length = actmem_region_length(its->region);
		if (heap->closing)
			heap->closing(heap->closing_data, its->region);
		heap_region_close(heap, its);
		pthread_mutex_lock(&heap->lock);
		heap->closing_bytes -= length;
		count_region(heap, length, false);
		pthread_cond_broadcast(&heap->region_closed);
		pthread_mutex_unlock(&heap->lock);
	}
}

bool heap_shrink(struct actmem_heap *heap, bool named_too)
{
	struct heap_region *its;
	bool any;

	thread_hold_cancellation();
	its = detach_free_regions(heap, named_too);
	any = its;
	close_regions(heap, its);
	thread_let_cancellation();
	return any;
}

void heap_shrink_to(struct actmem_heap *heap, uint64_t keep_bytes)
{
	thread_hold_cancellation();
	close_regions(heap, detach_excess(heap, keep_bytes));
	thread_let_cancellation();
}

bool heap_may_grow(struct actmem_heap *heap, uint64_t bytes)
{
	uint64_t needed = round_up(bytes, region_unit(heap)), held;
	const struct heap_region *its;
	bool may;

	pthread_mutex_lock(&heap->lock);
	heap_give_freed(heap);
	held = open_bytes(heap);
	for (its = heap->regions; its && held + needed > heap->limit; its = its->next)
		if (may_close_region(heap, its, false))
			held -= actmem_region_length(its->region);
	may = held + needed <= heap->limit;
	pthread_mutex_unlock(&heap->lock);
	return may;
}

void heap_raise_limit(struct actmem_heap *heap, uint64_t bytes)
{
	uint64_t needed = round_up(bytes, region_unit(heap));

	pthread_mutex_lock(&heap->lock);
	if (heap->limit < open_bytes(heap) + needed)
		heap->limit = open_bytes(heap) + needed;
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
	held = open_bytes(heap);
	heap->limit = held;
	pthread_mutex_unlock(&heap->lock);
	return held;
}

uint64_t heap_lower_limit(struct actmem_heap *heap, uint64_t limit)
{
	uint64_t held, used;
	bool is_beyond;

	/* Hold grow_lock, because a thread that grows the heap may still use the old limit. */
	heap_lock_growth(heap);
	pthread_mutex_lock(&heap->lock);
	heap->limit = limit;
	heap_give_freed(heap);
	used = heap->extents.taken_bytes;
	is_beyond = heap->region_bytes > limit;
	pthread_mutex_unlock(&heap->lock);
	if (is_beyond)
		heap_shrink_to(heap, limit > used ? limit - used : 0);
	pthread_mutex_lock(&heap->lock);
	wait_for_closing(heap, limit);
	held = heap->region_bytes;
	pthread_mutex_unlock(&heap->lock);
	heap_unlock_growth(heap);
	return held;
}

uint64_t heap_bytes(struct actmem_heap *heap)
{
	uint64_t held;

	pthread_mutex_lock(&heap->lock);
	held = open_bytes(heap);
	pthread_mutex_unlock(&heap->lock);
	return held;
}

bool heap_is_charged(struct actmem_heap *heap)
{
	bool is_charged;

	pthread_mutex_lock(&heap->lock);
	is_charged = heap->is_charged;
	pthread_mutex_unlock(&heap->lock);
	return is_charged;
}

unsigned int heap_watch(struct actmem_heap *heap, struct pollfd *watched, unsigned int most)
{
	const struct heap_region *its;
	unsigned int count = 0;

	pthread_mutex_lock(&heap->lock);
	for (its = heap->regions; its && count < most; its = its->next)
		watched[count++] = (struct pollfd){ .fd = its->region->backing.fd,
						    .events = POLLPRI };
	pthread_mutex_unlock(&heap->lock);
	return count;
}

uint64_t heap_surplus(struct actmem_heap *heap)
{
	const struct heap_region *its;
	uint64_t surplus = 0;

	pthread_mutex_lock(&heap->lock);
	for (its = heap->regions; its; its = its->next)
		surplus += region_surplus(its->region);
	pthread_mutex_unlock(&heap->lock);
	return surplus;
}

void heap_watch_closing(struct actmem_heap *heap,
			void (*closing)(void *data, struct actmem_region *region), void *data)
{
	heap->closing = closing;
	heap->closing_data = data;
}
