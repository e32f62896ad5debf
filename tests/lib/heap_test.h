/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of heaps share.
 */
#ifndef TESTS_HEAP_TEST_H
#define TESTS_HEAP_TEST_H

#include "common.h"

/* Or bails out, as the other does. */
static inline struct actmem_heap *make_heap(struct actmem *am, uint64_t grow, uint64_t limit)
{
	struct actmem_heap_options options;
	struct actmem_heap *heap;

	ACTMEM_INIT(&options);
	options.grow_bytes = grow;
	options.limit_bytes = limit;
	if (actmem_heap_create(am, &options, &heap))
		tap_bail("actmem_heap_create");
	return heap;
}

static inline struct actmem_heap_stats stats_of(struct actmem_heap *heap)
{
	struct actmem_heap_stats stats;

	ACTMEM_INIT(&stats);
	if (actmem_heap_stats(heap, &stats))
		tap_bail("actmem_heap_stats");
	return stats;
}

#endif /* TESTS_HEAP_TEST_H */
