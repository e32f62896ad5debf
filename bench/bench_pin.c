// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The pinning part of actmem bench: regions of each kind of pages, and plain mappings of the same length. A round
 * ends when it has touched every page through its mapping.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/base.h"
#include "bench.h"
#include "contest.h"

#define SMALL_PAGE	4096

struct pin {
	const struct bench *bench;
	unsigned int node;
	enum actmem_pages pages;	/* of a region */
	int map_flags;			/* of a mapping */
	bool locks;
	uint64_t touch_each;
};

static void touch_pages(char *memory, uint64_t bytes, uint64_t each)
{
	uint64_t at;

	for (at = 0; at < bytes; at += each)
		((volatile char *)memory)[at] = 1;
}

static int make_region(struct contestant *contestant, uint64_t *ns)
{
	const struct pin *pin = contestant->data;
	struct actmem_region *region = NULL;
	uint64_t begun_ns;
	void *memory;
	int error;

	begun_ns = clock_ns();
	error = bench_region(pin->bench->strict, pin->pages, pin->node, contestant->bytes, &region);
	/* A message after success is about a fallback that was allowed. */
	snprintf(contestant->words, sizeof(contestant->words), "%s", actmem_error_in(ACTMEM_NAMES_RUN));
	if (!error)
		error = actmem_region_map(region, &memory);
	if (!error) {
		touch_pages(memory, contestant->bytes, pin->touch_each);
		*ns = clock_ns() - begun_ns;
	}
	if (region)
		actmem_region_close(region);
	return error;
}

static int fail_call(struct contestant *contestant, const char *call)
{
	int error = errno;

	snprintf(contestant->words, sizeof(contestant->words), "%s: %s", call, strerror(error));
	return -error;
}

/* Binds the pages that this thread touches to a node, or removes the binding if @bound is false. */
static long bind_thread(unsigned int node, bool bound)
{
	struct actmem_nodes nodes = { 0 };

	nodes.word[node / 64] = 1ULL << (node % 64);
	return syscall(SYS_set_mempolicy, bound ? MPOL_BIND : MPOL_DEFAULT, bound ? &nodes : NULL,
		       bound ? ACTMEM_NODES_MAX + 1 : 0);
}

static int map_and_lock(struct contestant *contestant, uint64_t *ns)
{
	const struct pin *pin = contestant->data;
	uint64_t begun_ns = clock_ns();
	char *memory;
	int error = 0;

	memory = mmap(NULL, contestant->bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | pin->map_flags, -1, 0);
	if (memory == MAP_FAILED)
		return fail_call(contestant, "mmap");
	if (pin->locks && mlock(memory, contestant->bytes))
		error = fail_call(contestant, "mlock");
	if (!error) {
		touch_pages(memory, contestant->bytes, pin->touch_each);
		*ns = clock_ns() - begun_ns;
	}
	munmap(memory, contestant->bytes);
	return error;
}

static int make_mapping(struct contestant *contestant, uint64_t *ns)
{
	const struct pin *pin = contestant->data;
	bool binds = !pin->bench->has_one_node;
	int error;

	if (binds && bind_thread(pin->node, true))
		return fail_call(contestant, "set_mempolicy");
	error = map_and_lock(contestant, ns);
	if (binds && bind_thread(0, false))
		return fail_call(contestant, "set_mempolicy");
	return error;
}

#define HUGE_PAGE	(2ULL << 20)
#define GIANT_PAGE	(1ULL << 30)

static const struct pin_kind {
	const char *what;
	struct pin pin;
} kinds[] = {
	{ "region of 2M pages", { .pages = ACTMEM_PAGES_2M, .touch_each = HUGE_PAGE } },
	{ "region of 1G pages", { .pages = ACTMEM_PAGES_1G, .touch_each = GIANT_PAGE } },
	{ "region of thp pages", { .pages = ACTMEM_PAGES_THP, .touch_each = SMALL_PAGE } },
	{ "region of 4K pages", { .pages = ACTMEM_PAGES_4K, .touch_each = SMALL_PAGE } },
	{ "mmap, mlock", { .locks = true, .touch_each = SMALL_PAGE } },
	{ "mmap MAP_POPULATE", { .map_flags = MAP_POPULATE, .touch_each = SMALL_PAGE } },
	{ "mmap MAP_HUGETLB, MAP_POPULATE", { .map_flags = MAP_HUGETLB | MAP_POPULATE,
					      .touch_each = HUGE_PAGE } },
};

#define KIND_COUNT	(sizeof(kinds) / sizeof(kinds[0]))

static int measure_node(const struct bench *bench, unsigned int node, json_t *rows)
{
	struct contestant *contestants = calloc(KIND_COUNT, sizeof(*contestants));
	struct pin pins[KIND_COUNT];
	int error = contestants ? 0 : -ENOMEM;
	size_t i;

	for (i = 0; !error && i < KIND_COUNT; i++) {
		pins[i] = kinds[i].pin;
		pins[i].bench = bench;
		pins[i].node = node;
		contestants[i].what = kinds[i].what;
		contestants[i].bytes = bench->bytes;
		contestants[i].data = &pins[i];
		contestants[i].round = pins[i].pages ? make_region : make_mapping;
	}
	if (!error)
		contest_run(contestants, KIND_COUNT, bench->seconds);
	for (i = 0; !error && i < KIND_COUNT; i++) {
		json_t *row = contestant_to_json(&contestants[i]);

		if (!row || json_object_set_new(row, "node", json_integer(node)) ||
		    json_array_append_new(rows, row))
			error = -ENOMEM;
	}
	free(contestants);
	return error;
}

json_t *bench_pin(const struct bench *bench)
{
	json_t *rows = json_array();
	unsigned int node;

	for (node = bench_node(bench, 0); rows && node < ACTMEM_NODES_MAX;
	     node = bench_node(bench, node + 1)) {
		if (measure_node(bench, node, rows)) {
			json_decref(rows);
			rows = NULL;
		}
	}
	return rows;
}
