/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of libactmem_preload.so, which LD_PRELOAD puts in front of a program's own
 * calls, and of its settings, which the command reads too.
 *
 * Read start.c first, then settings.h, by which the environment chooses a mode, say.h,
 * which tells on stderr, and symbols.h with dlsym.S, through which lookups of symbols go;
 * both modes have these in common. In malloc/, malloc.c takes large blocks from large.h
 * (which has range.h, place.h, own.h and blocks.c below it) and others from next.h; tell.h
 * publishes what told.h has. In cuda/, hooks.c takes CUDA's calls and memory.c answers
 * them, from pool.h (blocks of regions) and under.h (regions under memory that is
 * registered).
 *
 * It knows of the library what its public headers and the two lowest rooms have.
 *
 * Locks: malloc/large.c has one, of all its pools. In cuda/ each file has its own, of its
 * lists; pool.c's open_lock goes before its lock.
 */
#ifndef LIB_PRELOAD_H
#define LIB_PRELOAD_H

#include "preload/malloc/place.h"
#include "preload/malloc/told.h"
#include "preload/settings.h"

#endif /* LIB_PRELOAD_H */
