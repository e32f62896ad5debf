/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What fails of ours: the program has the driver's own memory and one line tells why,
 * or, strictly, an error.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_test.h"

/* Two requests, for which the driver has to answer; the failure is told once. */
static bool gets_the_drivers(void)
{
	void *memory[2];
	uint64_t listed;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		CHECK(!api.cuMemHostAlloc(&memory[i], 32 * MIB, 0) && !is_in_region(memory[i]));
		fill(memory[i], 32 * MIB, i);
	}
	CHECK(!own_regions(&listed));
	for (i = 0; i < 2; i++)
		CHECK(is_filled(memory[i], 32 * MIB, i) && !api.cuMemFreeHost(memory[i]));
	CHECK(!counts_now().registered && !counts_now().allocated);
	return true;
}

static bool fails(void)
{
	void *memory = &memory;
	uint64_t listed;

	CHECK(api.cuMemHostAlloc(&memory, 32 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(api.cuMemAllocHost_v2(&memory, 32 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(memory == &memory && !own_regions(&listed));
	CHECK(!counts_now().registered && !counts_now().allocated);
	/* Memory of others is served as ever. */
	CHECK(!api.cuMemHostAlloc(&memory, 4096, 0) && !api.cuMemFreeHost(memory));
	return true;
}

static bool fails_in_all_ways(void)
{
	void *memory = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	CHECK(api.cuMemHostRegister_v2(memory, 32 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	return fails();
}

/* 16 MiB fit into the limit, twice as much does not. */
static bool up_to_the_limit(void)
{
	void *first, *second;

	CHECK(!api.cuMemHostAlloc(&first, 16 * MIB, 0) && is_in_region(first));
	CHECK(!api.cuMemHostAlloc(&second, 16 * MIB, 0) && !is_in_region(second));
	CHECK(!api.cuMemFreeHost(first) && !api.cuMemFreeHost(second));
	return block_is_in_region(16 * MIB);
}

/* Not asked of the driver, which need not have so much. */
static bool more_than_is_registered(void)
{
	void *memory;

	CHECK(api.cuMemHostAlloc(&memory, 64ULL * 1024 * MIB + 1, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!counts_now().registered && !counts_now().allocated);
	return block_is_in_region(4 * MIB);
}

static bool registration_fails(void)
{
	void *memory;
	uint64_t listed;

	api.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!api.cuMemHostAlloc(&memory, 8 * MIB, 0) && !is_in_region(memory));
	CHECK(!own_regions(&listed) && !api.cuMemFreeHost(memory));
	/* The next one is tried anew. */
	return block_is_in_region(8 * MIB);
}

/* As in confidential computing: CUDA is asked once, and serves each request itself. */
static bool refuses_all(void)
{
	uint64_t asked = counts_now().own_registrations;
	unsigned int i;

	setenv("STANDIN_CUDA_REGISTER_MOST", "0", 1);
	for (i = 0; i < 16; i++)
		CHECK(block_is_of_driver(8 * MIB));
	CHECK(counts_now().own_registrations == asked + 1);
	/* Another context is asked again. */
	CHECK(!api.cuDevicePrimaryCtxReset_v2(0));
	CHECK(!api.cuDevicePrimaryCtxRetain(&primary, 0) && !api.cuCtxSetCurrent(primary));
	unsetenv("STANDIN_CUDA_REGISTER_MOST");
	return block_is_in_region(8 * MIB);
}

/* By a pointer that the program has no longer: what begins there is a region. */
static bool unregistered_behind(void)
{
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, 16 * MIB, 0) && is_in_region(memory));
	CHECK(!api.cuMemFreeHost(memory) && !api.cuMemHostUnregister(memory));
	return block_is_of_driver(16 * MIB);
}

/* The device still works on something and has failed: nothing is given back. */
static bool waiting_fails(void)
{
	void *memory;
	unsigned int flags;

	CHECK(!api.cuMemHostAlloc(&memory, 8 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	api.standin_fail("cuCtxSynchronize", 1, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(api.cuMemFreeHost(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(!api.cuMemHostGetFlags(&flags, memory) && flags == CU_MEMHOSTALLOC_PORTABLE);
	CHECK(!api.cuMemFreeHost(memory));
	CHECK(api.cuMemFreeHost(memory) == CUDA_ERROR_INVALID_VALUE);
	return true;
}

/*
 * While a stream is captured nothing can be waited for, so that no block goes back; that,
 * and what takes none of the driver's memory, is all that a program sees of it.
 */
static bool capture_is_in_the_way(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUgraph graph = NULL;
	void *memory, *other;
	CUstream stream;

	CHECK(!api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(!api.cuMemHostAlloc(&memory, 8 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(!api.cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(!api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(!api.cuMemHostAlloc(&other, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(is_in_region(other));
	CHECK(!api.cuStreamEndCapture(stream, &graph) && !api.cuGraphDestroy(graph));
	CHECK(!api.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(api.cuMemFreeHost(memory) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK(api.cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fill(memory, 8 * MIB, 3);
	CHECK(is_filled(memory, 8 * MIB, 3) && !api.cuMemFreeHost(memory));
	CHECK(!api.cuMemFreeHost(other) && !api.cuStreamDestroy_v2(stream));
	return true;
}

/* What the runtime needs to find its device. */
static bool device_fails(void)
{
	api.standin_fail("cuDeviceGetPCIBusId", 1, 1, CUDA_ERROR_INVALID_DEVICE);
	return block_is_of_driver(8 * MIB) && block_is_in_region(8 * MIB);
}

static bool limit_of_settings(void)
{
	return block_is_of_driver(2 * MIB) && block_is_in_region(4 * MIB);
}

int main(void)
{
	skip_without_cuda();
	run_told("cuMemHostAlloc of 32.0 MiB uses the CUDA driver's own memory instead of a region: ",
		 "without pages on the node the driver has some", gets_the_drivers,
		 "ACTMEM_NODES=1023", NULL);
	run_told("cuMemHostAlloc of 32.0 MiB fails, because ACTMEM_STRICT=1 is set",
		 "strictly that is an error", fails, "ACTMEM_NODES=1023", "ACTMEM_STRICT=1", NULL);
	run_told("raise ACTMEM_HEAP_LIMIT or free blocks",
		 "more than the heap may have is the driver's", up_to_the_limit,
		 "ACTMEM_HEAP_LIMIT=24M", NULL);
	run_case("more than the heap may ever have is the driver's", gets_the_drivers,
		 "ACTMEM_HEAP_LIMIT=16M", NULL);
	run_told("ACTMEM_STRICT=1", "strictly that is an error", fails, "ACTMEM_HEAP_LIMIT=16M",
		 "ACTMEM_STRICT=1", NULL);
	run_told("a block can have at most 64.0 GiB",
		 "more than is registered at once is none of regions", more_than_is_registered,
		 "ACTMEM_STRICT=1", NULL);
	run_told("/dev/actmem", "a backend that is not there leaves it to the driver",
		 gets_the_drivers, "ACTMEM_BACKEND=driver", NULL);
	run_told("/nowhere", "a folder for names that is not there, too", gets_the_drivers,
		 "ACTMEM_NAME=/nowhere/job", NULL);
	run_told("ACTMEM_CUDA_MIN is 'some', but must be ",
		 "a wrong variable leaves all to the driver", gets_the_drivers,
		 "ACTMEM_CUDA_MIN=some", NULL);
	run_told("because ACTMEM_STRICT=1 is set", "strictly that is an error", fails_in_all_ways,
		 "ACTMEM_CUDA_MIN=some", "ACTMEM_STRICT=1", NULL);
	run_told("ACTMEM_VERBOSE is 'some', but must be ",
		 "and so it is with a variable that is read late", fails_in_all_ways,
		 "ACTMEM_VERBOSE=some", "ACTMEM_STRICT=1", NULL);
	run_quiet("requests are served from ACTMEM_CUDA_MIN on", limit_of_settings,
		  "ACTMEM_CUDA_MIN=4M", NULL);
	run_quiet("while a stream is captured nothing is given back", capture_is_in_the_way, NULL);
	if (!stand_in_is_there()) {
		tap_skip("the real GPU does not fail when asked to");
		return tap_end();
	}
	run_told("CUDA_ERROR_OUT_OF_MEMORY", "what CUDA does not register is the driver's own",
		 registration_fails, NULL);
	run_told("CUDA_ERROR_NOT_SUPPORTED", "what CUDA never registers, it is asked for once",
		 refuses_all, NULL);
	run_told("the region is not registered any more",
		 "what is registered no longer is not handed out", unregistered_behind,
		 "ACTMEM_CUDA_KEEP", NULL);
	run_quiet("what cannot be waited for stays as it is", waiting_fails, NULL);
	run_told("CUDA_ERROR_INVALID_DEVICE",
		 "a device that cannot be asked leaves it to the driver", device_fails, NULL);
	return tap_end();
}
