/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of accelerators' runtimes, with which regions are registered.
 *
 * Read inside.h first, which has the table of functions of each kind; then runtime.c,
 * which opens one, and registration.c, which registers regions. chunks.c does so piece by piece,
 * pace.c says how long a piece is, and own.c provides a runtime's own memory in place of regions.
 * The kinds are null.c and cuda.c. device_wait.c publishes that a thread waits for an accelerator.
 *
 * Locks: a runtime's, for its list of registrations and its counters, is taken with a
 * region's at most. The functions of a kind are called with no lock held.
 */
#ifndef LIB_RUNTIME_H
#define LIB_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "region/region.h"

#define ACTMEM_REGISTER_ALL	(ACTMEM_REGISTER_DEVICEMAP | ACTMEM_REGISTER_READ_ONLY)

/* 0 or -EOWNERDEAD, -EINVAL with words. */
int runtime_check(const struct actmem_runtime *runtime, const char *call);

/* Whether it was opened with this handle. */
bool runtime_is_of(const struct actmem_runtime *runtime, const struct actmem *am);

/* The node that the device is at; -1: not known. */
int runtime_node(const struct actmem_runtime *runtime);

uint64_t runtime_chunk_bytes(const struct actmem_runtime *runtime);

/* How long pieces are to be, by the time that others took: a multiple of 2 MiB. */
uint64_t runtime_piece_bytes(struct actmem_runtime *runtime);

/* As actmem_region_register(), in chunks of so many bytes. */
int region_register_in(struct actmem_region *region, struct actmem_runtime *runtime,
		       uint32_t flags, uint64_t chunk_bytes);

/*
 * Makes a region of the runtime's own memory, registered, as one that was not is @why; it
 * ends as others do. 0 or -errno with words: -EOPNOTSUPP: it was not allowed.
 */
int runtime_own_region(struct actmem_runtime *runtime, uint64_t length, uint32_t flags,
		       const char *why, struct actmem_region **region);

/* A heap whose regions are registered with it keeps it open until it is dropped. */
void runtime_add_heap(struct actmem_runtime *runtime);
void runtime_drop_heap(struct actmem_runtime *runtime);

/* The runtime closes a region that its heap could not unregister. */
void registration_abandon(struct actmem_region *region);

#endif /* LIB_RUNTIME_H */
