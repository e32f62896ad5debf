/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The runtimes of accelerators, with which regions are registered.
 *
 * Read inside.h first, which has the table of functions of each kind. Then read runtime.c, which
 * opens runtimes. registration.c registers regions, chunks.c registers each region in chunks, and
 * pace.c determines the length of a chunk. own.c makes regions of memory that the runtime itself
 * allocates (its own memory). The kinds are null.c and cuda.c. device_wait.c publishes that a
 * thread waits for an accelerator.
 *
 * Locks: a runtime's lock protects its list of registrations and its counters. A thread that takes
 * this lock may hold a region's lock, but no other. inside.h says which functions of a kind are
 * called with a lock held.
 */
#ifndef LIB_RUNTIME_H
#define LIB_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "region/region.h"

#define ACTMEM_REGISTER_ALL	(ACTMEM_REGISTER_DEVICEMAP | ACTMEM_REGISTER_READ_ONLY)

/*
 * Checks the runtime that the caller of @call passed. Returns 0, or -EOWNERDEAD or -EINVAL with an
 * error message.
 */
int runtime_check(const struct actmem_runtime *runtime, const char *call);

/* Returns true if the runtime was opened with @am. */
bool runtime_is_of(const struct actmem_runtime *runtime, const struct actmem *am);

/* Returns the device's node, or -1 if it is not known. */
int runtime_node(const struct actmem_runtime *runtime);

uint64_t runtime_chunk_bytes(const struct actmem_runtime *runtime);

/*
 * Returns the chunk length for a heap's next region. This length depends on the time that earlier
 * chunks took to register, and is a multiple of 2 MiB.
 */
uint64_t runtime_piece_bytes(struct actmem_runtime *runtime);

/*
 * Returns the maximum length of a chunk. The maximum falls if the runtime refuses a longer chunk.
 */
uint64_t runtime_accepted_bytes(struct actmem_runtime *runtime);

/* Returns -EOPNOTSUPP with an error message if the runtime registers no memory at all; else 0. */
int runtime_check_registers(struct actmem_runtime *runtime);

/*
 * Like actmem_region_register(), but registers the region in chunks of *@chunk_bytes. If the
 * runtime refuses that length, tries shorter chunks of at least @chunk_least, and sets
 * *@chunk_bytes.
 */
int region_register_in(struct actmem_region *region, struct actmem_runtime *runtime,
		       uint32_t flags, uint64_t *chunk_bytes, uint64_t chunk_least);

/*
 * Makes a registered region of the runtime's own memory. @why is the error message of the region
 * that could not be registered. The caller closes the new region like other regions. Returns 0, or
 * a negative errno with an error message. -EOPNOTSUPP: the runtime's own memory is not allowed.
 */
int runtime_own_region(struct actmem_runtime *runtime, uint64_t length, uint32_t flags,
		       const char *why, struct actmem_region **region);

/* For a heap that registers its regions: the runtime cannot be closed between these two calls. */
void runtime_add_heap(struct actmem_runtime *runtime);
void runtime_drop_heap(struct actmem_runtime *runtime);

/*
 * Gives the runtime a region that a heap could not unregister. actmem_runtime_close() tries again
 * to unregister the region.
 */
void registration_abandon(struct actmem_region *region);

#endif /* LIB_RUNTIME_H */
