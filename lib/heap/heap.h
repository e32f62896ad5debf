/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internal interface of heaps, which allocate blocks in regions for any number of threads.
 *
 * First read inside.h, which has the structs, and heap.c, which allocates blocks. grow.c grows and
 * shrinks heaps, regions.c opens their regions, and register.c registers the regions.
 *
 * Locks, outermost first: a heap's grow_lock, under which the heap adds regions and lowers its
 * limit; the locks of regions, and the lock that handles_lock() takes; a heap's lock, which
 * protects its blocks. A thread that holds grow_lock cannot be cancelled. If a caller must hold a
 * lock, the function's comment says so.
 */
#ifndef LIB_HEAP_H
#define LIB_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"

struct pollfd;

/*
 * Sets a function that the heap calls before it closes a region. The thread that calls @closing
 * holds none of the heap's locks, except perhaps grow_lock. Call heap_watch_closing() before the
 * first block is allocated.
 */
void heap_watch_closing(struct actmem_heap *heap,
			void (*closing)(void *data, struct actmem_region *region), void *data);

/*
 * Checks the length of a block. Returns 0, or -EINVAL with an error message if no chunk of a region
 * can hold such a block.
 */
int heap_check_length(const struct actmem_heap *heap, uint64_t length);

/* Like actmem_heap_alloc(). Stores in *@is_full whether the call failed because of the limit. */
int heap_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address,
	       bool *is_full);

/*
 * Adds regions for blocks of @length until @free_bytes are free or the limit is reached. Does not
 * close free regions if the limit is reached. Takes grow_lock for one region at a time, and lets
 * threads that wait for a block go first. Returns 0, or a negative errno with an error message.
 */
int heap_grow_ahead(struct actmem_heap *heap, uint64_t length, uint64_t align,
		    uint64_t free_bytes);

/*
 * Like actmem_heap_alloc(), but returns -ENOSPC, without an error message, instead of adding a
 * region.
 */
int heap_take(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address);

/*
 * Returns true if the limit permits a region for @bytes, perhaps only after the heap has closed
 * free regions.
 */
bool heap_may_grow(struct actmem_heap *heap, uint64_t bytes);

/* Raises the limit so that the heap can add a region for @bytes. */
void heap_raise_limit(struct actmem_heap *heap, uint64_t bytes);

/* If the limit is lower than @limit, raises the limit to @limit. */
void heap_lift_limit(struct actmem_heap *heap, uint64_t limit);

/* Sets the limit to heap_bytes(), and returns the limit. */
uint64_t heap_stop_growing(struct actmem_heap *heap);

/*
 * Sets the limit to @limit, and closes free regions as long as all regions together exceed the
 * limit. Returns the total length of the remaining regions. Takes grow_lock, so that no thread adds
 * a region meanwhile.
 */
uint64_t heap_lower_limit(struct actmem_heap *heap, uint64_t limit);

/* Returns the length of all regions that no thread is closing. */
uint64_t heap_bytes(struct actmem_heap *heap);

/* Returns true if the memory cgroup counts, or has counted, the pages of a region of the heap. */
bool heap_is_charged(struct actmem_heap *heap);

/*
 * Stores the descriptors of at most @most regions in @watched, and returns their number. A
 * descriptor reports POLLPRI while its region has a surplus (surplus_bytes of struct
 * actmem_region_info). Another thread can close a region at any time. So when the caller uses a
 * descriptor, the descriptor can be invalid, or can belong to another file.
 */
unsigned int heap_watch(struct actmem_heap *heap, struct pollfd *watched, unsigned int most);

/* Returns how many bytes the heap should free because a limit of the driver was lowered. */
uint64_t heap_surplus(struct actmem_heap *heap);

#endif /* LIB_HEAP_H */
