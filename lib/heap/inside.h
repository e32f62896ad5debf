/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Structs and functions that the files of the heap share. */
#ifndef LIB_HEAP_INSIDE_H
#define LIB_HEAP_INSIDE_H

#include "base/base.h"
#include "heap/heap.h"
#include "machine/machine.h"
#include "region/region.h"

struct heap_region {
	struct heap_region *next;
	struct actmem_region *region;
	bool named;
	unsigned int number;		/* suffix of the file's name */
	const char *address;
	uint64_t chunk_bytes;
	size_t chunks;
	struct extent **first;		/* first extent of each chunk */
};

struct actmem_heap {
	struct actmem *am;
	struct region_request request;	/* for new regions; length: grow_bytes, rounded up */
	/* Unless NULL, called before a region closes. No lock is held, except perhaps grow_lock. */
	void (*closing)(void *data, struct actmem_region *region);
	void *closing_data;
	uint64_t chunk_bytes;		/* maximum that the runtime registers at once */
	struct actmem_runtime *runtime;	/* registers regions, unless NULL; set before any region */
	uint32_t register_flags;
	pthread_mutex_t grow_lock;
	atomic_uint growers;		/* threads that wait for or hold grow_lock for a block */
	pthread_cond_t none_grows;	/* signals that growers is 0; used with grow_lock */
	pthread_cond_t region_closed;	/* signals that a region was closed; used with lock */
	pthread_mutex_t lock;		/* protects all fields below */
	uint64_t limit;
	bool is_charged;		/* had a region whose pages the memory cgroup counts */
	struct extents extents;
	struct extent *freed;		/* freed blocks: taken extents with bytes 0, latest first */
	struct heap_region *regions;
	uint64_t region_count;
	uint64_t region_bytes;		/* includes regions that are being closed */
	uint64_t closing_bytes;		/* part of region_bytes: regions detached, not yet closed */
	uint64_t region_bytes_peak;
	uint64_t block_bytes;		/* sum of the lengths of live blocks, as requested */
	uint64_t blocks_total;
};

/* Takes grow_lock. Defers cancellation of the thread until heap_unlock_growth(). */
static inline void heap_lock_growth(struct actmem_heap *heap)
{
	thread_hold_cancellation();
	pthread_mutex_lock(&heap->grow_lock);
}

static inline void heap_unlock_growth(struct actmem_heap *heap)
{
	pthread_mutex_unlock(&heap->grow_lock);
	thread_let_cancellation();
}

/*
 * Adds a region with space for @length at @align. Caller holds grow_lock. Returns 0, or a negative
 * errno with an error message. Sets *@is_full to true if the call failed because of the limit.
 */
int heap_grow(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full);

/*
 * Closes the regions without live blocks, except those attached to a queue or registered by the
 * program. Returns true if it closed any. Keeps named regions unless @named_too is set: closing a
 * named region frees no memory, and lets another process take its name.
 */
bool heap_shrink(struct actmem_heap *heap, bool named_too);

/*
 * Closes regions without live blocks until at most @keep_bytes are free. Keeps those with names,
 * those attached to a queue, and those registered by the program.
 */
void heap_shrink_to(struct actmem_heap *heap, uint64_t keep_bytes);

/* Merges freed blocks with the free memory around them. Caller holds heap->lock. */
void heap_give_freed(struct actmem_heap *heap);

/*
 * Returns how many of the heap's regions must stay because they are attached to a queue, or because
 * the program registered them. Caller holds heap->lock.
 */
unsigned int heap_held(const struct actmem_heap *heap);

/*
 * Creates a region of @length, registered in chunks of @chunk_bytes. If the runtime refuses chunks
 * of this length, tries shorter chunks in which a block of @home bytes still fits. If the heap's
 * regions have names, opens or creates the file with the next name. An existing file must not be
 * longer than @left bytes. Caller holds grow_lock. Returns 0, or a negative errno with an error
 * message.
 */
int heap_region_open(struct actmem_heap *heap, uint64_t length, uint64_t left,
		     uint64_t chunk_bytes, uint64_t home, struct heap_region **result);
void heap_region_close(struct actmem_heap *heap, struct heap_region *its);

/*
 * Returns -EOPNOTSUPP with an error message if an earlier registration showed that the heap's
 * runtime cannot register memory; else 0.
 */
int heap_check_registers(const struct actmem_heap *heap);

/*
 * If the heap has a runtime, heap_register_region() registers a new region, and
 * heap_unregister_region() unregisters a region before it is closed. heap_unregister_region()
 * returns false if CUDA did not release the region. In this case, the runtime closes the region
 * when CUDA releases it.
 */
int heap_register_region(struct actmem_heap *heap, struct heap_region *its, uint64_t home);
bool heap_unregister_region(struct actmem_heap *heap, struct actmem_region *region);

/*
 * Creates a region in memory that the runtime allocates. Fails if the runtime's options have no
 * own_memory. @why: the reason why an ordinary region could not be registered.
 */
int heap_own_region(struct actmem_heap *heap, uint64_t length, const char *why,
		    struct actmem_region **region);

/* Ends the heap's use of its runtime. Called after the last region is closed. */
void heap_end_runtime(struct actmem_heap *heap);

/*
 * In a debug build, aborts the program if the heap's bookkeeping is wrong. Caller holds heap->lock.
 */
void heap_check(struct actmem_heap *heap);

#endif /* LIB_HEAP_INSIDE_H */
