/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * cuGetProcAddress(), as cudart, PyTorch and CuPy ask: its answers are the preload's
 * functions where they are of the version that the preload has; status and errors are
 * the driver's.
 *
 * Started with:
 * Started with: ACTMEM_CUDA=0
 */
#include <dlfcn.h>
#include <string.h>

#include "preload_test.h"

typedef CUresult old_function(const char *symbol, void **pfn, int version, cuuint64_t flags);
typedef CUresult new_function(const char *symbol, void **pfn, int version, cuuint64_t flags,
			      CUdriverProcAddressQueryResult *status);

static void test_all(new_function *get, cuuint64_t flags, const char *how)
{
	CUdriverProcAddressQueryResult status;
	void *function, *again;
	unsigned int i;

	for (i = 0; hooked_addresses[i]; i++) {
		function = NULL;
		status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
		cuda_returns(get(hooked_addresses[i], &function, 13000, flags, &status), CUDA_SUCCESS);
		is_hook(function, "%s %s", hooked_addresses[i], how);
		ok(status == CU_GET_PROC_ADDRESS_SUCCESS, "with that status");
		cuda_returns(get(hooked_addresses[i], &again, 13000, flags, NULL), CUDA_SUCCESS);
		ok(again == function, "and without asking for it");
	}
}

static void is_drivers(new_function *get, const char *name, int version)
{
	void *function = NULL;

	cuda_returns(get(name, &function, version, 0, NULL), CUDA_SUCCESS);
	is_of_driver(function, "%s of %d is the driver's", name, version);
}

static void test_refusals(new_function *get, old_function *old)
{
	CUdriverProcAddressQueryResult status;
	void *function = &status;

	cuda_returns(get("cuNoSuch", &function, 13000, 0, &status), CUDA_SUCCESS);
	ok(!function && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "what is not there");
	cuda_returns(get("cuMemHostAlloc", &function, 2000, 0, &status), CUDA_SUCCESS);
	ok(!function && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
	   "what was not there yet");
	cuda_returns(get("cuMemHostAlloc", &function, 13000, 0x100, &status),
		     CUDA_ERROR_INVALID_VALUE);
	cuda_returns(old("cuNoSuch", &function, 13000, 0), CUDA_ERROR_NOT_FOUND);
}

int main(void)
{
	struct cuda cuda = cuda_or_skip();
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *function;
	new_function *get = (new_function *)symbol(library, "cuGetProcAddress_v2"), *itself;
	old_function *old = (old_function *)symbol(library, "cuGetProcAddress");

	test_all(get, 0, "by cuGetProcAddress_v2()");
	test_all(get, CU_GET_PROC_ADDRESS_LEGACY_STREAM, "with the legacy stream");
	test_all(get, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, "with streams per thread");
	cuda_returns(get("cuGetProcAddress", (void **)&itself, 12000, 0, NULL), CUDA_SUCCESS);
	ok(itself == get, "it finds itself");
	test_all(itself, 0, "by what it found");
	cuda_returns(get("cuGetProcAddress", &function, 11030, 0, NULL), CUDA_SUCCESS);
	ok(function == (void *)old, "and its older version");
	cuda_returns(old("cuMemFreeHost", &function, 11030, 0), CUDA_SUCCESS);
	is_hook(function, "which finds the same");
	cuda_returns(old("cuGetProcAddress", &function, 11030, 0), CUDA_SUCCESS);
	ok(function == (void *)old, "and itself");

	is_drivers(get, "cuInit", 13000);
	is_drivers(get, "cuPointerGetAttribute", 13000);
	is_drivers(get, "cuMemHostRegister", 4000);
	is_drivers(get, "cuMemAllocHost", 2000);
	is_drivers(get, "cuMemHostGetDevicePointer", 3000);
	test_refusals(get, old);
	nothing_is_retained(&cuda);
	return tap_end();
}
