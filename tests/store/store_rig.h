/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the unit tests of stores share: a store of a few blocks' memory that spills beside
 * the tests, and blocks whose bytes tell which they are.
 */
#ifndef UNIT_STORE_RIG_H
#define UNIT_STORE_RIG_H

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "store/store.h"	/* before faults.h, which defines fail() */
#include "faults.h"

#define MIB		(1ULL << 20)
#define BUDGET		(4 * MIB)
#define BLOCK		MIB
#define FOLDER		"build/tests"
#define NO_FILES	UINT32_MAX

struct rig {
	struct actmem *am;
	struct actmem_store *store;
	struct holdings before;
	uint64_t spill_limit, spill_bytes, window;
	uint32_t flags;
	const char *heap_name;
	uint32_t stripes;		/* 2, NO_FILES, or one file */
	uint64_t grow;
	enum actmem_engine engine;
	atomic_uint under_way;
};

static inline void count_transfers(const struct actmem_store_event *event, void *data)
{
	struct rig *rig = data;

	if (event->kind == ACTMEM_STORE_SPILL_BEGIN || event->kind == ACTMEM_STORE_FILL_BEGIN)
		rig->under_way++;
	if (event->kind == ACTMEM_STORE_SPILL_END || event->kind == ACTMEM_STORE_FILL_END)
		rig->under_way--;
}

static inline struct actmem_key key_of(uint64_t name)
{
	return (struct actmem_key){ .name = name };
}

static inline int set_up(struct rig *rig)
{
	const char *paths[] = { FOLDER, FOLDER };
	struct actmem_options open_options = {
		.size = sizeof(open_options), .backend = ACTMEM_BACKEND_MEMFD,
		.pages = ACTMEM_PAGES_4K, .allow = ACTMEM_ALLOW_ONLY,
		.heap_name = rig->heap_name,
	};
	int error;
	struct actmem_store_options options = { .size = sizeof(options), .budget_bytes = BUDGET };
	struct actmem_queue_options queue = { .size = sizeof(queue), .engine = rig->engine };

	rig->before = held_now();
	rig->store = NULL;
	rig->am = NULL;
	error = actmem_open(&rig->am, &open_options);
	if (error)
		return error;
	options.spill_paths = paths;
	options.spill_path_count = rig->stripes == NO_FILES ? 0 : rig->stripes ? rig->stripes : 1;
	options.spill_limit_bytes = rig->spill_limit;
	options.spill_bytes = rig->spill_bytes;
	options.window_bytes = rig->window;
	options.grow_bytes = rig->grow;
	options.flags = rig->flags | ACTMEM_STORE_ALLOW_BUFFERED;
	options.queue = &queue;
	error = actmem_store_create(rig->am, &options, &rig->store);
	if (!error)
		actmem_store_observe(rig->store, count_transfers, rig);
	return error;
}

static inline void tear_down(struct rig *rig)
{
	fail_nothing();
	if (rig->store)
		assert_int_equal(actmem_store_destroy(rig->store), 0);
	if (rig->am)
		assert_int_equal(actmem_close(rig->am), 0);
	assert_same_held(rig->before);
}

static inline void begin(struct rig *rig)
{
	assert_int_equal(set_up(rig), 0);
}

/* A rig of such values, the last of a test's declarations; it ends with the test. */
#define RIG(rig, ...)							\
	struct rig rig __attribute__((cleanup(tear_down))) = { __VA_ARGS__ };	\
	begin(&rig)

static inline struct actmem_store_stats stats_of(struct rig *rig)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };

	assert_int_equal(actmem_store_get_stats(rig->store, &stats), 0);
	return stats;
}

/* For as long as it takes. */
static inline int reserve(struct rig *rig, uint64_t name, uint64_t bytes)
{
	void *memory;

	return actmem_store_reserve(rig->store, key_of(name), bytes, &memory, ACTMEM_WAIT_FOREVER);
}

static inline int hold(struct rig *rig, uint64_t name)
{
	const void *memory;

	return actmem_store_hold(rig->store, key_of(name), &memory, NULL, ACTMEM_WAIT_FOREVER);
}

static inline int put(struct rig *rig, uint64_t name)
{
	void *memory;
	int error = actmem_store_reserve(rig->store, key_of(name), BLOCK, &memory,
					 ACTMEM_WAIT_FOREVER);

	if (error)
		return error;
	memset(memory, (int)name + 1, BLOCK);
	return actmem_store_commit(rig->store, key_of(name));
}

static inline int take(struct rig *rig, uint64_t name)
{
	const unsigned char *memory;
	const void *held;
	uint64_t bytes, i;
	int error = actmem_store_hold(rig->store, key_of(name), &held, &bytes, ACTMEM_WAIT_FOREVER);

	if (error)
		return error;
	assert_int_equal(bytes, BLOCK);
	for (memory = held, i = 0; i < bytes; i++)
		if (memory[i] != (unsigned char)(name + 1))
			fail_msg("byte %u of block %u is wrong", (unsigned int)i,
				 (unsigned int)name);
	return actmem_store_release(rig->store, key_of(name));
}

/* Nothing is under way, so that what fails next is what the test does. */
static inline void settle(struct rig *rig)
{
	while (rig->under_way)
		usleep(1000);
}

static inline void put_more(struct rig *rig, uint64_t name, uint64_t end)
{
	for (; name < end; name++)
		assert_int_equal(put(rig, name), 0);
}

/* Stores the blocks 0 to @count - 1. Returns @count. */
static inline uint64_t put_all(struct rig *rig, uint64_t count)
{
	put_more(rig, 0, count);
	return count;
}

static inline void drop_all(struct rig *rig, uint64_t count)
{
	uint64_t name;

	for (name = 0; name < count; name++)
		assert_int_equal(actmem_store_drop(rig->store, key_of(name)), 0);
}

static inline void take_all(struct rig *rig, uint64_t count)
{
	uint64_t name;

	for (name = count; name--; )
		assert_int_equal(take(rig, name), 0);
}

/* Puts until it fails; how many there are then. */
static inline uint64_t put_until(struct rig *rig, int error, const char *part)
{
	uint64_t count = 0;
	int result;

	while (!(result = put(rig, count)))
		assert_true(++count < 100);
	assert_fails(result, error, part);
	return count;
}

/* A block of the first @count that is in a file alone: which ones are depends on the disk. */
static inline uint64_t find_away(struct rig *rig, uint64_t count)
{
	const void *memory;
	uint64_t name;

	for (name = 0; name < count; name++) {
		if (actmem_store_hold(rig->store, key_of(name), &memory, NULL, 0))
			return name;
		assert_int_equal(actmem_store_put_back(rig->store, key_of(name)), 0);
	}
	fail_msg("none of %llu blocks is away", (unsigned long long)count);
	return count;
}

/* Returns true if a thread waits in a list of the store. */
static inline bool has_waiter(const struct link *list, struct actmem_store *store)
{
	bool any;

	pthread_mutex_lock(&store->lock);
	any = !link_is_alone(list);
	pthread_mutex_unlock(&store->lock);
	return any;
}

#endif /* UNIT_STORE_RIG_H */
