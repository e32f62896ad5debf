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
	struct actmem *am;		/* opened as the options say */
	struct actmem_nodes nodes;	/* nodes to measure */
	uint64_t bytes;			/* of each region */
	uint64_t page_bytes;		/* region lengths are multiples of it */
	unsigned int only;		/* an enum part, or PARTS for all */
	double seconds;			/* for each measurement */
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint64_t sizes[BENCH_SIZES_MAX];	/* of requests */
	unsigned int size_count;
	uint64_t file_bytes;
	uint32_t file_flags;
};

/*
 * Each function returns an array of objects. An object that could not be measured has a null
 * bandwidth and a note. Returns NULL if out of memory.
 */
json_t *bench_copy(const struct bench *bench);
json_t *bench_spill(const struct bench *bench);

/* Returns the next node to measure, starting at @from, or ACTMEM_NODES_MAX if there is none. */
unsigned int bench_node(const struct bench *bench, unsigned int from);

#endif
