/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap where the kernel or the C library refuses what its caches, its regions, and the
 * words for its errors, are made of.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actmem.h"
#include "heap/inside.h"
#include "region/context.h"
#include "faults.h"

#define MIB	(1ULL << 20)

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

static struct actmem_heap_stats stats(void)
{
	struct actmem_heap_stats now;

	ACTMEM_INIT(&now);
	assert_int_equal(actmem_heap_get_stats(heap, &now), 0);
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
			assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &small[i]), 0);
		for (i = 0; i < 2; i++)
			assert_int_equal(actmem_heap_free(heap, small[i]), 0);
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
	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &large), 0);
	fail_nothing();
	assert_int_equal(stats().region_bytes, 4 * MIB);
	assert_int_equal(stats().recalls, 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	assert_int_equal(stats().cache_misses, 3);
	assert_int_equal(stats().cached_bytes, 0);
	assert_int_equal(actmem_heap_free(heap, large), 0);
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
		assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &small[i]), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_heap_free(heap, small[i]), 0);
	assert_int_equal(stats().cached_bytes, 2 * MIB);
	assert_int_equal(actmem_heap_alloc(heap, 2 * MIB, 0, &large), 0);
	assert_int_equal(stats().region_bytes, 2 * MIB);
	assert_int_equal(stats().cached_bytes, 0);
	assert_int_equal(stats().recalls, 0);
	assert_int_equal(actmem_heap_free(heap, large), 0);
}

/* Has the lock, and has recalled what another thread keeps, until some time after that wants it. */
static void *recall_a_moment(void *kept)
{
	struct cache *cache = kept;

	pthread_mutex_lock(&heap->lock);
	cache_recall(cache);
	pthread_barrier_wait(&barrier);
	usleep(200000);
	cache_release(cache);
	pthread_mutex_unlock(&heap->lock);
	return NULL;
}

/* A thread that meets a recall still has what that left it. */
static void test_recalled(void **state)
{
	pthread_t thread;
	void *small[2];

	assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &small[0]), 0);
	assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &small[1]), 0);
	assert_int_equal(actmem_heap_free(heap, small[0]), 0);
	assert_int_equal(actmem_heap_free(heap, small[1]), 0);
	assert_int_equal(stats().cached_bytes, 2 * MIB);
	pthread_barrier_init(&barrier, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, recall_a_moment, heap_own_caches), 0);
	pthread_barrier_wait(&barrier);
	assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &small[0]), 0);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&barrier);
	assert_ptr_equal(small[0], small[1]);
	assert_int_equal(stats().cached_bytes, MIB);
	assert_int_equal(stats().cache_misses, 2);
	assert_int_equal(actmem_heap_free(heap, small[0]), 0);
}

static void *without_cache(void *block)
{
	void *own;

	fail_every("calloc", ENOMEM);
	assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_heap_alloc(heap, MIB, 0, &own), 0);
	fail_nothing();
	return own;
}

static void test_no_cache(void **state)
{
	struct actmem_counters counters;
	pthread_t thread;
	void *block;

	ACTMEM_INIT(&counters);
	assert_int_equal(actmem_heap_alloc(heap, 1000, 0, &block), 0);
	assert_int_equal(pthread_create(&thread, NULL, without_cache, block), 0);
	assert_int_equal(pthread_join(thread, &block), 0);
	assert_int_equal(stats().blocks, 1);
	assert_int_equal(stats().block_bytes, MIB);
	assert_int_equal(stats().blocks_total, 2);
	assert_int_equal(actmem_get_counters(am, &counters), 0);
	assert_int_equal(counters.blocks, 1);
	assert_int_equal(counters.block_bytes, MIB);
	assert_int_equal(counters.blocks_total, 2);
	assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_get_counters(am, &counters), 0);
	assert_int_equal(counters.blocks, 0);
	assert_int_equal(counters.block_bytes, 0);
}

static void *first_failure(void *unused)
{
	assert_string_equal(actmem_error(), "");
	fail_every("calloc", ENOMEM);
	assert_fails(actmem_heap_free(heap, &am), EINVAL, "no memory to tell");
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

/* What a thread keeps of a length that it wants no more goes back at last. */
static void test_unwanted(void **state)
{
	void *wanted[1000], *unwanted;
	unsigned int i;

	assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, &unwanted), 0);
	assert_int_equal(actmem_heap_free(heap, unwanted), 0);
	for (i = 0; i < 100; i++)
		assert_int_equal(actmem_heap_alloc(heap, 256, 0, &wanted[i]), 0);
	assert_int_equal(stats().cached_bytes, MIB / 2);
	for (; i < 1000; i++)
		assert_int_equal(actmem_heap_alloc(heap, 256, 0, &wanted[i]), 0);
	assert_int_equal(stats().cached_bytes, 0);
	while (i--)
		assert_int_equal(actmem_heap_free(heap, wanted[i]), 0);
}

/* Without a miss, what the thread does is told as soon as the kernel's tick is another. */
static void test_told(void **state)
{
	uint64_t begun = am->counters->blocks_total;
	unsigned int i;
	void *block;

	for (i = 1; i <= 64; i++) {
		assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, &block), 0);
		assert_int_equal(actmem_heap_free(heap, block), 0);
		if (i % 16)
			continue;
		assert_true(am->counters->blocks_total - begun > i - 16);
		usleep(50000);
	}
	assert_int_equal(stats().cache_misses, 1);
}

static uint64_t bytes_peak(void)
{
	struct actmem_counters counters;

	ACTMEM_INIT(&counters);
	assert_int_equal(actmem_get_counters(am, &counters), 0);
	return counters.block_bytes_peak;
}

/* What rose before the last time that others were told counts no second time. */
static void test_peak(void **state)
{
	void *large[2], *small;
	unsigned int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_heap_alloc(heap, MIB / 2, 0, &large[i]), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(actmem_heap_free(heap, large[i]), 0);
	assert_int_equal(actmem_heap_alloc(heap, 256, 0, &small), 0);
	assert_int_equal(bytes_peak(), MIB);
	assert_int_equal(actmem_heap_free(heap, small), 0);
}

#define TOLD_AFTER	64

/* Has two blocks of which no other thread is told yet. */
static void *take_untold(void *blocks)
{
	void **block = blocks;
	unsigned int i;

	for (i = 0; i < TOLD_AFTER / 2; i++) {
		assert_int_equal(actmem_heap_alloc(heap, 256, 0, &block[0]), 0);
		assert_int_equal(actmem_heap_alloc(heap, 256, 0, &block[1]), 0);
		assert_int_equal(actmem_heap_free(heap, block[0]), 0);
		assert_int_equal(actmem_heap_free(heap, block[1]), 0);
	}
	assert_int_equal(actmem_heap_alloc(heap, 256, 0, &block[0]), 0);
	assert_int_equal(actmem_heap_alloc(heap, 256, 0, &block[1]), 0);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* Sums are below 0 while what was given is known, and what was taken is not. */
static void test_below_zero(void **state)
{
	void *blocks[2];
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	assert_int_equal(pthread_create(&thread, NULL, take_untold, blocks), 0);
	pthread_barrier_wait(&barrier);
	assert_int_equal(actmem_heap_free(heap, blocks[0]), 0);
	assert_int_equal(actmem_heap_free(heap, blocks[1]), 0);
	assert_true(bytes_peak() <= 1024);
	pthread_barrier_wait(&barrier);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(bytes_peak() <= 1024);
	pthread_barrier_destroy(&barrier);
}

/* The heap's own destructor has come before: its key is the older one. */
static void end_child(void *unused)
{
	_exit(0);
}

/* A thread of a forked child ends: what its caches have is the parent's. */
static void test_end_in_child(void **state)
{
	struct actmem_counters before, now;
	pthread_key_t key;
	pid_t child;
	int status;
	void *block;

	ACTMEM_INIT(&before);
	ACTMEM_INIT(&now);
	assert_int_equal(actmem_heap_alloc(heap, 256, 0, &block), 0);
	assert_int_equal(actmem_get_counters(am, &before), 0);
	assert_int_equal(actmem_heap_free(heap, block), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		if (pthread_key_create(&key, end_child) || pthread_setspecific(key, &key))
			_exit(1);
		pthread_exit(NULL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(actmem_get_counters(am, &now), 0);
	assert_int_equal(now.blocks, 0);
	assert_int_equal(now.block_bytes, 0);
	assert_int_equal(now.blocks_total, before.blocks_total);
}

/* A region is whole huge pages, though the limit is not. */
static void test_odd_limit(void **state)
{
	struct actmem_heap_options options;
	struct actmem_heap_stats now;
	struct actmem_heap *odd;
	void *block, *none;

	ACTMEM_INIT(&options);
	options.limit_bytes = 5 * MIB;
	assert_int_equal(actmem_heap_create(am, &options, &odd), 0);
	assert_int_equal(actmem_heap_alloc(odd, 3 * MIB, 0, &block), 0);
	ACTMEM_INIT(&now);
	assert_int_equal(actmem_heap_get_stats(odd, &now), 0);
	assert_int_equal(now.region_bytes, 4 * MIB);
	assert_fails(actmem_heap_alloc(odd, 2 * MIB, 0, &none), ENOMEM, "raise limit_bytes");
	assert_int_equal(actmem_heap_free(odd, block), 0);
	assert_int_equal(actmem_heap_destroy(odd), 0);
}

/* So many chunks that their descriptors are allocated in two parts. */
#define CHUNKS		130
#define CHUNK_BYTES	(2 * MIB)

static void open_long_heap(struct actmem_heap **long_heap)
{
	struct actmem_region_options region;
	struct actmem_heap_options options;
	struct actmem_heap_tuning tuning;

	ACTMEM_INIT(&options);
	options.grow_bytes = CHUNKS * CHUNK_BYTES;
	ACTMEM_INIT(&region);
	options.region = &region;
	region.flags = ACTMEM_REGION_LAZY;
	assert_int_equal(actmem_heap_create(am, &options, long_heap), 0);
	ACTMEM_INIT(&tuning);
	tuning.chunk_bytes = CHUNK_BYTES;
	assert_int_equal(actmem_heap_tune(*long_heap, &tuning), 0);
}

static void assert_grows(struct actmem_heap *its, uint64_t regions)
{
	struct actmem_heap_stats now;
	void *block;

	ACTMEM_INIT(&now);
	assert_int_equal(actmem_heap_get_stats(its, &now), 0);
	assert_int_equal(now.regions, regions);
	assert_int_equal(now.region_bytes, regions * CHUNKS * CHUNK_BYTES);
	assert_int_equal(now.free_pieces, regions * CHUNKS);
	assert_int_equal(actmem_heap_alloc(its, 2 * MIB, 0, &block), 0);
	assert_int_equal(actmem_heap_free(its, block), 0);
	assert_int_equal(actmem_heap_trim(its), 0);
	assert_int_equal(actmem_heap_get_stats(its, &now), 0);
	assert_int_equal(now.regions, 0);
	assert_int_equal(now.region_bytes, 0);
}

/* Whichever call fails, nothing of the region is left, and the next one can be made. */
static void test_growth_sweep(void **state)
{
	struct holdings before = held_now();
	struct actmem_heap *long_heap;
	unsigned int nth, failures = 0;
	bool was_reached = true;
	void *block;
	int error;

	for (nth = 1; was_reached; nth++) {
		open_long_heap(&long_heap);
		fail_nth(nth);
		error = actmem_heap_alloc(long_heap, 1000, 0, &block);
		was_reached = fail_nth_was_reached();
		failures += !!error;
		if (error)
			assert_true(was_reached && *actmem_error());
		else
			assert_int_equal(actmem_heap_free(long_heap, block), 0);
		assert_int_equal(actmem_heap_trim(long_heap), 0);
		assert_grows(long_heap, 0);
		assert_int_equal(actmem_heap_destroy(long_heap), 0);
		assert_same_held(before);
	}
	/* Two parts of the descriptors, the range, and what the region is made of. */
	assert_true(failures > 6);
}

static void test_refused_options(void **state)
{
	struct actmem_heap_options options;
	struct actmem_heap *none = NULL;

	ACTMEM_INIT(&options);
	options.grow_bytes = 1;
	assert_fails(actmem_heap_create(am, &options, &none), EINVAL, "grow_bytes is 1;");
	fail_every("calloc", ENOMEM);
	assert_fails(actmem_heap_create(am, NULL, &none), ENOMEM, "a heap's handle");
	fail_call("calloc", 2, ENOMEM);
	assert_fails(actmem_heap_create(am, NULL, &none), ENOMEM, "a heap's bookkeeping");
	assert_null(none);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_recall, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_own, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_recalled, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_no_cache, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_no_words, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_unwanted, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_told, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_peak, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_below_zero, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_end_in_child, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_odd_limit, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_growth_sweep, open_heap, close_heap),
		cmocka_unit_test_setup_teardown(test_refused_options, open_heap, close_heap),
	};

	return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
