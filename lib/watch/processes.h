/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the memfd regions of every process that this one may look into.
 */
#ifndef LIB_WATCH_PROCESSES_H
#define LIB_WATCH_PROCESSES_H

#include "watch/list.h"

/* How the memfd of a region is called before its name. */
#define REGION_LABEL	"actmem:"

/* Adds them, each once. 0 or -errno with words. */
int processes_list(struct region_list *list);

/* Adds the paths of the driver's named regions in the list, where a process has them. */
int processes_paths(struct region_list *list);

#endif /* LIB_WATCH_PROCESSES_H */
