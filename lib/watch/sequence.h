/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A writer counts a record's sequence number before and behind what it writes, so that it
 * is odd meanwhile: a reader that saw another number before than behind, or an odd one,
 * read a torn record and tries again.
 */
#ifndef LIB_WATCH_SEQUENCE_H
#define LIB_WATCH_SEQUENCE_H

#include <stdatomic.h>
#include <stdint.h>

/* Around what is written to a record. */
static inline void sequence_begin(_Atomic uint64_t *sequence)
{
	atomic_store_explicit(sequence, *sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static inline void sequence_end(_Atomic uint64_t *sequence)
{
	atomic_store_explicit(sequence, *sequence + 1, memory_order_release);
}

#endif /* LIB_WATCH_SEQUENCE_H */
