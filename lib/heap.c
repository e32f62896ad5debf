/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Heaps: blocks of regions, for any number of threads. blocks.c says which
 * parts are taken; here are locks, growth, limits and counters.
 *
 * Making a region takes long, so it happens under grow_lock alone: other
 * threads go on with the blocks that are there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"
#include "context.h"
#include "error.h"
#include "node.h"
#include "options.h"
#include "region.h"

#define GROW_DEFAULT	(64ULL << 20)

struct range {
	struct range *next;
	struct actmem_region *region;
	struct block *first;
};

struct actmem_heap {
	struct actmem *am;
	struct region_request request;	/* length: to grow by */
	uint64_t limit;
	pthread_mutex_t grow_lock;
	pthread_mutex_t lock;		/* of all below */
	struct blocks blocks;
	struct range *ranges;
	uint64_t regions;
	uint64_t region_bytes;
	uint64_t block_bytes;
	uint64_t used_bytes;
	uint64_t used_bytes_peak;
};

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
		return fail(EINVAL, "grow_bytes is %llu; it must be a multiple of 2 MiB up to 128 TiB",
			    (unsigned long long)taken.region.length);
	if (!taken.region.name)
		taken.region.name = "heap";
	heap->limit = taken.limit_bytes ? taken.limit_bytes : UINT64_MAX;
	return options_resolve(&heap->am->options, &taken.region, &heap->request);
}

int actmem_heap_create(struct actmem *am, const struct actmem_heap_options *options,
		       struct actmem_heap **result)
{
	struct actmem_heap *heap;
	int error;

	if (!am || !result)
		return fail(EINVAL, "actmem_heap_create: no handle or place for the heap");
	error = check_owner(am);
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
	pthread_mutex_init(&heap->lock, NULL);
	handles_lock();
	am->heaps++;
	handles_unlock();
	counter_add(&am->counters->heaps, 1);
	*result = heap;
	return 0;
}

static int check_heap(const struct actmem_heap *heap, const char *call)
{
	return heap ? check_owner(heap->am) : fail(EINVAL, "%s: no heap", call);
}

/* Takes the ranges of which nothing is taken out of the heap. */
static struct range *detach_free_ranges(struct actmem_heap *heap)
{
	struct range **link = &heap->ranges, *range, *detached = NULL;

	pthread_mutex_lock(&heap->lock);
	while ((range = *link)) {
		if (!blocks_range_is_free(range->first)) {
			link = &range->next;
			continue;
		}
		*link = range->next;
		range->next = detached;
		detached = range;
		blocks_remove_range(&heap->blocks, range->first);
		heap->regions--;
		heap->region_bytes -= actmem_region_length(range->region);
	}
	pthread_mutex_unlock(&heap->lock);
	return detached;
}

static void close_ranges(struct range *range)
{
	struct range *next;

	for (; range; range = next) {
		next = range->next;
		region_close(range->region);
		free(range);
	}
}

int actmem_heap_trim(struct actmem_heap *heap)
{
	int error = check_heap(heap, "actmem_heap_trim");

	if (!error)
		close_ranges(detach_free_ranges(heap));
	return error;
}

int actmem_heap_destroy(struct actmem_heap *heap)
{
	struct actmem *am;
	int error = check_heap(heap, "actmem_heap_destroy");

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	if (heap->blocks.taken)
		error = fail(EBUSY, "%zu blocks of %s are still live", heap->blocks.taken,
			     BYTES_TEXT(heap->block_bytes));
	pthread_mutex_unlock(&heap->lock);
	if (error)
		return error;
	close_ranges(detach_free_ranges(heap));
	am = heap->am;
	handles_lock();
	am->heaps--;
	handles_unlock();
	counter_subtract(&am->counters->heaps, 1);
	pthread_mutex_destroy(&heap->lock);
	pthread_mutex_destroy(&heap->grow_lock);
	blocks_destroy(&heap->blocks);
	free(heap);
	return 0;
}

static int take(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	struct block *block;
	int error;

	pthread_mutex_lock(&heap->lock);
	error = blocks_take(&heap->blocks, bytes, align, &block);
	if (!error) {
		*address = block->address;
		heap->block_bytes += bytes;
		heap->used_bytes += block->length;
		if (heap->used_bytes > heap->used_bytes_peak)
			heap->used_bytes_peak = heap->used_bytes;
	}
	pthread_mutex_unlock(&heap->lock);
	return error == -ENOMEM ? fail(ENOMEM, "no memory for a heap's bookkeeping") : error;
}

/* Length of the region that makes room for @bytes within the limit. */
static int grown_length(struct actmem_heap *heap, uint64_t bytes, uint64_t *length)
{
	uint64_t needed = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	uint64_t held, left;

	pthread_mutex_lock(&heap->lock);
	held = heap->region_bytes;
	pthread_mutex_unlock(&heap->lock);
	left = heap->limit > held ? heap->limit - held : 0;
	if (needed > left)
		return fail(ENOMEM, "the heap may have %s, its regions have %s, and %s more are wanted; raise limit_bytes or free blocks",
			    BYTES_TEXT(heap->limit), BYTES_TEXT(held), BYTES_TEXT(needed));
	*length = heap->request.length > needed ? heap->request.length : needed;
	if (*length > left)
		*length = left / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	return 0;
}

/* Under grow_lock. */
static int grow(struct actmem_heap *heap, uint64_t bytes)
{
	struct region_request request = heap->request;
	struct range *range;
	void *address;
	int error = grown_length(heap, bytes, &request.length);

	if (error)
		return error;
	range = malloc(sizeof(*range));
	if (!range)
		return fail(ENOMEM, "no memory for a heap's bookkeeping");
	error = region_create(heap->am, &request, &range->region);
	if (error)
		goto free_range;
	error = actmem_region_map(range->region, &address);
	if (error)
		goto close_region;
	pthread_mutex_lock(&heap->lock);
	range->first = blocks_add_range(&heap->blocks, address, request.length);
	if (range->first) {
		range->next = heap->ranges;
		heap->ranges = range;
		heap->regions++;
		heap->region_bytes += request.length;
	}
	pthread_mutex_unlock(&heap->lock);
	if (range->first)
		return 0;
	error = fail(ENOMEM, "no memory for a heap's bookkeeping");
close_region:
	region_close(range->region);
free_range:
	free(range);
	return error;
}

static int take_or_grow(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	int error = take(heap, bytes, align, address);

	if (error != -ENOSPC)
		return error;
	pthread_mutex_lock(&heap->grow_lock);
	/* Another thread may have grown it meanwhile, or take what this one made. */
	while ((error = take(heap, bytes, align, address)) == -ENOSPC) {
		error = grow(heap, bytes);
		if (error)
			break;
	}
	pthread_mutex_unlock(&heap->grow_lock);
	return error;
}

int actmem_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	struct counters *counters;
	int error = check_heap(heap, "actmem_alloc");

	if (error)
		return error;
	if (!address || !bytes || bytes > BLOCK_BYTES_MAX)
		return fail(EINVAL, "actmem_alloc: %llu bytes; 1 to %llu can be had, at an address to be stored",
			    (unsigned long long)bytes, (unsigned long long)BLOCK_BYTES_MAX);
	if (align & (align - 1) || align > BLOCK_ALIGN_MAX)
		return fail(EINVAL, "actmem_alloc: align is %llu; it must be a power of two up to 2 MiB",
			    (unsigned long long)align);
	error = take_or_grow(heap, bytes, align > BLOCK_UNIT ? align : BLOCK_UNIT, address);
	if (error)
		return error;
	counters = heap->am->counters;
	counter_add(&counters->blocks, 1);
	counter_add(&counters->blocks_total, 1);
	counter_raise(&counters->block_bytes_peak, counter_add(&counters->block_bytes, bytes));
	return 0;
}

int actmem_free(struct actmem_heap *heap, void *address)
{
	struct block *block;
	uint64_t bytes = 0;
	int error = check_heap(heap, "actmem_free");

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	block = blocks_find(&heap->blocks, address);
	if (block) {
		bytes = block->asked;
		heap->block_bytes -= bytes;
		heap->used_bytes -= block->length;
		blocks_give(&heap->blocks, block);
	}
	pthread_mutex_unlock(&heap->lock);
	if (!block)
		return fail(EINVAL, "%p is not the start of a live block of this heap: freed before, or from elsewhere",
			    address);
	counter_subtract(&heap->am->counters->blocks, 1);
	counter_subtract(&heap->am->counters->block_bytes, bytes);
	return 0;
}

int actmem_heap_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats)
{
	struct actmem_heap_stats now;
	int error = check_heap(heap, "actmem_heap_stats");

	if (error)
		return error;
	if (!stats)
		return fail(EINVAL, "actmem_heap_stats: nowhere to put them");
	ACTMEM_INIT(&now);
	pthread_mutex_lock(&heap->lock);
	now.regions = heap->regions;
	now.region_bytes = heap->region_bytes;
	now.blocks = heap->blocks.taken;
	now.block_bytes = heap->block_bytes;
	now.used_bytes = heap->used_bytes;
	now.used_bytes_peak = heap->used_bytes_peak;
	now.largest_free = blocks_largest_free(&heap->blocks);
	pthread_mutex_unlock(&heap->lock);
	return give_struct(stats, &now, sizeof(now), "heap stats");
}
