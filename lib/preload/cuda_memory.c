/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a program gets when it asks CUDA for memory of the host.
 */
#include "cuda.h"

cuda_result cuda_mem_host_alloc(void **memory, size_t bytes, unsigned int flags)
{
	return cuda_driver.cuMemHostAlloc(memory, bytes, flags);
}

cuda_result cuda_mem_alloc_host(void **memory, size_t bytes)
{
	return cuda_driver.cuMemAllocHost_v2(memory, bytes);
}

cuda_result cuda_mem_free_host(void *memory)
{
	return cuda_driver.cuMemFreeHost(memory);
}

cuda_result cuda_mem_host_register(void *memory, size_t bytes, unsigned int flags)
{
	return cuda_driver.cuMemHostRegister_v2(memory, bytes, flags);
}

cuda_result cuda_mem_host_unregister(void *memory)
{
	return cuda_driver.cuMemHostUnregister(memory);
}

cuda_result cuda_mem_host_get_device_pointer(cuda_pointer *pointer, void *memory,
					     unsigned int flags)
{
	return cuda_driver.cuMemHostGetDevicePointer_v2(pointer, memory, flags);
}

cuda_result cuda_mem_host_get_flags(unsigned int *flags, void *memory)
{
	return cuda_driver.cuMemHostGetFlags(flags, memory);
}
