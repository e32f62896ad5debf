/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Mappings of the program's that have pages of regions from their beginning, and what
 * the program does to them: it unmaps parts of them, advises, registers and forks, as if
 * the memory were what it asked the kernel for. Thread-safe.
 */
#ifndef LIB_PRELOAD_CUDA_MAPPED_H
#define LIB_PRELOAD_CUDA_MAPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "preload/cuda/region.h"

/* All that there ever were lie in it, so that other memory needs no lock. */
struct mapped_gate {
	_Atomic uintptr_t low, high;
};

extern struct mapped_gate mapped_gate;

/* Whether any of it may be in such a mapping. */
static inline bool mapped_may_have(const void *address, size_t bytes)
{
	uintptr_t first = (uintptr_t)address;

	return first < atomic_load_explicit(&mapped_gate.high, memory_order_relaxed) &&
	       first + bytes > atomic_load_explicit(&mapped_gate.low, memory_order_relaxed);
}

/* Has forks bring children what they expect; while there is one thread. False: it cannot. */
bool mapped_begin(void);

/* What the program mapped. */
struct mapped_range {
	char *address;			/* at a multiple of a huge page */
	uint64_t length;
	bool is_shared;			/* with children, and not copied for them */
};

/*
 * Maps @its there, in place of room, in one step to a fork(); it is closed when all of it is
 * unmapped. False: with errno, and the room is the caller's to unmap.
 */
bool mapped_put(const struct mapped_range *range, const struct cuda_region *its);

/* What the system's calls return, with errno, for ranges of which any may be in one. */
int mapped_unmap(void *address, size_t bytes);
int mapped_advise(void *address, size_t bytes, int advice);
int mapped_protect(void *address, size_t bytes, int protection);

/* Something else has been mapped there. */
void mapped_forget(const void *address, size_t bytes);

enum mapped_kind {
	MAPPED_NOT,
	MAPPED_PRIVATE,
	MAPPED_SHARED,			/* as some of it is, if not all */
};

enum mapped_kind mapped_kind(const void *address, size_t bytes);

/* CUDA has registered what begins there, or has unregistered it. */
void mapped_registered(const void *address, bool is_registered);

#endif /* LIB_PRELOAD_CUDA_MAPPED_H */
