/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * cuGetProcAddress(): functions by the name without its version, as they were in
 * a version of CUDA. Since which version each is there, cudaTypedefs.h says.
 */
#include <string.h>

#include "standin.h"

#define ENTRY(name, function, since)	{ #name, (void *)(function), since }

/* Of those with several versions the newest comes first. */
static const struct {
	const char *name;
	void *function;
	int since;
} entries[] = {
	ENTRY(cuInit, cuInit, 2000),
	ENTRY(cuDriverGetVersion, cuDriverGetVersion, 2020),
	ENTRY(cuGetErrorName, cuGetErrorName, 6000),
	ENTRY(cuGetErrorString, cuGetErrorString, 6000),
	ENTRY(cuGetProcAddress, cuGetProcAddress_v2, 12000),
	ENTRY(cuGetProcAddress, cuGetProcAddress, 11030),
	ENTRY(cuDeviceGet, cuDeviceGet, 2000),
	ENTRY(cuDeviceGetCount, cuDeviceGetCount, 2000),
	ENTRY(cuDeviceGetName, cuDeviceGetName, 2000),
	ENTRY(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010),
	ENTRY(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000),
	ENTRY(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020),
	ENTRY(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000),
	ENTRY(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000),
	ENTRY(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000),
	ENTRY(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000),
	ENTRY(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000),
	ENTRY(cuCtxCreate, cuCtxCreate_v4, 12050),
	ENTRY(cuCtxDestroy, cuCtxDestroy_v2, 4000),
	ENTRY(cuCtxGetCurrent, cuCtxGetCurrent, 4000),
	ENTRY(cuCtxSetCurrent, cuCtxSetCurrent, 4000),
	ENTRY(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000),
	ENTRY(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000),
	ENTRY(cuCtxGetDevice, cuCtxGetDevice, 2000),
	ENTRY(cuCtxGetId, cuCtxGetId, 12000),
	ENTRY(cuCtxSynchronize, cuCtxSynchronize, 2000),
	ENTRY(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050),
	ENTRY(cuStreamCreate, cuStreamCreate, 2000),
	ENTRY(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050),
	ENTRY(cuStreamDestroy, cuStreamDestroy_v2, 4000),
	ENTRY(cuStreamSynchronize, cuStreamSynchronize, 2000),
	ENTRY(cuStreamQuery, cuStreamQuery, 2000),
	ENTRY(cuStreamWaitEvent, cuStreamWaitEvent, 3020),
	ENTRY(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070),
	ENTRY(cuStreamGetCtx, cuStreamGetCtx, 9020),
	ENTRY(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010),
	ENTRY(cuStreamEndCapture, cuStreamEndCapture, 10000),
	ENTRY(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010),
	ENTRY(cuGraphDestroy, cuGraphDestroy, 10000),
	ENTRY(cuStreamIsCapturing, cuStreamIsCapturing, 10000),
	ENTRY(cuLaunchHostFunc, cuLaunchHostFunc, 10000),
	ENTRY(cuEventCreate, cuEventCreate, 2000),
	ENTRY(cuEventDestroy, cuEventDestroy_v2, 4000),
	ENTRY(cuEventRecord, cuEventRecord, 2000),
	ENTRY(cuEventQuery, cuEventQuery, 2000),
	ENTRY(cuEventSynchronize, cuEventSynchronize, 2000),
	ENTRY(cuMemAlloc, cuMemAlloc_v2, 3020),
	ENTRY(cuMemFree, cuMemFree_v2, 3020),
	ENTRY(cuMemGetInfo, cuMemGetInfo_v2, 3020),
	ENTRY(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020),
	ENTRY(cuMemCreate, cuMemCreate, 10020),
	ENTRY(cuMemRelease, cuMemRelease, 10020),
	ENTRY(cuMemAddressReserve, cuMemAddressReserve, 10020),
	ENTRY(cuMemAddressFree, cuMemAddressFree, 10020),
	ENTRY(cuMemMap, cuMemMap, 10020),
	ENTRY(cuMemUnmap, cuMemUnmap, 10020),
	ENTRY(cuMemSetAccess, cuMemSetAccess, 10020),
	ENTRY(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020),
	ENTRY(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020),
	ENTRY(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020),
	ENTRY(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020),
	ENTRY(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020),
	ENTRY(cuMemsetD8Async, cuMemsetD8Async, 3020),
	ENTRY(cuMemsetD32Async, cuMemsetD32Async, 3020),
	ENTRY(cuMemHostAlloc, cuMemHostAlloc, 2020),
	ENTRY(cuMemAllocHost, cuMemAllocHost_v2, 3020),
	ENTRY(cuMemAllocHost, cuMemAllocHost, 2000),
	ENTRY(cuMemFreeHost, cuMemFreeHost, 2000),
	ENTRY(cuMemHostRegister, cuMemHostRegister_v2, 6050),
	ENTRY(cuMemHostRegister, cuMemHostRegister, 4000),
	ENTRY(cuMemHostUnregister, cuMemHostUnregister, 4000),
	ENTRY(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020),
	ENTRY(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer, 2020),
	ENTRY(cuMemHostGetFlags, cuMemHostGetFlags, 2030),
	ENTRY(cuPointerGetAttribute, cuPointerGetAttribute, 4000),
};

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *symbolStatus)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	const cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM |
				 CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	size_t i;

	/* A symbol of NULL is a fault in NVIDIA's driver, too. */
	if (!pfn || flags & ~known || cudaVersion > DRIVER_VERSION)
		return CUDA_ERROR_INVALID_VALUE;
	*pfn = NULL;
	for (i = 0; !*pfn && i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (strcmp(entries[i].name, symbol))
			continue;
		status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
		if (entries[i].since <= cudaVersion)
			*pfn = entries[i].function;
	}
	if (*pfn)
		status = CU_GET_PROC_ADDRESS_SUCCESS;
	if (symbolStatus)
		*symbolStatus = status;
	return CUDA_SUCCESS;
}

/* That of CUDA 11 told by its result what the newer one tells by the status. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL);

	return !result && !*pfn ? CUDA_ERROR_NOT_FOUND : result;
}
