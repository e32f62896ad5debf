/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Creates, describes and destroys stores, and returns their statistics. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem_runtime.h"
#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "queue/queue.h"
#include "region/region.h"
#include "store/store.h"

#define FLAGS_KNOWN	(ACTMEM_STORE_CHECKSUM | ACTMEM_STORE_ALLOW_MEMORY | \
			 ACTMEM_STORE_ALLOW_BUFFERED | ACTMEM_STORE_HANDED_ON | \
			 ACTMEM_STORE_STRICT)
#define PAGE_BYTES	4096ULL
#define GROW_MOST	(1ULL << 30)
#define GROW_LEAST	(64ULL << 20)
/*
 * A store that spills will use its whole budget. So its heap grows by 1/GROW_STEPS of the budget at
 * a time, within the bounds GROW_LEAST and GROW_MOST. Other stores use the heap's default.
 */
#define GROW_STEPS	4

static int store_check_options(const struct actmem_store_options *options)
{
	if (options->flags & ~FLAGS_KNOWN)
		return fail(EINVAL, "store flags 0x%x are unknown",
			    options->flags & ~FLAGS_KNOWN);
	if (options->reserved)
		return fail(EINVAL, "store options: reserved is %u, not 0", options->reserved);
	if (options->spill_path_count && !options->budget_bytes)
		return fail(EINVAL, "%s needs %s: without it, nothing is spilled", KNOB(SPILL),
			    KNOB(BUDGET));
	if (options->spill_path_count && !options->spill_paths)
		return fail(EINVAL, "spill_path_count is %u, but %s is NULL",
			    options->spill_path_count, KNOB(SPILL));
	return 0;
}

static int make_heap(struct actmem_store *store, const struct actmem_store_options *options)
{
	struct actmem_region_options region;
	struct actmem_heap_options heap;
	uint64_t grow_bytes;
	int error = 0;

	ACTMEM_INIT(&region);
	if (options->region)
		error = take_struct(&region, sizeof(region), options->region, "region options");
	if (error)
		return error;
	store->page_bytes = pages_bytes(options_pages(&store->am->options, region.pages));
	store->budget = options->budget_bytes;
	if (store->budget)
		error = store_check_budget(store, options->spill_path_count, &store->budget);
	if (error)
		return error;
	store->asked = store->budget;
	store->ceiling = UINT64_MAX;
	ACTMEM_INIT(&heap);
	heap.region = &region;
	heap.limit_bytes = store->budget;
	heap.grow_bytes = options->grow_bytes;
	if (!heap.grow_bytes && options->spill_path_count) {
		/* grow_bytes must be a multiple of 2 MiB, even if the heap's pages are smaller. */
		grow_bytes = store->budget / GROW_STEPS / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
		if (grow_bytes > GROW_MOST)
			grow_bytes = GROW_MOST;
		if (grow_bytes < GROW_LEAST)
			grow_bytes = GROW_LEAST;
		heap.grow_bytes = grow_bytes;
	}
	if (!region.name)
		region.name = "store";
	error = actmem_heap_create(store->am, &heap, &store->heap);
	if (error)
		return error;
	if (options->runtime)
		error = actmem_heap_register(store->heap, options->runtime,
					     options->register_flags);
	if (error) {
		actmem_heap_destroy(store->heap);
		return error;
	}
	heap_watch_closing(store->heap, store_region_closes, store);
	return 0;
}

/*
 * Writes a message to @note if a path is on a file system in memory. With STRICT, such a path is an
 * error unless ALLOW_MEMORY is set.
 */
static int check_paths(const char *const *paths, uint32_t count, uint32_t flags,
		       char note[STORE_WORDS])
{
	const char *type = NULL;
	uint32_t i;

	for (i = 0; i < count && !type; i++)
		type = memory_file_system(paths[i] ?: "");
	if (!type)
		return 0;
	snprintf(note, STORE_WORDS,
		 "'%s' is on %s, which is memory itself: spilling there frees no memory; name a directory on a disk with %s",
		 paths[i - 1], type, KNOB(SPILL));
	if (!(flags & ACTMEM_STORE_STRICT) || flags & ACTMEM_STORE_ALLOW_MEMORY)
		return 0;
	return fail(EINVAL, "%s, or allow it with %s; it is an error with %s", note,
		    KNOB(SPILL_ALLOW_MEMORY), KNOB(STRICT_ON));
}

int actmem_store_check_paths(const char *const *paths, uint32_t count, uint32_t flags)
{
	char note[STORE_WORDS] = "";

	if (count && !paths)
		return fail(EINVAL, "actmem_store_check_paths: paths is NULL");
	if (check_paths(paths, count, flags, note))
		return -EINVAL;
	fail_clear();
	if (*note)
		fail(0, "%s", note);
	return 0;
}

static void describe(struct actmem_store *store, const struct actmem_store_options *options)
{
	const char *memory = memory_file_system(options->spill_paths[0]);

	store->queue_description = actmem_queue_describe(store->queue);
	snprintf(store->words, sizeof(store->words), "%s; spills to %s%s%s, %s",
		 store->queue_description, options->spill_paths[0],
		 options->spill_path_count > 1 ? " and others" : "",
		 store->files.info.rotational ? " (rotational)" : "",
		 memory ? "which is memory" : store->files.info.direct ? "direct" :
		 "buffered, because a directory has no direct I/O");
	atomic_store(&store->description, store->words);
}

/*
 * Opens the spill files. If the disks have no space and ALLOW_MEMORY is set, the files are empty at
 * first.
 */
static int open_files(struct actmem_store *store, struct actmem_file_options *files,
		      const struct actmem_store_options *options)
{
	size_t used = strlen(store->note);
	int error = spillfile_init(&store->files, store->queue, files, options->spill_limit_bytes);

	if (!spillfile_has_no_space(error) || !files->length ||
	    !(options->flags & ACTMEM_STORE_ALLOW_MEMORY))
		return error;
	snprintf(store->note + used, sizeof(store->note) - used,
		 "%s%s; until there is space, blocks over %s stay in memory, as %s permits",
		 used ? "; " : "", fail_words(), KNOB(BUDGET), KNOB(SPILL_ALLOW_MEMORY));
	files->length = 0;
	return spillfile_init(&store->files, store->queue, files, options->spill_limit_bytes);
}

static int make_queue(struct actmem_store *store, const struct actmem_store_options *options)
{
	struct actmem_file_options files;
	const struct actmem_file_info *info = &store->files.info;
	int error;

	error = actmem_queue_create(store->am, options->queue, &store->queue);
	if (error)
		return error;
	ACTMEM_INIT(&files);
	files.paths = (const char *const *)store->paths;
	files.path_count = options->spill_path_count;
	files.flags = ACTMEM_FILE_TEMPORARY;
	if (options->flags & ACTMEM_STORE_ALLOW_BUFFERED)
		files.flags |= ACTMEM_FILE_ALLOW_BUFFERED;
	files.length = options->spill_bytes;
	error = open_files(store, &files, options);
	if (error) {
		actmem_queue_destroy(store->queue);
		return error;
	}
	if (info->alignment > store->unit)
		store->unit = info->alignment;
	if (info->memory_alignment > store->memory_align)
		store->memory_align = info->memory_alignment;
	store->busy_bytes = info->depth * info->block_bytes;
	describe(store, options);
	return 0;
}

static void end_queue(struct actmem_store *store)
{
	spillfile_destroy(&store->files);
	actmem_queue_destroy(store->queue);
}

static void free_paths(struct actmem_store *store, uint32_t count)
{
	while (count)
		free(store->paths[--count]);
	free(store->paths);
}

static int copy_path(const char *path, char **result)
{
	char folder[PATH_MAX];
	size_t length;

	if (*path == '/' || !*path) {
		*result = strdup(path);
	} else if (!getcwd(folder, sizeof(folder))) {
		return fail(errno, "spill path '%s' is relative, but the working directory has no path (%s)",
			    path, strerror(errno));
	} else {
		length = strlen(folder) + strlen(path) + 2;
		*result = malloc(length);
		if (*result)
			snprintf(*result, length, "%s/%s", folder, path);
	}
	return *result ? 0 : fail(ENOMEM, "no memory for paths");
}

/*
 * Copies the paths, and makes them absolute: the store uses them again when it needs more files. By
 * then the caller may have freed its paths, or changed the working directory.
 */
static int copy_paths(struct actmem_store *store, const struct actmem_store_options *options)
{
	uint32_t count = options->spill_path_count, i;
	const char *path;
	int error = 0;

	if (count > ACTMEM_FILE_PATHS_MAX)
		return fail(EINVAL, "spill_path_count is %u, but must be at most %u", count,
			    ACTMEM_FILE_PATHS_MAX);
	store->paths = calloc(count + 1, sizeof(char *));
	if (!store->paths)
		return fail(ENOMEM, "no memory for paths");
	for (i = 0; i < count && !error; i++) {
		path = options->spill_paths[i];
		error = copy_path(path ? path : "", &store->paths[i]);
		store->path_count += !error;
	}
	return error;
}

static int start_thread(struct actmem_store *store)
{
	int error = thread_start(&store->background_thread, "actmem-bg-work", store_background_thread,
				 store);

	if (error)
		return fail(error, "cannot start a thread for the store (pthread_create: %s)",
			    strerror(error));
	return 0;
}

static int start(struct actmem_store *store, const struct actmem_store_options *options)
{
	int error = make_heap(store, options);

	if (error || !options->spill_path_count)
		return error;
	error = make_queue(store, options);
	if (error)
		goto destroy_heap;
	error = queue_notify_by(store->queue, store_take_ended, store);
	if (!error)
		error = store_watch_limits(store);
	if (error)
		goto end_queue;
	error = start_thread(store);
	if (error)
		goto unwatch_limits;
	counter_add(&store->am->counters->spilling_stores, 1);
	return 0;

unwatch_limits:
	pthread_mutex_lock(&store->lock);
	store->is_ending = true;
	pthread_mutex_unlock(&store->lock);
	store_unwatch_limits(store);
end_queue:
	end_queue(store);
destroy_heap:
	actmem_heap_destroy(store->heap);
	return error;
}

int actmem_store_create(struct actmem *am, const struct actmem_store_options *options,
			struct actmem_store **result)
{
	struct actmem_store_options taken;
	struct actmem_store *store;
	int error = 0;

	if (!am || !result)
		return fail(EINVAL, "actmem_store_create: am or store is NULL");
	error = check_owner(am);
	if (error)
		return error;
	ACTMEM_INIT(&taken);
	if (options)
		error = take_struct(&taken, sizeof(taken), options, "store options");
	if (!error)
		error = store_check_options(&taken);
	if (error)
		return error;
	store = calloc(1, sizeof(*store));
	if (!store)
		return fail(ENOMEM, "no memory for a store");
	store->am = am;
	store->event.descriptor = -1;
	store->flags = taken.flags;
	store->name_block = taken.name_block;
	store->unit = PAGE_BYTES;
	store->memory_align = PAGE_BYTES;
	store->fixed_window = taken.window_bytes;
	store->clean.last_first = true;
	store->dirty.last_first = true;
	link_init(&store->ended);
	link_init(&store->puts);
	link_init(&store->guessed);
	link_init(&store->waiters);
	link_init(&store->claim_waiters);
	link_init(&store->fills_to_do);
	link_init(&store->spills_to_do);
	schedule_init(&store->schedule);
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->all_ended, NULL);
	pthread_cond_init(&store->background, NULL);
	atomic_init(&store->description, "only memory: there are no spill paths");
	thread_hold_cancellation();
	error = copy_paths(store, &taken);
	if (!error)
		error = check_paths((const char *const *)store->paths, store->path_count,
				    taken.flags, store->note);
	if (!error)
		error = start(store, &taken);
	thread_let_cancellation();
	if (error)
		goto free_store;
	counter_add(&am->counters->stores, 1);
	fail_clear();
	if (*store->note)
		fail(0, "%s", store->note);
	*result = store;
	return 0;

free_store:
	if (store->paths)
		free_paths(store, store->path_count);
	schedule_destroy(&store->schedule);
	pthread_cond_destroy(&store->all_ended);
	pthread_cond_destroy(&store->background);
	pthread_mutex_destroy(&store->lock);
	free(store);
	return error;
}

static int check_idle(const struct actmem_store *store)
{
	const struct store_block *block;
	uint64_t used = 0;
	size_t i;

	for (i = 0; i < store->bucket_count; i++)
		for (block = store->buckets[i]; block; block = block->chain)
			used += block->user != USER_NONE;
	return !used && !store->waiting ? 0 :
	       fail(EBUSY, "%llu blocks of the store are reserved or held, and %u threads wait in calls",
		    (unsigned long long)used, store->waiting);
}

static void end_all(struct actmem_store *store)
{
	size_t i;

	store->is_ending = true;
	pthread_cond_signal(&store->background);
	for (i = 0; i < store->bucket_count; i++)
		while (store->buckets[i])
			store_end(store, store->buckets[i]);
}

/* Waits for the background thread, which can still begin transfers, and then for all transfers. */
static void await_end(struct actmem_store *store)
{
	pthread_join(store->background_thread, NULL);
	pthread_mutex_lock(&store->lock);
	while (store->under_way)
		pthread_cond_wait(&store->all_ended, &store->lock);
	pthread_mutex_unlock(&store->lock);
}

int actmem_store_destroy(struct actmem_store *store)
{
	int error = store_check(store, "actmem_store_destroy");

	if (error)
		return error;
	pthread_mutex_lock(&store->lock);
	error = check_idle(store);
	if (!error)
		end_all(store);
	pthread_mutex_unlock(&store->lock);
	if (error)
		return error;
	thread_hold_cancellation();
	if (store->queue) {
		store_unwatch_limits(store);
		await_end(store);
		counter_subtract(&store->am->counters->spilling_stores, 1);
	}
	actmem_heap_destroy(store->heap);
	if (store->queue)
		end_queue(store);
	if (store->event.descriptor >= 0)
		store_end_event(&store->event);
	counter_subtract(&store->am->counters->stores, 1);
	free_paths(store, store->path_count);
	schedule_destroy(&store->schedule);
	free(store->buckets);
	pthread_cond_destroy(&store->all_ended);
	pthread_cond_destroy(&store->background);
	pthread_mutex_destroy(&store->lock);
	free(store);
	thread_let_cancellation();
	return 0;
}

const char *actmem_store_describe(const struct actmem_store *store)
{
	return store ? atomic_load(&store->description) : "no store";
}

int actmem_store_get_stats(struct actmem_store *store, struct actmem_store_stats *stats)
{
	struct actmem_store_stats now;
	struct actmem_heap_stats heap;
	int error = store_check(store, "actmem_store_get_stats");

	if (error)
		return error;
	if (!stats)
		return fail(EINVAL, "actmem_store_get_stats: stats is NULL");
	ACTMEM_INIT(&heap);
	pthread_mutex_lock(&store->lock);
	actmem_heap_get_stats(store->heap, &heap);
	now = store->stats;
	now.budget_bytes = store->asked;
	now.refused_bytes = store->asked - store->budget;
	now.blocks = store->sums[SUM_LIVE].blocks;
	now.block_bytes = store->sums[SUM_LIVE].bytes;
	now.memory_bytes = heap.region_bytes;
	now.memory_bytes_peak = heap.region_bytes_peak;
	now.resident_bytes = store->sums[SUM_RESIDENT].bytes;
	now.spilled_bytes = store->sums[SUM_FILED].bytes;
	now.file_bytes = store->files.bytes;
	now.file_bytes_peak = store->files.bytes_peak;
	now.given_back_bytes_total = store->files.given_back_total;
	now.window_bytes = store->queue ? store_window(store) : 0;
	now.write_bandwidth = store->write.bytes_per_second;
	now.read_bandwidth = store->read.bytes_per_second;
	if (store->asked && heap.region_bytes > store->asked)
		now.beyond_budget_bytes = heap.region_bytes - store->asked;
	pthread_mutex_unlock(&store->lock);
	return give_struct(stats, &now, sizeof(now), "store stats");
}

void actmem_store_observe(struct actmem_store *store,
			  void (*observe)(const struct actmem_store_event *event, void *data),
			  void *data)
{
	if (store_check(store, "actmem_store_observe"))
		return;
	pthread_mutex_lock(&store->lock);
	store->observe = observe;
	store->observe_data = data;
	pthread_mutex_unlock(&store->lock);
}
