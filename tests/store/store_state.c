/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks that outlive a step, as the state of an optimizer does: each step takes each block and
 * puts its new value. The state is four times the budget, and moves once in each direction.
 */
#include "store_test.h"

#define BUDGET	(16 * MIB)
#define BLOCK	(2 * MIB)
#define BLOCKS	32
#define STEPS	6
/* Bytes of the state in the steps that are measured. */
#define MEASURED	((STEPS - 3) * BLOCKS * BLOCK)

static struct actmem_key key_in(unsigned int step, uint64_t name)
{
	return (struct actmem_key){ .name = name, .instance = step | ACTMEM_INSTANCE_ONCE };
}

static void *buffer;

static void put(struct actmem_store *store, unsigned int step, uint64_t name)
{
	fill_block(buffer, BLOCK, 100 * step + name);
	if (actmem_store_put(store, key_in(step, name), buffer, BLOCK))
		tap_bail("put %llu of step %u", (unsigned long long)name, step);
}

static bool take(struct actmem_store *store, unsigned int step, uint64_t name)
{
	if (actmem_store_take(store, key_in(step, name), buffer, BLOCK))
		tap_bail("take %llu of step %u", (unsigned long long)name, step);
	return is_block(buffer, BLOCK, 100 * step + name);
}

/* Takes each block and puts its value of this step. */
static struct actmem_store_stats run_step(struct actmem_store *store, unsigned int step)
{
	struct actmem_store_stats before = stats_of(store), after;
	uint64_t name;

	for (name = 0; name < BLOCKS; name++) {
		if (!take(store, step - 1, name))
			tap_bail("block %llu has another value", (unsigned long long)name);
		put(store, step, name);
	}
	after = stats_of(store);
	after.filled_bytes_total -= before.filled_bytes_total;
	after.wasted_bytes_total -= before.wasted_bytes_total;
	return after;
}

int main(void)
{
	struct actmem *am = open_or_bail();
	struct usage usage = usage_now();
	struct actmem_store *store = spilling_store(am, BUDGET);
	uint64_t filled = 0, wasted = 0, name;
	struct actmem_store_stats stats;
	unsigned int step;

	buffer = malloc(BLOCK);
	for (name = 0; name < BLOCKS; name++)
		put(store, 0, name);
	/* The first steps show when a block is taken again. */
	for (step = 1; step < STEPS; step++) {
		stats = run_step(store, step);
		if (step < 3)
			continue;
		filled += stats.filled_bytes_total;
		wasted += stats.wasted_bytes_total;
	}
	ok(wasted <= MEASURED / 8 && filled <= MEASURED * 9 / 8,
	   "of %llu MiB, steps read %llu, %llu of them in vain", MEASURED / MIB, filled / MIB,
	   wasted / MIB);
	ok(stats.memory_bytes_peak <= BUDGET && stats.blocks == BLOCKS,
	   "the store keeps all blocks within its budget");
	for (name = 0; name < BLOCKS; name++)
		ok(take(store, STEPS - 1, name), "block %llu has its last value",
		   (unsigned long long)name);
	destroy_empty(store);
	free(buffer);
	return end_open_tests(am, usage);
}
