/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the memfd regions of every process that this process may inspect.
 */
#ifndef LIB_WATCH_PROCESSES_H
#define LIB_WATCH_PROCESSES_H

#include "watch/list.h"

/* Precedes the region's name in the name of its memfd. */
#define REGION_LABEL	"actmem:"

/* Adds each memfd region once. Returns 0, or -errno with an error message. */
int processes_list(struct region_list *list);

/*
 * For each named region of the driver that is in the list and open in a process, adds its path to
 * the list.
 */
int processes_paths(struct region_list *list);

#endif /* LIB_WATCH_PROCESSES_H */
