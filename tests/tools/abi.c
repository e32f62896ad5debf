/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that hands every struct with a size to the shared library. test_abi.py
 * compiles it with the headers as they are, with shorter structs, as an older program
 * has them, and with longer ones (NEWER), as one that was made for a later library. It
 * uses none of the fields that shorter structs lack.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "actmem_runtime.h"
#include "actmem_store.h"
#include "tap.h"

#define MIB	(1ULL << 20)
#define FILLING	0x5a

#ifdef NEWER
#define LATER(object)	((object).later)
#define REFUSES(object, call)	do { \
	(object).later = 1; \
	returns(call, -EINVAL); \
	says("which this library"); \
	(object).later = 0; \
} while (0)
#else
#define LATER(object)	0
#define REFUSES(object, call)	((void)0)
#endif

/* What the library fills in, as long as the program knows it: @out.it. */
#define GIVES(name, call)	do { \
	struct { struct name it; unsigned char guard[256]; } out; \
	memset(&out, FILLING, sizeof(out)); \
	ACTMEM_INIT(&out.it); \
	returns(call, 0); \
	ok(out.it.size == sizeof(out.it) && !LATER(out.it) && is_intact(out.guard), \
	   #name " of %zu bytes is filled, and nothing behind it", sizeof(out.it)); \
} while (0)

static bool is_intact(const unsigned char guard[256])
{
	unsigned int i = 0;

	while (i < 256 && guard[i] == FILLING)
		i++;
	return i == 256;
}

static struct actmem *open_all(void)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	options.allow = ACTMEM_ALLOW_UNLOCKED;
	REFUSES(options, actmem_open(&am, &options));
	if (!returns(actmem_open(&am, &options), 0))
		tap_bail("actmem_open");
	GIVES(actmem_options, actmem_options_from_environment(&out.it));
	GIVES(actmem_counters, actmem_get_counters(am, &out.it));
	return am;
}

static void look_at(struct actmem_region *region)
{
	struct actmem_region_info *list, info;
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	unsigned int seen = 0;
	size_t count, i;

	ACTMEM_INIT(&info);
	info.node_bytes = node_bytes;
	info.node_count = ACTMEM_NODES_MAX;
	REFUSES(info, actmem_region_get_info(region, &info));
	returns(actmem_region_get_info(region, &info), 0);
	ok(info.length == 2 * MIB && info.node_count, "a region is told of");
	GIVES(actmem_region_info, actmem_region_get_info(region, &out.it));
	returns(actmem_region_list(&list, &count), 0);
	for (i = 0; i < count; i++)
		seen += list[i].size == sizeof(info) && list[i].id == info.id &&
			list[i].pid == getpid() && list[i].length == 2 * MIB &&
			list[i].node_count == info.node_count && !LATER(list[i]);
	ok(seen == 1, "and listed once");
	free(list);
}

static struct actmem_region *make_region(struct actmem *am)
{
	struct actmem_region_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.length = 2 * MIB;
	REFUSES(options, actmem_region_create(am, &options, &region));
	if (!returns(actmem_region_create(am, &options, &region), 0))
		tap_bail("actmem_region_create");
	look_at(region);
	return region;
}

static void try_heap(struct actmem *am)
{
	struct actmem_heap_options options;
	struct actmem_heap *heap;
	void *block;

	ACTMEM_INIT(&options);
	options.grow_bytes = 2 * MIB;
	REFUSES(options, actmem_heap_create(am, &options, &heap));
	returns(actmem_heap_create(am, &options, &heap), 0);
	returns(actmem_heap_alloc(heap, 1000, 0, &block), 0);
	GIVES(actmem_heap_stats, actmem_heap_get_stats(heap, &out.it));
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
}

static void try_runtime(struct actmem *am, struct actmem_region *region)
{
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_NULL;
	REFUSES(options, actmem_runtime_open(am, &options, &runtime));
	returns(actmem_runtime_open(am, &options, &runtime), 0);
	GIVES(actmem_runtime_info, actmem_runtime_get_info(runtime, &out.it));
	returns(actmem_region_register(region, runtime, 0), 0);
	GIVES(actmem_registration, actmem_region_get_registration(region, &out.it));
	returns(actmem_region_unregister(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

static struct actmem_file *open_file(struct actmem_queue *queue, const char *folder)
{
	struct actmem_file_options options;
	struct actmem_file *file;

	ACTMEM_INIT(&options);
	options.paths = &folder;
	options.path_count = 1;
	options.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED;
	REFUSES(options, actmem_file_open(queue, &options, &file));
	if (!returns(actmem_file_open(queue, &options, &file), 0))
		tap_bail("actmem_file_open");
	GIVES(actmem_file_info, actmem_file_get_info(file, &out.it));
	return file;
}

static void transfer(struct actmem_queue *queue, struct actmem_file *file,
		     struct actmem_region *region)
{
	struct { struct actmem_completion all[2]; unsigned char guard[256]; } ended;
	struct actmem_queue_stats stats;
	struct actmem_request request;
	unsigned int i;

	ACTMEM_INIT(&request);
	REFUSES(request, actmem_queue_spill(queue, file, 0, region, 0, MIB, &request));
	for (i = 0; i < 2; i++) {
		request.cookie = 7 + i;
		returns(actmem_queue_spill(queue, file, i * MIB, region, i * MIB, MIB, &request), 0);
	}
	ACTMEM_INIT(&stats);
	while (!actmem_queue_get_stats(queue, &stats) && stats.completions < 2)
		usleep(1000);
	memset(&ended, FILLING, sizeof(ended));
	returns(actmem_queue_wait(queue, ended.all, 2, 0), 2);
	ok(ended.all[0].cookie + ended.all[1].cookie == 15 && ended.all[0].bytes == MIB &&
	   ended.all[1].bytes == MIB && !LATER(ended.all[0]) && !LATER(ended.all[1]) &&
	   is_intact(ended.guard), "two completions of %zu bytes each, and nothing behind them",
	   sizeof(struct actmem_completion));
}

static void try_queue(struct actmem *am, struct actmem_region *region, const char *folder)
{
	struct actmem_queue_options options;
	struct actmem_queue *queue;
	struct actmem_file *file;

	ACTMEM_INIT(&options);
	options.engine = ACTMEM_ENGINE_WORKERS;
	REFUSES(options, actmem_queue_create(am, &options, &queue));
	returns(actmem_queue_create(am, &options, &queue), 0);
	GIVES(actmem_queue_stats, actmem_queue_get_stats(queue, &out.it));
	returns(actmem_queue_attach(queue, region, 0), 0);
	file = open_file(queue, folder);
	transfer(queue, file, region);
	returns(actmem_file_close(file), 0);
	returns(actmem_queue_detach(queue, region), 0);
	returns(actmem_queue_destroy(queue), 0);
}

static void try_store(struct actmem *am, const char *folder)
{
	struct actmem_key key = { .name = 1 };
	struct actmem_store_options options;
	struct actmem_store *store;
	char data[100] = "bytes";

	ACTMEM_INIT(&options);
	options.budget_bytes = 4 * MIB;
	options.spill_paths = &folder;
	options.spill_path_count = 1;
	options.flags = ACTMEM_STORE_ALLOW_BUFFERED;
	REFUSES(options, actmem_store_create(am, &options, &store));
	if (!returns(actmem_store_create(am, &options, &store), 0))
		tap_bail("actmem_store_create");
	returns(actmem_store_put(store, key, data, sizeof(data)), 0);
	GIVES(actmem_store_stats, actmem_store_get_stats(store, &out.it));
	returns(actmem_store_take(store, key, data, sizeof(data)), 0);
	returns(actmem_store_destroy(store), 0);
}

int main(int argc, char **argv)
{
	struct actmem *am = open_all();
	struct actmem_region *region = make_region(am);

	try_heap(am);
	try_runtime(am, region);
	try_queue(am, region, argv[1]);
	try_store(am, argv[1]);
	returns(actmem_region_close(region), 0);
	returns(actmem_close(am), 0);
	return tap_end();
}
