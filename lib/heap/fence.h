/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two threads that each write one word and then read the other's: at least one of
 * them sees what the other wrote. Of these, one does so often and has it cheap;
 * the other seldom, and makes the kernel order the first one's accesses
 * (membarrier). Where the kernel does not, both pay alike.
 */
#ifndef LIB_HEAP_FENCE_H
#define LIB_HEAP_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/base.h"

/* Never changes once fence_prepare() has returned. */
extern bool fence_by_kernel;

/* Any number of times, before the first of the others. */
void fence_prepare(void);

/* The frequent side: writes true; what it reads next by seq_cst is ordered behind it. */
static inline void fence_write_often(atomic_bool *mine)
{
	if (LIKELY(fence_by_kernel)) {
		atomic_store_explicit(mine, true, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
	} else {
		atomic_store_explicit(mine, true, memory_order_seq_cst);
	}
}

/*
 * The other side, between its seq_cst writes and reads. False: the kernel refused,
 * and what is read may be old.
 */
bool fence_seldom(void);

#endif /* LIB_HEAP_FENCE_H */
