/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of runtimes share. They take libcuda.so.1 as the library does, and
 * run with the real one too: then nothing can be counted or made to fail, and those
 * parts are left out.
 */
#ifndef CUDA_TEST_H
#define CUDA_TEST_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>

#include "actmem_runtime.h"
#include "common.h"
#include "standin/control.h"

/* LENGTH in four. */
#define CHUNK		(2 * MIB)

#define CUDA_CALLS(f)							\
	f(cuInit) f(cuDriverGetVersion) f(cuDeviceGet) f(cuDeviceGetCount)	\
	f(cuDevicePrimaryCtxRetain) f(cuDevicePrimaryCtxRelease_v2)	\
	f(cuDevicePrimaryCtxReset_v2) f(cuDevicePrimaryCtxGetState)	\
	f(cuCtxCreate_v4) f(cuCtxDestroy_v2) f(cuCtxGetCurrent) f(cuCtxSetCurrent)	\
	f(cuCtxPushCurrent_v2) f(cuCtxPopCurrent_v2) f(cuCtxGetDevice) f(cuCtxSynchronize)	\
	f(cuDeviceGetAttribute) f(cuMemHostRegister_v2) f(cuMemHostUnregister)	\
	f(cuMemHostGetDevicePointer_v2) f(cuMemHostGetFlags) f(cuPointerGetAttribute)	\
	f(cuMemHostAlloc) f(cuMemAllocHost_v2) f(cuMemFreeHost)		\
	f(cuMemAlloc_v2) f(cuMemFree_v2) f(cuMemGetInfo_v2)		\
	f(cuStreamCreateWithPriority) f(cuStreamCreate) f(cuStreamDestroy_v2)	\
	f(cuStreamSynchronize) f(cuStreamQuery) f(cuStreamWaitEvent) f(cuStreamGetCtx)	\
	f(cuStreamWaitValue32_v2) f(cuStreamBeginCapture_v2) f(cuStreamEndCapture) f(cuGraphDestroy)	\
	f(cuThreadExchangeStreamCaptureMode)				\
	f(cuDeviceGetDevResource) f(cuDevResourceGenerateDesc) f(cuGreenCtxCreate)	\
	f(cuGreenCtxDestroy) f(cuGreenCtxStreamCreate) f(cuCtxFromGreenCtx)	\
	f(cuLaunchHostFunc) f(cuEventCreate) f(cuEventDestroy_v2) f(cuEventRecord)	\
	f(cuEventQuery) f(cuEventSynchronize) f(cuMemcpyHtoD_v2) f(cuMemcpyDtoH_v2)	\
	f(cuMemcpyHtoDAsync_v2) f(cuMemcpyDtoHAsync_v2) f(cuMemcpyDtoDAsync_v2)	\
	f(cuMemsetD8Async) f(cuMemsetD32Async)				\
	f(cuGetErrorName) f(cuGetProcAddress_v2)

#define CUDA_CALL_FIELD(name)	__typeof__(&(name)) name;

/* The driver's functions; those of the stand-in are NULL with the real one. */
struct cuda {
	CUDA_CALLS(CUDA_CALL_FIELD)
	standin_counts_function *standin_counts;
	standin_fail_function *standin_fail;
	standin_slow_function *standin_slow;
	standin_poison_function *standin_poison;
};

/* Ends the program, all skipped, where there is no GPU. Not initialised yet. */
struct cuda cuda_or_skip(void);

/* One result: whether CUDA returned what it should. */
#define cuda_returns(call, wanted)	\
	cuda_returned((call), (wanted), __FILE__, __LINE__, #call)
#define cuda_ok(call)	cuda_returns(call, CUDA_SUCCESS)
bool cuda_returned(CUresult got, CUresult wanted, const char *file, int line, const char *call);

/*
 * same_usage(), but for the descriptors that a real libcuda.so.1 opens when it is first
 * used, and keeps: they cannot be told from ours.
 */
void same_usage_of_ours(struct usage before);

/* The context that is current to this thread. */
CUcontext current_context(const struct cuda *cuda);

/* Makes the primary context of device 0 current, and no longer. */
void push_primary(const struct cuda *cuda);
void pop_primary(const struct cuda *cuda);

/* The stand-in's counts, all 0 with a real one; and its control, of no effect there. */
struct standin_counts counts_of(const struct cuda *cuda);
void slow(const struct cuda *cuda, const char *function, unsigned int microseconds);

/* Asserts that nothing is registered, or that no primary context is retained either. */
void nothing_is_registered(const struct cuda *cuda);
void nothing_is_retained(const struct cuda *cuda);

/* Asserts that no device memory, stream or event is left. */
void nothing_is_on_devices(const struct cuda *cuda);

/*
 * CUDA initialised, what was in use then, and a handle; and the end of all that, which asserts
 * that nothing is left, with what a program returns.
 */
struct actmem *cuda_begin(struct cuda *cuda, struct usage *before);
int cuda_end(const struct cuda *cuda, struct actmem *am, struct usage before);

/* A runtime of that kind with chunks of CHUNK, or bails out. */
struct actmem_runtime *runtime_or_bail(struct actmem *am, enum actmem_runtime_kind kind);
/* A runtime of CUDA with chunks of the default length, or bails out. */
struct actmem_runtime *whole_runtime_or_bail(struct actmem *am);
struct actmem_runtime_info runtime_info(struct actmem_runtime *runtime);
struct actmem_registration registration_of(struct actmem_region *region);

/*
 * Files of /sys are read from a folder of the test's from now on; a file of text that is not there,
 * from /sys itself. @command is run in it, and makes some. Each bails out.
 */
void sysfs_has(const char *command);
/* In it, the device of this bus address, as /sys writes it, is at that node. */
void device_is_at(const char *bus_id, const char *node);
void sysfs_is_true(void);

/* A new folder for files of a store, where SPILL says, or bails out. */
void make_folder(char *path, size_t size);

/* Keeps what is written to stderr, until stderr_lines() counts the lines with @part in it. */
void stderr_keep(void);
unsigned int stderr_lines(const char *part);

/*
 * From now on this file is the kernel's log, to which each registration adds @line. NULL: the truth.
 */
void kernel_log_is(const char *path, const char *line);

#endif /* CUDA_TEST_H */
