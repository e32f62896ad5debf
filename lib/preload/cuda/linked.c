/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Serves programs that are linked with libcuda.so.1, and so call its functions without a lookup.
 * libactmem_preload.map exports this file's functions so that programs linked with libcuda.so.1
 * find them, but dlsym() does not.
 */
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>

#include "preload/cuda/cuda.h"
#include "preload/cuda/hooks.h"
#include "preload/symbols.h"

#define EXPORT	__attribute__((visibility("default"), used))

/* Fills cuda_driver, unless an earlier call did. Returns false if cuda_driver cannot be filled. */
static bool reach_driver(void)
{
	struct link_map *library;

	if (cuda_is_reached())
		return true;
	library = library_loaded(CUDA_LIBRARY);
	return library && cuda_reach(library);
}

/*
 * Returns true if the preload must serve the call. Calls that libcuda.so.1 itself makes must go to
 * the driver's functions.
 */
static bool is_for_us(const void *caller)
{
	return !cuda_inside && cuda_is_wanted() && !is_libcuda(library_of(caller));
}

/*
 * Exports a function. If cuda_driver cannot be filled, the exported function calls the function
 * that the program would call without the preload.
 */
#define LINKED(name, ours, parameters, arguments)			\
EXPORT cuda_result linked_##name parameters;				\
EXPORT cuda_result linked_##name parameters				\
{									\
	cuda_result (*next) parameters;					\
									\
	if (reach_driver())							\
		return is_for_us(__builtin_return_address(0)) ?		\
		       ours arguments : cuda_driver.name arguments;	\
	*(void **)&next = next_dlsym(RTLD_NEXT, #name);			\
	return next ? next arguments : CUDA_SYMBOL_NOT_FOUND;		\
}									\
asm(".symver linked_" #name ", " #name "@ACTMEM_CUDA, remove");

CUDA_HOST_CALLS(LINKED)

/* The function @ours calls the driver's function, and changes the result only in CUDA mode. */
#define LINKED_LOOKUP(name, ours, parameters, arguments)		\
EXPORT cuda_result linked_##name parameters;				\
EXPORT cuda_result linked_##name parameters				\
{									\
	cuda_result (*next) parameters = ours;				\
									\
	if (!reach_driver())							\
		*(void **)&next = next_dlsym(RTLD_NEXT, #name);		\
	return next ? next arguments : CUDA_SYMBOL_NOT_FOUND;		\
}									\
asm(".symver linked_" #name ", " #name "@ACTMEM_CUDA, remove");

LINKED_LOOKUP(cuGetProcAddress, cuda_get_proc_address,
	      (const char *symbol, void **function, int version, uint64_t flags),
	      (symbol, function, version, flags))
LINKED_LOOKUP(cuGetProcAddress_v2, cuda_get_proc_address_v2,
	      (const char *symbol, void **function, int version, uint64_t flags,
	       unsigned int *status),
	      (symbol, function, version, flags, status))
