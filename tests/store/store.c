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

static void tell(struct actmem_store *store)
{
	struct actmem_store_stats stats = stats_of(store);

	printf("# %s\n# hits %llu, handed over %llu, late %llu, misses %llu; MiB spilled %llu, filled %llu, wasted %llu\n",
	       actmem_store_describe(store), (unsigned long long)stats.hits_total,
	       (unsigned long long)stats.handed_over_total, (unsigned long long)stats.late_total,
	       (unsigned long long)stats.misses_total,
	       (unsigned long long)(stats.spilled_bytes_total / MIB),
	       (unsigned long long)(stats.filled_bytes_total / MIB),
	       (unsigned long long)(stats.wasted_bytes_total / MIB));
}

struct first_spill {
	bool is_seen;
	uint64_t resident_bytes;
};

static void see_first_spill(const struct actmem_store_event *event, void *data)
{
	struct first_spill *first = data;

	if (first->is_seen || event->kind != ACTMEM_STORE_SPILL_BEGIN)
		return;
	first->is_seen = true;
	first->resident_bytes = event->resident_bytes;
}

/*
 * A step as the one before, which is foreseen. Writing begins at once with what will
 * be wanted last, or, forwards, behind what will be wanted soon, and so may stay.
 */
static void try_known_step(struct actmem_store *store, uint64_t step, bool backwards)
{
	struct first_spill first = { .is_seen = false };
	uint64_t misses;

	actmem_store_observe(store, see_first_spill, &first);
	misses = stats_of(store).misses_total;
	ok(run_step(store, step, backwards), "a step as the one before");
	ok(stats_of(store).misses_total == misses, "each take was foreseen");
	ok(first.is_seen && first.resident_bytes < (backwards ? BUDGET / 8 : BUDGET * 3 / 4),
	   "writing begins long before the budget is used up");
	actmem_store_observe(store, NULL, NULL);
}

/* Backwards, until that is known, and then forwards, which it is not. */
static void try_steps(struct actmem *am, const struct actmem_store_options *options,
		      const char *how)
{
	struct actmem_store *store = store_or_bail(am, options);
	struct actmem_store_stats stats;

	ok(run_step(store, 0, true), "a step of thrice the budget, %s", how);
	try_known_step(store, 1, true);
	ok(run_step(store, 2, false), "one in another order");
	try_known_step(store, 3, false);
	stats = stats_of(store);
	ok(stats.memory_bytes_peak <= BUDGET, "memory was never over the budget");
	ok(stats.takes_total == 4 * BLOCKS && stats.puts_total == 4 * BLOCKS, "all were counted");
	ok(stats.hits_total + stats.late_total + stats.misses_total == stats.takes_total,
	   "each take was a hit, late or a miss");
	ok(stats.spilled_bytes_total && stats.filled_bytes_total, "some went through files");
	ok(stats.block_bytes_peak > 2 * BUDGET && stats.spilled_bytes_peak > BUDGET &&
	   stats.file_bytes >= stats.spilled_bytes_peak, "peaks are told");
	tell(store);
	destroy_empty(store);
}

static void test_steps(struct actmem *am)
{
	const char *paths[] = { spill_path(), spill_path() };
	struct actmem_store_options options = store_options(BUDGET, paths, 1);
	struct actmem_queue_options queue = { .size = sizeof(queue) };

	try_steps(am, &options, "as they come");
	options.flags |= ACTMEM_STORE_CHECKSUM;
	options.queue = &queue;
	queue.engine = ACTMEM_ENGINE_WORKERS;
	queue.block_bytes = 64 * KIB;
	options.spill_path_count = 2;
	options.spill_bytes = 4 * MIB;
	options.window_bytes = 2 * MIB;
	try_steps(am, &options, "in two directories by workers, with checksums");
}

/* Once it is known that all of a step fits, not even a part is written ahead. */
static void test_fits(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, 64 * MIB);
	struct actmem_store_stats stats;
	bool all;

	all = run_step(store, 0, true) && run_step(store, 1, false) && run_step(store, 2, true);
	stats = stats_of(store);
	ok(all && !stats.spilled_bytes_total && !stats.file_bytes, "what fits is not written");
	ok(stats.hits_total == stats.takes_total && !stats.put_stall_ns_total &&
	   !stats.take_stall_ns_total, "nobody waits");
	destroy_empty(store);
}

static void test_memory_alone(struct actmem *am)
{
	struct actmem_store_options options = store_options(BUDGET, NULL, 0);
	struct actmem_store *store = store_or_bail(am, &options);
	char data[100], back[100] = "";
	void *memory;

	fill_block(data, sizeof(data), 7);
	returns(actmem_store_put(store, key_of(7), data, sizeof(data)), 0);
	returns(actmem_store_put(store, key_of(7), data, sizeof(data)), -EEXIST);
	says("block 7");
	returns(actmem_store_take(store, key_of(7), back, 99), -EINVAL);
	returns(actmem_store_take(store, key_of(7), back, sizeof(back)), 0);
	ok(!memcmp(data, back, sizeof(data)), "what was put is taken");
	returns(actmem_store_take(store, key_of(7), back, sizeof(back)), -ENOENT);
	returns(reserve_block(store, 8, BUDGET + 1, &memory), -ENOMEM);
	says("budget_bytes");
	returns(put_block(store, 8, BUDGET, 8), 0);
	returns(reserve_block(store, 9, 1, &memory), -ENOMEM);
	says("spill_paths");
	returns(take_block(store, 8, BUDGET, 8), 0);
	tell(store);
	destroy_empty(store);

	returns(actmem_store_create(am, NULL, &store), 0);
	returns(put_block(store, 1, 9 * MIB, 1), 0);
	ok(!stats_of(store).budget_bytes, "without options there is no budget");
	returns(take_block(store, 1, 9 * MIB, 1), 0);
	destroy_empty(store);
}

/* The least budget is two pages of the size in use, and a store works within it. */
static void test_least_budget(struct actmem *am)
{
	uint64_t page = page_bytes_wanted(), i;
	const char *path = spill_path();
	struct actmem_store_options options = store_options(2 * page - 1, &path, 1);
	struct actmem_store *store;
	int error = 0;

	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says(page == 2 * MIB ? "two pages of 2.0 MiB" : "two pages of 4.0 KiB");
	options.budget_bytes = 2 * page;
	store = store_or_bail(am, &options);
	for (i = 0; i < 6; i++)
		error |= put_block(store, i, page, i);
	while (i--)
		error |= take_block(store, i, page, i);
	ok(!error && stats_of(store).memory_bytes_peak == 2 * page &&
	   stats_of(store).spilled_bytes_total >= 4 * page, "two pages are enough for a store");
	destroy_empty(store);
	options = store_options(page - 1, NULL, 0);
	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says("one page");
}

/* A spill path in memory is an error if the store is strict, else a note. /proc is never tmpfs. */
static void test_memory_path(struct actmem *am)
{
	const char *paths[] = { "/proc", "/dev/shm" };
	struct actmem_store_options options = store_options(BUDGET, paths + 1, 1);
	struct actmem_store *store;

	returns(actmem_store_create(am, &options, &store), 0);
	says("'/dev/shm' is on tmpfs");
	says("spill_paths");
	ok(strstr(actmem_store_describe(store), "/dev/shm, which is memory"), "it is not called direct");
	destroy_empty(store);
	options.flags |= ACTMEM_STORE_STRICT;
	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says("'/dev/shm' is on tmpfs");
	says("ALLOW_MEMORY");
	returns(actmem_store_check_paths(paths, 2, options.flags), -EINVAL);
	options.flags |= ACTMEM_STORE_ALLOW_MEMORY;
	returns(actmem_store_check_paths(paths, 2, options.flags), 0);
	says("'/dev/shm' is on tmpfs");
	returns(actmem_store_create(am, &options, &store), 0);
	destroy_empty(store);
	returns(actmem_store_check_paths(paths, 1, ACTMEM_STORE_STRICT), 0);
	ok(!*actmem_error(), "nothing is said of a file system that is not memory");
	returns(actmem_store_check_paths(NULL, 1, 0), -EINVAL);
}

/* Tells that a call of it was right by the name that it writes. */
static void name_block(struct actmem_key key, char *name, size_t size)
{
	snprintf(name, size, key.instance == 5 ? "query of layer %llu" : "",
		 (unsigned long long)key.name);
}

static void test_names(struct actmem *am)
{
	struct actmem_store_options options = store_options(BUDGET, NULL, 0);
	struct actmem_store *store = store_or_bail(am, &options);
	struct actmem_key key = { .name = 3, .instance = 5 };

	returns(actmem_store_prefetch(store, key), -ENOENT);
	says("block 3.5 is not");
	destroy_empty(store);
	options.name_block = name_block;
	store = store_or_bail(am, &options);
	returns(actmem_store_prefetch(store, key), -ENOENT);
	says("block 'query of layer 3' is not");
	key.instance = 0;
	returns(actmem_store_prefetch(store, key), -ENOENT);
	says("block 3 is not");
	destroy_empty(store);
}

static void test_options(struct actmem *am)
{
	const char *path = spill_path(), *missing = "/nowhere/at/all";
	struct actmem_store_options options = store_options(0, &path, 1);
	struct actmem_store *store;

	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says("budget_bytes");
	options = store_options(2 * MIB, NULL, 0);
	returns(actmem_store_create(am, &options, &store), 0);
	returns(put_block(store, 1, MIB, 1), 0);
	returns(take_block(store, 1, MIB, 1), 0);
	destroy_empty(store);
	options = store_options(BUDGET, &missing, 1);
	returns(actmem_store_create(am, &options, &store), -ENOENT);
	says(missing);
	options = store_options(BUDGET, &path, 1);
	options.flags = 1U << 30;
	returns(actmem_store_create(am, &options, &store), -EINVAL);
	options = store_options(BUDGET, &path, 1);
	options.spill_bytes = 2 * MIB;
	options.spill_limit_bytes = MIB;
	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says("spill_limit_bytes");
}

static void test_nothing(struct actmem *am)
{
	struct actmem_store_options options = store_options(UINT64_MAX, NULL, 0);
	struct actmem_store *store;
	struct actmem_store_stats stats;
	const void *held;
	void *memory;

	returns(actmem_store_create(NULL, &options, &store), -EINVAL);
	returns(actmem_store_create(am, &options, NULL), -EINVAL);
	returns(reserve_block(NULL, 1, 1, &memory), -EINVAL);
	returns(actmem_store_commit(NULL, key_of(1)), -EINVAL);
	returns(hold_block(NULL, 1, &held, NULL), -EINVAL);
	returns(actmem_store_release(NULL, key_of(1)), -EINVAL);
	returns(actmem_store_put_back(NULL, key_of(1)), -EINVAL);
	returns(actmem_store_drop(NULL, key_of(1)), -EINVAL);
	returns(actmem_store_prefetch(NULL, key_of(1)), -EINVAL);
	returns(actmem_store_put(NULL, key_of(1), "", 1), -EINVAL);
	returns(actmem_store_take(NULL, key_of(1), &stats, 1), -EINVAL);
	returns(actmem_store_get_stats(NULL, &stats), -EINVAL);
	returns(actmem_store_destroy(NULL), -EINVAL);
	ok(!strcmp(actmem_store_describe(NULL), "no store"), "no store is described as such");
	actmem_store_observe(NULL, NULL, NULL);

	returns(actmem_store_create(am, &options, &store), 0);
	returns(reserve_block(store, 1, 1, NULL), -EINVAL);
	returns(reserve_block(store, 1, UINT64_MAX, &memory), -EINVAL);
	returns(actmem_store_put(store, key_of(1), NULL, 1), -EINVAL);
	returns(actmem_store_put(store, key_of(1), "", 1), 0);
	returns(hold_block(store, 1, NULL, NULL), -EINVAL);
	returns(actmem_store_take(store, key_of(1), NULL, 1), -EINVAL);
	returns(actmem_store_get_stats(store, NULL), -EINVAL);
	returns(actmem_store_drop(store, key_of(1)), 0);
	destroy_empty(store);
}

/* The holder of a block, and those that may not have it then. */
static void test_users(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	struct actmem_key same = { .name = 1, .instance = 1 };
	const void *held;
	void *memory;
	uint64_t bytes;

	returns(reserve_block(store, 1, 0, &memory), -EINVAL);
	returns(reserve_block(store, 1, 100, &memory), 0);
	ok(!((uintptr_t)memory % 4096), "a block is aligned to 4096");
	returns(reserve_block(store, 1, 100, &memory), -EEXIST);
	returns(actmem_store_reserve(store, same, 100, &memory, ACTMEM_WAIT_FOREVER), 0);
	returns(actmem_store_drop(store, same), 0);
	returns(hold_block(store, 1, &held, &bytes), -ENOENT);
	says("not committed");
	returns(actmem_store_release(store, key_of(1)), -ENOENT);
	returns(actmem_store_destroy(store), -EBUSY);
	says("1 blocks");
	returns(actmem_store_commit(store, key_of(1)), 0);
	returns(actmem_store_commit(store, key_of(1)), -ENOENT);
	returns(hold_block(store, 1, &held, &bytes), 0);
	ok(bytes == 100, "a block has the bytes that were asked for");
	returns(actmem_store_drop(store, key_of(1)), -EBUSY);
	returns(actmem_store_destroy(store), -EBUSY);
	returns(actmem_store_put_back(store, key_of(1)), 0);
	returns(actmem_store_put_back(store, key_of(1)), -ENOENT);
	returns(actmem_store_prefetch(store, key_of(1)), 0);
	returns(actmem_store_prefetch(store, key_of(2)), -ENOENT);
	returns(actmem_store_drop(store, key_of(1)), 0);
	returns(actmem_store_drop(store, key_of(1)), -ENOENT);
	destroy_empty(store);
}

/* A block that is held stays; all that is held is all there is. */
static void test_all_is_held(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	const void *held[BUDGET / MIB];
	void *memory;
	uint64_t i;

	for (i = 0; i < BUDGET / MIB; i++) {
		if (put_block(store, i, MIB, i) || hold_block(store, i, &held[i], NULL))
			tap_bail("block %llu", (unsigned long long)i);
	}
	returns(reserve_block(store, 100, MIB, &memory), -EDEADLK);
	says("this thread");
	for (i = 0; i < BUDGET / MIB; i++)
		if (actmem_store_put_back(store, key_of(i)))
			tap_bail("block %llu", (unsigned long long)i);
	returns(put_block(store, 100, MIB, 100), 0);
	ok(stats_of(store).put_stall_ns_total > 0, "it had to wait for a spill");
	for (i = 0; i < BUDGET / MIB; i++)
		if (take_block(store, i, MIB, i))
			tap_bail("block %llu", (unsigned long long)i);
	returns(take_block(store, 100, MIB, 100), 0);
	destroy_empty(store);
}

/* A prefetched block is there when it is wanted, though nobody would have guessed it. */
static void test_prefetch(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	struct actmem_store_stats stats;
	uint64_t i;
	bool all = true;

	for (i = 0; i < 24; i++)
		all = all && !put_block(store, i, MIB, i);
	/* Room for three. */
	for (i = 21; i < 24; i++)
		all = all && !take_block(store, i, MIB, i);
	ok(all, "all were put, and three taken");
	for (i = 3; i < 6; i++)
		returns(actmem_store_prefetch(store, key_of(i)), 0);
	for (i = 3; i < 6; i++)
		all = all && !take_block(store, i, MIB, i);
	stats = stats_of(store);
	ok(all && !stats.misses_total, "those that were prefetched had been read, or were being so");
	for (i = 0; i < 21; i++)
		if (i < 3 || i > 5)
			all = all && !take_block(store, i, MIB, i);
	ok(all, "the others are there too");
	destroy_empty(store);
}

/* Blocks end while they are written and read, and with the store. */
static void test_ends(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	uint64_t i, round;
	bool all = true;

	for (round = 0; all && round < 4; round++) {
		for (i = 0; all && i < 24; i++)
			all = !put_block(store, i, MIB, i);
		for (i = 0; all && i < 24; i++)
			all = round % 2 || i % 3 ? !actmem_store_drop(store, key_of(i)) :
			      !take_block(store, i, MIB, i);
	}
	ok(all, "blocks are dropped while they are on their way");
	ok(!stats_of(store).blocks, "none is left");
	for (i = 0; all && i < 24; i++)
		all = !put_block(store, i, MIB, i);
	ok(all && stats_of(store).blocks == 24, "the last ones end with the store");
	returns(actmem_store_destroy(store), 0);
}

struct events {
	unsigned int begun[2], ended[2], stalls, stalls_ended;
	bool is_in_order;
	uint64_t last;
};

static void count_event(const struct actmem_store_event *event, void *data)
{
	struct events *events = data;

	events->is_in_order = events->is_in_order && event->time_ns >= events->last;
	events->last = event->time_ns;
	events->begun[0] += event->kind == ACTMEM_STORE_SPILL_BEGIN;
	events->begun[1] += event->kind == ACTMEM_STORE_FILL_BEGIN;
	events->ended[0] += event->kind == ACTMEM_STORE_SPILL_END && !event->result;
	events->ended[1] += event->kind == ACTMEM_STORE_FILL_END && !event->result;
	events->stalls += event->kind == ACTMEM_STORE_STALL_BEGIN;
	events->stalls_ended += event->kind == ACTMEM_STORE_STALL_END;
}

static void test_events(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);
	struct events events = { .is_in_order = true }, then;

	actmem_store_observe(store, count_event, &events);
	ok(run_step(store, 0, true), "a step is observed");
	actmem_store_observe(store, NULL, NULL);
	then = events;
	ok(events.begun[0] && events.begun[1], "blocks were written and read");
	ok(events.begun[1] == events.ended[1], "all that was read has ended");
	ok(events.is_in_order, "events come in order");
	ok(events.stalls == events.stalls_ended, "nothing waits any more");
	ok(run_step(store, 1, true) && !memcmp(&then, &events, sizeof(then)),
	   "another one is not");
	destroy_empty(store);
}

static bool is_refused(void *data)
{
	struct actmem_store *store = data;
	struct actmem_store_stats stats = { .size = sizeof(stats) };
	const void *held;
	void *memory;

	return reserve_block(store, 2, 1, &memory) == -EOWNERDEAD &&
	       hold_block(store, 1, &held, NULL) == -EOWNERDEAD &&
	       actmem_store_drop(store, key_of(1)) == -EOWNERDEAD &&
	       actmem_store_get_stats(store, &stats) == -EOWNERDEAD &&
	       actmem_store_destroy(store) == -EOWNERDEAD;
}

static void test_fork(struct actmem *am)
{
	struct actmem_store *store = spilling_store(am, BUDGET);

	returns(put_block(store, 1, MIB, 1), 0);
	ok(in_child(is_refused, store), "a child is refused");
	returns(actmem_close(am), -EBUSY);
	says("1 stores");
	returns(take_block(store, 1, MIB, 1), 0);
	destroy_empty(store);
}

int main(void)
{
	struct actmem *am = open_or_bail();
	struct usage before = usage_now();

	test_least_budget(am);
	test_memory_path(am);
	test_names(am);
	test_options(am);
	test_nothing(am);
	test_memory_alone(am);
	test_users(am);
	test_steps(am);
	test_fits(am);
	test_all_is_held(am);
	test_prefetch(am);
	test_ends(am);
	test_events(am);
	test_fork(am);
	same_usage(before);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	return tap_end();
}
