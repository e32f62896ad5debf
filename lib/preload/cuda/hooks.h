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
 * Returns true if the environment asks for the mode (ACTMEM_CUDA=1), and the program is not setuid.
 */
bool cuda_is_wanted(void);

/*
 * Fills cuda_driver from that libcuda.so.1. Returns false if another one is in use already, or if
 * this one lacks functions; one line on stderr says so.
 */
bool cuda_reach(struct link_map *library);
bool cuda_is_reached(void);

/*
 * Returns true if the library is libcuda.so.1, by its own name, or the one that it loads on WSL.
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
