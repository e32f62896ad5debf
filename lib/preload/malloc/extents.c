/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The bookkeeping of extents once more, in memory of the preload's own. It is never
 * given back: the ranges are there until the process ends.
 */
#include <stdlib.h>

#include "preload/malloc/own.h"

#define calloc(count, size)	own_calloc(count, size)
#define free(memory)		((void)(memory))

#include "base/extents.c"
