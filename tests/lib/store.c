/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Stores: blocks that are put are taken as they were, in memory, from files, and on
 * the way there.
 */
#include "store_test.h"

#define BUDGET	(8 * MIB)
#define BLOCK	(512 * KIB)
#define BLOCKS	48

/* A training: the blocks of all layers are put, and taken in reverse order. */
static bool run_step(struct actmem_store *store, uint64_t step, bool backwards)
{
	uint64_t i, name;
	int error = 0;

	for (i = 0; !error && i < BLOCKS; i++)
		error = put_block(store, i, BLOCK + i * 1000, step * BLOCKS + i);
	for (i = 0; !error && i < BLOCKS; i++) {
		name = backwards ? BLOCKS - 1 - i : i;
		error = take_block(store, name, BLOCK + name * 1000, step * BLOCKS + name);
	}
	if (error)
		ok(false, "step %llu ended with %d", (unsigned long long)step, error);
	return !error;
}

static void test_steps(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	struct actmem_store_stats stats;
	uint64_t step;
	bool all = true;

	for (step = 0; all && step < 6; step++)
		all = run_step(store, step, step < 3);
	ok(all, "steps of thrice the budget, backwards and then forwards");
	stats = stats_of(store);
	ok(stats.memory_bytes_peak <= BUDGET, "memory never was over the budget");
	ok(stats.takes_total == 6 * BLOCKS && stats.puts_total == 6 * BLOCKS, "all were counted");
	ok(stats.hits_total + stats.late_total + stats.misses_total == stats.takes_total,
	   "each take was a hit, late or a miss");
	ok(stats.spilled_bytes_total && stats.filled_bytes_total, "some went through files");
	printf("# %s\n# hits %llu late %llu misses %llu handed over %llu; spilled %llu filled %llu wasted %llu\n",
	       actmem_store_describe(store), (unsigned long long)stats.hits_total,
	       (unsigned long long)stats.late_total, (unsigned long long)stats.misses_total,
	       (unsigned long long)stats.handed_over_total,
	       (unsigned long long)stats.spilled_bytes_total,
	       (unsigned long long)stats.filled_bytes_total,
	       (unsigned long long)stats.wasted_bytes_total);
	destroy_empty(store);
}

int main(void)
{
	struct actmem *am = open_or_bail();
	struct usage before = usage_now();

	test_steps(am);
	same_usage(before);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	return tap_end();
}
