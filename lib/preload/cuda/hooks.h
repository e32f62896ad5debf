/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Brings lookups and calls of a program to the functions of cuda.h.
 */
#ifndef LIB_PRELOAD_CUDA_HOOKS_H
#define LIB_PRELOAD_CUDA_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "machine/machine.h"

#define CUDA_LIBRARY		"libcuda.so.1"
#define CUDA_SYMBOL_NOT_FOUND	500	/* CUDA_ERROR_NOT_FOUND */

struct link_map;

/*
 * Answer dlsym() and dlvsym(); NULL: the C library's answer is right. @caller: an address
 * in the code that asks. @version is NULL for dlsym().
 */
void *cuda_lookup(void *handle, const char *name, const char *version, const void *caller);
void *cuda_lookup_versioned(void *handle, const char *name, const char *version,
			    const void *caller);

/* Whether the environment asks for it: ACTMEM_CUDA=1, and the program is no setuid one. */
bool cuda_is_wanted(void);

/*
 * Takes cuda_driver from that libcuda.so.1. False: there is another one already, or it
 * lacks some, and one line has told so.
 */
bool cuda_reach(struct link_map *library);
bool cuda_is_reached(void);

/* Whether it is libcuda.so.1, by the name that it gives itself, or the inside of it. */
bool is_libcuda(const struct link_map *library);

/* cuGetProcAddress() of both kinds, whose answers are ours for the names that have one. */
cuda_result cuda_get_proc_address(const char *name, void **function, int version,
				  uint64_t flags);
cuda_result cuda_get_proc_address_v2(const char *name, void **function, int version,
				     uint64_t flags, unsigned int *status);

#endif /* LIB_PRELOAD_CUDA_HOOKS_H */
