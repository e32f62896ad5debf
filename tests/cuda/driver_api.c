/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the library relies on of the driver API, asked of the libcuda.so.1 itself:
 * so that the stand-in is held to the same as the real one.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_test.h"

static struct cuda cuda;

static char *map(size_t bytes, int protection)
{
	char *memory = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		tap_bail("mmap");
	return memory;
}

static void test_without_context(char *memory)
{
	CUcontext context;

	cuda_ok(cuda.cuCtxGetCurrent(&context));
	ok(!context, "a thread begins without a context");
	cuda_returns(cuda.cuMemHostRegister_v2(memory, MIB, 0), CUDA_ERROR_INVALID_CONTEXT);
	cuda_returns(cuda.cuCtxPopCurrent_v2(&context), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_ranges(char *memory)
{
	CUcontext context;
	CUdeviceptr pointer;
	unsigned int flags;
	CUresult result;

	cuda_returns(cuda.cuMemHostRegister_v2(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
	cuda_returns(cuda.cuMemHostRegister_v2(memory, MIB, 0x100), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuda.cuMemHostRegister_v2(memory, 2 * MIB, CU_MEMHOSTREGISTER_PORTABLE |
					  CU_MEMHOSTREGISTER_DEVICEMAP));
	cuda_returns(cuda.cuMemHostRegister_v2(memory + MIB, 2 * MIB, 0),
		     CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	/* The manual knows flags of what CUDA allocated alone. */
	if (cuda.standin_counts) {
		cuda_ok(cuda.cuMemHostGetFlags(&flags, memory));
		ok(flags & CU_MEMHOSTREGISTER_PORTABLE, "with its flags (0x%x)", flags);
	}
	cuda_ok(cuda.cuMemHostGetDevicePointer_v2(&pointer, memory + 4096, 0));
	cuda_ok(cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT,
					   (CUdeviceptr)(uintptr_t)(memory + 4096)));
	ok(context == current_context(&cuda), "it is known by the context that registered it");
	result = cuda.cuMemHostUnregister(memory + MIB);
	/* NVIDIA's driver 580.159.04 returns either. */
	ok(result == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED || result == CUDA_ERROR_INVALID_VALUE,
	   "an address in the middle is not the range's (%d)", result);
	cuda_ok(cuda.cuMemHostUnregister(memory));
	cuda_returns(cuda.cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cuda_returns(cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT,
						(CUdeviceptr)(uintptr_t)memory),
		     CUDA_ERROR_INVALID_VALUE);
}

static void test_allocations(void)
{
	void *memory, *other;

	cuda_ok(cuda.cuMemHostAlloc(&memory, MIB, CU_MEMHOSTALLOC_PORTABLE));
	memset(memory, 1, MIB);
	cuda_ok(cuda.cuMemAllocHost_v2(&other, MIB));
	ok(cuda.cuMemHostUnregister(memory), "what CUDA allocated is not registered");
	cuda_ok(cuda.cuMemFreeHost(memory));
	cuda_ok(cuda.cuMemFreeHost(other));
	cuda_returns(cuda.cuMemFreeHost(&memory), CUDA_ERROR_INVALID_VALUE);
}

/* Memory that is missing, or not writable, cannot be pinned. */
static void test_unusable_memory(void)
{
	char *memory = map(MIB, PROT_READ);
	int can_read_only = 0;

	ok(cuda.cuMemHostRegister_v2(memory, MIB, 0), "memory that cannot be written to is refused");
	cuda_ok(cuda.cuDeviceGetAttribute(&can_read_only,
					  CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
					  0));
	if (can_read_only) {
		cuda_ok(cuda.cuMemHostRegister_v2(memory, MIB, CU_MEMHOSTREGISTER_READ_ONLY));
		cuda_ok(cuda.cuMemHostUnregister(memory));
	}
	munmap(memory, MIB);
	ok(cuda.cuMemHostRegister_v2(memory, MIB, 0), "and so is what is not mapped");
}

/* Both by the program's own context and by the primary one. */
static void test_ended_contexts(char *memory)
{
	CUcontext own, primary, popped;
	unsigned int flags;
	int active = -1;

	cuda_ok(cuda.cuCtxCreate_v4(&own, NULL, 0, 0));
	cuda_ok(cuda.cuMemHostRegister_v2(memory, MIB, CU_MEMHOSTREGISTER_PORTABLE));
	cuda_ok(cuda.cuCtxDestroy_v2(own));
	ok(current_context(&cuda) != own, "a context that is destroyed is popped");
	cuda_returns(cuda.cuPointerGetAttribute(&popped, CU_POINTER_ATTRIBUTE_CONTEXT,
						(CUdeviceptr)(uintptr_t)memory),
		     CUDA_ERROR_INVALID_VALUE);

	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	cuda_ok(cuda.cuCtxPushCurrent_v2(primary));
	cuda_ok(cuda.cuMemHostRegister_v2(memory, MIB, 0));
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(0));
	cuda_ok(cuda.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ok(!active, "a primary context that is reset is not active");
	cuda_returns(cuda.cuMemHostRegister_v2(memory, MIB, 0), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	cuda_ok(cuda.cuCtxPushCurrent_v2(primary));
	cuda_returns(cuda.cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
}

static void test_addresses(void)
{
	CUdriverProcAddressQueryResult status;
	void *function = NULL;

	cuda_ok(cuda.cuGetProcAddress_v2("cuMemHostRegister", &function, 13000, 0, &status));
	ok((cuda.standin_counts ? function == (void *)cuda.cuMemHostRegister_v2 : !!function) &&
	   status == CU_GET_PROC_ADDRESS_SUCCESS,
	   "a name without a version is the newest that the version of CUDA has");
	cuda_ok(cuda.cuGetProcAddress_v2("cuMemHostRegister", &function, 2000, 0, &status));
	ok(!function && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
	   "or nothing, if that is too old");
	cuda_ok(cuda.cuGetProcAddress_v2("cuNoSuch", &function, 13000, 0, &status));
	ok(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "or not known at all");
}

static bool child_has_no_cuda(void *context)
{
	int count;

	return cuda.cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda.cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
	       cuda.cuMemHostUnregister(context) == CUDA_ERROR_NOT_INITIALIZED;
}

int main(void)
{
	CUcontext primary, popped;
	char *memory;
	int count;

	cuda = cuda_or_skip();
	memory = map(4 * MIB, PROT_READ | PROT_WRITE);
	cuda_returns(cuda.cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
	cuda_ok(cuda.cuInit(0));
	test_without_context(memory);
	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	cuda_ok(cuda.cuCtxPushCurrent_v2(primary));
	test_ranges(memory);
	test_allocations();
	test_unusable_memory();
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
	test_ended_contexts(memory);
	test_addresses();
	ok(in_child(child_has_no_cuda, memory), "a forked child has no use of CUDA");
	nothing_is_retained(&cuda);
	return tap_end();
}
