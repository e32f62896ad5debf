/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A stand-in for libcudart.so.13, as far as XLA needs one to start: it takes down no
 * kernels, and runs none. NVIDIA's own asks the driver for tables that nobody else
 * knows, so that the stand-in for libcuda.so.1 cannot give them.
 */
#pragma GCC visibility push(default)

#include <dlfcn.h>
#include <stddef.h>
#include <cuda_runtime_api.h>

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
			    int threads, void *thread, void *block, void *block_size,
			    void *grid_size, int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external,
		       size_t bytes, int constant, int global);

void **__cudaRegisterFatBinary(void *binary)
{
	static void *handle;

	return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
}

void __cudaUnregisterFatBinary(void **handle)
{
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
			    int threads, void *thread, void *block, void *block_size,
			    void *grid_size, int *warp_size)
{
}

void __cudaRegisterVar(void **handle, char *host, char *address, const char *name, int external,
		       size_t bytes, int constant, int global)
{
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return cudaErrorInvalidValue;
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	return cudaRuntimeGetVersion(version);
}

/* As the driver says. */
cudaError_t cudaGetDeviceCount(int *count)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int (*ask)(int *count) = driver ?
		(int (*)(int *))dlsym(driver, "cuDeviceGetCount") : NULL;

	return ask && !ask(count) ? cudaSuccess : cudaErrorInitializationError;
}

const char *cudaGetErrorName(cudaError_t error)
{
	return error ? "cudaErrorInvalidValue" : "cudaSuccess";
}

const char *cudaGetErrorString(cudaError_t error)
{
	return error ? "invalid argument" : "no error";
}

cudaError_t cudaPeekAtLastError(void)
{
	return cudaSuccess;
}
