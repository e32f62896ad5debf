/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap registers its regions when it creates them. Devices can use its blocks, regions are
 * created and closed, and some cannot be unregistered. The limit counts a region until it is
 * closed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "actmem_queue.h"
#include "cuda_test.h"
#include "../heap/heap_test.h"
#include "heap/inside.h"

static struct cuda cuda;

static uint64_t regions_of(struct actmem_heap *heap)
{
	return stats_of(heap).regions;
}

static void test_blocks(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_heap *heap = make_heap(am, LENGTH, 0);
	void *blocks[12];
	uint64_t pointer, bytes;
	bool whole = true;
	unsigned int i;

	returns(actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	returns(actmem_heap_register(heap, runtime, 0), -EEXIST);
	returns(actmem_runtime_close(runtime), -EBUSY);
	says("0 regions and 1 heaps");
	for (i = 0; i < 12; i++) {
		if (actmem_heap_alloc(heap, CHUNK / 2 + 4096, 0, &blocks[i]))
			tap_bail("actmem_heap_alloc");
		whole = whole && !actmem_runtime_pointer(runtime, blocks[i], &pointer, &bytes) &&
			bytes >= CHUNK / 2 + 4096;
	}
	ok(whole, "devices have each block in one piece");
	ok(regions_of(heap) > 1 && runtime_info(runtime).regions == regions_of(heap),
	   "%llu regions are registered", (unsigned long long)regions_of(heap));
	returns(actmem_runtime_close(runtime), -EBUSY);
	says("1 heaps");
	for (i = 0; i < 12; i++)
		actmem_heap_free(heap, blocks[i]);
	returns(actmem_heap_trim(heap), 0);
	ok(!regions_of(heap) && !runtime_info(runtime).regions, "none is when they have gone");
	nothing_is_registered(&cuda);
	returns(actmem_heap_alloc(heap, 4096, 0, &blocks[0]), 0);
	returns(actmem_heap_free(heap, blocks[0]), 0);
	returns(actmem_heap_destroy(heap), 0);
	nothing_is_retained(&cuda);
}

static void test_refusals(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_heap *heap = make_heap(am, LENGTH, 0);
	void *block;

	returns(actmem_heap_register(NULL, runtime, 0), -EINVAL);
	returns(actmem_heap_register(heap, NULL, 0), -EINVAL);
	returns(actmem_heap_register(heap, runtime, 1U << 31), -EINVAL);
	says("0x80000000");
	returns(actmem_heap_alloc(heap, 4096, 0, &block), 0);
	returns(actmem_heap_register(heap, runtime, 0), -EBUSY);
	says("1 regions that are not registered");
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_trim(heap), 0);
	returns(actmem_heap_register(heap, runtime, 0), 0);
	returns(actmem_heap_alloc(heap, CHUNK + 1, 0, &block), -EINVAL);
	says("raise chunk_bytes of the runtime");
	ok(!regions_of(heap), "and no region is made");
	returns(actmem_heap_destroy(heap), 0);
}

/* CUDA's context goes while blocks are live: they stay, and go in their turn. */
static void test_lost(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_heap *heap = make_heap(am, LENGTH, 0);
	uint64_t lost = runtime_info(runtime).lost_total;
	void *block;

	returns(actmem_heap_register(heap, runtime, 0), 0);
	returns(actmem_heap_alloc(heap, CHUNK, 0, &block), 0);
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	memset(block, 1, CHUNK);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
	ok(runtime_info(runtime).lost_total == lost + 1, "what was lost is counted");
	nothing_is_retained(&cuda);
}

static void test_failures(struct actmem *am)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_heap *heap = make_heap(am, LENGTH, 0);
	void *block;

	returns(actmem_heap_register(heap, runtime, 0), 0);
	cuda.standin_fail("cuMemHostRegister_v2", 2, 1, CUDA_ERROR_OPERATING_SYSTEM);
	returns(actmem_heap_alloc(heap, CHUNK, 0, &block), -EIO);
	says("CUDA_ERROR_OPERATING_SYSTEM");
	ok(!regions_of(heap) && !runtime_info(runtime).regions, "and no region is made");
	nothing_is_retained(&cuda);

	returns(actmem_heap_alloc(heap, CHUNK, 0, &block), 0);
	returns(actmem_heap_free(heap, block), 0);
	cuda.standin_fail("cuMemHostUnregister", 1, 2, CUDA_ERROR_ILLEGAL_ADDRESS);
	returns(actmem_heap_destroy(heap), 0);
	ok(counters_of(am).regions == 1 && runtime_info(runtime).regions == 1,
	   "what CUDA does not let go of stays, and is counted");
	returns(actmem_runtime_close(runtime), -EBUSY);
	returns(actmem_runtime_close(runtime), 0);
	counters_are_zero(am);
	nothing_is_retained(&cuda);
}

/* CUDA lets go of the second of two regions, but not of the first. */
static void test_two_failures(struct actmem *am)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_heap *heap = make_heap(am, CHUNK, 0);
	void *blocks[2];
	int i;

	returns(actmem_heap_register(heap, runtime, 0), 0);
	for (i = 0; i < 2; i++)
		returns(actmem_heap_alloc(heap, CHUNK, 0, &blocks[i]), 0);
	for (i = 0; i < 2; i++)
		returns(actmem_heap_free(heap, blocks[i]), 0);
	cuda.standin_fail("cuMemHostUnregister", 1, 3, CUDA_ERROR_ILLEGAL_ADDRESS);
	returns(actmem_heap_destroy(heap), 0);
	ok(runtime_info(runtime).regions == 2, "both regions stay");
	returns(actmem_runtime_close(runtime), -EBUSY);
	ok(runtime_info(runtime).regions == 1, "one that fails again does not keep the other");
	returns(actmem_runtime_close(runtime), 0);
	counters_are_zero(am);
	nothing_is_retained(&cuda);
}

static uint64_t own_bytes;
static char own_why[1024];

static void own_memory(uint64_t bytes, const char *why)
{
	own_bytes += why ? bytes : -bytes;
	if (why)
		snprintf(own_why, sizeof(own_why), "%s", why);
}

/* Of two regions the second is not registered, and is the driver's own memory. */
static void test_own(struct actmem *am)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_CUDA, .own_memory = own_memory,
	};
	struct actmem_runtime *runtime;
	uint64_t pointer, bytes;
	struct actmem_queue *queue;
	struct actmem_heap *heap;
	void *blocks[2];

	returns(actmem_runtime_open(am, &options, &runtime), 0);
	heap = make_heap(am, LENGTH, 0);
	returns(actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	returns(actmem_heap_alloc(heap, LENGTH, 0, &blocks[0]), 0);
	ok(!own_bytes, "nothing is told where a region is registered");
	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OPERATING_SYSTEM);
	returns(actmem_heap_alloc(heap, LENGTH, 0, &blocks[1]), 0);
	memset(blocks[1], 1, LENGTH);
	ok(own_bytes == LENGTH && runtime_info(runtime).own_bytes == LENGTH &&
	   counts_of(&cuda).allocated_bytes == LENGTH && strstr(own_why, "CUDA_ERROR_OPERATING_SYSTEM"),
	   "one that is not is told: %s", own_why);
	ok(runtime_info(runtime).regions == 2 && runtime_info(runtime).bytes == 2 * LENGTH,
	   "both are counted");
	ok(!actmem_runtime_pointer(runtime, (char *)blocks[1] + 4096, &pointer, &bytes) &&
	   bytes == LENGTH - 4096, "devices have an address of it");
	returns(actmem_queue_create(am, NULL, &queue), 0);
	returns(actmem_queue_attach(queue, heap->regions->region, 0), -EOPNOTSUPP);
	says("the runtime's own");
	returns(actmem_queue_destroy(queue), 0);
	returns(actmem_heap_free(heap, blocks[1]), 0);
	returns(actmem_heap_trim(heap), 0);
	ok(!own_bytes && !runtime_info(runtime).own_bytes && !counts_of(&cuda).allocated,
	   "and it goes as the heap shrinks");

	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	returns(actmem_heap_alloc(heap, LENGTH, 0, &blocks[1]), 0);
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	returns(actmem_heap_free(heap, blocks[1]), 0);
	returns(actmem_heap_free(heap, blocks[0]), 0);
	returns(actmem_heap_destroy(heap), 0);
	ok(!own_bytes && runtime_info(runtime).lost_total == 2, "what a reset has taken is not freed");
	returns(actmem_runtime_close(runtime), 0);
	nothing_is_retained(&cuda);
}

#define GROWTHS	10

struct trimmed {
	struct actmem_heap *heap;
	atomic_bool is_over;
};

static void *trim_always(void *context)
{
	struct trimmed *trimmed = context;

	while (!atomic_load(&trimmed->is_over))
		actmem_heap_trim(trimmed->heap);
	return NULL;
}

/* The limit permits one region, and another thread takes 20 ms to close it. */
static void test_limit_while_closing(struct actmem *am, struct actmem_runtime *runtime)
{
	struct trimmed trimmed = { .heap = make_heap(am, LENGTH, LENGTH) };
	struct actmem_heap *heap = trimmed.heap;
	unsigned int refused = 0;
	pthread_t thread;
	void *block;

	returns(actmem_heap_register(heap, runtime, 0), 0);
	slow(&cuda, "cuMemHostUnregister", 20000);
	thread = start_thread(trim_always, &trimmed);
	while (counters_of(am).regions_total < GROWTHS && !refused)
		refused = actmem_heap_alloc(heap, 4096, 0, &block) || actmem_heap_free(heap, block);
	atomic_store(&trimmed.is_over, true);
	pthread_join(thread, NULL);
	slow(&cuda, "cuMemHostUnregister", 0);
	ok(!refused, "a block waits for the region that another thread closes");
	ok(counters_of(am).region_bytes_peak == LENGTH, "the regions keep to the limit: %llu bytes",
	   (unsigned long long)counters_of(am).region_bytes_peak);
	returns(actmem_heap_destroy(heap), 0);
}

int main(void)
{
	struct usage before;
	struct actmem_runtime *runtime;
	struct actmem *am;

	am = cuda_begin(&cuda, &before);
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	test_limit_while_closing(am, runtime);
	test_blocks(am, runtime);
	test_refusals(am, runtime);
	test_lost(am, runtime);
	returns(actmem_runtime_close(runtime), 0);
	if (cuda.standin_fail) {
		test_failures(am);
		test_two_failures(am);
		test_own(am);
	}
	return cuda_end(&cuda, am, before);
}
