/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of heaps share.
 */
#ifndef TESTS_HEAP_TEST_H
#define TESTS_HEAP_TEST_H

#include "actmem_runtime.h"
#include "common.h"

/* What the environment asks for, with such a name for heaps; bails out, as the others do. */
static inline struct actmem *open_named(const char *heap_name)
{
	struct actmem_options options = { .size = sizeof(options) };
	struct actmem *am;

	if (actmem_options_from_environment(&options))
		tap_bail("actmem_options_from_environment");
	options.heap_name = heap_name;
	if (actmem_open(&am, &options))
		tap_bail("actmem_open");
	return am;
}

static inline struct actmem_heap *make_heap(struct actmem *am, uint64_t grow, uint64_t limit)
{
	struct actmem_heap_options options = {
		.size = sizeof(options), .grow_bytes = grow, .limit_bytes = limit,
	};
	struct actmem_heap *heap;

	if (actmem_heap_create(am, &options, &heap))
		tap_bail("actmem_heap_create");
	return heap;
}

/* A runtime without a device; no block of its heaps lies in two such chunks. */
static inline struct actmem_runtime *open_chunks(struct actmem *am, uint64_t chunk)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_NULL, .chunk_bytes = chunk,
	};
	struct actmem_runtime *runtime;

	if (actmem_runtime_open(am, &options, &runtime))
		tap_bail("actmem_runtime_open");
	return runtime;
}

static inline struct actmem_heap *make_chunked(struct actmem *am, uint64_t grow, uint64_t limit,
					       struct actmem_runtime *runtime)
{
	struct actmem_heap *heap = make_heap(am, grow, limit);

	if (actmem_heap_register(heap, runtime, 0))
		tap_bail("actmem_heap_register");
	return heap;
}

static inline struct actmem_heap_stats stats_of(struct actmem_heap *heap)
{
	struct actmem_heap_stats stats = { .size = sizeof(stats) };

	if (actmem_heap_get_stats(heap, &stats))
		tap_bail("actmem_heap_get_stats");
	return stats;
}

#endif /* TESTS_HEAP_TEST_H */
