/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of stores share: stores that spill beside the program, and blocks
 * whose bytes tell which they are.
 */
#ifndef TESTS_STORE_TEST_H
#define TESTS_STORE_TEST_H

#include "actmem_store.h"
#include "../queue/queue_test.h"

static inline struct actmem_key key_of(uint64_t name)
{
	return (struct actmem_key){ .name = name };
}

/* The directory of this program. */
static inline const char *spill_path(void)
{
	static char program[PATH_MAX];

	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		tap_bail("/proc/self/exe");
	return dirname(program);
}

static inline struct actmem_store_options store_options(uint64_t budget, const char *const *paths,
							uint32_t count)
{
	struct actmem_store_options options = {
		.size = sizeof(options), .budget_bytes = budget, .spill_paths = paths,
		.spill_path_count = count, .flags = ACTMEM_STORE_ALLOW_BUFFERED,
	};

	return options;
}

static inline struct actmem_store *store_or_bail(struct actmem *am,
						 const struct actmem_store_options *options)
{
	struct actmem_store *store;

	if (actmem_store_create(am, options, &store))
		tap_bail("actmem_store_create");
	return store;
}

static inline struct actmem_store *spilling_store(struct actmem *am, uint64_t budget)
{
	const char *path = spill_path();
	struct actmem_store_options options = store_options(budget, &path, 1);

	return store_or_bail(am, &options);
}

static inline struct actmem_store_stats stats_of(struct actmem_store *store)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };

	if (actmem_store_get_stats(store, &stats))
		tap_bail("actmem_store_get_stats");
	return stats;
}

static inline uint64_t block_word(uint64_t seed, uint64_t i)
{
	return seed * 0x9E3779B97F4A7C15ULL + i;
}

/* Words that tell the block and the place in it; the last one may be cut off. */
static inline void fill_block(void *memory, uint64_t bytes, uint64_t seed)
{
	uint64_t i, last = block_word(seed, bytes / sizeof(last)), *words = memory;

	for (i = 0; i < bytes / sizeof(*words); i++)
		words[i] = block_word(seed, i);
	memcpy(&words[i], &last, bytes % sizeof(last));
}

static inline bool is_block(const void *memory, uint64_t bytes, uint64_t seed)
{
	uint64_t i, last = block_word(seed, bytes / sizeof(last));
	const uint64_t *words = memory;

	for (i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != block_word(seed, i))
			return false;
	return !memcmp(&words[i], &last, bytes % sizeof(last));
}

/* For as long as it takes. */
static inline int reserve_block(struct actmem_store *store, uint64_t name, uint64_t bytes,
				void **memory)
{
	return actmem_store_reserve(store, key_of(name), bytes, memory, ACTMEM_WAIT_FOREVER);
}

static inline int hold_block(struct actmem_store *store, uint64_t name, const void **memory,
		       uint64_t *bytes)
{
	return actmem_store_hold(store, key_of(name), memory, bytes, ACTMEM_WAIT_FOREVER);
}

/* Puts, and takes and compares, in place. */
static inline int put_block(struct actmem_store *store, uint64_t name, uint64_t bytes,
			    uint64_t seed)
{
	void *memory;
	int error = reserve_block(store, name, bytes, &memory);

	if (error)
		return error;
	fill_block(memory, bytes, seed);
	return actmem_store_commit(store, key_of(name));
}

static inline int take_block(struct actmem_store *store, uint64_t name, uint64_t bytes,
			     uint64_t seed)
{
	const void *memory;
	uint64_t has;
	int error = hold_block(store, name, &memory, &has);

	if (error)
		return error;
	if (has != bytes || !is_block(memory, bytes, seed))
		return -EILSEQ;
	return actmem_store_release(store, key_of(name));
}

/* Nothing is left in it, and it ends. */
static inline void destroy_empty(struct actmem_store *store)
{
	struct actmem_store_stats stats = stats_of(store);

	ok(!stats.blocks && !stats.block_bytes && !stats.resident_bytes && !stats.spilled_bytes,
	   "the store's counters returned to 0");
	returns(actmem_store_destroy(store), 0);
}

/* Ends a program that took @before while @am was open. */
static inline int end_open_tests(struct actmem *am, struct usage before)
{
	same_usage(before);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	return tap_end();
}

#endif /* TESTS_STORE_TEST_H */
