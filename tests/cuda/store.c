/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Stores whose regions a runtime has registered, and whose blocks are committed and
 * released by another thread than the one that reserves and holds them.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem_store.h"
#include "cuda_test.h"

#define BUDGET	(4 * MIB)
#define BLOCK	(3 * MIB)

static char folder[PATH_MAX];

static struct actmem_store *store_or_bail(struct actmem *am, struct actmem_runtime *runtime,
					  uint32_t flags, bool has_files)
{
	static const char *paths[] = { folder };
	struct actmem_store_options options = {
		.size = sizeof(options), .budget_bytes = BUDGET, .grow_bytes = 2 * MIB,
		.flags = flags, .spill_paths = paths, .spill_path_count = has_files,
		.runtime = runtime,
	};
	struct actmem_store *store;

	if (actmem_store_create(am, &options, &store))
		tap_bail("actmem_store_create");
	return store;
}

static struct actmem_key key(uint64_t name)
{
	return (struct actmem_key){ .name = name };
}

static void test_registered(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_store *store = store_or_bail(am, runtime, 0, true);
	struct actmem_store_stats stats = { .size = sizeof(stats) };
	struct actmem_runtime_info info;
	const void *memory;
	void *fresh;
	uint64_t bytes, i;

	for (i = 0; i < 8; i++) {
		returns(actmem_store_reserve(store, key(i), MIB, &fresh, ACTMEM_WAIT_FOREVER), 0);
		memset(fresh, (int)i + 1, MIB);
		returns(actmem_store_commit(store, key(i)), 0);
		info = runtime_info(runtime);
		ok(info.regions && info.bytes <= BUDGET, "%llu bytes are registered",
		   (unsigned long long)info.bytes);
	}
	for (i = 8; i-- > 0; ) {
		returns(actmem_store_hold(store, key(i), &memory, &bytes, ACTMEM_WAIT_FOREVER), 0);
		ok(*(const char *)memory == (char)i + 1, "block %llu", (unsigned long long)i);
		returns(actmem_store_release(store, key(i)), 0);
	}
	returns(actmem_store_get_stats(store, &stats), 0);
	ok(stats.filled_bytes_total, "registered memory was filled from files");
	returns(actmem_runtime_close(runtime), -EBUSY);
	returns(actmem_store_destroy(store), 0);
	info = runtime_info(runtime);
	ok(!info.regions && !info.bytes && !info.lost_total, "nothing is registered any more");
}

/* Does what follows a while later. */
struct other {
	struct actmem_store *store;
	int (*end)(struct actmem_store *store, struct actmem_key key);
};

static void *end_later(void *data)
{
	struct other *other = data;

	usleep(50000);
	return (void *)(intptr_t)other->end(other->store, key(0));
}

/* One block is in use by this thread's doing, and a second one is wanted. */
static void test_handed_on(struct actmem *am, bool is_held, bool has_files, uint32_t flags,
			   int wanted)
{
	struct actmem_store *store = store_or_bail(am, NULL, flags, has_files);
	struct other other = {
		store, is_held ? actmem_store_release : actmem_store_commit,
	};
	const void *memory;
	pthread_t thread;
	uint64_t bytes;
	void *fresh, *result;

	returns(actmem_store_reserve(store, key(0), BLOCK, &fresh, ACTMEM_WAIT_FOREVER), 0);
	if (is_held) {
		returns(actmem_store_commit(store, key(0)), 0);
		returns(actmem_store_hold(store, key(0), &memory, &bytes, ACTMEM_WAIT_FOREVER), 0);
	}
	thread = start_thread(end_later, &other);
	returns(actmem_store_reserve(store, key(1), BLOCK, &fresh, ACTMEM_WAIT_FOREVER), wanted);
	pthread_join(thread, &result);
	ok(!result, "the other thread ended the first one");
	returns(actmem_store_drop(store, key(1)), wanted ? -ENOENT : 0);
	returns(actmem_store_destroy(store), 0);
}

int main(void)
{
	struct actmem_runtime *runtime;
	struct actmem_store_options options = { .size = sizeof(options), .reserved = 1 };
	struct actmem_store *store;
	struct usage before;
	struct actmem *am;
	struct cuda cuda;

	am = cuda_begin(&cuda, &before);
	make_folder(folder, sizeof(folder));
	returns(actmem_runtime_open(am, NULL, &runtime), 0);
	test_registered(am, runtime);
	test_handed_on(am, false, true, 0, -EDEADLK);
	test_handed_on(am, false, true, ACTMEM_STORE_HANDED_ON, 0);
	test_handed_on(am, true, true, ACTMEM_STORE_HANDED_ON, 0);
	test_handed_on(am, true, false, 0, -ENOMEM);
	test_handed_on(am, true, false, ACTMEM_STORE_HANDED_ON, 0);
	/* A committed block stays where it is, without files. */
	test_handed_on(am, false, false, ACTMEM_STORE_HANDED_ON, -ENOMEM);
	returns(actmem_store_create(am, &options, &store), -EINVAL);
	says("reserved is 1");
	returns(actmem_runtime_close(runtime), 0);
	ok(!count_files(folder), "no file is left");
	rmdir(folder);
	return cuda_end(&cuda, am, before);
}
