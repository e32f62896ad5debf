/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A timeline for ui.perfetto.dev and chrome://tracing: a JSON array of trace events, written as
 * they occur. Both can also open a file without its end, which a killed process may leave.
 *
 * Times are of CLOCK_MONOTONIC. Calls with a timeline of NULL do nothing. Only one thread may use a
 * timeline. timeline_close() returns an error of the file.
 */
#ifndef ACTMEM_TIMELINE_H
#define ACTMEM_TIMELINE_H

#include <jansson.h>
#include <stdint.h>

struct timeline;

/*
 * Creates a timeline, whose times start now. Returns NULL after printing the error message with
 * warnx().
 */
struct timeline *timeline_open(const char *path, const char *process);

/*
 * Ends the array and closes the file. Returns 0, or the negative errno of the first failure since
 * timeline_open().
 */
int timeline_close(struct timeline *timeline);

/* Names a row. Viewers sort rows by lane number. */
void timeline_lane(struct timeline *timeline, uint32_t lane, const char *name);

/* Adds an activity to a lane, in which activities nest. Takes ownership of @about. */
void timeline_slice(struct timeline *timeline, uint32_t lane, const char *name,
		    uint64_t begin_ns, uint64_t end_ns, json_t *about);

/*
 * Record the beginning and the end of an activity that may overlap others of its kind. All of a
 * kind share a row, which is named after it. Take ownership of @about.
 */
void timeline_begin(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		    json_t *about);
void timeline_end(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		  json_t *about);

/* Adds a value to a curve that is named after both, such as "pinned bytes". */
void timeline_count(struct timeline *timeline, const char *name, const char *unit, uint64_t ns,
		    uint64_t value);

#endif
