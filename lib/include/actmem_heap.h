/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Heaps of libactmem: blocks of regions, which a heap makes as it needs them.
 * actmem.h includes it, and so comes first, whichever of the two a program includes.
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

struct actmem_heap;		/* hands out blocks of regions */

struct actmem_heap_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t grow_bytes;		/* of a region, a multiple of 2 MiB; 0: 64 MiB; see below */
	uint64_t limit_bytes;		/* of all its regions; 0: none */
	const struct actmem_region_options *region;	/* with length 0; NULL: defaults */
};

struct actmem_heap_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;
	uint64_t region_bytes;
	uint64_t blocks;		/* live */
	uint64_t block_bytes;		/* as asked for */
	uint64_t used_bytes;		/* what these blocks take of the regions */
	uint64_t used_bytes_peak;
	uint64_t largest_free;		/* longest block that fits without growing */
	uint64_t region_bytes_peak;
	uint64_t free_pieces;		/* that the rest of the regions is in */
	uint64_t blocks_total;		/* handed out since it was made */
};

/*
 * A heap makes regions as it needs them and hands out blocks of them. Its
 * bookkeeping lies outside the regions. @options NULL: defaults. They can be freed
 * afterwards, and what they point to as well.
 *
 * A region is as long as grow_bytes (of 1G pages rounded up), or shorter where blocks
 * of the length that is wanted then fill it better, or longer where a block is, or
 * where the heap has become large: 1/128 of it, and up to 1/8 while much of it is free
 * in pieces that do not do. A block lies within one region, and across no multiple of
 * the length that is registered at once: 64 GiB, or the chunk_bytes of its runtime.
 *
 * If actmem_open() was given a heap_name, a path or a bare name as for
 * actmem_region_open(), the regions are files: heap_name.0, heap_name.1 and so
 * on, whatever length those have that are there already. They are opened with
 * ACTMEM_OPEN_LOCK, so that of two processes with one name the second fails
 * (-EBUSY from actmem_heap_alloc()); several processes of one job need a name each.
 * They stay when heaps are trimmed or destroyed and when the process ends, and
 * the next one with that name takes them as they are: what it finds in its
 * blocks is what the last one left. They must be its user's own, and no symbolic
 * links. rm removes them.
 *
 * -EINVAL  grow_bytes, or the region's options, or their length is not 0
 * -ENOMEM  none for the bookkeeping
 */
int actmem_heap_create(struct actmem *am,
		       const struct actmem_heap_options *options,
		       struct actmem_heap **heap);

/*
 * -EBUSY while blocks are live, or regions of it attached to a queue; nothing is
 * freed then. No other thread may be in a call on @heap, or make one later.
 */
int actmem_heap_destroy(struct actmem_heap *heap);

/*
 * @length bytes of pinned memory at *@block, aligned to @align (a power of two up to
 * 2 MiB) and to 256 at least. The contents are unspecified. Freed by actmem_heap_free(),
 * by any thread. Never ordinary memory:
 *
 * -EINVAL  length is 0, absurd or more than is registered at once, align no power of two
 *	or too large
 * -ENOMEM  the heap's limit, or none for the bookkeeping
 * else, where it takes a new region, as actmem_region_create(), actmem_region_open()
 *	(heap_name; -EMFILE: over 4096 of them) and actmem_region_register()
 */
int actmem_heap_alloc(struct actmem_heap *heap, uint64_t length, uint64_t align,
		      void **block);

/* -EINVAL: not the start of a live block of this heap; nothing changes. */
int actmem_heap_free(struct actmem_heap *heap, void *block);

/*
 * The region that a block lies in, and at which offset it begins there: as what
 * actmem_queue_fill() and actmem_queue_spill() take, once the region is attached. The
 * region is the heap's, and stays open while the block is live.
 *
 * -EINVAL: not the start of a live block of this heap.
 */
int actmem_heap_locate(struct actmem_heap *heap, const void *block,
		       struct actmem_region **region, uint64_t *offset);

/*
 * Gives back the regions without live blocks, but for named ones and those attached to
 * a queue: these stay open.
 */
int actmem_heap_trim(struct actmem_heap *heap);

/*
 * The same, but no more regions than it takes for the heap to have @keep_bytes or less
 * free: the shortest that is enough, or else the longest first.
 */
int actmem_heap_trim_to(struct actmem_heap *heap, uint64_t keep_bytes);

/* Current counters of the heap. */
int actmem_heap_get_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_HEAP_H */
