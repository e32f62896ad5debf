// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The copying part of actmem bench: memcpy() in one thread between regions of each pair of nodes.
 * Checks that the bytes arrived.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/base.h"
#include "bench.h"
#include "contest.h"

#define STAMP_EACH	4096

struct copy {
	unsigned int from_node, to_node;
	struct actmem_region *from, *to;
	char *source, *target;
	uint64_t *seed;
};

static void stamp_source(const struct copy *copy, uint64_t bytes)
{
	uint64_t at, number;

	++*copy->seed;
	for (at = 0; at < bytes; at += STAMP_EACH) {
		number = *copy->seed + at;
		memcpy(copy->source + at, &number, sizeof(number));
	}
}

static int check_copy(struct contestant *contestant, const struct copy *copy)
{
	uint64_t at, number;

	for (at = 0; at < contestant->bytes; at += STAMP_EACH) {
		memcpy(&number, copy->target + at, sizeof(number));
		if (number == *copy->seed + at)
			continue;
		snprintf(contestant->words, sizeof(contestant->words),
			 "byte %llu was not copied", (unsigned long long)at);
		return -EIO;
	}
	return 0;
}

static int copy_memory(struct contestant *contestant, uint64_t *ns)
{
	const struct copy *copy = contestant->data;
	uint64_t begun_ns;

	stamp_source(copy, contestant->bytes);
	begun_ns = clock_ns();
	memcpy(copy->target, copy->source, contestant->bytes);
	*ns = clock_ns() - begun_ns;
	return check_copy(contestant, copy);
}

static int open_copy(const struct bench *bench, struct copy *copy)
{
	int error;

	error = bench_region(bench->am, ACTMEM_PAGES_DEFAULT, copy->from_node, bench->bytes,
			     &copy->from);
	if (!error)
		error = bench_region(bench->am, ACTMEM_PAGES_DEFAULT, copy->to_node, bench->bytes,
				     &copy->to);
	if (!error)
		error = actmem_region_map(copy->from, (void **)&copy->source);
	if (!error)
		error = actmem_region_map(copy->to, (void **)&copy->target);
	return error;
}

static void close_copy(struct copy *copy)
{
	if (copy->from)
		actmem_region_close(copy->from);
	if (copy->to)
		actmem_region_close(copy->to);
}

static int measure_pair(const struct bench *bench, struct copy *copy, json_t *rows)
{
	static struct contestant contestant;
	json_t *row;

	contestant = (struct contestant){
		.what = "memcpy",
		.round = copy_memory,
		.bytes = bench->bytes,
		.data = copy,
		.error = open_copy(bench, copy),
	};
	if (contestant.error) {
		snprintf(contestant.words, sizeof(contestant.words), "%s", actmem_error_in(ACTMEM_NAMES_RUN));
	} else {
		memset(copy->source, 1, bench->bytes);
		contest_run(&contestant, 1, bench->seconds);
	}
	close_copy(copy);
	row = contestant_to_json(&contestant);
	if (!row || json_object_set_new(row, "from", json_integer(copy->from_node)) ||
	    json_object_set_new(row, "to", json_integer(copy->to_node)) ||
	    json_array_append_new(rows, row))
		return -ENOMEM;
	return 0;
}

json_t *bench_copy(const struct bench *bench)
{
	json_t *rows = json_array();
	unsigned int from, to;
	uint64_t seed = 0;

	for (from = bench_node(bench, 0); rows && from < ACTMEM_NODES_MAX;
	     from = bench_node(bench, from + 1)) {
		for (to = bench_node(bench, 0); rows && to < ACTMEM_NODES_MAX;
		     to = bench_node(bench, to + 1)) {
			struct copy copy = { .from_node = from, .to_node = to, .seed = &seed };

			if (measure_pair(bench, &copy, rows)) {
				json_decref(rows);
				rows = NULL;
			}
		}
	}
	return rows;
}
