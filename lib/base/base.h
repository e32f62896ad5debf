/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The lowest room: what all others have use for, and what knows of no machine and no
 * region.
 *
 * Read error.h first: functions that can fail return -errno, and have set this thread's
 * error message. links.h, likely.h, clock.h, round.h, room.h, size.h, structs.h, thread.h and
 * checksum.h are small helpers. extents.h records which parts of a range are in use, for
 * heaps, for spill files and for the preload; it uses extents_find.h.
 *
 * Locks: none. Extents are under their user's.
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
