/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Redirects lookups and calls of a program to the functions of cuda.h.
 */
#ifndef LIB_PRELOAD_CUDA_HOOKS_H
#define LIB_PRELOAD_CUDA_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda/cuda.h"

struct link_map;

/*
 * Answer dlsym() and dlvsym(), or return NULL if the C library's answer is right. @caller is an
 * address in the calling code. @version is NULL for dlsym().
 */
void *cuda_lookup(void *handle, const char *name, const char *version, const void *caller);
void *cuda_lookup_versioned(void *handle, const char *name, const char *version,
			    const void *caller);

/*
 * Returns true if the environment selects the CUDA mode (ACTMEM_CUDA=1), and the program is not
 * setuid.
 */
bool cuda_is_wanted(void);

/*
 * Fills cuda_driver from @library, a libcuda.so.1. Returns false, and prints the reason once, if
 * another libcuda.so.1 is already in use, or if this one cannot be used.
 */
bool cuda_reach(struct link_map *library);
bool cuda_is_reached(void);

/*
 * Returns true if the soname of @library is libcuda.so.1, or that of the library that libcuda.so.1
 * loads on WSL.
 */
bool is_libcuda(const struct link_map *library);

/*
 * Both versions of cuGetProcAddress(). They return the preload's function for each name that has
 * one.
 */
cuda_result cuda_get_proc_address(const char *name, void **function, int version,
				  uint64_t flags);
cuda_result cuda_get_proc_address_v2(const char *name, void **function, int version,
				     uint64_t flags, unsigned int *status);

#endif /* LIB_PRELOAD_CUDA_HOOKS_H */
