/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The metrics of this machine that `actmem exporter` reports to Prometheus. */
#ifndef ACTMEM_METRICS_H
#define ACTMEM_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>
#include "reclaim.h"

/*
 * Reads all metrics of this machine. Returns them as text from malloc(), or NULL after printing the
 * error message on stderr.
 */
char *metrics_read(size_t *length);

struct metric {
	const char *name;
	const char *type;		/* "gauge" or "counter" */
	const char *help;
	const char *key;		/* key of the value in the row; "a.b": key b in object a */
	bool is_limit;			/* null means no limit */
	bool is_ns;			/* the row has nanoseconds; the metric has seconds */
};

/*
 * Writes @count metrics, each with one sample for each row. @labels is an array of keys that ends
 * with NULL; the values of these keys in the row become the labels of the sample. Omits a sample if
 * the row has no value for the metric.
 */
void metrics_write(FILE *out, const json_t *rows, const char *const *labels,
		   const struct metric *metrics, size_t count);

/* metrics_process.c: regions and published counters of all processes, summed into rows. */

/*
 * Maximum number of processes with their own rows. The values of all other processes are summed in
 * rows with an empty pid.
 */
#define PROCESSES_MAX	128

struct process_rows {
	json_t *backends;		/* this and the next three are arrays of rows */
	json_t *regions;
	json_t *processes;
	json_t *surplus;		/* the result of reclaim_to_json() */
	struct reclaim reclaim;
	json_t *index;			/* object: rows by labels, and left-out processes */
	int pids[PROCESSES_MAX];
	size_t count;
	size_t left_out;		/* number of processes without their own rows */
};

/* On failure, prints the error message on stderr, frees everything and returns false. */
bool process_rows_read(struct process_rows *rows);
void process_rows_free(struct process_rows *rows);

/*
 * Adds @amount to a number in the row. Limits the sum to INT64_MAX. Returns false if out of memory.
 */
bool row_add(json_t *row, const char *key, uint64_t amount);

#endif
