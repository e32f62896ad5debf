/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks of malloc that have mappings of their own, with pages of regions: for programs
 * that have CUDA register what malloc gave them. Thread-safe; a forked child goes on with
 * what it has of them.
 */
#ifndef LIB_PRELOAD_MALLOC_REGIONAL_H
#define LIB_PRELOAD_MALLOC_REGIONAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regional_gate {
	size_t min_bytes;		/* SIZE_MAX until regional_begin() */
	_Atomic uintptr_t low, high;	/* of all blocks there ever were */
};

extern struct regional_gate regional_gate;

/* @map: zeros at a multiple of 2 MiB, or NULL. False: it cannot be had here. */
bool regional_begin(size_t min_bytes, void *(*map)(size_t bytes));

/* Whether it may be one: the calls below say whether it is. */
static inline bool regional_may_be(const void *memory)
{
	uintptr_t address = (uintptr_t)memory;

	return address >= atomic_load_explicit(&regional_gate.low, memory_order_relaxed) &&
	       address < atomic_load_explicit(&regional_gate.high, memory_order_relaxed);
}

/* It reads as zeros. NULL: it is for others. */
void *regional_alloc(size_t bytes, size_t align);

/* False, 0: it is none. */
bool regional_free(void *memory);
size_t regional_size(const void *memory);

#endif /* LIB_PRELOAD_MALLOC_REGIONAL_H */
