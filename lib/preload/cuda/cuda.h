/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Between the lookups of a program, which find our functions in place of some of
 * CUDA's, and what these functions do.
 */
#ifndef LIB_PRELOAD_CUDA_CUDA_H
#define LIB_PRELOAD_CUDA_CUDA_H

#include <stddef.h>

#include "machine/machine.h"

/* name, ours, parameters and arguments: of CUDA's calls for the host's memory. */
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
 * The driver's own functions, as the program's lookup found them: of libcuda.so.1, or
 * of another preload that stands in front of it. All are there, and that library
 * stays, before the first of ours is given out.
 */
extern struct cuda_host_calls cuda_driver;

/*
 * Programs call these in their place, from any thread, also in a forked child
 * (memory.c).
 */
CUDA_HOST_CALLS(CUDA_HOST_OURS)

#undef CUDA_HOST_FIELD
#undef CUDA_HOST_OURS

/* Lookups of this thread find the driver's own functions while it is not 0. */
extern __thread unsigned int cuda_inside;

#endif /* LIB_PRELOAD_CUDA_CUDA_H */
