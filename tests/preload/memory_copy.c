/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies between the device and memory that comes from regions, by streams that go on
 * by themselves.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "memory_test.h"

#define BYTES	(8 * MIB)

static CUstream stream;
static CUdeviceptr on_device;

static bool begin(void)
{
	CHECK(!api.cuStreamCreate(&stream, 0) && !api.cuMemAlloc_v2(&on_device, BYTES));
	return true;
}

static bool end(void)
{
	CHECK(!api.cuStreamDestroy_v2(stream) && !api.cuMemFree_v2(on_device));
	return true;
}

/* There and back, as copies of pinned memory. */
static bool copies(char *from, char *to)
{
	fill(from, BYTES, 1);
	fill(to, BYTES, 2);
	CHECK(!api.cuMemcpyHtoDAsync_v2(on_device, from, BYTES, stream));
	CHECK(!api.cuMemcpyDtoHAsync_v2(to, on_device, BYTES, stream));
	CHECK(!api.cuStreamSynchronize(stream));
	CHECK(is_filled(to, BYTES, 1) && !counts_now().unpinned_copies);
	return true;
}

static bool of_blocks(void)
{
	void *from, *to;

	CHECK(begin());
	CHECK(!api.cuMemHostAlloc(&from, BYTES, 0) && is_in_region(from));
	CHECK(!api.cuMemAllocHost_v2(&to, BYTES) && is_in_region(to));
	CHECK(copies(from, to));
	CHECK(!api.cuMemFreeHost(from) && !api.cuMemFreeHost(to));
	return end();
}

static bool of_a_range(void)
{
	char *memory = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	CHECK(begin());
	CHECK(!api.cuMemHostRegister_v2(memory, 2 * BYTES, 0) && is_in_region(memory + BYTES));
	CHECK(copies(memory, memory + BYTES));
	CHECK(!api.cuMemHostUnregister(memory) && is_filled(memory + BYTES, BYTES, 1));
	CHECK(!munmap(memory, 2 * BYTES));
	return end();
}

/* A write that is still due to a block does not go into that of its next user. */
static bool freed_under_way(void)
{
	void *memory, *next;

	CHECK(begin());
	CHECK(!api.cuMemHostAlloc(&memory, BYTES, 0) && is_in_region(memory));
	if (api.standin_slow)
		api.standin_slow("cuMemcpyDtoHAsync_v2", 300000);
	CHECK(!api.cuMemcpyDtoHAsync_v2(memory, on_device, BYTES, stream));
	CHECK(!api.cuMemFreeHost(memory));
	CHECK(!api.cuMemHostAlloc(&next, BYTES, 0) && next == memory);
	fill(next, BYTES, 3);
	CHECK(!api.cuStreamSynchronize(stream) && is_filled(next, BYTES, 3));
	CHECK(!api.cuMemFreeHost(next));
	return end();
}

/* By a device that has no pool, and whose context is not current any more. */
static bool freed_under_way_elsewhere(void)
{
	CUcontext other;
	CUdevice device;
	void *memory, *next;

	/* Of real ones there may be one alone. */
	if (api.cuDeviceGet(&device, 1))
		return !api.standin_counts;
	CHECK(!api.cuMemHostAlloc(&memory, BYTES, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(is_in_region(memory));
	CHECK(!api.cuDevicePrimaryCtxRetain(&other, device) && !api.cuCtxSetCurrent(other));
	CHECK(begin());
	if (api.standin_slow)
		api.standin_slow("cuMemcpyDtoHAsync_v2", 300000);
	CHECK(!api.cuMemcpyDtoHAsync_v2(memory, on_device, BYTES, stream));
	CHECK(!api.cuCtxSetCurrent(primary) && !api.cuMemFreeHost(memory));
	CHECK(!api.cuMemHostAlloc(&next, BYTES, 0) && next == memory);
	fill(next, BYTES, 3);
	CHECK(!api.cuCtxSetCurrent(other) && !api.cuStreamSynchronize(stream));
	CHECK(is_filled(next, BYTES, 3) && end());
	return !api.cuCtxSetCurrent(primary) && !api.cuMemFreeHost(next);
}

int main(void)
{
	skip_without_cuda();
	run_case("streams copy from block to block", of_blocks, NULL);
	run_case("and within a range that was registered", of_a_range, NULL);
	run_quiet("a block that is freed during a copy waits for it", freed_under_way,
		  "ACTMEM_CUDA_KEEP", NULL);
	run_quiet("also for one by another device", freed_under_way_elsewhere, "ACTMEM_CUDA_KEEP",
		  "STANDIN_CUDA_DEVICES=2", NULL);
	return tap_end();
}
