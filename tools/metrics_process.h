/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Regions and published counters of all processes, summed into rows for metrics. */
#ifndef ACTMEM_METRICS_PROCESS_H
#define ACTMEM_METRICS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

/* Maximum number of processes with their own rows. The others are summed, with an empty pid. */
#define PROCESSES_MAX	128

struct process_rows {
	json_t *backends;		/* arrays */
	json_t *regions;
	json_t *processes;
	json_t *index;			/* an object: rows by labels, and the omitted processes */
	int pids[PROCESSES_MAX];
	size_t count;
	size_t left_out;
};

/* Returns false after printing the error message on stderr. Then there is nothing to free. */
bool process_rows_read(struct process_rows *rows);
void process_rows_free(struct process_rows *rows);

/* Adds to a number in the row, at most up to INT64_MAX. Returns false if out of memory. */
bool row_add(json_t *row, const char *key, uint64_t amount);

#endif
