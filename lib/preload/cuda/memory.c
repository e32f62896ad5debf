/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The replacements for CUDA's functions for host memory. A program that allocates host memory with
 * CUDA gets blocks from a heap of regions (pool.h). A range that the program registers with CUDA
 * gets pages of a region (under.h). CUDA's driver serves small requests, requests with flags that
 * regions do not support, and all requests of a forked child. If the preload fails to serve a
 * request, it prints a line, and the driver serves the request. With ACTMEM_STRICT=1, the program's
 * call fails.
 */
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "preload/cuda/cuda.h"
#include "preload/cuda/kept.h"
#include "preload/cuda/pool.h"
#include "preload/settings.h"
#include "preload/say.h"
#include "preload/cuda/under.h"

/* Flags that regions support; cuMemHostAlloc() and cuMemHostRegister() use the same bits. */
#define FLAGS_SERVED	(CUDA_REGISTER_PORTABLE | CUDA_REGISTER_DEVICEMAP)

static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static struct cuda_settings settings;
static bool settings_are_good;
static pid_t owner;

static void read_settings(void)
{
	struct reader reader = { cuda_variables(), .names = ACTMEM_NAMES_VARIABLES };

	owner = getpid();
	cuda_settings_read(&settings, &reader);
	settings_are_good = !*reader.error;
	if (settings_are_good)
		return;
	say_once(TALE_SETTINGS, settings.is_strict ?
		 "%s. Requests to CUDA for host memory fail, because ACTMEM_STRICT=1 is set (actmem run --strict)." :
		 "%s. Host memory for CUDA is the CUDA driver's own.", reader.error);
}

/* Returns false in calls by the preload itself, and in a forked child, where CUDA does not work. */
static bool may_serve(void)
{
	if (cuda_inside)
		return false;
	pthread_once(&settings_once, read_settings);
	return getpid() == owner;
}

static bool is_at_work(void)
{
	return may_serve() && settings_are_good;
}

/*
 * Returns true if the preload handles the request. If a variable of the environment is wrong, the
 * preload handles requests only in strict mode, and fails them.
 */
static bool is_served(size_t bytes, unsigned int flags)
{
	return !(flags & ~FLAGS_SERVED) && may_serve() && bytes >= settings.min_bytes &&
	       (settings_are_good || settings.is_strict);
}

/* Prints what failed. Returns true if the driver should serve the request. */
static bool say_failure(const char *call, size_t bytes, const struct cuda_failure *failure)
{
	say_once(failure->tale, settings.is_strict ?
		 "%s of %s fails, because ACTMEM_STRICT=1 is set (actmem run --strict): %s" :
		 "%s of %s uses the CUDA driver's own memory instead of a region: %s",
		 call, SAY_BYTES(bytes), failure->words);
	return !settings.is_strict;
}

/* Allocates a block. Returns false if the driver must serve the request. */
static bool alloc_host(const char *call, void **memory, size_t bytes, unsigned int flags,
		       cuda_result *result)
{
	struct cuda_failure failure;

	if (!memory || !is_served(bytes, flags))
		return false;
	if (!settings_are_good) {
		*result = CUDA_OUT_OF_MEMORY;
		return true;
	}
	*result = CUDA_OK;
	switch (cuda_pool_alloc(&settings, bytes, flags, memory, &failure)) {
	case OUTCOME_OURS:
		return true;
	case OUTCOME_DRIVERS:
		return false;
	default:
		*result = CUDA_OUT_OF_MEMORY;
		return !say_failure(call, bytes, &failure);
	}
}

cuda_result cuda_mem_host_alloc(void **memory, size_t bytes, unsigned int flags)
{
	cuda_result result;

	return alloc_host("cuMemHostAlloc", memory, bytes, flags, &result) ? result :
	       cuda_driver.cuMemHostAlloc(memory, bytes, flags);
}

cuda_result cuda_mem_alloc_host(void **memory, size_t bytes)
{
	cuda_result result;

	return alloc_host("cuMemAllocHost", memory, bytes, 0, &result) ? result :
	       cuda_driver.cuMemAllocHost_v2(memory, bytes);
}

cuda_result cuda_mem_free_host(void *memory)
{
	cuda_result result;

	if (is_at_work() && cuda_pool_free(&settings, memory, &result) == OUTCOME_OURS)
		return result;
	return cuda_driver.cuMemFreeHost(memory);
}

cuda_result cuda_mem_host_register(void *memory, size_t bytes, unsigned int flags)
{
	struct cuda_failure failure;
	cuda_result result = CUDA_OUT_OF_MEMORY;

	if (!is_served(bytes, flags))
		return cuda_driver.cuMemHostRegister_v2(memory, bytes, flags);
	if (!settings_are_good)
		return CUDA_OUT_OF_MEMORY;
	switch (cuda_under_register(&settings, memory, bytes, flags, &result, &failure)) {
	case OUTCOME_OURS:
		return result;
	case OUTCOME_DRIVERS:
		return cuda_driver.cuMemHostRegister_v2(memory, bytes, flags);
	default:
		return say_failure("cuMemHostRegister", bytes, &failure) ?
		       cuda_driver.cuMemHostRegister_v2(memory, bytes, flags) : CUDA_OUT_OF_MEMORY;
	}
}

cuda_result cuda_mem_host_unregister(void *memory)
{
	cuda_result result;
	unsigned int flags;

	if (is_at_work()) {
		/*
		 * Check the blocks first. If @memory is the first block in its region, the driver's
		 * cuMemHostUnregister() would unregister the whole region. cuda_under_unregister()
		 * would do the same if its list still has an earlier range at this address. The
		 * list keeps ranges that the program unmapped after their context ended.
		 */
		if (cuda_pool_flags(memory, &flags))
			return CUDA_NOT_REGISTERED;
		if (cuda_under_unregister(memory, &result) == OUTCOME_OURS)
			return result;
	}
	return cuda_driver.cuMemHostUnregister(memory);
}

/* Only forwards the call, because the driver knows the region that contains the address. */
cuda_result cuda_mem_host_get_device_pointer(cuda_pointer *pointer, void *memory,
					     unsigned int flags)
{
	return cuda_driver.cuMemHostGetDevicePointer_v2(pointer, memory, flags);
}

/*
 * Returns the flags of a block. CUDA knows only the flags of the region that contains the block,
 * and these differ from the block's. If a reset of the device ended the registration, returns the
 * driver's error.
 */
cuda_result cuda_mem_host_get_flags(unsigned int *flags, void *memory)
{
	cuda_pointer pointer;
	unsigned int found;

	if (!flags || !is_at_work() || !cuda_pool_flags(memory, &found) ||
	    cuda_driver.cuMemHostGetDevicePointer_v2(&pointer, memory, 0) == CUDA_INVALID_VALUE)
		return cuda_driver.cuMemHostGetFlags(flags, memory);
	*flags = found;
	return CUDA_OK;
}
