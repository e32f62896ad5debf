/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Compiles base/extents.c, the bookkeeping of extents (parts of ranges), a second time. This copy
 * allocates its own memory with own_calloc(), and never frees this memory.
 */
#include <stdlib.h>

#include "preload/malloc/own.h"

#define calloc(count, size)	own_calloc(count, size)
#define free(memory)		((void)(memory))

#include "base/extents.c"
