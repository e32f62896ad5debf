/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of the handlers that XLA calls, and of the calls that Python makes beside them.
 *
 * Read actmem_xla.h first, what Python sees; then knobs.h, attached.h and memory.h, how
 * memory is to be, the handle that makes it, and the store; block.h, saved.h, table.h,
 * generation.h, site.h, claim.c and announce.c, which keep what a step saves; handlers.c with
 * call.h, ffi.h and copy.h, the handlers for the host; stream.h with the files of its
 * name, those for devices with streams; arrays.h and tensor.c, JAX's arrays in regions.
 *
 * It knows of the library what its public headers and the two lowest rooms have.
 *
 * Locks, outermost first: memory.c's pinning and its in_use (of the store), arrays.c's
 * in_use, attached.c's lock; stream.c's one of each device, under which lanes are made, and that
 * of the list of lanes, under which one of a lane is only tried. That of generation.h is
 * held for a few instructions. That of a lane is held for calls of CUDA, and those of the
 * other files for no call of another file.
 */
#ifndef LIB_XLA_H
#define LIB_XLA_H

#include "xla/actmem_xla.h"
#include "xla/knobs.h"

#endif /* LIB_XLA_H */
