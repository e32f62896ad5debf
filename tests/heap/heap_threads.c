/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that share a heap: a block goes back once, by any thread, also after the one
 * that took it has ended; what a forked child may do; how long regions are; and what
 * is counted.
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
#define RACES		2000

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
	pthread_join(start_thread(body, context), NULL);
}

struct other {
	struct actmem_heap *heap, *second;
	void *blocks[BLOCKS];
};

static void *only_take(void *context)
{
	struct other *other = context;

	take_all(other->heap, other->blocks, MIB);
	return NULL;
}

static void *take_and_give(void *context)
{
	struct other *other = context;

	only_take(other);
	give_all(other->heap, other->blocks);
	return NULL;
}

static void test_ends(struct actmem *am)
{
	struct other other = { .heap = make_heap(am, GROW, 0) };
	struct actmem_heap_stats stats;

	in_thread(only_take, &other);
	stats = stats_of(other.heap);
	ok(stats.blocks == BLOCKS && stats.block_bytes == BLOCKS * MIB && !stats.free_pieces,
	   "a thread's live blocks stay when it ends");
	give_all(other.heap, other.blocks);
	stats = stats_of(other.heap);
	ok(!stats.blocks && !stats.block_bytes && !stats.used_bytes,
	   "and are freed by another");
	ok(stats.used_bytes_peak == BLOCKS * MIB && stats.blocks_total == BLOCKS,
	   "the most that was in use is known, and how many blocks there were");
	ok(stats.free_pieces == 1 && stats.largest_free == GROW, "blocks that are free merge");
	returns(actmem_heap_free(other.heap, other.blocks[0]), -EINVAL);
	returns(actmem_heap_trim(other.heap), 0);
	ok(!stats_of(other.heap).region_bytes, "trimming gives back what is free");
	returns(actmem_heap_destroy(other.heap), 0);
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
	thread = start_thread(race_freely, &race);
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

/* Blocks of both lives, and a thread that ends in the child. */
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
	struct actmem_counters before = counters_of(am), counters;

	in_thread(only_take, &other);
	counters = counters_of(am);
	ok(counters.blocks == BLOCKS && counters.block_bytes == BLOCKS * MIB &&
	   counters.block_bytes_peak >= BLOCKS * MIB &&
	   counters.blocks_total == before.blocks_total + BLOCKS,
	   "the counters have what a thread that ended took");
	give_all(other.heap, other.blocks);
	counters = counters_of(am);
	ok(!counters.blocks && !counters.block_bytes, "and what another gave back");
	returns(actmem_heap_destroy(other.heap), 0);
}

int main(void)
{
	return RUN_TESTS(test_ends, test_race, test_regions, test_fork, test_counters);
}
