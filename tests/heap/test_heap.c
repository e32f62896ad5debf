/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap where the kernel or the C library refuses what its regions, and the words for
 * its errors, are made of; the most bytes that were live; blocks that are taken
 * again; and regions that are attached to a queue, as by a store that has what is in
 * the heap's blocks go to files.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem.h"
#include "actmem_queue.h"
#include "actmem_runtime.h"
#include "heap/inside.h"
#include "region/context.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define PATIENCE_S	20

static struct actmem *am;
static struct actmem_heap *heap;

static int open_heap(void **state)
{
	struct actmem_heap_options heap_options;

	ACTMEM_INIT(&heap_options);
	heap_options.grow_bytes = 2 * MIB;
	return open_small(&am) || actmem_heap_create(am, &heap_options, &heap);
}

static int close_heap(void **state)
{
	fail_nothing();
	return actmem_heap_destroy(heap) || actmem_close(am);
}

static struct actmem_heap_stats stats_of(struct actmem_heap *its)
{
	struct actmem_heap_stats now = { .size = sizeof(now) };

	assert_int_equal(actmem_heap_get_stats(its, &now), 0);
	return now;
}

static void *first_failure(void *unused)
{
	assert_string_equal(actmem_error(), "");
	fail_every("calloc", ENOMEM);
	assert_fails(actmem_heap_free(heap, &am), EINVAL, "no memory for the error message");
	fail_nothing();
	assert_fails(actmem_heap_free(heap, &am), EINVAL, "not the start of a live block");
	return NULL;
}

static void test_no_words(void **state)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, first_failure, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static uint64_t bytes_peak(void)
{
	struct actmem_counters counters = { .size = sizeof(counters) };

	assert_int_equal(actmem_get_counters(am, &counters), 0);
	return counters.block_bytes_peak;
}

static void *take_half(void *block)
{
	assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, block), 0);
	return NULL;
}

/* Of all heaps and threads, to the byte. */
static void test_peak(void **state)
{
	struct actmem_heap *second;
	void *first_block, *second_block, *other_block;
	pthread_t thread;

	assert_int_equal(actmem_heap_create(am, NULL, &second), 0);
	assert_int_equal(actmem_heap_alloc(heap, 1000, 0, &first_block), 0);
	assert_int_equal(bytes_peak(), 1000);
	assert_int_equal(actmem_heap_alloc(second, MIB, 0, &second_block), 0);
	assert_int_equal(actmem_heap_free(heap, first_block), 0);
	assert_int_equal(bytes_peak(), MIB + 1000);
	assert_int_equal(pthread_create(&thread, NULL, take_half, &other_block), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(bytes_peak(), MIB + MIB / 2);
	assert_int_equal(actmem_heap_free(heap, other_block), 0);
	assert_int_equal(actmem_heap_free(second, second_block), 0);
	assert_int_equal(bytes_peak(), MIB + MIB / 2);
	assert_int_equal(actmem_heap_destroy(second), 0);
}

static uint64_t free_pieces(void)
{
	assert_int_equal(stats_of(heap).region_bytes, 2 * MIB);
	return stats_of(heap).free_pieces;
}

/*
 * Blocks are taken again where they lay, the last one first; but of another length, or
 * so aligned, only once they have merged.
 */
static void test_taken_again(void **state)
{
	void *blocks[4], *again, *whole;
	unsigned int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, &blocks[i]), 0);
	assert_int_equal(actmem_heap_free(heap, blocks[0]), 0);
	assert_int_equal(actmem_heap_free(heap, blocks[2]), 0);
	assert_int_equal(actmem_heap_free(heap, blocks[1]), 0);
	assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, &again), 0);
	assert_ptr_equal(again, blocks[1]);
	assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 2 * MIB, &again), 0);
	assert_ptr_equal(again, blocks[0]);
	assert_int_equal(actmem_heap_free(heap, again), 0);
	assert_fails(actmem_heap_free(heap, again), EINVAL, "not the start of a live block");
	assert_int_equal(free_pieces(), 2);
	for (i = 1; i < 4; i += 2)
		assert_int_equal(actmem_heap_free(heap, blocks[i]), 0);
	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &whole), 0);
	assert_int_equal(free_pieces(), 0);
	assert_int_equal(actmem_heap_free(heap, whole), 0);
	assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &again), 0);
	assert_int_equal(free_pieces(), 1);
	assert_int_equal(actmem_heap_free(heap, again), 0);
}

/* A region is whole pages, though the limit is not. */
static void test_odd_limit(void **state)
{
	struct actmem_heap_options options = { .size = sizeof(options), .limit_bytes = 5 * MIB + 1 };
	struct actmem_heap *odd;
	void *block, *none;

	assert_int_equal(actmem_heap_create(am, &options, &odd), 0);
	assert_int_equal(actmem_heap_alloc(odd, 3 * MIB, 0, &block), 0);
	assert_int_equal(stats_of(odd).region_bytes, 5 * MIB);
	assert_fails(actmem_heap_alloc(odd, 2 * MIB + 1, 0, &none), ENOMEM, "raise limit_bytes");
	assert_false(heap_may_grow(odd, 4 * MIB));
	assert_int_equal(actmem_heap_free(odd, block), 0);
	assert_true(heap_may_grow(odd, 4 * MIB));
	assert_int_equal(actmem_heap_alloc(odd, 3 * MIB, 0, &block), 0);
	assert_int_equal(actmem_heap_free(odd, block), 0);
	assert_int_equal(actmem_heap_trim_to(odd, 0), 0);
	assert_int_equal(stats_of(odd).region_bytes, 0);
	assert_int_equal(actmem_heap_destroy(odd), 0);
}

/* A region may begin where a newer one ends. */
static void test_adjacent(void **state)
{
	struct heap_region *newer, *older;
	struct actmem_region *region;
	void *blocks[2];
	const char *was;
	uint64_t offset;

	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &blocks[0]), 0);
	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &blocks[1]), 0);
	newer = heap->regions;
	older = newer->next;
	was = newer->address;
	newer->address = older->address - 2 * MIB;
	assert_int_equal(actmem_heap_locate(heap, blocks[0], &region, &offset), 0);
	newer->address = was;
	assert_ptr_equal(region, older->region);
	assert_int_equal(offset, 0);
	assert_int_equal(actmem_heap_free(heap, blocks[0]), 0);
	assert_int_equal(actmem_heap_free(heap, blocks[1]), 0);
}

/* Free regions are closed until the others fit in a lowered limit. */
static void test_lowered_limit(void **state)
{
	void *blocks[4];
	unsigned int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &blocks[i]), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_heap_free(heap, blocks[i]), 0);
	assert_int_equal(heap_lower_limit(heap, 5 * MIB), 4 * MIB);
	for (; i < 4; i++)
		assert_int_equal(actmem_heap_free(heap, blocks[i]), 0);
}

static void *grow_ahead(void *unused)
{
	return heap_grow_ahead(heap, 2 * MIB, EXTENT_UNIT, 2 * MIB) ? heap : NULL;
}

/* A thread that grows the heap ahead lets another one take its block first, and then goes on. */
static void test_grows_after_others(void **state)
{
	pthread_t ahead, other;
	struct timespec until;
	void *block, *failed;

	heap_lock_growth(heap);
	assert_int_equal(pthread_create(&ahead, NULL, grow_ahead, NULL), 0);
	/* Let it be the first to wait for the lock. Otherwise this test finds less. */
	usleep(20000);
	assert_int_equal(pthread_create(&other, NULL, take_half, &block), 0);
	while (!atomic_load(&heap->growers))
		usleep(1000);
	heap_unlock_growth(heap);
	assert_int_equal(pthread_join(other, NULL), 0);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	assert_int_equal(pthread_timedjoin_np(ahead, &failed, &until), 0);
	assert_null(failed);
	assert_int_equal(stats_of(heap).regions, 2);
	assert_int_equal(actmem_heap_free(heap, block), 0);
}

#define CHUNK_BYTES	(2 * MIB)

/* Of regions of so many chunks, registered with @runtime or with nobody. */
static void open_chunked(struct actmem_runtime *runtime, uint64_t chunks,
			 struct actmem_heap **chunked)
{
	struct actmem_region_options region = {
		.size = sizeof(region), .flags = ACTMEM_REGION_LAZY,
	};
	struct actmem_heap_options options = {
		.size = sizeof(options), .grow_bytes = chunks * CHUNK_BYTES, .region = &region,
	};

	assert_int_equal(actmem_heap_create(am, &options, chunked), 0);
	if (runtime)
		assert_int_equal(actmem_heap_register(*chunked, runtime, 0), 0);
	else
		(*chunked)->chunk_bytes = CHUNK_BYTES;
}

static void assert_empty(struct actmem_heap *its)
{
	struct actmem_heap_stats now = stats_of(its);

	assert_int_equal(now.regions, 0);
	assert_int_equal(now.region_bytes, 0);
	assert_int_equal(now.free_pieces, 0);
}

/* It has no region, and can have one. */
static void assert_grows(struct actmem_heap *its)
{
	void *block;

	assert_empty(its);
	assert_int_equal(actmem_heap_alloc(its, 2 * MIB, 0, &block), 0);
	assert_int_equal(actmem_heap_free(its, block), 0);
	assert_int_equal(actmem_heap_trim(its), 0);
	assert_empty(its);
}

/* Whichever call fails, nothing of the region is left, and the next one can be made. */
static void sweep_growth(struct actmem_runtime *runtime, uint64_t chunks)
{
	struct holdings before = held_now();
	struct actmem_heap *chunked;
	unsigned int nth, failures = 0;
	bool was_reached = true;
	void *block;
	int error;

	for (nth = 1; was_reached; nth++) {
		open_chunked(runtime, chunks, &chunked);
		fail_nth(nth);
		error = actmem_heap_alloc(chunked, 1000, 0, &block);
		was_reached = fail_nth_was_reached();
		failures += !!error;
		if (error)
			assert_true(was_reached && *actmem_error());
		else
			assert_int_equal(actmem_heap_free(chunked, block), 0);
		assert_int_equal(actmem_heap_trim(chunked), 0);
		assert_grows(chunked);
		assert_int_equal(actmem_heap_destroy(chunked), 0);
		assert_same_held(before);
	}
	/* The descriptors, the bookkeeping of the region, and what the region is made of. */
	assert_true(failures > 6);
}

/* Registered, which makes all pages; and of chunks whose descriptors come in two parts. */
static void test_growth_sweep(void **state)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_NULL, .chunk_bytes = CHUNK_BYTES,
	};
	struct actmem_runtime *runtime;

	assert_int_equal(actmem_runtime_open(am, &options, &runtime), 0);
	sweep_growth(runtime, 2);
	sweep_growth(NULL, 130);
	assert_int_equal(actmem_runtime_close(runtime), 0);
}

static void test_refused_options(void **state)
{
	struct actmem_heap_options options = { .size = sizeof(options), .grow_bytes = 1 };
	struct actmem_heap *none = NULL;

	assert_fails(actmem_heap_create(am, &options, &none), EINVAL, "grow_bytes is 1;");
	fail_every("calloc", ENOMEM);
	assert_fails(actmem_heap_create(am, NULL, &none), ENOMEM, "a heap's handle");
	fail_call("calloc", 2, ENOMEM);
	assert_fails(actmem_heap_create(am, NULL, &none), ENOMEM, "a heap's bookkeeping");
	assert_null(none);
}

static struct actmem_queue *queue;

static int open_queue(void **state)
{
	struct actmem_queue_options options = {
		.size = sizeof(options), .engine = ACTMEM_ENGINE_WORKERS,
	};

	return open_heap(state) || actmem_queue_create(am, &options, &queue);
}

static int close_queue(void **state)
{
	return actmem_queue_destroy(queue) || close_heap(state);
}

static void *use_block(void)
{
	void *block;

	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &block), 0);
	memset(block, 1, 2 * MIB);
	return block;
}

static void test_free_region(void **state)
{
	struct actmem_region *region;
	void *block = use_block();

	region = heap->regions->region;
	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	assert_fails(actmem_region_close(region), EBUSY, "attached to 1 queue;");
	assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats_of(heap).regions, 1);
	assert_fails(actmem_heap_destroy(heap), EBUSY, "1 of the heap's regions");
	assert_int_equal(actmem_heap_free(heap, use_block()), 0);
	assert_int_equal(stats_of(heap).regions, 1);
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats_of(heap).regions, 0);
}

/* A region that is attached to a queue stays, so it counts against the limit. */
static void test_attached_limit(void **state)
{
	struct actmem_region *region;

	assert_int_equal(actmem_heap_free(heap, use_block()), 0);
	region = heap->regions->region;
	assert_int_equal(heap_lower_limit(heap, 4 * MIB), 2 * MIB);
	assert_true(heap_may_grow(heap, 4 * MIB));
	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	assert_true(heap_may_grow(heap, 2 * MIB));
	assert_false(heap_may_grow(heap, 4 * MIB));
	assert_int_equal(actmem_queue_detach(queue, region), 0);
}

/* A region that the program registered stays, because the runtime uses its pages. */
static void test_registered(void **state)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options),
		.kind = ACTMEM_RUNTIME_NULL,
	};
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	void *block = use_block();

	region = heap->regions->region;
	assert_int_equal(actmem_runtime_open(heap->am, &options, &runtime), 0);
	assert_int_equal(actmem_region_register(region, runtime, 0), 0);
	assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats_of(heap).regions, 1);
	assert_fails(actmem_heap_destroy(heap), EBUSY, "registered with a runtime");
	assert_int_equal(actmem_region_unregister(region), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats_of(heap).regions, 0);
	assert_int_equal(actmem_runtime_close(runtime), 0);
}

/* What stands in the way of the heap's end is told, the blocks before the queue. */
static void test_live_block(void **state)
{
	struct actmem_region *region;
	void *block = use_block();

	region = heap->regions->region;
	assert_int_equal(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), 0);
	assert_fails(actmem_heap_destroy(heap), EBUSY, "1 blocks of");
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_heap_free(heap, block), 0);
}

#define HEAP_TEST(test)	cmocka_unit_test_setup_teardown(test, open_heap, close_heap)
#define QUEUE_TEST(test)	cmocka_unit_test_setup_teardown(test, open_queue, close_queue)

int main(void)
{
	const struct CMUnitTest tests[] = {
		HEAP_TEST(test_no_words),
		HEAP_TEST(test_peak),
		HEAP_TEST(test_taken_again),
		HEAP_TEST(test_odd_limit),
		HEAP_TEST(test_adjacent),
		HEAP_TEST(test_lowered_limit),
		HEAP_TEST(test_grows_after_others),
		HEAP_TEST(test_growth_sweep),
		HEAP_TEST(test_refused_options),
		QUEUE_TEST(test_free_region),
		QUEUE_TEST(test_attached_limit),
		QUEUE_TEST(test_live_block),
		HEAP_TEST(test_registered),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
