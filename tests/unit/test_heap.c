/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap where the kernel or the C library refuses what its caches, and the words
 * for its errors, are made of.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "actmem.h"
#include "faults.h"

#define MIB	(1ULL << 20)

static struct actmem *am;
static struct actmem_heap *heap;

static int open_heap(void **state)
{
	struct actmem_options options;
	struct actmem_heap_options heap_options;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	options.allow = ACTMEM_ALLOW_UNLOCKED;
	ACTMEM_INIT(&heap_options);
	heap_options.grow_bytes = 2 * MIB;
	return actmem_open(&am, &options) || actmem_heap_create(am, &heap_options, &heap);
}

static int close_heap(void **state)
{
	fail_nothing();
	return actmem_heap_destroy(heap) || actmem_close(am);
}

static struct actmem_heap_stats stats(void)
{
	struct actmem_heap_stats now;

	ACTMEM_INIT(&now);
	assert_int_equal(actmem_heap_stats(heap, &now), 0);
	return now;
}

static pthread_barrier_t barrier;

/* Takes two blocks and gives them, and the same once more when it is let go on. */
static void *keep(void *unused)
{
	void *small[2];
	unsigned int turn, i;

	for (turn = 0; turn < 2; turn++) {
		for (i = 0; i < 2; i++)
			assert_int_equal(actmem_alloc(heap, MIB, 0, &small[i]), 0);
		for (i = 0; i < 2; i++)
			assert_int_equal(actmem_free(heap, small[i]), 0);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* What cannot be recalled stays where it is, and is the last that is kept. */
static void test_no_recall(void **state)
{
	pthread_t thread;
	void *large;

	pthread_barrier_init(&barrier, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, keep, NULL), 0);
	pthread_barrier_wait(&barrier);
	assert_int_equal(stats().cached_bytes, 2 * MIB);
	fail_every("syscall", EPERM);
	assert_int_equal(actmem_alloc(heap, 2 * MIB, 0, &large), 0);
	fail_nothing();
	assert_int_equal(stats().region_bytes, 4 * MIB);
	assert_int_equal(stats().recalls, 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	assert_int_equal(stats().cache_misses, 3);
	assert_int_equal(stats().cached_bytes, 0);
	assert_int_equal(actmem_free(heap, large), 0);
	assert_int_equal(stats().cached_bytes, 0);
	assert_int_equal(stats().free_pieces, 2);
	pthread_barrier_wait(&barrier);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&barrier);
}

/* What the thread itself keeps it gives back rather than have the heap grow. */
static void test_own(void **state)
{
	void *small[2], *large;
	unsigned int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_alloc(heap, MIB, 0, &small[i]), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_free(heap, small[i]), 0);
	assert_int_equal(stats().cached_bytes, 2 * MIB);
	assert_int_equal(actmem_alloc(heap, 2 * MIB, 0, &large), 0);
	assert_int_equal(stats().region_bytes, 2 * MIB);
	assert_int_equal(stats().cached_bytes, 0);
	assert_int_equal(stats().recalls, 0);
	assert_int_equal(actmem_free(heap, large), 0);
}

static void *without_cache(void *block)
{
	void *own;

	fail_every("calloc", ENOMEM);
	assert_int_equal(actmem_free(heap, block), 0);
	assert_int_equal(actmem_alloc(heap, MIB, 0, &own), 0);
	fail_nothing();
	return own;
}

static void test_no_cache(void **state)
{
	struct actmem_counters counters;
	pthread_t thread;
	void *block;

	ACTMEM_INIT(&counters);
	assert_int_equal(actmem_alloc(heap, 1000, 0, &block), 0);
	assert_int_equal(pthread_create(&thread, NULL, without_cache, block), 0);
	assert_int_equal(pthread_join(thread, &block), 0);
	assert_int_equal(stats().blocks, 1);
	assert_int_equal(stats().block_bytes, MIB);
	assert_int_equal(stats().blocks_total, 2);
	assert_int_equal(actmem_counters(am, &counters), 0);
	assert_int_equal(counters.blocks, 1);
	assert_int_equal(counters.block_bytes, MIB);
	assert_int_equal(counters.blocks_total, 2);
	assert_int_equal(actmem_free(heap, block), 0);
	assert_int_equal(actmem_counters(am, &counters), 0);
	assert_int_equal(counters.blocks, 0);
	assert_int_equal(counters.block_bytes, 0);
}

static void *first_failure(void *unused)
{
	assert_string_equal(actmem_error(), "");
	fail_every("calloc", ENOMEM);
	assert_fails(actmem_free(heap, &am), EINVAL, "no memory to tell");
	fail_nothing();
	assert_fails(actmem_free(heap, &am), EINVAL, "not the start of a live block");
	return NULL;
}

static void test_no_words(void **state)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, first_failure, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_recall, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_own, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_no_cache, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_no_words, open_heap, close_heap),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
