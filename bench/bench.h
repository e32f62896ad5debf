/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Declarations that the source files of actmem bench share. */
#ifndef ACTMEM_BENCH_H
#define ACTMEM_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"
#include "disk.h"

#define BENCH_SIZES_MAX		16

struct bench {
	struct actmem *am;		/* opened with the command's options */
	struct actmem_nodes nodes;	/* nodes to measure */
	uint64_t bytes;			/* length of each region */
	uint64_t page_bytes;		/* page size; regions are multiples of it */
	unsigned int only;		/* enum part: run only this part; PARTS: run all */
	double seconds;			/* duration of each measurement */
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint64_t sizes[BENCH_SIZES_MAX];	/* lengths of requests */
	unsigned int size_count;
	uint64_t file_bytes;
	uint32_t file_flags;
};

/*
 * Both functions return an array with an object for each measurement, or NULL if out of memory. The
 * object of a failed measurement has a null bandwidth, and a note with the reason.
 */
json_t *bench_copy(const struct bench *bench);
json_t *bench_spill(const struct bench *bench);

/* Returns the lowest node to measure that is not below @from, or ACTMEM_NODES_MAX. */
unsigned int bench_node(const struct bench *bench, unsigned int from);

#endif
