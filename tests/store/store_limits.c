/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store where the process may have no more descriptors, where io_uring is refused,
 * and in a forked child.
 */
#include <pthread.h>
#include <sys/resource.h>

#include "refuse.h"
#include "store_folder.h"

#define BYTES	(128 * KIB)
#define BLOCKS	(2 * BUDGET / BYTES)

static bool puts_and_takes(struct actmem_store *store)
{
	uint64_t i;
	int error = 0;

	for (i = 0; i < BLOCKS; i++)
		error |= put_named(store, i, BYTES);
	for (i = BLOCKS; i--; )
		error |= take_named(store, i, BYTES);
	return !error;
}

/* Of every number of descriptors, from none to enough. */
static bool works_or_fails(void *context)
{
	const char *const *folder = context;
	struct actmem *am = open_or_bail();
	struct actmem_store_options options = store_options(BUDGET, folder, 1);
	unsigned int refusals = 0;
	struct actmem_store *store;
	struct rlimit limit;
	struct usage before;
	int error = -EMFILE;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return false;
	before = usage_now();
	for (limit.rlim_cur = 3; error; limit.rlim_cur++) {
		struct usage now;

		if (setrlimit(RLIMIT_NOFILE, &limit))
			return false;
		error = actmem_store_create(am, &options, &store);
		if (error && (error != -EMFILE || !*actmem_error()))
			return false;
		refusals += !!error;
		if (error) {
			limit.rlim_cur += 100;
			if (setrlimit(RLIMIT_NOFILE, &limit))
				return false;
			now = usage_now();
			limit.rlim_cur -= 100;
			if (now.descriptors != before.descriptors ||
			    now.mappings != before.mappings)
				return false;
		}
	}
	printf("# %u refusals, and %llu descriptors do\n", refusals,
	       (unsigned long long)limit.rlim_cur);
	/* Regions and files that it comes to want later have descriptors too. */
	for (; ; limit.rlim_cur++) {
		uint64_t i, well;

		for (i = 0, error = 0; i < BLOCKS && !error; i++)
			error = put_named(store, i, BYTES);
		well = i - !!error;
		if (error && error != -EMFILE)
			return false;
		for (i = 0; i < well; i++)
			if (take_named(store, i, BYTES))
				return false;
		if (!error)
			break;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			return false;
	}
	return refusals && !actmem_store_destroy(store) && !actmem_close(am);
}

static bool works_without_uring(void *context)
{
	const char *const *folder = context;
	struct actmem_store_options options = store_options(BUDGET, folder, 1);
	struct actmem *am = open_or_bail();
	struct actmem_queue_options queue = { .size = sizeof(queue) };
	struct actmem_store *store;

	options.queue = &queue;
	queue.engine = ACTMEM_ENGINE_URING;
	if (!refuse_uring(EPERM) || actmem_store_create(am, &options, &store) != -EPERM ||
	    !strstr(actmem_error(), "unavailable"))
		return false;
	queue.engine = ACTMEM_ENGINE_AUTO;
	if (actmem_store_create(am, &options, &store))
		return false;
	printf("# %s\n", actmem_store_describe(store));
	return strstr(actmem_store_describe(store), "io_uring is unavailable") &&
	       puts_and_takes(store) && stats_of(store).spilled_bytes_total &&
	       !actmem_store_destroy(store) && !actmem_close(am);
}

struct inherited {
	struct actmem_store *store;
	const char *const *folder;
};

/* Nor does it keep files alive: has_no_descriptor_of() in queue.c. */
static bool child_is_refused(void *context)
{
	struct inherited *parent = context;
	struct actmem_store_options options = store_options(BUDGET, parent->folder, 1);
	struct actmem_store *store = parent->store, *own;
	struct actmem_store_stats stats = { .size = sizeof(stats) };
	char byte[BYTES];
	const void *held;
	struct actmem *am;
	void *memory;
	uint64_t bytes;

	if (!refused(reserve_block(store, 9999, BYTES, &memory)) ||
	    !refused(actmem_store_commit(store, key_of(0))) ||
	    !refused(hold_block(store, 0, &held, &bytes)) ||
	    !refused(actmem_store_release(store, key_of(0))) ||
	    !refused(actmem_store_put_back(store, key_of(0))) ||
	    !refused(actmem_store_drop(store, key_of(0))) ||
	    !refused(actmem_store_put(store, key_of(9999), byte, BYTES)) ||
	    !refused(actmem_store_take(store, key_of(0), byte, BYTES)) ||
	    !refused(actmem_store_prefetch(store, key_of(0))) ||
	    !refused(actmem_store_get_stats(store, &stats)) ||
	    !refused(actmem_store_destroy(store)))
		return false;
	am = open_or_bail();
	if (actmem_store_create(am, &options, &own))
		return false;
	return puts_and_takes(own) && !actmem_store_destroy(own) && !actmem_close(am);
}

struct busy {
	struct actmem_store *store;
	bool stop, good;
};

static void *be_busy(void *context)
{
	struct busy *busy = context;

	busy->good = true;
	while (!__atomic_load_n(&busy->stop, __ATOMIC_ACQUIRE) && busy->good)
		busy->good = puts_and_takes(busy->store);
	return NULL;
}

/* While another thread has it spill and fill. */
static void test_fork(struct actmem *am, const char *const *folder)
{
	struct actmem_store_options options = store_options(BUDGET, folder, 1);
	struct actmem_store *store = store_or_bail(am, &options);
	struct inherited parent = { store, folder };
	struct busy busy = { .store = store };
	pthread_t thread;
	unsigned int i;

	thread = start_thread(be_busy, &busy);
	for (i = 0; i < 3; i++)
		ok(in_child(child_is_refused, &parent),
		   "a child is refused its parent's store, and has its own");
	__atomic_store_n(&busy.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(busy.good, "the parent's goes on");
	destroy_empty(store);
}

int main(void)
{
	struct usage before = usage_now();
	char path[PATH_MAX];
	const char *folder = make_folder(path);
	struct actmem *am;

	ok(in_child(works_or_fails, &folder), "too few descriptors are an error, and nothing more");
	ok(in_child(works_without_uring, &folder), "a store works where io_uring is refused");
	am = open_or_bail();
	test_fork(am, &folder);
	remove_folder(folder);
	return end_tests(am, before);
}
