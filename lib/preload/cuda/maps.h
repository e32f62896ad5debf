/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Gives mappings that a program makes pages of regions before it touches them, as many
 * programs touch memory before they have CUDA register it. ACTMEM_PRELOAD_MAPS says
 * which. Thread-safe; a forked child of a process that has any gets the kernel's own.
 */
#ifndef LIB_PRELOAD_CUDA_MAPS_H
#define LIB_PRELOAD_CUDA_MAPS_H

#include <stdbool.h>
#include <stddef.h>

#include "preload/cuda/settings.h"

/* While there is one thread, if ACTMEM_PRELOAD_MAPS is set. @with_malloc: it is ours. */
void cuda_maps_begin(bool with_malloc);

/* The arguments of mmap(2). */
struct maps_request {
	void *address;
	size_t bytes;
	int protection, flags;
	const void *caller;		/* an address in the code that asks */
};

/* NULL: it is for the kernel. MAP_FAILED, with errno: it fails. */
void *cuda_maps_take(const struct maps_request *request);

/* mremap(2) of a range of which any may have pages of a region (mapped.h). */
void *cuda_maps_move(void *address, size_t bytes, size_t wanted, int flags);

#endif /* LIB_PRELOAD_CUDA_MAPS_H */
