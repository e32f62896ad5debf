/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The interface between hooks.c and memory.c. memory.c has replacements for some functions of CUDA.
 * When a program looks up one of these functions, hooks.c returns the replacement.
 */
#ifndef LIB_PRELOAD_CUDA_CUDA_H
#define LIB_PRELOAD_CUDA_CUDA_H

#include <stddef.h>

#include "cuda/cuda.h"

/* CUDA's functions for host memory: name, replacement in memory.c, parameters, arguments. */
#define CUDA_HOST_CALLS(f)						\
	f(cuMemHostAlloc, cuda_mem_host_alloc,				\
	  (void **memory, size_t bytes, unsigned int flags), (memory, bytes, flags))	\
	f(cuMemAllocHost_v2, cuda_mem_alloc_host,			\
	  (void **memory, size_t bytes), (memory, bytes))		\
	f(cuMemFreeHost, cuda_mem_free_host, (void *memory), (memory))	\
	f(cuMemHostRegister_v2, cuda_mem_host_register,			\
	  (void *memory, size_t bytes, unsigned int flags), (memory, bytes, flags))	\
	f(cuMemHostUnregister, cuda_mem_host_unregister, (void *memory), (memory))	\
	f(cuMemHostGetDevicePointer_v2, cuda_mem_host_get_device_pointer,	\
	  (cuda_pointer *pointer, void *memory, unsigned int flags), (pointer, memory, flags))	\
	f(cuMemHostGetFlags, cuda_mem_host_get_flags,			\
	  (unsigned int *flags, void *memory), (flags, memory))

#define CUDA_HOST_FIELD(name, ours, parameters, arguments)	cuda_result (*name) parameters;
#define CUDA_HOST_OURS(name, ours, parameters, arguments)	cuda_result ours parameters;

struct cuda_host_calls {
	CUDA_HOST_CALLS(CUDA_HOST_FIELD)
};

/*
 * The original functions, which replacements call. They belong to libcuda.so.1, or to another
 * preload that replaces functions of libcuda.so.1. All fields are set before a lookup returns any
 * function of this preload. From then on, libcuda.so.1 cannot be unloaded.
 */
extern struct cuda_host_calls cuda_driver;

/* The replacements, in memory.c. Programs call them in any thread and in forked children. */
CUDA_HOST_CALLS(CUDA_HOST_OURS)

#undef CUDA_HOST_FIELD
#undef CUDA_HOST_OURS

/* While this is not 0, the thread's lookups return the original functions. */
extern __thread unsigned int cuda_inside;

#endif /* LIB_PRELOAD_CUDA_CUDA_H */
