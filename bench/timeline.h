/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A timeline for ui.perfetto.dev and chrome://tracing: a JSON array of trace
 * events, written as they come. A file that a killed process left without its end
 * can still be opened there.
 *
 * Times are of CLOCK_MONOTONIC. Calls with a timeline that is NULL do nothing. One
 * thread uses it. An error of the file is told by timeline_close().
 */
#ifndef ACTMEM_TIMELINE_H
#define ACTMEM_TIMELINE_H

#include <jansson.h>
#include <stdint.h>

struct timeline;

/* NULL: told by warnx(). Times are shown from now on. */
struct timeline *timeline_open(const char *path, const char *process);

/* Ends the array. 0, or a negative errno of whatever failed since it was opened. */
int timeline_close(struct timeline *timeline);

/* A row of its own; lanes are shown by rising number. */
void timeline_lane(struct timeline *timeline, uint32_t lane, const char *name);

/* Something that took that long there. Within a lane such things nest. Takes @about. */
void timeline_slice(struct timeline *timeline, uint32_t lane, const char *name,
		    uint64_t begin_ns, uint64_t end_ns, json_t *about);

/*
 * The beginning and the end of something that others of its kind may overlap. Those of a
 * kind have a row together, which is named after it. Takes @about.
 */
void timeline_begin(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		    json_t *about);
void timeline_end(struct timeline *timeline, const char *kind, uint64_t id, uint64_t ns,
		  json_t *about);

/* A number that is shown as a curve, which is named after both: "pinned bytes". */
void timeline_count(struct timeline *timeline, const char *name, const char *unit, uint64_t ns,
		    uint64_t value);

#endif
