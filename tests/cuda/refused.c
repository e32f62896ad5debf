/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * CUDA registers no long pieces, or none at all. Pieces are shorter then, and what was
 * refused is not asked for again. With the stand-in alone.
 */
#include <errno.h>
#include <stdlib.h>

#include "cuda_test.h"
#include "../heap/heap_test.h"
#include "runtime/inside.h"

#define LENGTH_ALL	(4 * PIECE_LEAST)
#define MOST		"104857600"	/* 100 MiB */

static struct cuda cuda;

static uint64_t asked(void)
{
	return counts_of(&cuda).own_registrations;
}

/* A heap that is one region, of which a block has @bytes: the pieces, and the calls for them. */
static void test_heap(struct actmem *am, struct actmem_runtime *runtime, uint64_t bytes,
		      uint64_t chunks, uint64_t calls)
{
	struct actmem_heap *heap = make_heap(am, LENGTH_ALL, LENGTH_ALL);
	uint64_t before = asked(), pointer, whole;
	void *block;

	if (actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP))
		tap_bail("actmem_heap_register");
	returns(actmem_heap_alloc(heap, bytes, 0, &block), 0);
	ok(runtime_info(runtime).chunks == chunks && asked() == before + calls,
	   "%llu pieces by %llu calls", (unsigned long long)runtime_info(runtime).chunks,
	   (unsigned long long)(asked() - before));
	returns(actmem_runtime_pointer(runtime, block, &pointer, &whole), 0);
	ok(whole >= bytes, "a block of %llu bytes lies in one", (unsigned long long)bytes);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
	nothing_is_registered(&cuda);
}

static void test_long_pieces(struct actmem *am)
{
	struct actmem_runtime *runtime = whole_runtime_or_bail(am);
	struct actmem_region *region;
	struct actmem_region_options options = {
		.size = sizeof(options), .length = 160 * MIB, .flags = ACTMEM_REGION_LAZY,
	};
	struct actmem_heap *heap;
	void *block;

	setenv("STANDIN_CUDA_REGISTER_MOST", MOST, 1);
	/* 256 and 128 MiB are refused, and then four of 64 MiB are not. */
	test_heap(am, runtime, MIB, 4, 6);
	test_heap(am, runtime, MIB, 4, 4);
	/* A longer block has to lie in one piece. */
	test_heap(am, runtime, 80 * MIB, 3, 3);
	ok(!runtime_info(runtime).failures_total, "none of it is a failure");
	heap = make_heap(am, LENGTH_ALL, LENGTH_ALL);
	returns(actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	returns(actmem_heap_alloc(heap, 120 * MIB, 0, &block), -ENOMEM);
	says("CUDA_ERROR_OUT_OF_MEMORY");
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_runtime_close(runtime), 0);

	runtime = whole_runtime_or_bail(am);
	returns(actmem_region_create(am, &options, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(runtime_info(runtime).chunks == 2 && registration_of(region).chunks == 2,
	   "a region that is registered by itself is in two pieces");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
	unsetenv("STANDIN_CUDA_REGISTER_MOST");
}

/* As in confidential computing. */
static void test_none_at_all(struct actmem *am)
{
	struct actmem_runtime *runtime = whole_runtime_or_bail(am);
	struct actmem_heap *heap = make_heap(am, 2 * MIB, 0);
	struct actmem_region *region = region_or_bail(am, "refused");
	uint64_t before = asked(), regions;
	unsigned int i, odd = 0;
	void *block;

	returns(actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	setenv("STANDIN_CUDA_REGISTER_MOST", "0", 1);
	returns(actmem_heap_alloc(heap, MIB, 0, &block), -EOPNOTSUPP);
	says("CUDA_ERROR_NOT_SUPPORTED");
	regions = counters_of(am).regions_total;
	for (i = 0; i < 16; i++)
		odd += actmem_heap_alloc(heap, MIB, 0, &block) != -EOPNOTSUPP;
	says("CUDA_ERROR_NOT_SUPPORTED");
	says("does not try to register memory again");
	returns(actmem_region_register(region, runtime, 0), -EOPNOTSUPP);
	ok(!odd && asked() == before + 1 && runtime_info(runtime).failures_total == 1,
	   "CUDA is asked %llu times", (unsigned long long)(asked() - before));
	ok(counters_of(am).regions_total == regions, "and no region is made in vain");
	unsetenv("STANDIN_CUDA_REGISTER_MOST");
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_runtime_close(runtime), 0);
	runtime = whole_runtime_or_bail(am);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(asked() == before + 2, "another runtime asks anew");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

int main(void)
{
	struct usage before;
	struct actmem *am = cuda_begin(&cuda, &before);

	if (cuda.standin_counts) {
		test_long_pieces(am);
		test_none_at_all(am);
	} else {
		tap_skip("a real GPU is not made to refuse");
	}
	return cuda_end(&cuda, am, before);
}
