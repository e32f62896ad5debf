/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Programs that have CUDA allocate host memory: as XLA does it on a machine of one
 * node, few requests that double; and as PyTorch and CuPy do, many of powers of two,
 * freed and taken again.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "memory_test.h"

#define POOLS		6		/* 2 MiB to 64 MiB */
#define MANY		200

static bool is_on_device(void *memory)
{
	CUdeviceptr pointer = 0;
	void *host = NULL;

	CHECK(!api.cuMemHostGetDevicePointer_v2(&pointer, memory, 0) && pointer);
	CHECK(!api.cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER,
					  (CUdeviceptr)(uintptr_t)memory));
	CHECK(host == memory);
	return true;
}

static bool doubling(void)
{
	struct standin_counts counts;
	void *pools[POOLS], *tiny;
	unsigned int i, flags;
	uint64_t listed, live = 0;

	for (i = 0; i < POOLS; i++) {
		CHECK(!api.cuMemHostAlloc(&pools[i], 2 * MIB << i, CU_MEMHOSTALLOC_PORTABLE));
		CHECK(!((uintptr_t)pools[i] % 4096) && is_in_region(pools[i]));
		CHECK(is_on_device(pools[i]) && is_on_device((char *)pools[i] + (MIB << i)));
		CHECK(!api.cuMemHostGetFlags(&flags, pools[i]) &&
		      flags == CU_MEMHOSTALLOC_PORTABLE);
		fill(pools[i], 2 * MIB << i, i);
		live += 2 * MIB << i;
	}
	CHECK(own_regions(&listed) && listed == live + 2 * MIB);
	counts = counts_now();
	CHECK(!api.standin_counts ||
	      (!counts.allocated && counts.registered_bytes == listed));
	CHECK(!api.cuMemHostAlloc(&tiny, 8, CU_MEMHOSTALLOC_PORTABLE) && !is_in_region(tiny));
	CHECK(!api.cuMemFreeHost(tiny));
	for (i = 0; i < POOLS; i++)
		CHECK(is_filled(pools[i], 2 * MIB << i, i) && !api.cuMemFreeHost(pools[i]));
	counts = counts_now();
	CHECK(!counts.registered && !counts.allocated && !own_regions(&listed));
	return true;
}

static bool powers_of_two(void)
{
	static void *blocks[MANY];
	uint64_t listed, before = 0;
	unsigned int round, i, flags;
	size_t bytes;

	for (round = 0; round < 4; round++) {
		for (i = 0; i < MANY; i++) {
			bytes = MIB << i % 3;
			CHECK(!api.cuMemAllocHost_v2(&blocks[i], bytes));
			CHECK(is_in_region(blocks[i]));
			CHECK(!api.cuMemHostGetFlags(&flags, blocks[i]) && !flags);
			fill(blocks[i], bytes, i + round);
		}
		CHECK(own_regions(&listed));
		CHECK(!round || listed == before);
		before = listed;
		for (i = 0; i < MANY; i++)
			CHECK(is_filled(blocks[i], MIB << i % 3, i + round) &&
			      !api.cuMemFreeHost(blocks[i]));
	}
	/* Kept memory stays registered. */
	CHECK(own_regions(&listed) && listed == before);
	CHECK(!api.standin_counts || counts_now().registered_bytes == before);
	return true;
}

/* Only what is over ACTMEM_CUDA_KEEP=64M goes back. */
static bool keeping(void)
{
	void *blocks[3];
	uint64_t listed;
	unsigned int i;

	for (i = 0; i < 3; i++)
		CHECK(!api.cuMemHostAlloc(&blocks[i], 32 * MIB, 0));
	CHECK(!api.cuMemFreeHost(blocks[0]) && !api.cuMemFreeHost(blocks[1]));
	CHECK(own_regions(&listed) == 3);
	CHECK(!api.cuMemFreeHost(blocks[2]));
	CHECK(own_regions(&listed) == 2 && listed == 64 * MIB);
	CHECK(!api.standin_counts || counts_now().registered_bytes == 64 * MIB);
	return true;
}

static bool flags(void)
{
	static const unsigned int served[] = {
		0, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP,
		CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
	};
	unsigned int i, now;
	void *memory;

	for (i = 0; i < 4; i++) {
		CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, served[i]) && is_in_region(memory));
		CHECK(!api.cuMemHostGetFlags(&now, memory) && now == served[i]);
		CHECK(!api.cuMemHostGetFlags(&now, (char *)memory + MIB) && now == served[i]);
		CHECK(!api.cuMemFreeHost(memory));
	}
	CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, CU_MEMHOSTALLOC_WRITECOMBINED));
	CHECK(!is_in_region(memory) && !api.cuMemFreeHost(memory));
	CHECK(api.cuMemHostAlloc(&memory, 4 * MIB, 0x80) == CUDA_ERROR_INVALID_VALUE);
	CHECK(api.cuMemHostAlloc(NULL, 4 * MIB, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(api.cuMemHostAlloc(&memory, SIZE_MAX, 0));
	CHECK(api.cuMemHostGetFlags(NULL, memory) == CUDA_ERROR_INVALID_VALUE);
	return true;
}

static bool foreign(void)
{
	static char own[4096];
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	CHECK(api.cuMemFreeHost(own) == CUDA_ERROR_INVALID_VALUE);
	CHECK(api.cuMemFreeHost((char *)memory + 4096) == CUDA_ERROR_INVALID_VALUE);
	CHECK(api.cuMemHostUnregister(memory) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
	      !api.standin_counts);
	fill(memory, 4 * MIB, 1);
	CHECK(is_on_device(memory) && is_filled(memory, 4 * MIB, 1));
	CHECK(!api.cuMemFreeHost(memory));
	CHECK(api.cuMemFreeHost(memory) == CUDA_ERROR_INVALID_VALUE);
	return true;
}

#ifndef MEMORY_DIRECT
/* As cudart does it, which PyTorch and CuPy call. */
static bool by_proc_address(void)
{
	CUresult (*alloc)(void **memory, size_t bytes, unsigned int flags) = NULL;
	CUresult (*release)(void *memory) = NULL;
	void *memory;

	CHECK(!api.cuGetProcAddress_v2("cuMemHostAlloc", (void **)&alloc, 12000, 0, NULL));
	CHECK(!api.cuGetProcAddress_v2("cuMemFreeHost", (void **)&release, 12000, 0, NULL));
	CHECK(alloc && release && !alloc(&memory, 4 * MIB, 0));
	CHECK(is_in_region(memory) && is_on_device(memory) && !release(memory));
	return true;
}
#endif

int main(void)
{
	skip_without_cuda();
	run_quiet("requests that double come from regions, and these go back", doubling,
		  "ACTMEM_CUDA_KEEP=0", NULL);
	run_quiet("many powers of two are taken again from what is there", powers_of_two,
		  "ACTMEM_CUDA_KEEP", NULL);
	run_case("more than is to be kept goes back", keeping, "ACTMEM_CUDA_KEEP=64M",
		 "ACTMEM_HEAP_GROW=32M", NULL);
	run_case("flags are told as they were given, and those not served are the driver's",
		 flags, NULL);
	run_case("what is not ours is the driver's to judge", foreign, NULL);
	run_told("host memory of 1.0 MiB and more comes from regions (cuda: ",
		 "who wants to know is told", flags, "ACTMEM_VERBOSE=1", NULL);
#ifndef MEMORY_DIRECT
	run_case("cuGetProcAddress finds the same", by_proc_address, NULL);
#endif
	return tap_end();
}
