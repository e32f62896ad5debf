/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The heap's blocks once more, with their bookkeeping in memory of the preload's own.
 * That memory is never given back: the blocks are there until the process ends.
 */
#include <stdlib.h>

#include "preload/malloc/own.h"

#define calloc(count, size)	own_calloc(count, size)
#define free(memory)		((void)(memory))

#include "base/blocks.c"
