/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The metrics of this machine that `actmem exporter` gives to Prometheus. */
#ifndef ACTMEM_METRICS_H
#define ACTMEM_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>
#include "reclaim.h"

/*
 * Reads the machine once. Returns the metrics as text from malloc(), or NULL after printing the
 * error message on stderr.
 */
char *metrics_read(size_t *length);

struct metric {
	const char *name;
	const char *type;		/* "gauge" or "counter" */
	const char *help;
	const char *key;		/* in a row; "pool.free_bytes" is in an object there */
	bool is_limit;			/* null means no limit */
	bool is_ns;			/* written in seconds */
};

/*
 * Writes the metrics of an array of rows, with one sample for each row. The labels of a sample are
 * the values of the keys @labels, an array that ends with NULL. Omits a metric that a row has no
 * value for.
 */
void metrics_write(FILE *out, const json_t *rows, const char *const *labels,
		   const struct metric *metrics, size_t count);

/* metrics_process.c: regions and published counters of all processes, summed into rows. */

/* Maximum number of processes with their own rows. The others are summed, with an empty pid. */
#define PROCESSES_MAX	128

struct process_rows {
	json_t *backends;		/* arrays */
	json_t *regions;
	json_t *processes;
	json_t *surplus;		/* of reclaim_to_json() */
	struct reclaim reclaim;
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
