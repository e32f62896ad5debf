/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store's memory that is made before blocks want it: as much as is wanted, within the
 * budget, in place of nothing that is there; and by a thread while others put and take.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "actmem_runtime.h"
#include "store_test.h"

#define BLOCK	(256 * KIB)
#define GROW	(2 * MIB)
#define BUDGET	(16 * MIB)
#define ROUNDS	40

static struct actmem_store *growing_store(struct actmem *am, const char *path)
{
	struct actmem_store_options options = store_options(BUDGET, &path, path ? 1 : 0);

	options.grow_bytes = GROW;
	return store_or_bail(am, &options);
}

static void test_lengths(struct actmem *am)
{
	struct actmem_store *store = growing_store(am, NULL);
	uint64_t i;

	returns(actmem_store_grow(NULL, BLOCK, GROW), -EINVAL);
	returns(actmem_store_grow(store, 0, GROW), -EINVAL);
	returns(actmem_store_grow(store, BLOCK, 0), 0);
	ok(!stats_of(store).memory_bytes, "nothing is made where none is wanted");
	returns(actmem_store_grow(store, BLOCK, GROW + 1), 0);
	ok(stats_of(store).memory_bytes == 2 * GROW, "as many regions as it takes");
	returns(actmem_store_grow(store, BLOCK, GROW + 1), 0);
	ok(stats_of(store).memory_bytes == 2 * GROW, "what is free already counts");
	for (i = 0; i < 2 * GROW / BLOCK; i++)
		returns(put_block(store, i, BLOCK, i), 0);
	ok(stats_of(store).memory_bytes == 2 * GROW, "and blocks take it");
	returns(actmem_store_grow(store, BLOCK, 4 * BUDGET), 0);
	ok(stats_of(store).memory_bytes == BUDGET, "it grows up to the budget");
	/* Free regions that are too short would go for a block; not for one to come. */
	returns(actmem_store_grow(store, BUDGET / 2, BUDGET), 0);
	returns(actmem_store_grow(store, 2 * BUDGET, BUDGET), 0);
	ok(stats_of(store).memory_bytes == BUDGET, "and no further");
	while (i--)
		returns(take_block(store, i, BLOCK, i), 0);
	destroy_empty(store);
}

static void test_chunks(struct actmem *am)
{
	struct actmem_store_options options = store_options(2 * GROW, NULL, 0);
	struct actmem_runtime_options runtime = { .size = sizeof(runtime), .chunk_bytes = GROW };
	struct actmem_store *store;
	void *memory;

	returns(actmem_runtime_open(am, &runtime, &options.runtime), 0);
	store = store_or_bail(am, &options);
	returns(actmem_store_grow(store, GROW + 1, GROW), -EINVAL);
	says("chunk_bytes");
	returns(reserve_block(store, 1, GROW + 1, &memory), -EINVAL);
	says("chunk_bytes");
	ok(!stats_of(store).memory_bytes, "no region is made for blocks that cannot be registered");
	returns(put_block(store, 2, GROW, 2), 0);
	returns(put_block(store, 3, GROW, 3), 0);
	/* Nor is there any other way for it where memory is used up. */
	returns(reserve_block(store, 1, GROW + 1, &memory), -EINVAL);
	returns(take_block(store, 3, GROW, 3), 0);
	returns(take_block(store, 2, GROW, 2), 0);
	destroy_empty(store);
	returns(actmem_runtime_close(options.runtime), 0);
}

static atomic_int is_over;

static void *grow(void *store)
{
	unsigned int failed = 0;

	while (!atomic_load(&is_over)) {
		failed += !!actmem_store_grow(store, BLOCK, GROW);
		usleep(500);
	}
	return failed ? store : NULL;
}

/* More than the budget, so that memory is waited for while it grows. */
static void test_beside_blocks(struct actmem *am)
{
	struct actmem_store *store = growing_store(am, spill_path());
	uint64_t count = 2 * BUDGET / BLOCK, i;
	unsigned int wrong = 0, round;
	pthread_t thread;
	void *failed;

	thread = start_thread(grow, store);
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < count; i++)
			wrong += !!put_block(store, i, BLOCK, i);
		for (i = count; i--; )
			wrong += !!take_block(store, i, BLOCK, i);
	}
	atomic_store(&is_over, 1);
	pthread_join(thread, &failed);
	ok(!wrong && !failed, "puts and takes go on while it grows (%u went wrong)", wrong);
	ok(stats_of(store).memory_bytes_peak <= BUDGET, "within the budget");
	destroy_empty(store);
}

int main(void)
{
	struct actmem *am = open_or_bail();
	struct usage before = usage_now();

	test_lengths(am);
	test_chunks(am);
	test_beside_blocks(am);
	return end_open_tests(am, before);
}
