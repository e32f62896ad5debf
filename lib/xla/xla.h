/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handlers that XLA calls, and the functions that the Python module calls.
 *
 * Read actmem_xla.h first, which Python uses. Then read knobs.h, attached.h and memory.h: the
 * options for memory, the library handle that allocates memory, and the stores. These files keep
 * the values that a step saves: block.h, saved.h, table.h, generation.h, site.h, claim.c and
 * announce.c. The handlers for the host are in handlers.c, with call.h, update_call.h, ffi.h,
 * copy.h and waiting.h. The handlers for GPUs are in stream_handlers.c; stream.h describes the
 * other stream files. arrays.h and tensor.c keep JAX's arrays in regions.
 *
 * Calls between files go in one direction. The handlers call call.c, update_call.c, update_job.c,
 * copy.c, waiting.c, stream.c and claim.c. stream.c calls stream_threads.c, which calls
 * stream_copy.c. All of these call claim.c and announce.c, which call saved.c. saved.c calls
 * site.c, table.c and memory.c. memory.c calls stores.c, which calls shares.c, places.c and grow.c.
 * stores.c, places.c and arrays.c call attached.c. attached.c also has the functions of
 * device_wait.h, which claim.c and the stream files call. All files may call counts.c,
 * own_memory.c, knobs.c and forked.c.
 *
 * This folder uses only the library's public headers and the headers of base, config, cuda and
 * update.
 *
 * Locks, outermost first: update_job.c's updating, or stream.c's one_trim; stream.c's lock of each
 * device, which a thread holds while it makes a lane (stream.h); memory.c's in_use and then
 * dividing, or arrays.c's in_use; attached.c's lock. A thread that holds the lock of the list of
 * lanes never waits for the lock of a lane: it only tries that lock. A thread holds saved_lock
 * (generation.h) for a few instructions. A thread that holds the lock of a lane may call CUDA. A
 * thread that holds the lock of grow.c or waiting.c calls no other file of this folder.
 */
#ifndef LIB_XLA_H
#define LIB_XLA_H

#include "xla/actmem_xla.h"
#include "xla/knobs.h"

#endif /* LIB_XLA_H */
