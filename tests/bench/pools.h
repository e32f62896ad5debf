/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How much memory pools of other rules would take, reckoned without any memory.
 */
#ifndef BENCH_POOLS_H
#define BENCH_POOLS_H

#include <stdint.h>

#include "trace.h"

/*
 * XLA's rule: best fit, in multiples of 256 bytes, from regions each of which is
 * twice as long as the one before. A free piece is taken whole, unless it is
 * twice as long as what is wanted, or 128 MiB longer. Returns what its regions
 * have after @steps of the trace.
 */
uint64_t pool_doubling(const struct trace *trace, unsigned int steps);

/*
 * PyTorch's rule for pinned memory: each block is rounded up to a power of two,
 * and a freed one goes to who wants that length again.
 */
uint64_t pool_powers_of_two(const struct trace *trace, unsigned int steps);

#endif
