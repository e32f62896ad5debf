/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Functions of libactmem, and those of CUDA that a program's lookups did not provide. They are
 * found when they are first needed: a program without large memory does not load libactmem.
 */
#ifndef LIB_PRELOAD_CUDA_LIBRARY_H
#define LIB_PRELOAD_CUDA_LIBRARY_H

#include <stdbool.h>

#include "actmem_runtime.h"
#include "machine/machine.h"

#define CUDA_WORDS_MAX	1024

#define LIBRARY_CALLS(f)								\
	f(actmem_close) f(actmem_describe) f(actmem_device_wait_begin)			\
	f(actmem_device_wait_end) f(actmem_error_in) f(actmem_heap_alloc)			\
	f(actmem_heap_create) f(actmem_heap_destroy) f(actmem_heap_free)		\
	f(actmem_heap_get_stats) f(actmem_heap_register) f(actmem_heap_trim_to)		\
	f(actmem_open) f(actmem_options_from_variables) f(actmem_region_close)		\
	f(actmem_region_create) f(actmem_region_fd) f(actmem_region_found)		\
	f(actmem_region_get_info) f(actmem_region_map) f(actmem_region_open)		\
	f(actmem_runtime_close) f(actmem_runtime_describe) f(actmem_runtime_nodes)	\
	f(actmem_runtime_open)

#define CONTEXT_CALLS(f)						\
	f(cuGetErrorName, (cuda_result error, const char **name))	\
	f(cuDeviceGetCount, (int *count))				\
	f(cuDeviceGet, (int *device, int ordinal))			\
	f(cuDevicePrimaryCtxRetain, (cuda_context *context, int device))	\
	f(cuDevicePrimaryCtxRelease_v2, (int device))			\
	f(cuDevicePrimaryCtxGetState, (int device, unsigned int *flags, int *active))	\
	f(cuCtxGetCurrent, (cuda_context *context))			\
	f(cuCtxGetDevice, (int *device))				\
	f(cuCtxGetId, (cuda_context context, unsigned long long *id))	\
	f(cuCtxPushCurrent_v2, (cuda_context context))			\
	f(cuCtxPopCurrent_v2, (cuda_context *context))			\
	f(cuCtxSynchronize, (void))

#define LIBRARY_FIELD(name)		__typeof__(&(name)) name;
#define CONTEXT_FIELD(name, parameters)	cuda_result (*name) parameters;

struct cuda_library {
	LIBRARY_CALLS(LIBRARY_FIELD)
	CONTEXT_CALLS(CONTEXT_FIELD)
};

#undef LIBRARY_FIELD
#undef CONTEXT_FIELD

/* All functions are set after cuda_library_load() has returned true. */
extern struct cuda_library cuda_library;

/*
 * Finds the functions, unless an earlier call did. Any thread may call it. Returns false on
 * failure, with an error message in @words.
 */
bool cuda_library_load(char words[CUDA_WORDS_MAX]);

/*
 * Called before and after libactmem's functions. Between the two, lookups of the thread are not
 * redirected.
 */
void cuda_library_enter(void);
void cuda_library_leave(void);

#endif /* LIB_PRELOAD_CUDA_LIBRARY_H */
