/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A call that waits defers the cancellation of its thread: the call returns its result, and leaves
 * no lock held and nothing half made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "actmem_runtime.h"
#include "actmem_store.h"
#include "common.h"

static struct actmem *handle;
static struct actmem_region *region, *made_region;
static struct actmem_runtime *runtime;
static struct actmem_queue *queue;
static struct actmem_file *file;
static struct actmem_store *store;
static char name[64], spill[64];
static const char *spill_path = spill;

/* The thread of a call waits here until its cancellation is pending. */
static int cancelled;

struct call {
	const char *name;
	int (*call)(void);
	int (*undo)(void);
	int result;			/* 1 until the call returns */
};

static int create(void)
{
	return create_region(handle, LENGTH, 0, &made_region);
}

static int close_made(void)
{
	return actmem_region_close(made_region);
}

static int open_name(void)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };

	return actmem_region_open(handle, name, &options, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK,
				  &made_region);
}

static int close_name(void)
{
	return unlink(name) ? -1 : close_made();
}

static int from_fd(void)
{
	return actmem_region_from_fd(handle, actmem_region_fd(region), &made_region);
}

static int get_info(void)
{
	struct actmem_region_info info = { .size = sizeof(info) };

	return actmem_region_get_info(region, &info);
}

static int map_once(void)
{
	void *memory;
	int error = actmem_region_map(region, &memory);

	return error ? error : actmem_region_unmap(region);
}

static int register_region(void)
{
	return actmem_region_register(region, runtime, 0);
}

static int unregister_region(void)
{
	return actmem_region_unregister(region);
}

static int open_file(void)
{
	struct actmem_file_options options = {
		.size = sizeof(options),
		.paths = &spill_path,
		.path_count = 1,
		.flags = ACTMEM_FILE_TEMPORARY,
		.length = LENGTH,
	};

	return actmem_file_open(queue, &options, &file);
}

static int close_file(void)
{
	return actmem_file_close(file);
}

static int create_store(void)
{
	struct actmem_store_options options = {
		.size = sizeof(options),
		.budget_bytes = LENGTH,
		.spill_paths = &spill_path,
		.spill_path_count = 1,
		.spill_bytes = LENGTH,
	};

	return actmem_store_create(handle, &options, &store);
}

static int destroy_store(void)
{
	return actmem_store_destroy(store);
}

static void *run(void *context)
{
	struct call *call = context;

	while (!__atomic_load_n(&cancelled, __ATOMIC_ACQUIRE))
		;
	call->result = call->call();
	pthread_testcancel();
	return NULL;
}

static void test_calls(struct actmem *am)
{
	static struct call calls[] = {
		{ "actmem_region_create()", create, close_made, 1 },
		{ "actmem_region_open()", open_name, close_name, 1 },
		{ "actmem_region_from_fd()", from_fd, close_made, 1 },
		{ "actmem_region_get_info()", get_info, map_once, 1 },
		{ "actmem_region_register()", register_region, unregister_region, 1 },
		{ "actmem_file_open()", open_file, close_file, 1 },
		{ "actmem_store_create()", create_store, destroy_store, 1 },
	};
	struct actmem_runtime_options options = {
		.size = sizeof(options),
		.kind = ACTMEM_RUNTIME_NULL,
	};
	void *ended;
	size_t i;

	handle = am;
	snprintf(name, sizeof(name), "%s/cancel", mount_folder);
	snprintf(spill, sizeof(spill), "/tmp/actmem-cancel-XXXXXX");
	if (!mkdtemp(spill))
		tap_bail("mkdtemp");
	region = region_or_bail(am, "cancel");
	returns(actmem_runtime_open(am, &options, &runtime), 0);
	returns(actmem_queue_create(am, NULL, &queue), 0);
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		pthread_t thread;

		cancelled = 0;
		thread = start_thread(run, &calls[i]);
		pthread_cancel(thread);
		__atomic_store_n(&cancelled, 1, __ATOMIC_RELEASE);
		pthread_join(thread, &ended);
		ok(ended == PTHREAD_CANCELED && calls[i].result == 0,
		   "%s returns 0 (it returned %d) before its thread ends", calls[i].name,
		   calls[i].result);
		returns(calls[i].undo(), 0);
	}
	returns(actmem_queue_destroy(queue), 0);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_region_close(region), 0);
	rmdir(spill);
}

int main(void)
{
	return RUN_MOUNTED_TESTS(test_calls);
}
