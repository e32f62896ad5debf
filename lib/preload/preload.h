/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem_preload.so, which intercepts calls of a program if LD_PRELOAD names this library.
 * Malloc mode allocates large aligned blocks in huge pages. CUDA mode provides regions for the host
 * memory that programs allocate or register with CUDA. The command `actmem` also reads the settings
 * of both modes.
 *
 * Read start.c first, and then the files that both modes use. settings.h reads the modes' settings
 * from the environment, say.h prints on stderr, and lookups of symbols go through dlsym.S and
 * symbols.h. In malloc/, malloc.c gets large blocks from large.h, which uses range.h, place.h,
 * own.h and extents.c. malloc.c gets all other blocks from next.h. counters.h publishes counters.
 * In cuda/, hooks.c intercepts lookups of CUDA's functions. memory.c serves the program's calls
 * with pool.h (blocks in regions) and under.h (regions that replace the pages of registered
 * memory).
 *
 * A file calls only files below it in this list, or to its right in the same line.
 *
 *	dlsym.S, start.c
 *	cuda/: linked.c, hooks.c, memory.c
 *	cuda/: pool.c, under.c
 *	cuda/: open.c, region.c, blocks.c, untouched.c
 *	cuda/: library.c, kept.c
 *	malloc/
 *	settings.c, symbols.c, say.c
 *
 * This folder uses only the library's public headers and the headers of base, config, machine,
 * watch and cuda.
 *
 * Locks: malloc/large.c has one lock for all its pools. In cuda/, each file has a lock for its own
 * lists. In pool.c, a thread takes open_lock before lock.
 */
#ifndef LIB_PRELOAD_H
#define LIB_PRELOAD_H

#include "preload/malloc/place.h"
#include "preload/settings.h"

#endif /* LIB_PRELOAD_H */
