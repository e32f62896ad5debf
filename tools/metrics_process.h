/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Regions and published counters of all processes, summed into rows for metrics. */
#ifndef ACTMEM_METRICS_PROCESS_H
#define ACTMEM_METRICS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

/* Processes that have rows of their own. What others have is summed, with an empty pid. */
#define PROCESSES_MAX	128

struct process_rows {
	json_t *backends;		/* arrays */
	json_t *regions;
	json_t *processes;
	json_t *index;			/* an object: their rows by labels; processes left out */
	int pids[PROCESSES_MAX];
	size_t count;
	size_t left_out;
};

/* False: told why on stderr, and there is nothing to free. */
bool process_rows_read(struct process_rows *rows);
void process_rows_free(struct process_rows *rows);

/* Adds to a number of the row. False: no memory. A sum too large becomes the largest number. */
bool row_add(json_t *row, const char *key, uint64_t amount);

#endif
