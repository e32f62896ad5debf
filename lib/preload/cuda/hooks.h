/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Redirects a program's lookups of CUDA's functions to the replacements in cuda.h.
 */
#ifndef LIB_PRELOAD_CUDA_HOOKS_H
#define LIB_PRELOAD_CUDA_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda.h"

struct link_map;

/*
 * Return the result of the program's dlsym() or dlvsym(), or NULL if the C library must answer.
 * @caller is an address in the calling code. @version is NULL for dlsym().
 */
void *cuda_lookup(void *handle, const char *name, const char *version, const void *caller);
void *cuda_lookup_versioned(void *handle, const char *name, const char *version,
			    const void *caller);

/*
 * Returns true if the environment selects the CUDA mode (ACTMEM_CUDA=1), the program is not setuid,
 * and its C library is glibc.
 */
bool cuda_is_wanted(void);

/*
 * Fills cuda_driver with the functions of @library, a libcuda.so.1. Returns false, and prints the
 * reason once, if another libcuda.so.1 is already in use, or if @library cannot be used.
 */
bool cuda_reach(struct link_map *library);

/* Returns true if cuda_driver is filled. */
bool cuda_is_reached(void);

/*
 * Returns true if the soname of @library begins with "libcuda.so.". On WSL, libcuda.so.1 loads
 * another library with such a soname.
 */
bool is_libcuda(const struct link_map *library);

/*
 * Replacements of both versions of cuGetProcAddress(). If the preload has a replacement of the
 * function @name, both store the replacement in *@function, otherwise the driver's function.
 */
cuda_result cuda_get_proc_address(const char *name, void **function, int version,
				  uint64_t flags);
cuda_result cuda_get_proc_address_v2(const char *name, void **function, int version,
				     uint64_t flags, unsigned int *status);

#endif /* LIB_PRELOAD_CUDA_HOOKS_H */
