/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Heaps of libactmem. A heap creates regions when it needs memory, and allocates blocks of pinned
 * memory in these regions. Each heap has one lock. A call holds the lock for a fraction of a
 * microsecond. A program may include this header or actmem.h: each includes the other.
 */
#include "actmem.h"

#ifndef ACTMEM_HEAP_H
#define ACTMEM_HEAP_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem_heap;		/* allocates blocks in its regions */

struct actmem_heap_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t grow_bytes;		/* usual region length, multiple of 2 MiB; 0: 64 MiB */
	uint64_t limit_bytes;		/* maximum length of all regions together; 0: no limit */
	const struct actmem_region_options *region;	/* length must be 0; NULL: defaults */
};

struct actmem_heap_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;		/* includes regions that are being closed */
	uint64_t region_bytes;		/* total length of the regions */
	uint64_t blocks;		/* blocks that are allocated and not freed */
	uint64_t block_bytes;		/* sum of the blocks' lengths, as requested */
	uint64_t used_bytes;		/* bytes that blocks occupy in the regions */
	uint64_t used_bytes_peak;
	uint64_t largest_free;		/* longest block that fits into the existing regions */
	uint64_t region_bytes_peak;
	uint64_t free_pieces;		/* number of separate free ranges in the regions */
	uint64_t blocks_total;		/* blocks allocated since the heap was created */
};

/*
 * Creates a heap, which allocates its blocks in regions. The heap's metadata is outside these
 * regions. If @options is NULL, the defaults apply.
 *
 * The usual length of a region is grow_bytes, rounded up to whole pages if the pages are 1G. In a
 * heap whose regions together are longer than 128 times grow_bytes, the usual length is 1/128 of
 * their total length. If the heap is fragmented, the usual length is 1/8 of the total length or
 * grow_bytes, whichever is longer. A heap is fragmented if more than 1/16 of it is free, but no
 * free range is long enough for the block.
 *
 * The heap expects more blocks of the requested length. So a new region has the length that a whole
 * number of such blocks needs, rounded up to 2 MiB. If the blocks leave at most 1/128 of a region
 * unused, they fill it. The heap creates the longest region up to the usual length that the blocks
 * fill. If there is none, it creates the shortest longer region that they fill, but at most 1/16 of
 * the total length. If there is none either, it creates a region up to the usual length in which
 * the blocks leave the smallest fraction unused. If one block is longer than the usual length, and
 * blocks fill no longer region, the region has the length of this block, rounded up to whole pages.
 * A region is shorter if the limit of the heap or of the kernel permits no more.
 *
 * A region consists of chunks, which a runtime (actmem_runtime.h) registers with the accelerator
 * one by one. A chunk is at most 64 GiB long. If the heap is registered with a runtime, a chunk is
 * at most as long as the option chunk_bytes of that runtime. A block lies within one chunk.
 *
 * If the caller passes a heap_name to actmem_open(), the regions are the files heap_name.0,
 * heap_name.1 and so on. heap_name is a path or a name, as for actmem_region_open(). Existing files
 * can have any length. The heap opens these files with ACTMEM_OPEN_LOCK: if two processes use one
 * name, actmem_heap_alloc() returns -EBUSY in the second process. Therefore each process of a job
 * needs its own name. The files stay when heaps are trimmed or destroyed and when the process ends.
 * The next process with the same heap_name reuses the files without clearing them, so its new
 * blocks contain old data. The files must belong to the user of the process, and must not be
 * symbolic links. rm(1) removes the files.
 *
 * -EINVAL  wrong grow_bytes or region options, or a region length other than 0
 * -ENOMEM  no memory for the metadata
 */
int actmem_heap_create(struct actmem *am,
		       const struct actmem_heap_options *options,
		       struct actmem_heap **heap);

/*
 * Destroys a heap and frees its regions. No other thread may use @heap during the call or later.
 *
 * -EBUSY  the heap has blocks, or regions that are attached to a queue, or that the program
 *	registered with a runtime; nothing is freed
 */
int actmem_heap_destroy(struct actmem_heap *heap);

/*
 * Allocates a block of pinned memory of @length bytes, and stores its address in *@block. @align
 * must be 0 or a power of two, up to 2 MiB. The address is a multiple of @align and of 256. The
 * contents are unspecified. Any thread may free the block with actmem_heap_free(). If a block was
 * just freed, the next block of the same length gets the freed block's address. The block is pinned
 * unless the library used the fallback ACTMEM_ALLOW_UNLOCKED for the block's region.
 *
 * If existing regions have enough free memory, the call allocates the block in any of these
 * regions. The call does not prefer regions on the caller's node. If the call creates a region,
 * that region is on the caller's node, unless the options name nodes or a policy. If threads on
 * several nodes need memory on their own nodes, create a heap for each node.
 *
 * -EINVAL  @length is 0, above the length of the address space, or above that of the longest chunk;
 *	or @align is above 2 MiB, or is not a power of two
 * -ENOMEM  the heap would exceed its limit, or there is no memory for the metadata
 * -EBUSY  another process uses the same heap_name
 * -EMFILE  the heap needs more than 4096 files
 * others  the heap needs a new region, and creating the region failed with an error of
 *	actmem_region_create() or, with a heap_name, of actmem_region_open(). If the heap is
 *	registered with a runtime, the call can also fail with an error of actmem_region_register()
 */
int actmem_heap_alloc(struct actmem_heap *heap, uint64_t length, uint64_t align,
		      void **block);

/*
 * Frees a block.
 *
 * -EINVAL  @block is not the start of a block of this heap; nothing changes
 */
int actmem_heap_free(struct actmem_heap *heap, void *block);

/*
 * Finds the region that contains a block, and the block's offset in the region. actmem_queue_fill()
 * and actmem_queue_spill() take the region and the offset as arguments. The region belongs to the
 * heap, and stays open until the block is freed. The caller may attach the region to a queue
 * (actmem_queue_attach()).
 *
 * -EINVAL  @block is not the start of a block of this heap
 */
int actmem_heap_locate(struct actmem_heap *heap, const void *block,
		       struct actmem_region **region, uint64_t *offset);

/*
 * Closes each region that contains no block and has no name. Keeps regions that are attached to a
 * queue, or that the program registered with a runtime.
 */
int actmem_heap_trim(struct actmem_heap *heap);

/*
 * Closes regions without blocks, as actmem_heap_trim() does, until at most @keep_bytes of the heap
 * are free. If it is enough to close one region, the call closes the shortest region that suffices.
 * Otherwise it closes the longest regions first.
 */
int actmem_heap_trim_to(struct actmem_heap *heap, uint64_t keep_bytes);

/* Returns the counters of the heap. */
int actmem_heap_get_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_HEAP_H */
