/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The functions of libactmem that the preload calls. The preload loads libactmem when it first
 * needs one of these functions. So a program that requests only small blocks from CUDA never loads
 * libactmem. When the preload loads libactmem, it also finds the functions of CUDA that
 * lib/cuda/cuda.h declares. The preload calls these in addition to the functions in cuda_driver.
 *
 * A function with the parameter @failure sets *@failure if the function fails. A function that
 * returns bool then returns false.
 */
#ifndef LIB_PRELOAD_CUDA_LIBRARY_H
#define LIB_PRELOAD_CUDA_LIBRARY_H

#include <stdbool.h>

#include "actmem_runtime.h"
#include "cuda/cuda.h"
#include "preload/say.h"

/* The reason why the preload cannot serve a request. */
struct cuda_failure {
	enum tale tale;
	char words[1024];		/* the error message */
};

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

#define LIBRARY_FIELD(name)	__typeof__(&(name)) name;

struct cuda_library {
	LIBRARY_CALLS(LIBRARY_FIELD)
};

#undef LIBRARY_FIELD

/* All fields are set after cuda_library_load() has returned true. */
extern struct cuda_library cuda_library;

/* Loads libactmem and sets cuda_library, unless an earlier call did. Thread-safe. */
bool cuda_library_load(struct cuda_failure *failure);

/* Sets the failure, and returns false. */
bool cuda_failure_set(struct cuda_failure *failure, enum tale tale, const char *format, ...)
	__attribute__((cold, format(printf, 3, 4)));

/* Sets the failure to the error message of libactmem's last call, and returns false. */
bool cuda_failure_set_last(struct cuda_failure *failure, enum tale tale);

/*
 * The preload calls cuda_library_enter() before it calls libactmem, and cuda_library_leave()
 * afterwards. Meanwhile, if this thread looks up a CUDA function, it gets the driver's function,
 * and its CUDA calls go to the driver.
 */
void cuda_library_enter(void);
void cuda_library_leave(void);

#endif /* LIB_PRELOAD_CUDA_LIBRARY_H */
