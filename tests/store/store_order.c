/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Steps in an order that changes: what is read in vain, and how many takes nobody has
 * foreseen, in the step in which it does. Between takes all that the store reads ahead is
 * waited for, so that the numbers are the same on any disk; but for many small blocks,
 * which are taken while others are still being read.
 */
#include <stdatomic.h>

#include "store_test.h"

#define BUDGET	(8 * MIB)
#define BLOCK	(512 * KIB)
#define LAYERS	32
#define TENSORS	3
#define BLOCKS	(LAYERS * TENSORS)
/* Takes until it is seen that the order is another one. */
#define UNNOTICED	8
#define SMALL_BLOCK	(64 * KIB)
#define SMALL_BLOCKS	2000
#define SMALL_BUDGET	(SMALL_BLOCKS * SMALL_BLOCK / 4)

/* How often each block has been read in a step. */
static unsigned int reads[BLOCKS];

static void count(const struct actmem_store_event *event, void *data)
{
	atomic_int *under_way = data;

	if (event->kind == ACTMEM_STORE_FILL_BEGIN)
		reads[event->key.name]++;
	if (event->kind == ACTMEM_STORE_SPILL_BEGIN || event->kind == ACTMEM_STORE_FILL_BEGIN)
		(*under_way)++;
	if (event->kind == ACTMEM_STORE_SPILL_END || event->kind == ACTMEM_STORE_FILL_END)
		(*under_way)--;
}

/* What follows from the end of a transfer is begun under the same lock. */
static void settle(struct actmem_store *store, atomic_int *under_way)
{
	do {
		while (*under_way)
			usleep(100);
		stats_of(store);
	} while (*under_way);
}

/* Layers in this order, and of each the tensors that were put last first. */
static struct actmem_store_stats run_step(struct actmem_store *store, atomic_int *under_way,
					  const unsigned int order[LAYERS])
{
	struct actmem_store_stats before = stats_of(store), after;
	unsigned int i;
	uint64_t name;

	memset(reads, 0, sizeof(reads));
	for (name = 0; name < BLOCKS; name++)
		if (put_block(store, name, BLOCK, name))
			tap_bail("block %llu", (unsigned long long)name);
	for (i = 0; i < BLOCKS; i++) {
		settle(store, under_way);
		name = order[i / TENSORS] * TENSORS + TENSORS - 1 - i % TENSORS;
		if (take_block(store, name, BLOCK, name))
			tap_bail("block %llu", (unsigned long long)name);
	}
	after = stats_of(store);
	after.misses_total -= before.misses_total;
	after.late_total -= before.late_total;
	after.filled_bytes_total -= before.filled_bytes_total;
	after.wasted_bytes_total -= before.wasted_bytes_total;
	printf("# misses %llu, late %llu, blocks read %llu, in vain %llu\n",
	       (unsigned long long)after.misses_total, (unsigned long long)after.late_total,
	       (unsigned long long)(after.filled_bytes_total / BLOCK),
	       (unsigned long long)(after.wasted_bytes_total / BLOCK));
	return after;
}

/* As the step before. */
static void try_known(struct actmem_store *store, atomic_int *under_way,
		      const unsigned int order[LAYERS])
{
	struct actmem_store_stats step = run_step(store, under_way, order);

	ok(!step.misses_total && !step.late_total && !step.wasted_bytes_total,
	   "a known order is read ahead");
}

/* Of @runs parts that are what they were, or as they were put. */
static void try_new(struct actmem_store *store, atomic_int *under_way,
		    const unsigned int order[LAYERS], unsigned int runs, const char *how)
{
	struct actmem_store_stats step = run_step(store, under_way, order);
	unsigned int most = 0, i;

	for (i = 0; i < BLOCKS; i++)
		most = reads[i] > most ? reads[i] : most;
	ok(step.misses_total + step.late_total <= runs + UNNOTICED,
	   "%s, little more than the first of each run is waited for", how);
	ok(step.wasted_bytes_total <= BUDGET && most <= 2,
	   "little is read in vain, and nothing again");
}

/* Nothing is waited for but what is taken. */
static void run_small_step(struct actmem_store *store, bool forward, const char *how)
{
	struct actmem_store_stats before, after;
	uint64_t i, name, filed, read, wasted;

	for (name = 0; name < SMALL_BLOCKS; name++)
		if (put_block(store, name, SMALL_BLOCK, name))
			tap_bail("block %llu", (unsigned long long)name);
	before = stats_of(store);
	for (i = 0; i < SMALL_BLOCKS; i++) {
		name = forward ? i : SMALL_BLOCKS - 1 - i;
		if (take_block(store, name, SMALL_BLOCK, name))
			tap_bail("block %llu", (unsigned long long)name);
	}
	after = stats_of(store);
	filed = before.spilled_bytes / SMALL_BLOCK;
	read = (after.filled_bytes_total - before.filled_bytes_total) / SMALL_BLOCK;
	wasted = after.wasted_bytes_total - before.wasted_bytes_total;
	ok(read <= 2 * filed && wasted <= SMALL_BUDGET,
	   "small blocks %s: %llu in files, %llu read, %llu of them in vain", how,
	   (unsigned long long)filed, (unsigned long long)read,
	   (unsigned long long)(wasted / SMALL_BLOCK));
}

static void test_small(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, SMALL_BUDGET);

	run_small_step(store, false, "backwards");
	run_small_step(store, false, "backwards again");
	run_small_step(store, true, "forwards");
	destroy_empty(store);
}

int main(void)
{
	/* Now and then two that were put next to each other come in a row. */
	static const unsigned int mixed[LAYERS] = {
		9, 24, 14, 10, 28, 1, 5, 3, 22, 21, 13, 12, 23, 16, 27, 6,
		7, 29, 8, 25, 0, 26, 2, 30, 20, 31, 19, 11, 4, 17, 18, 15,
	};
	unsigned int backwards[LAYERS], forwards[LAYERS], i;
	struct actmem *am = open_or_bail();
	struct usage before = usage_now();
	struct actmem_store *store = spilling_store(am, BUDGET);
	atomic_int under_way = 0;

	for (i = 0; i < LAYERS; i++) {
		backwards[i] = LAYERS - 1 - i;
		forwards[i] = i;
	}
	actmem_store_observe(store, count, &under_way);
	run_step(store, &under_way, backwards);
	try_known(store, &under_way, backwards);
	try_new(store, &under_way, mixed, LAYERS, "in another order");
	try_known(store, &under_way, mixed);
	try_new(store, &under_way, backwards, 1, "backwards again");
	try_known(store, &under_way, backwards);
	try_new(store, &under_way, forwards, LAYERS, "forwards");
	try_known(store, &under_way, forwards);
	try_new(store, &under_way, backwards, 1, "backwards");
	actmem_store_observe(store, NULL, NULL);
	destroy_empty(store);
	test_small(am);
	return end_open_tests(am, before);
}
