/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder implements open handles and regions.
 *
 * Read context.h first, which has the structs, and backend.h, the interface of the backends. Then
 * read context.c, which opens a backend and handles forks, and options.h, which reads options.
 * Functions for regions are declared in regions.h. They are in region.c (create, receive, map,
 * close), pages.c (populate, discard, export) and named.c with names.h (files). The rest is
 * choose.h (finds the backend of an existing region), report.c, list.c, counters.c and map.h.
 *
 * The two backends are in driver/ and memfd/. Other folders use them only through backend.h. A file
 * calls only files that come before it in these lists:
 * - driver/: driver.h, ask.c, why.c (reasons of refusals), command.c, make.c, named.c, export.c,
 *   backend.c
 * - memfd/: memfd.h, pages.c, file.c, steps.c, nameless.c, make.c, named.c, receive.c, backend.c
 *
 * Locks of this folder, outermost first:
 * - a region's pages_lock, which serializes populating and discarding if the backend needs that
 * - a region's lock, for its mappings and its registration
 * - the handles lock, for all lists of a handle; fork() takes it
 *
 * Locks of the whole library, outermost first: a heap's grow_lock, a store's lock, the three locks
 * above, a heap's lock. A thread that takes a queue's lock holds at most a store's lock. A thread
 * that takes a runtime's lock holds at most a region's lock.
 */
#ifndef LIB_REGION_H
#define LIB_REGION_H

#include "region/backend.h"
#include "region/context.h"
#include "region/options.h"
#include "region/regions.h"

#endif /* LIB_REGION_H */
