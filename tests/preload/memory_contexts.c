/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Contexts: those that a program makes itself, a device that is reset, several devices,
 * none at all; a child that was forked; the end of a process.
 */
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "memory_test.h"

static bool own_context(void)
{
	CUcontext own;
	void *before, *within;

	CHECK(!api.cuMemHostAlloc(&before, 4 * MIB, 0) && is_in_region(before));
	CHECK(!api.cuCtxCreate_v4(&own, NULL, 0, 0));
	CHECK(!api.cuMemHostAlloc(&within, 4 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(!is_in_region(within));
	/* Blocks of the one go back while the other is current. */
	CHECK(!api.cuMemFreeHost(before));
	CHECK(!api.cuCtxDestroy_v2(own));
	CHECK(!api.standin_counts || !counts_now().allocated);
	CHECK(!api.cuMemHostAlloc(&before, 4 * MIB, 0) && is_in_region(before));
	CHECK(!api.cuCtxSetCurrent(NULL));
	CHECK(api.cuMemHostAlloc(&within, 4 * MIB, 0) == CUDA_ERROR_INVALID_CONTEXT);
	CHECK(!api.cuMemFreeHost(before));
	return true;
}

static bool reset(void)
{
	unsigned int flags;
	CUdeviceptr pointer;
	uint64_t listed;
	void *old[3], *memory;
	unsigned int i;

	for (i = 0; i < 3; i++)
		CHECK(!api.cuMemHostAlloc(&old[i], 16 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(!api.cuDevicePrimaryCtxReset_v2(0));
	CHECK(!api.cuDevicePrimaryCtxRetain(&primary, 0) && !api.cuCtxSetCurrent(primary));
	CHECK(api.cuMemHostGetFlags(&flags, old[0]) == CUDA_ERROR_INVALID_VALUE);
	CHECK(api.cuMemHostUnregister(old[0]) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	CHECK(!api.cuMemHostAlloc(&memory, 16 * MIB, 0) && is_in_region(memory));
	/* It is really registered, and the old ones are as gone as the driver's would be. */
	CHECK(!api.cuMemHostGetDevicePointer_v2(&pointer, memory, 0));
	CHECK(own_regions(&listed) == 1 && listed == 16 * MIB);
	for (i = 0; i < 3; i++) {
		if (old[i] == memory)
			continue;
		CHECK(api.cuMemHostGetFlags(&flags, old[i]) == CUDA_ERROR_INVALID_VALUE);
		CHECK(api.cuMemFreeHost(old[i]) == CUDA_ERROR_INVALID_VALUE);
	}
	fill(memory, 16 * MIB, 1);
	CHECK(is_filled(memory, 16 * MIB, 1) && !api.cuMemFreeHost(memory));
	CHECK(!own_regions(&listed) && !counts_now().registered);
	return true;
}

/* Each has a pool, whose blocks go back whatever device is current. */
static bool two_devices(void)
{
	CUcontext other;
	CUdevice device;
	void *memory[2];
	uint64_t listed;

	/* Of real ones there may be one alone. */
	if (api.cuDeviceGet(&device, 1))
		return !api.standin_counts;
	CHECK(!api.cuMemHostAlloc(&memory[0], 16 * MIB, 0) && is_in_region(memory[0]));
	CHECK(!api.cuDevicePrimaryCtxRetain(&other, device) && !api.cuCtxSetCurrent(other));
	CHECK(!api.cuMemHostAlloc(&memory[1], 16 * MIB, 0) && is_in_region(memory[1]));
	CHECK(own_regions(&listed) == 2);
	fill(memory[0], 16 * MIB, 1);
	fill(memory[1], 16 * MIB, 2);
	CHECK(is_filled(memory[0], 16 * MIB, 1) && is_filled(memory[1], 16 * MIB, 2));
	CHECK(!api.cuMemFreeHost(memory[0]) && !api.cuMemFreeHost(memory[1]));
	CHECK(!own_regions(&listed));
	CHECK(!api.standin_counts || !counts_now().registered);
	return true;
}

static bool in_forked_child(void *context)
{
	void *memory = context, *other;

	return api.cuMemHostAlloc(&other, 4 * MIB, 0) == CUDA_ERROR_NOT_INITIALIZED &&
	       api.cuMemFreeHost(memory) == CUDA_ERROR_NOT_INITIALIZED &&
	       api.cuMemHostUnregister(memory) == CUDA_ERROR_NOT_INITIALIZED;
}

static bool after_fork(void)
{
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	fill(memory, 4 * MIB, 1);
	CHECK(!api.standin_counts || in_child(in_forked_child, memory));
	CHECK(is_filled(memory, 4 * MIB, 1) && !api.cuMemFreeHost(memory));
	return block_is_in_region(4 * MIB);
}

/* CUDA has ended by then; nothing may crash. */
static void *at_exit;

static void free_at_exit(void)
{
	api.cuMemFreeHost(at_exit);
}

static bool freed_by_a_destructor(void)
{
	CHECK(!api.cuMemHostAlloc(&at_exit, 4 * MIB, 0) && is_in_region(at_exit));
	CHECK(!atexit(free_at_exit));
	return true;
}

static bool never_freed(void)
{
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	return true;
}

int main(void)
{
	skip_without_cuda();
	run_told("cuCtxCreate", "memory of a context that the program made is the driver's",
		 own_context, NULL);
	run_quiet("what a reset took is not handed out again", reset, "ACTMEM_CUDA_KEEP=0", NULL);
	run_case("each device has its own pool", two_devices, "STANDIN_CUDA_DEVICES=2",
		 "ACTMEM_CUDA_KEEP=0", NULL);
	run_quiet("a forked child hears of it from the driver", after_fork, NULL);
	run_quiet("blocks can be freed at the very end", freed_by_a_destructor,
		  "ACTMEM_CUDA_KEEP=0", NULL);
	run_case("or never", never_freed, NULL);
	return tap_end();
}
