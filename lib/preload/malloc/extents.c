/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Compiles base/extents.c, the bookkeeping of extents, a second time, so that it allocates from
 * own.h. Such memory is never freed.
 */
#include <stdlib.h>

#include "preload/malloc/own.h"

#define calloc(count, size)	own_calloc(count, size)
#define free(memory)		((void)(memory))

#include "base/extents.c"
