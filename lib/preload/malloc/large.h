/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Large blocks for malloc, from pools of private huge pages: one pool, or one for
 * each node. Thread-safe; a forked child goes on with what it inherited.
 */
#ifndef LIB_PRELOAD_MALLOC_LARGE_H
#define LIB_PRELOAD_MALLOC_LARGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "preload/settings.h"

#define LARGE_CHUNK_SHIFT	26

/*
 * Each call to malloc and free looks at it. @low and @high only move apart, so that a
 * thread that reads one of them late still finds the blocks that it was given earlier.
 */
struct large_gate {
	size_t min_bytes;		/* SIZE_MAX until large_start() */
	_Atomic uintptr_t low, high;	/* of all chunks there ever were */
	uint8_t *owners;		/* of each chunk: 0, or 1 + its pool */
} __attribute__((aligned(64)));

extern struct large_gate large_gate;

/* Sets large_gate.min_bytes as @settings say, unless @reader has the error that it cannot. */
void large_start(const struct malloc_settings *settings, struct reader *reader);

/* Whether a large block, or none at all, begins there. */
static inline bool large_is(const void *memory)
{
	uintptr_t address = (uintptr_t)memory;

	return address >= atomic_load_explicit(&large_gate.low, memory_order_relaxed) &&
	       address < atomic_load_explicit(&large_gate.high, memory_order_relaxed) &&
	       large_gate.owners[address >> LARGE_CHUNK_SHIFT];
}

/* What else a block is taken for. */
enum large_use {
	LARGE_ANY,
	LARGE_ZERO,			/* all of it reads as zero */
	LARGE_GROWS,			/* better where it can become longer */
};

/* Whether any of it is of a pool, taken or free. */
static inline bool large_has(const void *memory, size_t bytes)
{
	uintptr_t address = (uintptr_t)memory, end = address + bytes;
	uintptr_t low = atomic_load_explicit(&large_gate.low, memory_order_relaxed);
	uintptr_t high = atomic_load_explicit(&large_gate.high, memory_order_relaxed);

	if (address < low)
		address = low;
	if (end > high)
		end = high;
	for (; address < end; address = ((address >> LARGE_CHUNK_SHIFT) + 1) << LARGE_CHUNK_SHIFT)
		if (large_gate.owners[address >> LARGE_CHUNK_SHIFT])
			return true;
	return false;
}

/*
 * @align: a power of two. NULL, with errno as it was: there is none, which is counted,
 * or the alignment is more than a large block can have.
 */
void *large_alloc(size_t bytes, size_t align, enum large_use use);

/* These end the process, as glibc does, if no block begins at @memory. */
void large_free(void *memory);
size_t large_usable_size(void *memory);

/* Resizes it where it is. False: there is no room behind it; it is as it was. */
bool large_resize(void *memory, size_t bytes);

/* Gives back all that is free. Whether there was any. */
bool large_trim(void);

#endif /* LIB_PRELOAD_MALLOC_LARGE_H */
