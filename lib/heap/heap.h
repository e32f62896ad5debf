/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of heaps: blocks of regions, for any number of threads.
 *
 * Read inside.h first, which has the structs; then heap.c, which hands out blocks;
 * grow.c, which makes a heap longer and shorter; regions.c, which opens its regions;
 * and register.c, which has them registered.
 *
 * Locks, outermost first: a heap's grow_lock, under which it gets regions, and lowers
 * its limit; the locks of regions and the handles lock; a heap's lock, of its blocks. A
 * thread that has grow_lock is not cancelled. Each function's declaration says under
 * which of them it is called.
 */
#ifndef LIB_HEAP_H
#define LIB_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"

/*
 * Has @closing called before a region is closed, with no lock held but perhaps grow_lock.
 * Set before the first block.
 */
void heap_watch_closing(struct actmem_heap *heap,
			void (*closing)(void *data, struct actmem_region *region), void *data);

/* 0, or -EINVAL with words: such a block would lie in two chunks of a region. */
int heap_check_length(const struct actmem_heap *heap, uint64_t length);

/* As actmem_heap_alloc(). *@is_full: it failed, as the limit left no room. */
int heap_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address,
	       bool *is_full);

/*
 * Makes the heap longer, as far as its limit permits without giving a region back, until
 * @free_bytes are free, by regions for blocks of @length. Takes grow_lock for one region
 * at a time, and lets threads that want a block go first. 0 or -errno with words.
 */
int heap_grow_ahead(struct actmem_heap *heap, uint64_t length, uint64_t align,
		    uint64_t free_bytes);

/* As actmem_heap_alloc(), without making a region: -ENOSPC, without words. */
int heap_take(struct actmem_heap *heap, uint64_t bytes, uint64_t align, void **address);

/* Whether the limit permits a region for @bytes, if need be in place of free regions. */
bool heap_may_grow(struct actmem_heap *heap, uint64_t bytes);

/* Lets the heap grow beyond its limit, by a region for @bytes. */
void heap_raise_limit(struct actmem_heap *heap, uint64_t bytes);

/* Raises the limit to @limit, if it was less. */
void heap_lift_limit(struct actmem_heap *heap, uint64_t limit);

/* Makes the limit what the regions have now, and returns that. */
uint64_t heap_stop_growing(struct actmem_heap *heap);

/*
 * Sets the limit to @limit, closes as many free regions as the heap has beyond it, and
 * returns what its regions still have. Takes grow_lock, so no region is being made
 * meanwhile.
 */
uint64_t heap_lower_limit(struct actmem_heap *heap, uint64_t limit);

#endif /* LIB_HEAP_H */
