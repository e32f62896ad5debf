/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the memfd regions of every process that this process may inspect.
 */
#ifndef LIB_WATCH_PROCESSES_H
#define LIB_WATCH_PROCESSES_H

#include "watch/list.h"

/* The name of a region's memfd is this prefix, followed by the region's name. */
#define REGION_LABEL	"actmem:"

/* Adds each memfd region once. Returns 0, or -errno with an error message. */
int processes_list(struct region_list *list);

/*
 * Adds the paths of the driver's named regions to the list. Finds only the paths of regions that a
 * process has open.
 */
int processes_paths(struct region_list *list);

#endif /* LIB_WATCH_PROCESSES_H */
