/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The lowest folder: helpers that all other folders use. These helpers use no other folder.
 *
 * Read error.h first. Functions that can fail set this thread's error message and return -errno.
 * The small helpers are links.h, likely.h, clock.h, round.h, room.h, size.h, structs.h, thread.h
 * and checksum.h. The larger helper is extents.h, which records which parts of a range are in use.
 * extents.h is used by heaps, by spill files, and by the library that `actmem run` preloads.
 * extents.c uses extents_find.h.
 *
 * Locks: none. The caller's lock protects its extents.
 */
#ifndef LIB_BASE_H
#define LIB_BASE_H

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/extents.h"
#include "base/likely.h"
#include "base/links.h"
#include "base/room.h"
#include "base/round.h"
#include "base/size.h"
#include "base/structs.h"
#include "base/thread.h"

#endif /* LIB_BASE_H */
