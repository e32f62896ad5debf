// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The copying part of actmem bench: memcpy() in one thread between regions of each pair of nodes.
 * Each 4 KiB of the source begins with a number. After each copy, the numbers in the target are
 * checked.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "bench.h"
#include "../tools/table.h"

#define STAMP_EACH	4096
#define ROUNDS_LEAST	3
#define ROUNDS_MAX	256

struct copy {
	unsigned int from_node, to_node;
	struct actmem_region *from, *to;
	char *source, *target;
	uint64_t bytes;			/* copied in a round */
	enum actmem_pages pages;	/* the shorter pages of both regions; DEFAULT: none yet */
	char note[1024];		/* long enough for any error message */
	unsigned int rounds;
	uint64_t ns[ROUNDS_MAX];
};

static void stamp_source(const struct copy *copy)
{
	uint64_t at, number;

	for (at = 0; at < copy->bytes; at += STAMP_EACH) {
		number = copy->rounds + at;
		memcpy(copy->source + at, &number, sizeof(number));
	}
}

static bool check_target(struct copy *copy)
{
	uint64_t at, number;

	for (at = 0; at < copy->bytes; at += STAMP_EACH) {
		memcpy(&number, copy->target + at, sizeof(number));
		if (number == copy->rounds + at)
			continue;
		snprintf(copy->note, sizeof(copy->note), "byte %llu was not copied",
			 (unsigned long long)at);
		return false;
	}
	return true;
}

/* Creates a region that is bound to a node, and maps it. */
static int make_region(const struct bench *bench, unsigned int node, struct actmem_region **region,
		       char **memory)
{
	struct actmem_region_options options;
	int error;

	ACTMEM_INIT(&options);
	options.length = bench->bytes;
	options.policy = ACTMEM_PLACE_BIND;
	options.nodes.word[node / 64] = 1ULL << (node % 64);
	options.name = "actmem bench";
	error = actmem_region_create(bench->am, &options, region);
	return error ? error : actmem_region_map(*region, (void **)memory);
}

/* Finds the pages of both regions. With --allow, they may differ. */
static int find_pages(struct copy *copy)
{
	struct actmem_region_info from, to;
	int error;

	ACTMEM_INIT(&from);
	ACTMEM_INIT(&to);
	error = actmem_region_get_info(copy->from, &from);
	if (!error)
		error = actmem_region_get_info(copy->to, &to);
	if (!error)
		copy->pages = from.page_bytes < to.page_bytes ? from.pages : to.pages;
	return error;
}

static void run_rounds(struct copy *copy, double seconds)
{
	uint64_t end_ns = clock_ns() + (uint64_t)(seconds * NS_PER_SECOND), begun_ns;

	memset(copy->source, 1, copy->bytes);
	while (copy->rounds < ROUNDS_LEAST ||
	       (copy->rounds < ROUNDS_MAX && clock_ns() < end_ns)) {
		stamp_source(copy);
		begun_ns = clock_ns();
		memcpy(copy->target, copy->source, copy->bytes);
		copy->ns[copy->rounds] = clock_ns() - begun_ns;
		if (!check_target(copy))
			return;
		copy->rounds++;
	}
}

static int compare_ns(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

static json_t *copy_to_json(struct copy *copy)
{
	json_t *bandwidth = json_null();
	uint64_t median;

	if (!*copy->note) {
		qsort(copy->ns, copy->rounds, sizeof(copy->ns[0]), compare_ns);
		median = copy->ns[copy->rounds / 2];
		bandwidth = json_integer((json_int_t)((double)copy->bytes * NS_PER_SECOND /
						      (double)(median + !median)));
	}
	return json_pack("{s:i, s:i, s:I, s:s?, s:i, s:o, s:o}", "from", (int)copy->from_node,
			 "to", (int)copy->to_node, "bytes", (json_int_t)copy->bytes,
			 "pages", copy->pages ? pages_text(copy->pages) : NULL,
			 "rounds", (int)copy->rounds, "bandwidth", bandwidth,
			 "note", *copy->note ? text_to_json(copy->note) : json_null());
}

static json_t *measure_pair(const struct bench *bench, unsigned int from, unsigned int to)
{
	struct copy copy = { .from_node = from, .to_node = to, .bytes = bench->bytes };

	if (make_region(bench, from, &copy.from, &copy.source) ||
	    make_region(bench, to, &copy.to, &copy.target) || find_pages(&copy))
		snprintf(copy.note, sizeof(copy.note), "%s", actmem_error_in(ACTMEM_NAMES_RUN));
	else
		run_rounds(&copy, bench->seconds);
	if (copy.from)
		actmem_region_close(copy.from);
	if (copy.to)
		actmem_region_close(copy.to);
	return copy_to_json(&copy);
}

json_t *bench_copy(const struct bench *bench)
{
	json_t *rows = json_array();
	unsigned int from, to;

	for (from = bench_node(bench, 0); from < ACTMEM_NODES_MAX;
	     from = bench_node(bench, from + 1))
		for (to = bench_node(bench, 0); to < ACTMEM_NODES_MAX;
		     to = bench_node(bench, to + 1))
			rows = append_item(rows, measure_pair(bench, from, to));
	return rows;
}
