/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of what a process publishes of itself in a file in memory, and of how others
 * read it.
 *
 * Read sequence.h first, the protocol between writer and reader; then stats.h, which has
 * the file's layout and what writes records and counters, and waits.h, which writes what
 * is waited for. On the other side published.h reads the file of another process, and
 * processes.h finds regions of all processes, for list.h.
 *
 * Locks: none of its own. Records are added and removed under the handles lock, and
 * written under their region's; counters and waits are written by any thread without
 * one.
 */
#ifndef LIB_WATCH_H
#define LIB_WATCH_H

#include "watch/list.h"
#include "watch/processes.h"
#include "watch/published.h"
#include "watch/sequence.h"
#include "watch/stats.h"
#include "watch/waits.h"

#endif /* LIB_WATCH_H */
