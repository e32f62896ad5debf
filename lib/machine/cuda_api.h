/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Declares the part of the CUDA driver API that the library uses, with the names and versions that
 * libcuda.so.1 exports. A test compares the types with those of cuda.h.
 */
#ifndef LIB_MACHINE_CUDA_API_H
#define LIB_MACHINE_CUDA_API_H

#include <stddef.h>

/* enum CUresult has no negative value, so its underlying type is unsigned int. */
typedef unsigned int cuda_result;

struct CUctx_st;
typedef struct CUctx_st *cuda_context;
typedef unsigned long long cuda_pointer;

/* Only the results that the library handles. cuGetErrorName() returns the name of any result. */
enum {
	CUDA_OK = 0,
	CUDA_INVALID_VALUE = 1,
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_NOT_INITIALIZED = 3,
	CUDA_DEINITIALIZED = 4,
	CUDA_STUB_LIBRARY = 34,
	CUDA_DEVICE_UNAVAILABLE = 46,
	CUDA_NO_DEVICE = 100,
	CUDA_INVALID_DEVICE = 101,
	CUDA_INVALID_CONTEXT = 201,
	CUDA_OPERATING_SYSTEM = 304,
	CUDA_CONTEXT_IS_DESTROYED = 709,
	CUDA_ALREADY_REGISTERED = 712,
	CUDA_NOT_REGISTERED = 713,
	CUDA_NOT_PERMITTED = 800,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_SYSTEM_NOT_READY = 802,
	CUDA_DRIVER_MISMATCH = 803,
	CUDA_STREAM_CAPTURE_UNSUPPORTED = 900,
};

enum {
	CUDA_REGISTER_PORTABLE = 0x01,
	CUDA_REGISTER_DEVICEMAP = 0x02,
	CUDA_REGISTER_READ_ONLY = 0x08,
};

#define CUDA_POINTER_CONTEXT	1	/* CU_POINTER_ATTRIBUTE_CONTEXT */
#define CUDA_NAME_BYTES		256
#define CUDA_BUS_ID_BYTES	32

/* Name and parameters. The attribute of cuPointerGetAttribute() is an enum in cuda.h. */
#define CUDA_FUNCTIONS(f)						\
	f(cuGetErrorName, (cuda_result error, const char **name))	\
	f(cuGetErrorString, (cuda_result error, const char **text))	\
	f(cuInit, (unsigned int flags))					\
	f(cuDriverGetVersion, (int *version))				\
	f(cuDeviceGetCount, (int *count))				\
	f(cuDeviceGet, (int *device, int ordinal))			\
	f(cuDeviceGetName, (char *name, int length, int device))	\
	f(cuDeviceGetPCIBusId, (char *id, int length, int device))	\
	f(cuDevicePrimaryCtxRetain, (cuda_context *context, int device))	\
	f(cuDevicePrimaryCtxRelease_v2, (int device))			\
	f(cuDevicePrimaryCtxGetState, (int device, unsigned int *flags, int *active))	\
	f(cuCtxGetCurrent, (cuda_context *context))			\
	f(cuCtxPushCurrent_v2, (cuda_context context))			\
	f(cuCtxPopCurrent_v2, (cuda_context *context))			\
	f(cuCtxGetDevice, (int *device))				\
	f(cuMemGetInfo_v2, (size_t *left, size_t *total))		\
	f(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned int flags))	\
	f(cuMemHostUnregister, (void *address))				\
	f(cuMemHostGetFlags, (unsigned int *flags, void *address))	\
	f(cuMemHostGetDevicePointer_v2,					\
	  (cuda_pointer *pointer, void *address, unsigned int flags))	\
	f(cuPointerGetAttribute, (void *data, unsigned int attribute, cuda_pointer pointer))

/*
 * Functions that other libraries may look up, too, in order to interpose them. This library looks
 * them up only if it needs them.
 */
#define CUDA_OWN_FUNCTIONS(f)						\
	f(cuMemHostAlloc, (void **memory, size_t bytes, unsigned int flags))	\
	f(cuMemFreeHost, (void *memory))

#define CUDA_DECLARE(name, parameters)	cuda_result (*name) parameters;

struct cuda_functions {
	CUDA_FUNCTIONS(CUDA_DECLARE)
};

struct cuda_own_functions {
	CUDA_OWN_FUNCTIONS(CUDA_DECLARE)
};

#undef CUDA_DECLARE

#endif /* LIB_MACHINE_CUDA_API_H */
