/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What threads keep at hand of a heap: that it is used again, bounded, recalled
 * before the heap grows, and given back when a thread or the heap ends; that a
 * block goes back once, whoever frees it; and how long regions are.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap_test.h"

#define GROW		(8 * MIB)
#define BLOCKS		8
#define MANY		32
#define TAKEN_OVER	8
#define RACES		2000
#define LENGTHS		200
#define FEW_LENGTHS	24

static void tune(struct actmem_heap *heap, uint64_t chunk_bytes, uint64_t cache_bytes)
{
	struct actmem_heap_tuning tuning;

	ACTMEM_INIT(&tuning);
	tuning.chunk_bytes = chunk_bytes;
	tuning.cache_bytes = cache_bytes;
	returns(actmem_heap_tune(heap, &tuning), 0);
}

static void take_all(struct actmem_heap *heap, void *blocks[BLOCKS], uint64_t bytes)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++)
		if (actmem_heap_alloc(heap, bytes, 0, &blocks[i]))
			tap_bail("actmem_heap_alloc");
}

static void give_all(struct actmem_heap *heap, void *blocks[BLOCKS])
{
	unsigned int i;

	for (i = BLOCKS; i--; )
		if (actmem_heap_free(heap, blocks[i]))
			tap_bail("actmem_heap_free");
}

static void in_thread(void *(*body)(void *context), void *context)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, context) || pthread_join(thread, NULL))
		tap_bail("a thread");
}

static void test_kept(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	void *blocks[BLOCKS], *again[BLOCKS];
	struct actmem_heap_stats stats;
	bool same = true;
	unsigned int i;

	take_all(heap, blocks, MIB);
	ok(stats_of(heap).cache_misses == BLOCKS, "nothing is at hand at first");
	give_all(heap, blocks);
	stats = stats_of(heap);
	ok(stats.cached_bytes == BLOCKS * MIB && !stats.used_bytes && !stats.blocks,
	   "what the thread frees it keeps");
	returns(actmem_heap_free(heap, blocks[0]), -EINVAL);
	take_all(heap, again, MIB);
	for (i = 0; i < BLOCKS; i++)
		same = same && again[i] == blocks[i];
	stats = stats_of(heap);
	ok(same && stats.cache_misses == BLOCKS && stats.blocks_total == 2 * BLOCKS,
	   "and takes again, the block freed last first");
	ok(!stats.cached_bytes && stats.used_bytes == BLOCKS * MIB, "nothing is left at hand");
	give_all(heap, again);
	returns(actmem_heap_alloc(heap, MIB, 2 * MIB, &blocks[0]), 0);
	ok(!((uintptr_t)blocks[0] % (2 * MIB)), "a block at hand is taken only if it is aligned");
	returns(actmem_heap_free(heap, blocks[0]), 0);

	tune(heap, 0, 3 * MIB);
	ok(!stats_of(heap).cached_bytes, "another bound starts with nothing");
	take_all(heap, blocks, MIB);
	give_all(heap, blocks);
	ok(stats_of(heap).cached_bytes == 3 * MIB, "what is kept is bounded");
	tune(heap, 0, 1);
	take_all(heap, blocks, MIB);
	give_all(heap, blocks);
	stats = stats_of(heap);
	ok(!stats.cached_bytes && stats.free_pieces == 1 && stats.largest_free == GROW,
	   "a bound of a byte keeps nothing");
	tune(heap, 0, 0);
	take_all(heap, blocks, MIB);
	give_all(heap, blocks);
	returns(actmem_heap_trim(heap), 0);
	ok(!stats_of(heap).region_bytes, "trimming gives back what is kept");
	returns(actmem_heap_destroy(heap), 0);
}

/* As in a step: blocks of each length are all live before the first is freed. */
static void test_few_lengths(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	void *blocks[FEW_LENGTHS];
	unsigned int i, step;

	for (step = 0; step < 2; step++) {
		for (i = 0; i < FEW_LENGTHS; i++)
			if (actmem_heap_alloc(heap, (i + 1) * MIB / 256, 0, &blocks[i]))
				tap_bail("actmem_heap_alloc");
		for (i = FEW_LENGTHS; i--; )
			if (actmem_heap_free(heap, blocks[i]))
				tap_bail("actmem_heap_free");
	}
	ok(stats_of(heap).cache_misses == FEW_LENGTHS,
	   "of %u lengths, all that the first step took is at hand in the next (%llu missed)",
	   FEW_LENGTHS, (unsigned long long)stats_of(heap).cache_misses);
	returns(actmem_heap_destroy(heap), 0);
}

/* More lengths than a thread keeps: some make room for others. */
static void test_lengths(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	struct actmem_heap_stats stats;
	bool good = true;
	void *block;
	uint64_t i;

	for (i = 1; i <= LENGTHS; i++)
		good = good && !actmem_heap_alloc(heap, i * 256, 0, &block) &&
		       !actmem_heap_free(heap, block);
	stats = stats_of(heap);
	ok(good && stats.cached_bytes && stats.cached_bytes < LENGTHS * (LENGTHS + 1) / 2 * 256,
	   "of %d lengths some are kept", LENGTHS);
	returns(actmem_heap_destroy(heap), 0);
}

struct other {
	struct actmem_heap *heap, *second;
	void *blocks[BLOCKS];
	pthread_barrier_t barrier;
	bool good;
};

/* Keeps all of the heap at hand, and waits until it has been looked at. */
static void *keep(void *context)
{
	struct other *other = context;

	take_all(other->heap, other->blocks, MIB);
	give_all(other->heap, other->blocks);
	pthread_barrier_wait(&other->barrier);
	pthread_barrier_wait(&other->barrier);
	return NULL;
}

static void test_recalled(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, GROW) };
	pthread_t thread;
	void *block;

	pthread_barrier_init(&other.barrier, NULL, 2);
	if (pthread_create(&thread, NULL, keep, &other))
		tap_bail("pthread_create");
	pthread_barrier_wait(&other.barrier);
	ok(stats_of(other.heap).cached_bytes == GROW, "a thread keeps all there is");
	returns(actmem_heap_alloc(other.heap, GROW, 0, &block), 0);
	ok(stats_of(other.heap).region_bytes == GROW && stats_of(other.heap).recalls == 1,
	   "another one has it without growing");
	returns(actmem_heap_free(other.heap, block), 0);
	pthread_barrier_wait(&other.barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&other.barrier);
	returns(actmem_heap_destroy(other.heap), 0);
}

/* As keep(), with many short ones; and then takes as many again as it still can have. */
static void *keep_many(void *context)
{
	struct other *other = context;
	void *blocks[MANY];
	unsigned int i;

	for (i = 0; i < MANY; i++)
		if (actmem_heap_alloc(other->heap, GROW / MANY, 0, &blocks[i]))
			tap_bail("actmem_heap_alloc");
	for (i = 0; i < MANY; i++)
		if (actmem_heap_free(other->heap, blocks[i]))
			tap_bail("actmem_heap_free");
	pthread_barrier_wait(&other->barrier);
	pthread_barrier_wait(&other->barrier);
	for (i = 0; i < MANY - TAKEN_OVER; i++)
		if (actmem_heap_alloc(other->heap, GROW / MANY, 0, &blocks[i]))
			tap_bail("actmem_heap_alloc");
	while (i--)
		if (actmem_heap_free(other->heap, blocks[i]))
			tap_bail("actmem_heap_free");
	return NULL;
}

/* A thread takes over a few blocks that another one keeps, and leaves it the rest. */
static void test_taken_over(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, GROW) };
	struct actmem_heap_stats stats;
	void *blocks[TAKEN_OVER];
	pthread_t thread;
	unsigned int i;

	pthread_barrier_init(&other.barrier, NULL, 2);
	if (pthread_create(&thread, NULL, keep_many, &other))
		tap_bail("pthread_create");
	pthread_barrier_wait(&other.barrier);
	returns(actmem_heap_alloc(other.heap, GROW / MANY, 0, &blocks[0]), 0);
	stats = stats_of(other.heap);
	ok(stats.recalls == 1 && stats.cache_misses == MANY + 1 &&
	   stats.cached_bytes == GROW - GROW / MANY,
	   "of what another thread keeps, the rest stays kept");
	for (i = 1; i < TAKEN_OVER; i++)
		returns(actmem_heap_alloc(other.heap, GROW / MANY, 0, &blocks[i]), 0);
	stats = stats_of(other.heap);
	ok(stats.recalls == 1 && stats.cache_misses == MANY + 1,
	   "a few more of the length are at hand then");
	pthread_barrier_wait(&other.barrier);
	pthread_join(thread, NULL);
	stats = stats_of(other.heap);
	ok(stats.recalls == 1 && stats.cache_misses == MANY + 1 && stats.region_bytes == GROW,
	   "and so are all others to the thread that had them");
	for (i = 0; i < TAKEN_OVER; i++)
		returns(actmem_heap_free(other.heap, blocks[i]), 0);
	pthread_barrier_destroy(&other.barrier);
	returns(actmem_heap_destroy(other.heap), 0);
}

static void *take_and_give(void *context)
{
	struct other *other = context;

	take_all(other->heap, other->blocks, MIB);
	give_all(other->heap, other->blocks);
	other->good = stats_of(other->heap).cached_bytes == BLOCKS * MIB;
	return NULL;
}

static void *only_take(void *context)
{
	struct other *other = context;

	take_all(other->heap, other->blocks, MIB);
	return NULL;
}

static void test_ends(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, 0) };
	struct actmem_heap_stats stats;

	in_thread(take_and_give, &other);
	stats = stats_of(other.heap);
	ok(other.good && !stats.cached_bytes && stats.free_pieces == 1,
	   "what a thread kept goes back when it ends");
	in_thread(only_take, &other);
	ok(stats_of(other.heap).blocks == BLOCKS && stats_of(other.heap).block_bytes == BLOCKS * MIB,
	   "its live blocks stay");
	give_all(other.heap, other.blocks);
	stats = stats_of(other.heap);
	ok(!stats.blocks && !stats.block_bytes && !stats.used_bytes && !stats.cached_bytes,
	   "and are freed by another, which does not keep what it never takes");
	returns(actmem_heap_destroy(other.heap), 0);
}

/* Uses a second heap after the first one has ended. */
static void *use_two(void *context)
{
	struct other *other = context;
	void *blocks[BLOCKS];

	take_all(other->heap, blocks, MIB);
	give_all(other->heap, blocks);
	take_all(other->second, blocks, MIB);
	give_all(other->second, blocks);
	pthread_barrier_wait(&other->barrier);
	pthread_barrier_wait(&other->barrier);
	take_all(other->second, blocks, MIB);
	give_all(other->second, blocks);
	other->good = stats_of(other->second).cache_misses == BLOCKS;
	return NULL;
}

static void test_heap_ends_first(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, 0), .second = make_heap(am, GROW, 0) };
	pthread_t thread;

	pthread_barrier_init(&other.barrier, NULL, 2);
	if (pthread_create(&thread, NULL, use_two, &other))
		tap_bail("pthread_create");
	pthread_barrier_wait(&other.barrier);
	returns(actmem_heap_destroy(other.heap), 0);
	pthread_barrier_wait(&other.barrier);
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&other.barrier);
	ok(other.good, "a heap that ends before the thread takes nothing from another one");
	returns(actmem_heap_destroy(other.second), 0);
}

struct race {
	struct actmem_heap *heap;
	void *_Atomic block;
	pthread_barrier_t barrier;
	atomic_uint freed;
	atomic_uint refused;
};

static void free_once(struct race *race)
{
	int error;

	pthread_barrier_wait(&race->barrier);
	error = actmem_heap_free(race->heap, race->block);
	atomic_fetch_add(error ? &race->refused : &race->freed, !error || error == -EINVAL);
	pthread_barrier_wait(&race->barrier);
}

static void *race_freely(void *context)
{
	unsigned int i;

	for (i = 0; i < RACES; i++)
		free_once(context);
	return NULL;
}

static void test_race(struct actmem *am)
{
	struct race race = { .heap = make_heap(am, GROW, 0) };
	pthread_t thread;
	void *block;
	unsigned int i;

	pthread_barrier_init(&race.barrier, NULL, 2);
	if (pthread_create(&thread, NULL, race_freely, &race))
		tap_bail("pthread_create");
	for (i = 0; i < RACES; i++) {
		if (actmem_heap_alloc(race.heap, 5000, 0, &block))
			tap_bail("actmem_heap_alloc");
		race.block = block;
		free_once(&race);
	}
	pthread_join(thread, NULL);
	pthread_barrier_destroy(&race.barrier);
	ok(race.freed == RACES && race.refused == RACES,
	   "of two that free the same block at once one does (%u, and %u refused)", race.freed,
	   race.refused);
	ok(!stats_of(race.heap).blocks && !stats_of(race.heap).used_bytes, "no block is left");
	returns(actmem_heap_destroy(race.heap), 0);
}

/* Where the mapping begins that the address lies in: that of its region. */
static uintptr_t mapping_of(void *address)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long first = 0, end = 0;
	char line[4096];

	if (!file)
		tap_bail("/proc/self/maps");
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx", &first, &end) == 2 && end > (uintptr_t)address)
			break;
	fclose(file);
	return first;
}

static void test_chunks(struct actmem *am)
{
	const uint64_t chunk = 4 * MIB, bytes = 3 * MIB;
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	struct actmem_heap_tuning tuning;
	void *blocks[BLOCKS], *block;
	bool within = true;
	unsigned int i;

	ACTMEM_INIT(&tuning);
	tuning.chunk_bytes = 3 * MIB;
	returns(actmem_heap_tune(heap, &tuning), -EINVAL);
	says("chunk_bytes");
	tune(heap, chunk, 0);
	returns(actmem_heap_alloc(heap, chunk + 1, 0, &block), -EINVAL);
	says("chunk_bytes");
	/* Whole, so that a block which does not fit here would fit across the edge. */
	returns(actmem_heap_alloc(heap, 256, 0, &block), 0);
	ok(stats_of(heap).region_bytes == GROW && stats_of(heap).free_pieces == 2,
	   "a region of two chunks");
	take_all(heap, blocks, bytes);
	for (i = 0; i < BLOCKS; i++) {
		uint64_t at = (uintptr_t)blocks[i] - mapping_of(blocks[i]);

		within = within && at / chunk == (at + bytes - 1) / chunk;
	}
	ok(within, "no block lies across a chunk's edge");
	ok(stats_of(heap).region_bytes >= BLOCKS * chunk, "even if that takes more regions");
	give_all(heap, blocks);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
}

static void test_regions(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, 2 * GROW);
	void *first, *second, *whole;

	returns(actmem_heap_alloc(heap, 3 * MIB, 0, &first), 0);
	ok(stats_of(heap).region_bytes == 6 * MIB, "a region that two such blocks fill");
	returns(actmem_heap_alloc(heap, GROW, 0, &second), 0);
	returns(actmem_heap_alloc(heap, 2 * GROW, 0, &whole), -ENOMEM);
	says("limit_bytes");
	returns(actmem_heap_free(heap, first), 0);
	returns(actmem_heap_free(heap, second), 0);
	returns(actmem_heap_alloc(heap, 2 * GROW, 0, &whole), 0);
	ok(stats_of(heap).regions == 1 && stats_of(heap).region_bytes == 2 * GROW,
	   "free regions make way for one that is wanted");
	ok(stats_of(heap).region_bytes_peak == 2 * GROW, "within the limit");
	returns(actmem_heap_free(heap, whole), 0);
	returns(actmem_heap_destroy(heap), 0);
}

static bool child_is_refused(void *context)
{
	struct other *other = context;
	struct actmem *am;
	void *blocks[BLOCKS];
	bool good = actmem_heap_free(other->heap, other->blocks[0]) == -EOWNERDEAD;

	if (actmem_open(&am, NULL))
		return false;
	other->second = make_heap(am, GROW, 0);
	take_all(other->second, blocks, MIB);
	give_all(other->second, blocks);
	in_thread(take_and_give, &(struct other){ .heap = other->second });
	return good && !actmem_heap_destroy(other->second) && !actmem_close(am);
}

/* With blocks at hand, and by a thread that ends in the child. */
static void test_fork(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, 0) };

	take_all(other.heap, other.blocks, MIB);
	returns(actmem_heap_free(other.heap, other.blocks[1]), 0);
	ok(in_child(child_is_refused, &other), "a child leaves its parent's, and has its own");
	returns(actmem_heap_alloc(other.heap, MIB, 0, &other.blocks[1]), 0);
	give_all(other.heap, other.blocks);
	returns(actmem_heap_destroy(other.heap), 0);
}

/* Counts as the process publishes them: blocks go from one thread to another. */
static void test_counters(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, 0) };
	struct actmem_counters before, counters;

	ACTMEM_INIT(&before);
	ACTMEM_INIT(&counters);
	returns(actmem_get_counters(am, &before), 0);
	in_thread(only_take, &other);
	returns(actmem_get_counters(am, &counters), 0);
	ok(counters.blocks == BLOCKS && counters.block_bytes == BLOCKS * MIB &&
	   counters.block_bytes_peak >= BLOCKS * MIB &&
	   counters.blocks_total == before.blocks_total + BLOCKS,
	   "the counters have what a thread that ended took");
	give_all(other.heap, other.blocks);
	returns(actmem_get_counters(am, &counters), 0);
	ok(!counters.blocks && !counters.block_bytes, "and what another gave back");
	returns(actmem_heap_destroy(other.heap), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	test_kept(am);
	test_few_lengths(am);
	test_lengths(am);
	test_recalled(am);
	test_taken_over(am);
	test_ends(am);
	test_heap_ends_first(am);
	test_race(am);
	test_chunks(am);
	test_regions(am);
	test_fork(am);
	test_counters(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	return tap_end();
}
