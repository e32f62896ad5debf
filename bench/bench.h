/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The parts of actmem bench share these declarations. */
#ifndef ACTMEM_BENCH_H
#define ACTMEM_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"
#include "disk.h"

#define BENCH_SIZES_MAX		16

struct bench {
	struct actmem *am;		/* as the options say */
	struct actmem *strict;		/* the same, but never other pages or nodes */
	struct actmem_nodes nodes;	/* to measure, none twice */
	bool has_one_node;		/* this machine */
	uint64_t bytes;			/* of each region */
	uint64_t page_bytes;		/* that lengths of regions are multiples of */
	unsigned int only;		/* one part, or else all */
	double seconds;			/* for each side of each measurement */
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint64_t sizes[BENCH_SIZES_MAX];	/* of requests */
	unsigned int size_count;
	uint64_t file_bytes;
	uint64_t depth;
	uint32_t file_flags;
};

/*
 * Each returns an array of objects. An object that could not be measured has a null
 * bandwidth and a note. NULL: no memory.
 */
json_t *bench_pin(const struct bench *bench);
json_t *bench_copy(const struct bench *bench);
json_t *bench_spill(const struct bench *bench);

/* The next node to measure from @from on; ACTMEM_NODES_MAX if none. */
unsigned int bench_node(const struct bench *bench, unsigned int from);

/* A region bound to a node, whose pages are there. 0, or as actmem_region_create(). */
int bench_region(struct actmem *am, enum actmem_pages pages, unsigned int node, uint64_t bytes,
		 struct actmem_region **region);

#endif
