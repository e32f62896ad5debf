/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Heaps: blocks of regions, for any number of threads. blocks.c says which
 * parts are taken; here are locks, growth, limits and counters.
 *
 * Making a region takes long, so it happens under grow_lock alone: other
 * threads go on with the blocks that are there.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
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
	bool named;
	unsigned int number;		/* of its name */
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

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

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
	if (options_pages(&heap->am->options, taken.region.pages) == ACTMEM_PAGES_1G)
		taken.region.length = round_up(taken.region.length, GIANT_PAGE_BYTES);
	if (!taken.region.name)
		taken.region.name = "heap";
	heap->limit = taken.limit_bytes ? taken.limit_bytes : UINT64_MAX;
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

/*
 * Takes the ranges of which nothing is taken out of the heap. Closing a named one
 * would give nothing back but the name: another process could then take it.
 */
static struct range *detach_free_ranges(struct actmem_heap *heap, bool named_too)
{
	struct range **link = &heap->ranges, *range, *detached = NULL;

	pthread_mutex_lock(&heap->lock);
	while ((range = *link)) {
		if ((range->named && !named_too) || !blocks_range_is_free(range->first)) {
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

static void close_range(struct actmem *am, struct range *range)
{
	region_close(range->region);
	if (range->named)
		heap_names_give(&am->heap_names, range->number);
	free(range);
}

static void close_ranges(struct actmem *am, struct range *range)
{
	struct range *next;

	for (; range; range = next) {
		next = range->next;
		close_range(am, range);
	}
}

int actmem_heap_trim(struct actmem_heap *heap)
{
	int error = check_heap(heap, "actmem_heap_trim");

	if (!error)
		close_ranges(heap->am, detach_free_ranges(heap, false));
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
	am = heap->am;
	close_ranges(am, detach_free_ranges(heap, true));
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

/* Length of the region that makes room for @bytes within the limit, and what is left of that. */
static int grown_length(struct actmem_heap *heap, uint64_t bytes, uint64_t *length,
			uint64_t *still_left)
{
	uint64_t unit = heap->request.pages == ACTMEM_PAGES_1G ? GIANT_PAGE_BYTES : HUGE_PAGE_BYTES;
	uint64_t needed = round_up(bytes, unit);
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
		*length = left / unit * unit;
	*still_left = left;
	return 0;
}

/* What was found may have any length, and pages of it may be missing. */
static int check_found(const struct region_request *request, struct actmem_region *region,
		       uint64_t left)
{
	uint64_t length = actmem_region_length(region);
	struct actmem_region_info info;
	int error;

	if (length % HUGE_PAGE_BYTES)
		return fail(EEXIST, "%s is there with %llu bytes, which is no multiple of 2 MiB; remove it",
			    request->path, (unsigned long long)length);
	if (length > left)
		return fail(ENOMEM, "the heap may have %s more, and %s is there with %s; raise limit_bytes, or remove it",
			    BYTES_TEXT(left), request->path, BYTES_TEXT(length));
	ACTMEM_INIT(&info);
	error = actmem_region_info(region, &info);
	if (!error && info.allocated_bytes < length)
		error = actmem_region_populate(region, 0, length);
	return error;
}

/* The next file of the heap's name, as it is or made. */
static int open_next(struct actmem_heap *heap, struct region_request *request, uint64_t left,
		     struct range *range)
{
	struct heap_names *names = &heap->am->heap_names;
	char path[PATH_MAX];
	int error = heap_names_take(names, &range->number);

	if (error)
		return error;
	range->named = true;
	snprintf(path, sizeof(path), "%s.%u", names->path, range->number);
	request->path = path;
	request->open = ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK | ACTMEM_OPEN_ANY_LENGTH;
	request->own = true;
	error = region_open(heap->am, request, &range->region);
	if (error == -EBUSY)
		fail_more(" (several processes of a job need an ACTMEM_NAME each)");
	if (!error && actmem_region_found(range->region)) {
		error = check_found(request, range->region, left);
		if (error)
			region_close(range->region);
	}
	if (error)
		heap_names_give(names, range->number);
	return error;
}

static int add_range(struct actmem_heap *heap, struct range *range)
{
	uint64_t length = actmem_region_length(range->region);
	void *address;
	int error = actmem_region_map(range->region, &address);

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	range->first = blocks_add_range(&heap->blocks, address, length);
	if (range->first) {
		range->next = heap->ranges;
		heap->ranges = range;
		heap->regions++;
		heap->region_bytes += length;
	}
	pthread_mutex_unlock(&heap->lock);
	return range->first ? 0 : fail(ENOMEM, "no memory for a heap's bookkeeping");
}

/* Under grow_lock. */
static int grow(struct actmem_heap *heap, uint64_t bytes)
{
	struct region_request request = heap->request;
	struct range *range;
	uint64_t left = 0;
	int error = grown_length(heap, bytes, &request.length, &left);

	if (error)
		return error;
	range = calloc(1, sizeof(*range));
	if (!range)
		return fail(ENOMEM, "no memory for a heap's bookkeeping");
	if (heap->am->heap_names.path)
		error = open_next(heap, &request, left, range);
	else
		error = region_create(heap->am, &request, &range->region);
	if (error) {
		free(range);
		return error;
	}
	error = add_range(heap, range);
	if (error)
		close_range(heap->am, range);
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
