/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What fails of ours: the program has the driver's own memory and one line tells why,
 * or, strictly, an error.
 */
#include <stdio.h>
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
		CHECK(!cuda.cuMemHostAlloc(&memory[i], 32 * MIB, 0) && !is_in_region(memory[i]));
		fill(memory[i], 32 * MIB, i);
	}
	CHECK(!own_regions(&listed));
	for (i = 0; i < 2; i++)
		CHECK(is_filled(memory[i], 32 * MIB, i) && !cuda.cuMemFreeHost(memory[i]));
	CHECK(!counts_now().registered && !counts_now().allocated);
	return true;
}

static bool fails(void)
{
	void *memory = &memory;
	uint64_t listed;

	CHECK(cuda.cuMemHostAlloc(&memory, 32 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuda.cuMemAllocHost_v2(&memory, 32 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(memory == &memory && !own_regions(&listed));
	CHECK(!counts_now().registered && !counts_now().allocated);
	/* Memory of others is served as ever. */
	CHECK(!cuda.cuMemHostAlloc(&memory, 4096, 0) && !cuda.cuMemFreeHost(memory));
	return true;
}

static bool fails_in_all_ways(void)
{
	void *memory = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	CHECK(cuda.cuMemHostRegister_v2(memory, 32 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	return fails();
}

/* 16 MiB fit into the limit, twice as much does not. */
static bool up_to_the_limit(void)
{
	void *first, *second, *third;

	CHECK(!cuda.cuMemHostAlloc(&first, 16 * MIB, 0) && is_in_region(first));
	CHECK(!cuda.cuMemHostAlloc(&second, 16 * MIB, 0) && !is_in_region(second));
	CHECK(!cuda.cuMemFreeHost(first) && !cuda.cuMemFreeHost(second));
	CHECK(!cuda.cuMemHostAlloc(&third, 16 * MIB, 0) && is_in_region(third));
	CHECK(!cuda.cuMemFreeHost(third));
	return true;
}

/* Not asked of the driver, which need not have so much. */
static bool more_than_is_registered(void)
{
	void *memory;

	CHECK(cuda.cuMemHostAlloc(&memory, 64ULL * 1024 * MIB + 1, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!counts_now().registered && !counts_now().allocated);
	CHECK(!cuda.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	return !cuda.cuMemFreeHost(memory);
}

static bool registration_fails(void)
{
	void *memory;
	uint64_t listed;

	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, 0) && !is_in_region(memory));
	CHECK(!own_regions(&listed) && !cuda.cuMemFreeHost(memory));
	/* The next one is tried anew. */
	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, 0) && is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	return true;
}

/* By a pointer that the program has no longer: what begins there is a region. */
static bool unregistered_behind(void)
{
	void *memory, *again;

	CHECK(!cuda.cuMemHostAlloc(&memory, 16 * MIB, 0) && is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory) && !cuda.cuMemHostUnregister(memory));
	CHECK(!cuda.cuMemHostAlloc(&again, 16 * MIB, 0) && !is_in_region(again));
	return !cuda.cuMemFreeHost(again);
}

/* The device still works on something and has failed: nothing is given back. */
static bool waiting_fails(void)
{
	void *memory;
	unsigned int flags;

	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	cuda.standin_fail("cuCtxSynchronize", 1, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(cuda.cuMemFreeHost(memory) == CUDA_ERROR_ILLEGAL_ADDRESS);
	CHECK(!cuda.cuMemHostGetFlags(&flags, memory) && flags == CU_MEMHOSTALLOC_PORTABLE);
	CHECK(!cuda.cuMemFreeHost(memory));
	CHECK(cuda.cuMemFreeHost(memory) == CUDA_ERROR_INVALID_VALUE);
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

	CHECK(!cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(!cuda.cuThreadExchangeStreamCaptureMode(&mode));
	CHECK(!cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(!cuda.cuMemHostAlloc(&other, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE));
	CHECK(is_in_region(other));
	CHECK(!cuda.cuStreamEndCapture(stream, &graph) && !cuda.cuGraphDestroy(graph));
	CHECK(!cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK(cuda.cuMemFreeHost(memory) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	CHECK(cuda.cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	fill(memory, 8 * MIB, 3);
	CHECK(is_filled(memory, 8 * MIB, 3) && !cuda.cuMemFreeHost(memory));
	CHECK(!cuda.cuMemFreeHost(other) && !cuda.cuStreamDestroy_v2(stream));
	return true;
}

/* What the runtime needs to find its device. */
static bool device_fails(void)
{
	void *memory;

	cuda.standin_fail("cuDeviceGetPCIBusId", 1, 1, CUDA_ERROR_INVALID_DEVICE);
	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, 0) && !is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	CHECK(!cuda.cuMemHostAlloc(&memory, 8 * MIB, 0) && is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	return true;
}

static bool limit_of_settings(void)
{
	void *memory;

	CHECK(!cuda.cuMemHostAlloc(&memory, 2 * MIB, 0) && !is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	CHECK(!cuda.cuMemHostAlloc(&memory, 4 * MIB, 0) && is_in_region(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	return true;
}

int main(void)
{
	skip_without_cuda();
	run_case("without pages on the node the driver has some", gets_the_drivers,
		 "ACTMEM_NODES=1023", NULL);
	told(1, "cuMemHostAlloc of 32.0 MiB is the CUDA driver's own, not from regions: ");
	run_case("strictly that is an error", fails, "ACTMEM_NODES=1023", "ACTMEM_STRICT=1", NULL);
	told(1, "cuMemHostAlloc of 32.0 MiB fails, as ACTMEM_STRICT=1 wants");
	run_case("more than the heap may have is the driver's", up_to_the_limit,
		 "ACTMEM_HEAP_LIMIT=24M", NULL);
	told(1, "raise ACTMEM_HEAP_LIMIT or free blocks");
	run_case("more than the heap may ever have is the driver's", gets_the_drivers,
		 "ACTMEM_HEAP_LIMIT=16M", NULL);
	run_told("ACTMEM_STRICT=1", "strictly that is an error", fails, "ACTMEM_HEAP_LIMIT=16M",
		 "ACTMEM_STRICT=1", NULL);
	run_case("more than is registered at once is none of regions", more_than_is_registered,
		 "ACTMEM_STRICT=1", NULL);
	told(1, "a block may be 64.0 GiB long");
	run_told("/dev/actmem", "a backend that is not there leaves it to the driver",
		 gets_the_drivers, "ACTMEM_BACKEND=driver", NULL);
	run_told("/nowhere", "a folder for names that is not there, too", gets_the_drivers,
		 "ACTMEM_NAME=/nowhere/job", NULL);
	run_case("a wrong variable leaves all to the driver", gets_the_drivers,
		 "ACTMEM_CUDA_MIN=some", NULL);
	told(1, "ACTMEM_CUDA_MIN is 'some'; it may be ");
	run_told("as ACTMEM_STRICT=1 wants", "strictly that is an error", fails_in_all_ways,
		 "ACTMEM_CUDA_MIN=some", "ACTMEM_STRICT=1", NULL);
	run_case("and so it is with a variable that is read late", fails_in_all_ways,
		 "ACTMEM_VERBOSE=some", "ACTMEM_STRICT=1", NULL);
	told(1, "ACTMEM_VERBOSE is 'some'; it may be ");
	run_quiet("requests are served from ACTMEM_CUDA_MIN on", limit_of_settings,
		  "ACTMEM_CUDA_MIN=4M", NULL);
	run_quiet("while a stream is captured nothing is given back", capture_is_in_the_way, NULL);
	if (!stand_in_is_there()) {
		tap_skip("the real GPU does not fail when asked to");
		return tap_end();
	}
	run_case("what CUDA does not register is the driver's own", registration_fails, NULL);
	told(1, "CUDA_ERROR_OUT_OF_MEMORY");
	run_case("what is registered no longer is not handed out", unregistered_behind,
		 "ACTMEM_CUDA_KEEP", NULL);
	told(1, "what was registered is so no longer");
	run_quiet("what cannot be waited for stays as it is", waiting_fails, NULL);
	run_case("a device that cannot be asked leaves it to the driver", device_fails, NULL);
	told(1, "CUDA_ERROR_INVALID_DEVICE");
	return tap_end();
}
