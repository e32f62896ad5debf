/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of open handles and of regions.
 *
 * Read context.h first, which has the structs, and backend.h, where regions come from;
 * then context.c, which opens a backend and sees to forks, options.h, which reads what
 * is asked for, and regions.h with region.c (made, received, mapped, closed), pages.c
 * (populated, discarded, exported), named.c with names.h (files), choose.h (the backend
 * of a name), list.c, counters.c, and map.h.
 *
 * The two backends are in driver/ and memfd/, which nothing outside them sees but by
 * backend.h. Read driver/driver.h, then ask.c, why.c (reasons of refusals), command.c,
 * make.c, named.c, export.c and backend.c; and memfd/memfd.h, then pages.c, file.c,
 * steps.c, nameless.c, make.c, named.c, receive.c and backend.c: each calls those before
 * it.
 *
 * Locks, outermost first: a region's pages_lock, where pages are made or given back in
 * turn; a region's lock, of its mappings and its registration; the handles lock, of all
 * lists of a handle, which a fork takes. In the whole library, outermost first: a
 * store's background work, a heap's grow_lock, a store's lock; those three; a heap's lock. A
 * queue's lock is held with a store's at most, that of a runtime with a region's at
 * most.
 */
#ifndef LIB_REGION_H
#define LIB_REGION_H

#include "region/backend.h"
#include "region/context.h"
#include "region/options.h"
#include "region/regions.h"

#endif /* LIB_REGION_H */
