/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Large blocks for malloc mode, from one pool of private huge pages, or from one pool for each NUMA
 * node. Thread-safe. A forked child continues with the blocks that it inherited.
 */
#ifndef LIB_PRELOAD_MALLOC_LARGE_H
#define LIB_PRELOAD_MALLOC_LARGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/settings.h"

#define LARGE_CHUNK_SHIFT	26
#define LARGE_CHUNKS		(1UL << (48 - LARGE_CHUNK_SHIFT))

/* The functions of malloc.c read this struct in each call. */
struct large_gate {
	size_t min_bytes;		/* SIZE_MAX until large_start() */
	/*
	 * For each chunk of the address space (64 MiB), the number of its pool + 1, or 0 if it has
	 * no pool. NULL until large_start().
	 */
	uint8_t *owners;
};

extern struct large_gate large_gate;

/* Starts malloc mode: sets large_gate.min_bytes. On failure, @reader has the error message. */
void large_start(const struct malloc_settings *settings, struct reader *reader);

static inline bool chunk_is_owned(uintptr_t chunk)
{
	return large_gate.owners && chunk < LARGE_CHUNKS && large_gate.owners[chunk];
}

/* Returns true if @memory is in a pool. In that case, only a large block can start at @memory. */
static inline bool large_is(const void *memory)
{
	return chunk_is_owned((uintptr_t)memory >> LARGE_CHUNK_SHIFT);
}

/* Returns true if any part of the range is in a pool, even if that part is free. */
static inline bool large_has(const void *memory, size_t bytes)
{
	uintptr_t chunk = (uintptr_t)memory >> LARGE_CHUNK_SHIFT, end = (uintptr_t)memory + bytes;

	for (; chunk < LARGE_CHUNKS && chunk << LARGE_CHUNK_SHIFT < end; chunk++)
		if (chunk_is_owned(chunk))
			return true;
	return false;
}

/*
 * Allocates a block. @align must be a power of two. Returns NULL, with errno unchanged, if @bytes
 * or @align is too large for a large block, or if there is no memory. A call that finds no memory
 * increments refused_total of the published counters.
 */
void *large_alloc(size_t bytes, size_t align);

/* If no block begins at @memory, both functions abort the process, as glibc does. */
void large_free(void *memory);
size_t large_usable_size(void *memory);

/*
 * Resizes a block in place. Returns false, with the block unchanged, if too little memory behind it
 * is free.
 */
bool large_resize(void *memory, size_t bytes);

/* Gives all free pages back to the kernel. Returns true if there were any. */
bool large_trim(void);

#endif /* LIB_PRELOAD_MALLOC_LARGE_H */
