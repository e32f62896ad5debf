// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Makes what a program would make, before it runs. */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "actmem.h"
#include "base/base.h"
#include "tool.h"
#include "trial.h"
#include "xla/xla.h"

#define TRIAL_BYTES	(2ULL << 20)
#define GIANT_BYTES	(1ULL << 30)
#define GROW_DEFAULT	(64ULL << 20)	/* the library's */

/* Whatever else was used than was asked for. */
static void tell_steps(void)
{
	if (*actmem_error())
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
}

void tell_wrong_value(enum knob knob, const char *choice)
{
	warnx("%s is '%s'; it may be %s", knob_name(knob, ACTMEM_NAMES_RUN), knob_value(knob),
	      choice);
}

bool take_size(enum knob knob, uint64_t *bytes)
{
	const char *text = knob_value(knob);

	*bytes = 0;
	if (!text || !*text || size_from_text(text, bytes))
		return true;
	tell_wrong_value(knob, "a number of bytes, such as 268435456 or 256M");
	return false;
}

static void describe(const struct actmem *am, struct actmem_region *region, const char *how)
{
	static const char * const pages[] = {
		[ACTMEM_PAGES_1G] = "1G", [ACTMEM_PAGES_2M] = "2M",
		[ACTMEM_PAGES_THP] = "thp", [ACTMEM_PAGES_4K] = "4K",
	};
	struct actmem_region_info info;
	unsigned int node, seen = 0;

	warnx("%s", actmem_describe(am));
	ACTMEM_INIT(&info);
	if (actmem_region_get_info(region, &info)) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return;
	}
	if (info.named)
		warnx("%s %s", info.name, how);
	fprintf(stderr, "%s: a region now gets %s pages", program_invocation_short_name,
		pages[info.pages]);
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (!info.node_bytes[node])
			continue;
		fprintf(stderr, "%s%u", seen++ ? "," : " on node ", node);
	}
	fputs(seen ? "\n" : "; no page is there yet\n", stderr);
}

/* The heap that a program would have; NULL: told why not. */
static struct actmem_heap *make_heap(struct actmem *am, uint64_t grow_bytes, uint64_t limit_bytes)
{
	struct actmem_heap_options options;
	struct actmem_heap *heap;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&options.region);
	options.grow_bytes = grow_bytes;
	options.limit_bytes = limit_bytes;
	if (!actmem_heap_create(am, &options, &heap))
		return heap;
	warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
	return NULL;
}

/*
 * A lazy region is held against RLIMIT_MEMLOCK with all of its length, at no cost. Not
 * every program makes regions that long.
 */
static void tell_limit(struct actmem *am, uint64_t bytes)
{
	struct actmem_region_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.length = bytes;
	options.name = "actmem run";
	options.flags = ACTMEM_REGION_LAZY;
	if (!actmem_region_create(am, &options, &region))
		actmem_region_close(region);
	else if (strstr(actmem_error(), "RLIMIT_MEMLOCK"))
		warnx("regions of %" PRIu64 "M, as the Python module makes them (--heap-grow), will fail: %s",
		      bytes >> 20, actmem_error_in(ACTMEM_NAMES_RUN));
}

static int try_region(struct actmem *am, enum actmem_pages pages, uint64_t grow_bytes,
		      bool verbose)
{
	struct actmem_region_options options;
	struct actmem_region *region = NULL;
	int error;

	ACTMEM_INIT(&options);
	options.length = pages == ACTMEM_PAGES_1G ? GIANT_BYTES : TRIAL_BYTES;
	options.name = "actmem run";
	error = actmem_region_create(am, &options, &region);
	if (error) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return error == -EINVAL ? STATUS_USAGE : STATUS_FAILED;
	}
	if (verbose) {
		tell_steps();
		describe(am, region, "");
	}
	actmem_region_close(region);
	if (grow_bytes > options.length)
		tell_limit(am, grow_bytes);
	return STATUS_OK;
}

/* The first file of the heap's name, as it is. */
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
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return;
	}
	describe(am, region, found ? "was found" : "was made");
	actmem_region_close(region);
}

/*
 * The first block of the program's heap, which is gone then. Its file stays, made
 * or found, and is free again until the program locks it.
 */
static int try_name(struct actmem *am, struct actmem_heap *heap, const char *name,
		    bool is_limit, bool verbose)
{
	struct actmem_region *region;
	bool found = verbose && !open_first(am, name, &region);
	int status = STATUS_OK;
	void *block;

	if (found)
		actmem_region_close(region);
	if (actmem_heap_alloc(heap, 1, 0, &block)) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN |
					    (is_limit ? 0 : ACTMEM_NAMES_AS_BUDGET)));
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

/* 0 for what is not set; false: told what is wrong with them. */
static bool take_limits(uint64_t *limit_bytes, uint64_t *budget_bytes)
{
	if (!take_size(KNOB_HEAP_LIMIT, limit_bytes) ||
	    !take_size(KNOB_BUDGET, budget_bytes))
		return false;
	if (!*budget_bytes || !*limit_bytes)
		return true;
	warnx("--budget (ACTMEM_BUDGET) and --heap-limit (ACTMEM_HEAP_LIMIT): the budget is a limit by itself; leave the other out");
	return false;
}

/* Of a GPU's memory, which nobody here may have. */
static bool check_ring(void)
{
	uint64_t bytes;

	if (!take_size(KNOB_DEVICE_RING, &bytes))
		return false;
	if (!bytes || bytes >= KNOBS_RING_LEAST)
		return true;
	warnx("--device-ring (ACTMEM_DEVICE_RING) is %llu bytes; it is at least %lluK",
	      (unsigned long long)bytes, (unsigned long long)KNOBS_RING_LEAST >> 10);
	return false;
}

/* Of a heap's first region. */
static uint64_t grow_length(uint64_t grow_bytes, uint64_t most_bytes)
{
	uint64_t length = grow_bytes ? grow_bytes : GROW_DEFAULT;

	length = most_bytes && most_bytes < length ? most_bytes : length;
	return length / TRIAL_BYTES * TRIAL_BYTES;
}

int try_environment(bool verbose)
{
	struct actmem_options options;
	uint64_t grow_bytes, limit_bytes, budget_bytes, most_bytes;
	struct actmem_heap *heap;
	struct actmem *am;
	int status;

	ACTMEM_INIT(&options);
	if (actmem_options_from_environment(&options)) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return STATUS_USAGE;
	}
	if (!take_size(KNOB_HEAP_GROW, &grow_bytes) ||
	    !take_limits(&limit_bytes, &budget_bytes) || !check_store() || !check_ring())
		return STATUS_USAGE;
	if (actmem_open(&am, &options)) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN));
		return STATUS_FAILED;
	}
	/* A heap without a name makes no region before its first block, but knows its limits. */
	heap = make_heap(am, grow_bytes, limit_bytes ? limit_bytes : budget_bytes);
	status = heap ? STATUS_OK : STATUS_USAGE;
	if (heap && options.heap_name) {
		status = try_name(am, heap, options.heap_name, !budget_bytes, verbose);
	} else if (heap) {
		actmem_heap_destroy(heap);
		most_bytes = limit_bytes ? limit_bytes : budget_bytes;
		status = try_region(am, options.pages, grow_length(grow_bytes, most_bytes),
				    verbose);
	}
	if (!status)
		status = try_store(am, grow_bytes, limit_bytes, verbose);
	actmem_close(am);
	return status;
}
