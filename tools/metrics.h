/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What `actmem exporter` tells Prometheus of this machine. */
#ifndef ACTMEM_METRICS_H
#define ACTMEM_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <jansson.h>

/* One read of the machine, as text, from malloc(); NULL: told why on stderr. */
char *metrics_read(size_t *length);

struct metric {
	const char *name;
	const char *type;		/* "gauge" or "counter" */
	const char *help;
	const char *key;		/* of a row, "pool.free_bytes" of an object in it */
	bool is_limit;			/* null: there is none */
	bool is_ns;			/* told in seconds */
};

/*
 * Writes metrics of an array of rows: of each row one sample with its labels, keys of the
 * row with a NULL behind them. What a row does not tell is left out.
 */
void metrics_write(FILE *out, const json_t *rows, const char *const *labels,
		   const struct metric *metrics, size_t count);

#endif
