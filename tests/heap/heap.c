/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap: how it grows, what it refuses, and that the layers of a training fit at
 * every step where they did at the first.
 */
#include <errno.h>
#include <string.h>

#include "heap_test.h"

#define GROW		(8 * MIB)
#define LIMIT		(32 * MIB)

static void test_growth(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	void *small, *large, *aligned, *more;

	ok(!stats_of(heap).regions, "a new heap has no region");
	returns(actmem_heap_alloc(heap, 1, 0, &small), 0);
	ok(stats_of(heap).region_bytes == GROW, "it grows by grow_bytes");
	returns(actmem_heap_alloc(heap, GROW + 1, 0, &large), 0);
	ok(stats_of(heap).region_bytes == 2 * GROW + page_bytes_wanted(), "or by what is asked for");
	returns(actmem_heap_alloc(heap, 2 * MIB, 2 * MIB, &aligned), 0);
	ok(!((uintptr_t)aligned % (2 * MIB)), "alignment is kept");
	returns(actmem_heap_alloc(heap, LIMIT, 0, &more), -ENOMEM);
	says("32.0 MiB");
	ok(stats_of(heap).blocks == 3, "a failure takes nothing");
	returns(actmem_heap_free(heap, small), 0);
	returns(actmem_heap_free(heap, small), -EINVAL);
	returns(actmem_heap_free(heap, (char *)large + 256), -EINVAL);
	returns(actmem_heap_free(heap, &heap), -EINVAL);
	returns(actmem_heap_free(heap, NULL), -EINVAL);
	says("not the start of a live block");
	returns(actmem_heap_free(heap, large), 0);
	returns(actmem_heap_trim(heap), 0);
	ok(stats_of(heap).regions == 1, "a region with a live block is kept");
	returns(actmem_heap_free(heap, aligned), 0);
	returns(actmem_heap_destroy(heap), 0);
}

/* Regions of 2, 4 and 8 MiB, of which no more go back than it takes. */
static void test_trim_to(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, 2 * MIB, LIMIT);
	void *blocks[3];
	unsigned int i;

	for (i = 0; i < 3; i++)
		returns(actmem_heap_alloc(heap, 2 * MIB << i, 0, &blocks[i]), 0);
	returns(actmem_heap_trim_to(heap, 0), 0);
	ok(stats_of(heap).region_bytes == 14 * MIB, "regions with live blocks stay");
	for (i = 0; i < 3; i++)
		returns(actmem_heap_free(heap, blocks[i]), 0);
	returns(actmem_heap_trim_to(heap, 14 * MIB), 0);
	ok(stats_of(heap).region_bytes == 14 * MIB, "what may be kept is");
	returns(actmem_heap_trim_to(heap, 14 * MIB - 1), 0);
	ok(stats_of(heap).region_bytes == 12 * MIB, "the shortest goes that is enough");
	returns(actmem_heap_alloc(heap, 2 * MIB, 0, &blocks[0]), 0);
	returns(actmem_heap_trim_to(heap, 7 * MIB), 0);
	ok(stats_of(heap).regions == 1 && stats_of(heap).blocks == 1,
	   "of two regions the one with a live block stays");
	returns(actmem_heap_free(heap, blocks[0]), 0);
	returns(actmem_heap_trim_to(heap, 0), 0);
	ok(!stats_of(heap).regions, "to keep nothing is to give all back");
	for (i = 0; i < 3; i++)
		returns(actmem_heap_alloc(heap, 2 * MIB << i, 0, &blocks[i]), 0);
	for (i = 0; i < 3; i++)
		returns(actmem_heap_free(heap, blocks[i]), 0);
	returns(actmem_heap_trim_to(heap, 3 * MIB), 0);
	ok(stats_of(heap).region_bytes == 2 * MIB, "or the longest, and then one that is enough");
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_heap_trim_to(NULL, 0), -EINVAL);
}

/* Blocks of layers taken forward and given backward, as activations are. */
static void test_layers(struct actmem *am)
{
	const uint64_t sizes[] = { 40000, 5120, 5120, 81920 };
	struct actmem_heap *heap = make_heap(am, GROW, LIMIT);
	uint64_t used = 0, sum = 0, regions = 0;
	void *blocks[32 * 4];
	unsigned int step, i;

	for (step = 0; step < 3; step++) {
		for (i = 0; i < 128; i++)
			if (actmem_heap_alloc(heap, sizes[i % 4], 0, &blocks[i]))
				tap_bail("actmem_heap_alloc");
		if (!step) {
			used = stats_of(heap).used_bytes;
			sum = stats_of(heap).block_bytes;
			regions = stats_of(heap).region_bytes;
		}
		while (i--)
			if (actmem_heap_free(heap, blocks[i]))
				tap_bail("actmem_heap_free");
	}
	ok(used * 100 <= sum * 102, "%llu bytes take %llu", (unsigned long long)sum,
	   (unsigned long long)used);
	ok(stats_of(heap).used_bytes_peak == used && stats_of(heap).region_bytes == regions,
	   "every step fits where the first did");
	returns(actmem_heap_destroy(heap), 0);
}

int main(void)
{
	return RUN_TESTS(test_growth, test_trim_to, test_layers);
}
