/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sequence numbers of records. A writer increments the number before and after it writes, so the
 * number is odd during the write. If a reader sees an odd number, or different numbers before and
 * after it reads, the record is torn, and the reader tries again.
 */
#ifndef LIB_WATCH_SEQUENCE_H
#define LIB_WATCH_SEQUENCE_H

#include <stdatomic.h>
#include <stdint.h>

/* A writer calls sequence_begin() before it writes to a record, and sequence_end() afterwards. */
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
