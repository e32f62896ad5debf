/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the counters of malloc mode, so that other processes can read them. The caller's lock
 * guards the counters.
 */
#ifndef LIB_PRELOAD_MALLOC_COUNTERS_H
#define LIB_PRELOAD_MALLOC_COUNTERS_H

#include "watch/watch.h"

/* Returns this process's counters, which are private if they could not be published. */
struct malloc_counters *counters_get(void);

/* Makes a forked child use new counters, because the child must not write to its parent's. */
void counters_renew(void);

#endif /* LIB_PRELOAD_MALLOC_COUNTERS_H */
