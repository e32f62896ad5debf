/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the files of the heap share.
 */
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
	unsigned int number;		/* that the heap's name has here */
	const char *address;
	uint64_t chunk_bytes;
	size_t chunks;
	struct extent **first;		/* of each chunk */
};

struct actmem_heap {
	struct actmem *am;
	struct region_request request;	/* for regions; its length is what to grow by */
	/* Called before a region is closed, with no lock but perhaps grow_lock; or NULL. */
	void (*closing)(void *data, struct actmem_region *region);
	void *closing_data;
	uint64_t chunk_bytes;		/* the most that is registered at once; its runtime's */
	struct actmem_runtime *runtime;	/* that registers its regions, or NULL; set before the first */
	uint32_t register_flags;
	pthread_mutex_t grow_lock;
	atomic_uint growers;		/* threads that want grow_lock, or have it, for a block */
	pthread_cond_t none_grows;	/* with grow_lock */
	pthread_mutex_t lock;		/* of all below */
	uint64_t limit;
	struct extents extents;
	struct extent *freed;		/* taken extents whose bytes are 0, the last first */
	struct heap_region *regions;
	uint64_t region_count;
	uint64_t region_bytes;
	uint64_t region_bytes_peak;
	uint64_t block_bytes;		/* of live blocks, as asked for */
	uint64_t blocks_total;
};

/* The thread is not cancelled until it unlocks. */
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
 * Makes the heap longer by a region that has room for @length at @align. Under
 * grow_lock. 0 or -errno with words. *@is_full: it failed, as the limit leaves no room.
 */
int heap_grow(struct actmem_heap *heap, uint64_t length, uint64_t align, bool *is_full);

/*
 * Closes the regions without live blocks, but for those attached to a queue. Returns
 * whether there was one. Closing a named region would give back only the name, which
 * another process could then take: they stay unless @named_too.
 */
bool heap_shrink(struct actmem_heap *heap, bool named_too);

/* Closes such regions, but for named ones, until no more than @keep_bytes are free. */
void heap_shrink_to(struct actmem_heap *heap, uint64_t keep_bytes);

/* Merges freed blocks with the free memory around them. Under lock. */
void heap_give_freed(struct actmem_heap *heap);

/* How many of its regions are attached to a queue. Under lock. */
unsigned int heap_attached(const struct actmem_heap *heap);

/*
 * Opens a region of @length, registered in chunks of @chunk_bytes; or, if the heap's regions
 * have names, the next file, as it is there or newly made, of at most @left bytes. Under
 * grow_lock. 0 or -errno with words.
 */
int heap_region_open(struct actmem_heap *heap, uint64_t length, uint64_t left,
		     uint64_t chunk_bytes, struct heap_region **result);
void heap_region_close(struct actmem_heap *heap, struct heap_region *its);

/*
 * Registers a region that was made, and unregisters it before it is closed, if the
 * heap's regions are registered. False: CUDA did not let go of it; the runtime closes it
 * once it does.
 */
int heap_register_region(struct actmem_heap *heap, struct heap_region *its);
bool heap_unregister_region(struct actmem_heap *heap, struct actmem_region *region);

/* A region of the runtime's own memory, if it may be that: one was not registered, and @why. */
int heap_own_region(struct actmem_heap *heap, uint64_t length, const char *why,
		    struct actmem_region **region);

/* Ends the heap's use of its runtime, after its last region. */
void heap_end_runtime(struct actmem_heap *heap);

/* In a debug build, ends the program if a sum is wrong. Under lock. */
void heap_check(struct actmem_heap *heap);

#endif /* LIB_HEAP_INSIDE_H */
