/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that is linked with libcuda.so.1 and calls it without any lookup.
 *
 * Started with: ACTMEM_CUDA_KEEP=0
 * Started with: ACTMEM_CUDA=0 ACTMEM_MALLOC=1
 */
#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

#include "preload_test.h"

#define ENTRY(name)	{ #name, (void *)(name) }

static const struct {
	const char *name;
	void *function;
} called[] = {
	ENTRY(cuMemHostAlloc), ENTRY(cuMemAllocHost_v2), ENTRY(cuMemFreeHost),
	ENTRY(cuMemHostRegister_v2), ENTRY(cuMemHostUnregister),
	ENTRY(cuMemHostGetDevicePointer_v2), ENTRY(cuMemHostGetFlags),
	ENTRY(cuGetProcAddress_v2),
};

/* How many blocks of the driver's own there are; -1: it is the real one, and tells nobody. */
static int drivers_blocks(void)
{
	standin_counts_function *standin_counts;
	struct standin_counts counts;

	*(void **)&standin_counts = dlsym(RTLD_DEFAULT, "standin_counts");
	if (!standin_counts)
		return -1;
	standin_counts(&counts);
	return (int)counts.allocated;
}

static void test_memory(void)
{
	char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *block, *other;
	CUdeviceptr pointer;
	unsigned int flags;

	cuda_returns(cuMemHostAlloc(&block, MIB, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
	cuda_returns(cuMemAllocHost(&other, 4096), CUDA_SUCCESS);
	ok(drivers_blocks() == -1 || drivers_blocks() == (hooks_wanted() ? 1 : 2),
	   "only the small one is the driver's, unless both are");
	memset(block, 1, MIB);
	memset(other, 1, 4096);
	cuda_returns(cuMemHostGetDevicePointer(&pointer, block, 0), CUDA_SUCCESS);
	cuda_returns(cuMemHostGetFlags(&flags, block), CUDA_SUCCESS);
	ok(flags & CU_MEMHOSTALLOC_PORTABLE, "with its flags (0x%x)", flags);
	cuda_returns(cuMemFreeHost(other), CUDA_SUCCESS);
	cuda_returns(cuMemFreeHost(block), CUDA_SUCCESS);
	cuda_returns(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
	cuda_returns(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cuda_returns(cuMemHostRegister(memory, MIB, 0), CUDA_SUCCESS);
	cuda_returns(cuMemHostUnregister(memory), CUDA_SUCCESS);
	munmap(memory, MIB);
}

int main(void)
{
	CUdriverProcAddressQueryResult status;
	struct cuda cuda;
	CUcontext context;
	void *function;
	unsigned int i;

	/* Before anything is looked up. */
	cuda_returns(cuInit(0), CUDA_SUCCESS);
	cuda_returns(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	cuda_returns(cuCtxPushCurrent(context), CUDA_SUCCESS);
	test_memory();
	/* They stay in the way, where they only go on to the driver's. */
	for (i = 0; i < sizeof(called) / sizeof(called[0]); i++)
		ok(!strcmp(owner(called[i].function), "libactmem_preload.so"),
		   "%s is called in the preload first", called[i].name);
	cuda_returns(cuGetProcAddress("cuMemHostAlloc", &function, 13000, 0, &status),
		     CUDA_SUCCESS);
	is_hook(function, "cuGetProcAddress() finds it");
	is_hook(dlsym(RTLD_DEFAULT, "cuMemHostAlloc"), "and so does dlsym(RTLD_DEFAULT)");
	cuda = cuda_or_skip();
	test_memory();
	cuda_returns(cuCtxPopCurrent(&context), CUDA_SUCCESS);
	cuda_returns(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
	nothing_is_registered(&cuda);
	return tap_end();
}
