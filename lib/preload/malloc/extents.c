/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The bookkeeping of extents, compiled again to use the preload's own memory. That memory is never
 * freed.
 */
#include <stdlib.h>

#include "preload/malloc/own.h"

#define calloc(count, size)	own_calloc(count, size)
#define free(memory)		((void)(memory))

#include "base/extents.c"
