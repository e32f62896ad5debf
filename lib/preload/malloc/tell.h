/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the counters of told.h. The caller's lock guards them.
 */
#ifndef LIB_PRELOAD_MALLOC_TELL_H
#define LIB_PRELOAD_MALLOC_TELL_H

#include "preload/malloc/told.h"

/* Returns this process's counters, which are private if they could not be published. */
struct told *tell(void);

/* Makes a forked child use new counters, because it must not write to its parent's. */
void tell_anew(void);

#endif /* LIB_PRELOAD_MALLOC_TELL_H */
