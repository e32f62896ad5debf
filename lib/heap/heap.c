/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The public functions of heaps, which any number of threads may call. base/extents.c keeps track
 * of the parts of regions that are taken.
 *
 * A thread that takes or frees a block holds the heap's lock for tens of nanoseconds. By
 * comparison, filling a block of 1 MiB takes at least ten thousand nanoseconds. Creating a region
 * takes far longer. While a thread creates a region, it holds only grow_lock, so that other threads
 * can take and free blocks.
 *
 * A training step takes blocks of the same lengths as the previous step. The block that a step
 * takes first is the one that the previous step freed last. So the heap keeps freed blocks on a
 * stack, and does not merge them. The next step finds each block at the top of the stack, with the
 * same address as in the previous step. If the heap chose a new address for each block, the same
 * blocks could need more regions than in the first step. If none of the top blocks has the
 * requested length, or if a caller counts free memory, the heap merges all blocks of the stack with
 * the free memory around them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef ACTMEM_DEBUG
#include <stdio.h>
#endif

#include "base/base.h"
#include "config/config.h"
#include "heap/inside.h"
#include "region/region.h"

#define GROW_DEFAULT	(64ULL << 20)
#define CHUNK_DEFAULT	(64ULL << 30)
/* How many blocks take_freed() checks, beginning with the one that was freed last. */
#define FREED_TRIES	8

static int read_heap_options(struct actmem_heap *heap, const struct actmem_heap_options *options)
{
	struct actmem_region_options region;
	struct actmem_heap_options taken;
	int error = 0;

	ACTMEM_INIT(&taken);
	ACTMEM_INIT(&region);
	if (options)
		error = take_struct(&taken, sizeof(taken), options, "heap options");
	if (!error && taken.region)
		error = take_struct(&region, sizeof(region), taken.region, "region options");
	if (error)
		return error;
	if (region.length)
		return fail(EINVAL, "the region options of a heap have length %llu, not 0; set %s instead",
			    (unsigned long long)region.length, KNOB(HEAP_GROW));
	region.length = taken.grow_bytes ? taken.grow_bytes : GROW_DEFAULT;
	if (region.length % HUGE_PAGE_BYTES || region.length > EXTENT_BYTES_MAX)
		return fail(EINVAL, "%s is %llu; it must be a multiple of 2 MiB up to 128 TiB",
			    KNOB(HEAP_GROW), (unsigned long long)region.length);
	if (options_pages(&heap->am->options, region.pages) == ACTMEM_PAGES_1G)
		region.length = round_up(region.length, GIANT_PAGE_BYTES);
	if (!region.name)
		region.name = "heap";
	heap->limit = taken.limit_bytes ? taken.limit_bytes : UINT64_MAX;
	heap->chunk_bytes = CHUNK_DEFAULT;
	return options_resolve(&heap->am->options, &region, false, &heap->request);
}

int actmem_heap_create(struct actmem *am, const struct actmem_heap_options *options,
		       struct actmem_heap **result)
{
	struct actmem_heap *heap;
	int error;

	if (!am || !result)
		return fail(EINVAL, "actmem_heap_create: am or heap is NULL");
	error = check_owner(am);
	if (error)
		return error;
	heap = calloc(1, sizeof(*heap));
	if (!heap)
		return fail(ENOMEM, "no memory for a heap's handle");
	heap->am = am;
	error = read_heap_options(heap, options);
	if (!error && extents_init(&heap->extents))
		error = fail(ENOMEM, "no memory for a heap's bookkeeping");
	if (error) {
		free(heap);
		return error;
	}
	pthread_mutex_init(&heap->grow_lock, NULL);
	pthread_cond_init(&heap->none_grows, NULL);
	pthread_cond_init(&heap->region_closed, NULL);
	pthread_mutex_init(&heap->lock, NULL);
	handles_lock();
	am->heaps++;
	handles_unlock();
	counter_add(&am->counters->heaps, 1);
	*result = heap;
	return 0;
}

static int __attribute__((cold)) refuse_heap_call(const struct actmem_heap *heap, const char *call)
{
	return heap ? check_owner(heap->am) : fail(EINVAL, "%s: no heap", call);
}

static inline int check_heap(const struct actmem_heap *heap, const char *call)
{
	return heap && is_owner(heap->am) ? 0 : refuse_heap_call(heap, call);
}

#ifdef ACTMEM_DEBUG
void heap_check(struct actmem_heap *heap)
{
	const char *wrong = "no memory to check the bookkeeping";
	const struct heap_region *its;
	struct extent **firsts;
	size_t count = 0, i;

	for (its = heap->regions; its; its = its->next)
		count += its->chunks;
	firsts = malloc((count + 1) * sizeof(*firsts));
	if (!firsts)
		return;
	count = 0;
	for (its = heap->regions; its; its = its->next)
		for (i = 0; i < its->chunks; i++)
			firsts[count++] = its->first[i];
	wrong = extents_wrong(&heap->extents, firsts, count);
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

int actmem_heap_trim(struct actmem_heap *heap)
{
	int error = check_heap(heap, "actmem_heap_trim");

	if (error)
		return error;
	heap_shrink(heap, false);
	return 0;
}

int actmem_heap_trim_to(struct actmem_heap *heap, uint64_t keep_bytes)
{
	int error = check_heap(heap, "actmem_heap_trim_to");

	if (error)
		return error;
	heap_shrink_to(heap, keep_bytes);
	return 0;
}

int actmem_heap_destroy(struct actmem_heap *heap)
{
	unsigned int held;
	int error = check_heap(heap, "actmem_heap_destroy");

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	heap_check(heap);
	heap_give_freed(heap);
	held = heap_held(heap);
	if (held)
		error = fail(EBUSY, "%u of the heap's regions are attached to a queue or registered with a runtime; call actmem_queue_detach() or actmem_region_unregister() first",
			     held);
	if (heap->extents.taken)
		error = fail(EBUSY, "%zu blocks of %s are still live", heap->extents.taken,
			     BYTES_TEXT(heap->block_bytes));
	pthread_mutex_unlock(&heap->lock);
	if (error)
		return error;
	handles_lock();
	heap->am->heaps--;
	handles_unlock();
	heap_shrink(heap, true);
	heap_end_runtime(heap);
	counter_subtract(&heap->am->counters->heaps, 1);
	pthread_mutex_destroy(&heap->lock);
	pthread_cond_destroy(&heap->region_closed);
	pthread_cond_destroy(&heap->none_grows);
	pthread_mutex_destroy(&heap->grow_lock);
	extents_destroy(&heap->extents);
	free(heap);
	return 0;
}

/* Caller holds heap->lock. */
static void count_block(struct actmem_heap *heap, uint64_t bytes)
{
	struct counters *counters = heap->am->counters;

	heap->block_bytes += bytes;
	heap->blocks_total++;
	counter_add(&counters->blocks, 1);
	counter_add(&counters->blocks_total, 1);
	counter_raise(&counters->block_bytes_peak, counter_add(&counters->block_bytes, bytes));
}

/* Caller holds heap->lock. */
static void discount_block(struct actmem_heap *heap, uint64_t bytes)
{
	heap->block_bytes -= bytes;
	counter_subtract(&heap->am->counters->blocks, 1);
	counter_subtract(&heap->am->counters->block_bytes, bytes);
}

void heap_give_freed(struct actmem_heap *heap)
{
	struct extent *block;

	while ((block = heap->freed)) {
		heap->freed = block->next;
		extents_give(&heap->extents, block);
	}
}

/*
 * Takes one of the blocks that were freed last, if one has exactly @length bytes and is aligned to
 * @align. Returns NULL if none is. Caller holds heap->lock.
 */
static struct extent *take_freed(struct actmem_heap *heap, uint64_t length, uint64_t align)
{
	struct extent **link = &heap->freed, *block;
	unsigned int tries;

	for (tries = FREED_TRIES; tries-- && (block = *link); link = &block->next) {
		if (block->length == length && !((uintptr_t)block->address & (align - 1))) {
			*link = block->next;
			return block;
		}
	}
	return NULL;
}

/*
 * Takes a block from the existing regions. Returns -ENOSPC without an error message if no region
 * has enough free memory in one piece.
 */
static int take_block(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	struct extent *block;
	int error = 0;

	pthread_mutex_lock(&heap->lock);
	block = take_freed(heap, extent_length(bytes), align);
	if (!block) {
		heap_give_freed(heap);
		error = extents_take(&heap->extents, extent_length(bytes), align, &block);
	}
	if (!error) {
		block->bytes = bytes;
		*address = block->address;
		count_block(heap, bytes);
	}
	heap_check(heap);
	pthread_mutex_unlock(&heap->lock);
	return error == -ENOMEM ? fail(ENOMEM, "no memory for a heap's bookkeeping") : error;
}

static int take_block_or_grow(struct actmem_heap *heap, uint64_t bytes, uint64_t align,
			      void **address, bool *is_full)
{
	int error = take_block(heap, bytes, align, address);

	if (error != -ENOSPC)
		return error;
	atomic_fetch_add(&heap->growers, 1);
	heap_lock_growth(heap);
	/*
	 * Repeat: another thread can grow the heap first, or can take the memory that this thread
	 * adds.
	 */
	while ((error = take_block(heap, bytes, align, address)) == -ENOSPC) {
		error = heap_grow(heap, extent_length(bytes), align, is_full);
		if (error)
			break;
	}
	if (atomic_fetch_sub(&heap->growers, 1) == 1)
		pthread_cond_broadcast(&heap->none_grows);
	heap_unlock_growth(heap);
	return error;
}

/* Allocates a block. If @is_full is NULL, takes it only from the existing regions. */
static int alloc_block(struct actmem_heap *heap, uint64_t bytes, uint64_t align,
		       void **address, bool *is_full)
{
	int error = check_heap(heap, "actmem_heap_alloc");

	if (error)
		return error;
	if (!address || !bytes || bytes > EXTENT_BYTES_MAX)
		return fail(EINVAL, "actmem_heap_alloc: the size is %llu, but must be 1 to %llu, and block must not be NULL",
			    (unsigned long long)bytes, (unsigned long long)EXTENT_BYTES_MAX);
	if (align & (align - 1) || align > EXTENT_ALIGN_MAX)
		return fail(EINVAL, "actmem_heap_alloc: align is %llu; it must be a power of two up to 2 MiB",
			    (unsigned long long)align);
	if (align < EXTENT_UNIT)
		align = EXTENT_UNIT;
	return is_full ? take_block_or_grow(heap, bytes, align, address, is_full) :
	       take_block(heap, bytes, align, address);
}

int actmem_heap_alloc(struct actmem_heap *heap, uint64_t length, uint64_t align, void **address)
{
	bool is_full;

	return alloc_block(heap, length, align, address, &is_full);
}

int heap_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address,
	       bool *is_full)
{
	*is_full = false;
	return alloc_block(heap, bytes, align, address, is_full);
}

int heap_take(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address)
{
	return alloc_block(heap, bytes, align, address, NULL);
}

/* Returns the live block at @address, or NULL if there is none. Caller holds heap->lock. */
static struct extent *find_live(const struct actmem_heap *heap, const void *address)
{
	struct extent *block = extents_at(&heap->extents, address);

	return block && block->bytes ? block : NULL;
}

static int fail_not_live(const void *address)
{
	return fail(EINVAL, "%p is not the start of a live block of this heap; it was freed, or belongs to another allocator",
		    address);
}

int actmem_heap_locate(struct actmem_heap *heap, const void *address,
		       struct actmem_region **region, uint64_t *offset)
{
	const struct heap_region *its;
	int error = check_heap(heap, "actmem_heap_locate");

	if (error)
		return error;
	if (!region || !offset)
		return fail(EINVAL, "actmem_heap_locate: region or offset is NULL");
	pthread_mutex_lock(&heap->lock);
	if (find_live(heap, address)) {
		its = heap->regions;
		while ((uintptr_t)address - (uintptr_t)its->address >=
		       actmem_region_length(its->region))
			its = its->next;
		*region = its->region;
		*offset = (uintptr_t)address - (uintptr_t)its->address;
	} else {
		error = fail_not_live(address);
	}
	pthread_mutex_unlock(&heap->lock);
	return error;
}

int actmem_heap_free(struct actmem_heap *heap, void *address)
{
	struct extent *block;
	int error = check_heap(heap, "actmem_heap_free");

	if (error)
		return error;
	pthread_mutex_lock(&heap->lock);
	block = find_live(heap, address);
	if (block) {
		discount_block(heap, block->bytes);
		block->bytes = 0;
		block->next = heap->freed;
		heap->freed = block;
	}
	heap_check(heap);
	pthread_mutex_unlock(&heap->lock);
	return block ? 0 : fail_not_live(address);
}

int actmem_heap_get_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats)
{
	struct actmem_heap_stats now;
	int error = check_heap(heap, "actmem_heap_get_stats");

	if (error)
		return error;
	if (!stats)
		return fail(EINVAL, "actmem_heap_get_stats: stats is NULL");
	ACTMEM_INIT(&now);
	pthread_mutex_lock(&heap->lock);
	heap_give_freed(heap);
	now.regions = heap->region_count;
	now.region_bytes = heap->region_bytes;
	now.region_bytes_peak = heap->region_bytes_peak;
	now.blocks = heap->extents.taken;
	now.block_bytes = heap->block_bytes;
	now.used_bytes = heap->extents.taken_bytes;
	now.used_bytes_peak = heap->extents.taken_bytes_peak;
	now.largest_free = extents_largest_free(&heap->extents);
	now.free_pieces = heap->extents.free;
	now.blocks_total = heap->blocks_total;
	pthread_mutex_unlock(&heap->lock);
	return give_struct(stats, &now, sizeof(now), "heap stats");
}
