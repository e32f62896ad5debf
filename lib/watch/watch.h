/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder publishes data about a process in a file in memory, and reads the files of other
 * processes.
 *
 * Read publish.h first, which makes such a file, and sequence.h, the protocol between writer and
 * reader. Then read stats.h, which has the layout of the library's file and writes its records and
 * counters. waits.h writes waits, and mallocs.h has the layout of malloc mode's file. On the
 * reading side, published.h reads the files of another process, and processes.h finds the regions
 * of all processes and adds them to a list (list.h).
 *
 * Locks: none in this folder. A thread that adds or removes a record holds handles_lock()
 * (region/context.h). A thread that writes the record of a region holds the region's lock. Any
 * thread writes counters and waits without a lock.
 */
#ifndef LIB_WATCH_H
#define LIB_WATCH_H

#include "watch/list.h"
#include "watch/mallocs.h"
#include "watch/processes.h"
#include "watch/publish.h"
#include "watch/published.h"
#include "watch/sequence.h"
#include "watch/stats.h"
#include "watch/waits.h"

#endif /* LIB_WATCH_H */
