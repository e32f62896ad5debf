/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Finds the processes that should return memory because a limit is below the usage. */
#ifndef ACTMEM_RECLAIM_H
#define ACTMEM_RECLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>
#include "actmem.h"

struct stats_header;		/* the counters that a handle publishes (watch/stats.h) */

/*
 * The totals of each process. Initialize the struct to 0. Call reclaim_add_region() for all regions
 * before reclaim_add_published().
 */
struct reclaim {
	struct reclaim_process *list;
	size_t count;
};

/*
 * Adds a region to the totals of its process. Ignores a region without a process, because no
 * process can return the region's memory. Returns false if out of memory.
 */
bool reclaim_add_region(struct reclaim *reclaim, const struct actmem_region_info *region);

/* Adds the counters that one handle of a process publishes. Ignores a process without regions. */
void reclaim_add_published(struct reclaim *reclaim, int pid, const struct stats_header *header);

/* Reads the memory cgroups of the processes, and returns rows as reclaim_rows() does. */
json_t *reclaim_to_json(struct reclaim *reclaim);
void reclaim_free(struct reclaim *reclaim);

/*
 * Returns [{"pid", "uid", "command", "bytes", "surplus_bytes", "can_return"}], with one row for
 * each process that has a surplus. If @pid is not 0, returns only the row of that process. A
 * process can return memory if one of its stores spills. Returns NULL after printing an error
 * message.
 */
json_t *reclaim_rows(int pid);

/*
 * Prints the rows of reclaim_rows() as a table with a heading. Prints nothing if there are no rows.
 * Returns 0 or -ENOMEM, as table_print() does.
 */
int reclaim_print(const json_t *rows, unsigned int flags);

/*
 * Prints the rows of reclaim_rows(), and waits until no process has a surplus, or until no memory
 * has been returned for several seconds. Shows the progress on a terminal. Returns false after
 * printing an error message.
 */
bool reclaim_follow(int pid);

#endif
