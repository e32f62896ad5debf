/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Which processes should return memory because a limit is below the usage, and whether they can. */
#ifndef ACTMEM_RECLAIM_H
#define ACTMEM_RECLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <jansson.h>
#include "actmem.h"

struct stats_header;		/* what a process publishes (watch/stats.h) */

/* Sums by process. Initialize it to 0, add all regions, and then what their processes publish. */
struct reclaim {
	struct reclaim_process *list;
	size_t count;
};

/* Ignores a region without a process: no one can return it. Returns false if out of memory. */
bool reclaim_add_region(struct reclaim *reclaim, const struct actmem_region_info *region);

/* Ignores a process without regions. */
void reclaim_add_published(struct reclaim *reclaim, int pid, const struct stats_header *header);

/* Returns rows as reclaim_rows() does. Also reads the memory cgroups of the processes. */
json_t *reclaim_to_json(struct reclaim *reclaim);
void reclaim_free(struct reclaim *reclaim);

/*
 * Returns [{"pid", "uid", "command", "bytes", "surplus_bytes", "can_return"}], with one row for
 * each process that has a surplus; only for process @pid if that is not 0. A process can return
 * memory if a store of it spills. Returns NULL if out of memory.
 */
json_t *reclaim_rows(int pid);

/*
 * Prints such rows as a table below others, with a heading. Prints nothing if there are no rows.
 * Returns as table_print() does.
 */
int reclaim_print(const json_t *rows, unsigned int flags);

/*
 * Prints such rows, and waits until there are none, or until nothing has been returned for several
 * seconds. Shows the progress on a terminal. Returns false after printing the error message if
 * memory ran out.
 */
bool reclaim_follow(int pid);

#endif
