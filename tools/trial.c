// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Tests whether a program will be able to create its region, heap and store, before it runs. */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem_store.h"
#include "base/base.h"
#include "config/config.h"
#include "memory_options.h"
#include "table.h"
#include "run.h"
#include "tool.h"
#include "xla/xla.h"

#define TRIAL_BYTES	(2ULL << 20)
#define WORDS_MAX	2048
#define GROW_DEFAULT	(64ULL << 20)	/* the library's default */

/* Prints which pages, nodes or backend were used instead of the requested ones. */
static void tell_steps(void)
{
	if (*actmem_error())
		print_library_error();
}

/* Prints the library's last error message, and names the options that can fix the error. */
static void print_knob_error(const struct knobs *knobs)
{
	char words[WORDS_MAX];

	knobs_error(knobs, words, sizeof(words));
	warnx("%s", words);
}

static void describe_region(const struct actmem *am, struct actmem_region *region, const char *how)
{
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	struct actmem_region_info info;
	unsigned int node, seen = 0;

	warnx("%s", actmem_describe(am));
	ACTMEM_INIT(&info);
	info.node_bytes = node_bytes;
	info.node_count = ACTMEM_NODES_MAX;
	if (actmem_region_get_info(region, &info)) {
		print_library_error();
		return;
	}
	if (info.named)
		warnx("%s %s", info.name, how);
	fprintf(stderr, "%s: a region now gets %s pages", program_invocation_short_name,
		pages_text(info.pages));
	for (node = 0; node < info.node_count; node++) {
		if (!node_bytes[node])
			continue;
		fprintf(stderr, "%s%u", seen++ ? "," : " on node ", node);
	}
	fputs(seen ? "\n" : "; no page is allocated yet\n", stderr);
}

static uint64_t limit_of(const struct knobs *knobs)
{
	return knobs->limit_bytes ? knobs->limit_bytes : knobs->budget_bytes;
}

/* Creates the heap that a program would create. Returns NULL after printing the error message. */
static struct actmem_heap *make_heap(struct actmem *am, const struct knobs *knobs)
{
	struct actmem_heap_options options;
	struct actmem_heap *heap;

	ACTMEM_INIT(&options);
	options.grow_bytes = knobs->grow_bytes;
	options.limit_bytes = limit_of(knobs);
	if (!actmem_heap_create(am, &options, &heap))
		return heap;
	print_knob_error(knobs);
	return NULL;
}

static uint64_t machine_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * Checks whether a region of @bytes can be created. For a lazy region of memfd, the library
 * compares the full length with the limits and the free pages, but allocates nothing. The library
 * does not check a lazy region of the driver, nor free pages of 4 KiB. On failure, @why has the
 * error message.
 */
static void try_long_region(struct actmem *am, uint64_t bytes, char why[WORDS_MAX])
{
	struct actmem_region_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.length = bytes;
	options.name = "actmem run";
	options.flags = ACTMEM_REGION_LAZY;
	if (actmem_region_create(am, &options, &region)) {
		snprintf(why, WORDS_MAX, "%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return;
	}
	actmem_region_close(region);
}

static int try_region(struct actmem *am, uint64_t length, uint64_t grow_bytes, bool verbose)
{
	struct actmem_region_options options;
	struct actmem_region *region = NULL;
	char why[WORDS_MAX] = "";
	int error;

	/*
	 * The library prints only the first fallback of a process, so try the longer region first.
	 */
	if (grow_bytes > length)
		try_long_region(am, grow_bytes, why);
	ACTMEM_INIT(&options);
	options.length = length;
	options.name = "actmem run";
	error = actmem_region_create(am, &options, &region);
	if (error) {
		/* Prefer the message about the longer region: it names all of the needed memory. */
		warnx("%s", error != -EINVAL && *why ? why : actmem_error_in(ACTMEM_NAMES_RUN));
		return error == -EINVAL ? STATUS_USAGE : STATUS_FAILED;
	}
	if (verbose) {
		tell_steps();
		describe_region(am, region, "");
	}
	actmem_region_close(region);
	/* Only warn: not every program creates regions of that length. */
	if (!*why && grow_bytes > machine_bytes())
		snprintf(why, sizeof(why), "this machine has only %" PRIu64 "M of memory",
			 machine_bytes() >> 20);
	if (*why)
		warnx("regions of %" PRIu64 "M, which the Python module uses (--heap-grow), cannot be created: %s",
		      grow_bytes >> 20, why);
	return STATUS_OK;
}

/* Opens NAME.0, the first file of a heap with this name, without changing the file. */
static int open_first(struct actmem *am, const char *name, struct actmem_region **region)
{
	char *path;
	int error;

	if (asprintf(&path, "%s.0", name) < 0)
		return -ENOMEM;
	error = actmem_region_open(am, path, NULL, 0, region);
	free(path);
	return error;
}

static void describe_first(struct actmem *am, const char *name, bool found)
{
	struct actmem_region *region;

	if (open_first(am, name, &region)) {
		print_library_error();
		return;
	}
	describe_region(am, region, found ? "was found" : "was created");
	actmem_region_close(region);
}

/*
 * Allocates and frees the first block of the program's heap, and destroys the heap. The heap's file
 * stays. The file is unlocked until the program locks it.
 */
static int try_name(struct actmem *am, struct actmem_heap *heap, const char *name,
		    const struct knobs *knobs, bool verbose)
{
	struct actmem_region *region;
	bool found = verbose && !open_first(am, name, &region);
	int status = STATUS_OK;
	void *block;

	if (found)
		actmem_region_close(region);
	if (actmem_heap_alloc(heap, 1, 0, &block)) {
		print_knob_error(knobs);
		status = STATUS_FAILED;
	} else {
		if (verbose)
			tell_steps();
		actmem_heap_free(heap, block);
	}
	actmem_heap_destroy(heap);
	if (verbose && !status)
		describe_first(am, name, found);
	return status;
}

/* Returns the length of a heap's first region. */
static uint64_t grow_length(const struct knobs *knobs)
{
	uint64_t length = knobs->grow_bytes ? knobs->grow_bytes : GROW_DEFAULT;
	uint64_t most = limit_of(knobs);

	length = most && most < length ? most : length;
	return length / TRIAL_BYTES * TRIAL_BYTES;
}

/* Creates the store that a program would create, with files in the spill directories. */
static int try_store(struct actmem *am, const struct knobs *knobs, bool verbose)
{
	uint64_t limit = knobs->spill_limit_bytes, room = knobs->spill_path_count * TRIAL_BYTES;
	struct actmem_store_options options;
	struct actmem_store *store;
	int error;

	ACTMEM_INIT(&options);
	options.budget_bytes = limit_of(knobs);
	options.spill_paths = (const char *const *)knobs->spill_paths;
	options.spill_path_count = knobs->spill_path_count;
	options.spill_limit_bytes = limit;
	options.flags = knobs->spill_allow;
	options.spill_bytes = limit && limit < room ? limit : room;
	options.grow_bytes = knobs->grow_bytes;
	error = actmem_store_create(am, &options, &store);
	if (error) {
		print_knob_error(knobs);
		/* A directory without direct I/O is not a usage error. */
		return error == -EINVAL && !knobs_are_of_directory(knobs, actmem_error()) ?
		       STATUS_USAGE : STATUS_FAILED;
	}
	if (*actmem_error() && !knob_is_on(KNOB_QUIET))
		print_knob_error(knobs);
	if (verbose && knobs->spill_path_count)
		warnx("%s", actmem_store_describe(store));
	actmem_store_destroy(store);
	return STATUS_OK;
}

/*
 * Sets ACTMEM_REPORTED if the library has reported a fallback. With --allow, the library reports no
 * fallback.
 */
static int set_reported(struct actmem *am, const struct actmem_options *options)
{
	struct actmem_counters counters;

	ACTMEM_INIT(&counters);
	if (options->allow || actmem_get_counters(am, &counters) || !counters.fallbacks_total)
		return STATUS_OK;
	return variable_set("ACTMEM_REPORTED", "1");
}

static int try_memory(const struct actmem_options *options, const struct knobs *knobs, bool verbose)
{
	struct actmem_heap *heap;
	struct actmem *am;
	int status;

	if (actmem_open(&am, options))
		return print_library_error();
	/* Creating a heap without a name creates no region, but checks the limits. */
	heap = make_heap(am, knobs);
	status = heap ? STATUS_OK : STATUS_USAGE;
	if (heap && options->heap_name) {
		status = try_name(am, heap, options->heap_name, knobs, verbose);
	} else if (heap) {
		actmem_heap_destroy(heap);
		status = try_region(am, memory_page_bytes(options), grow_length(knobs), verbose);
	}
	if (!status)
		status = try_store(am, knobs, verbose);
	if (!status)
		status = set_reported(am, options);
	actmem_close(am);
	return status;
}

int try_environment(bool verbose)
{
	static const struct knobs none;
	struct actmem_options options;
	struct knobs knobs = none;
	char words[WORDS_MAX];
	int status;

	ACTMEM_INIT(&options);
	if (actmem_options_from_environment(&options)) {
		print_library_error();
		return STATUS_USAGE;
	}
	if (knobs_complete(&knobs, &none, ACTMEM_NAMES_RUN, words, sizeof(words))) {
		warnx("%s", words);
		return STATUS_USAGE;
	}
	status = try_memory(&options, &knobs, verbose);
	knobs_forget(&knobs);
	return status;
}
