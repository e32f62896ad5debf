/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder has the CUDA driver API: its types and results, its functions as libcuda.so.1 exports
 * them, and error messages for its results. A test compares the declarations with NVIDIA's cuda.h.
 *
 * Read this file first, then load.c, which finds the functions, and error.c. Three libraries link
 * these files, and each has its own table of functions: libactmem, the handlers for XLA, and the
 * library that `actmem run` preloads (the preload).
 *
 * Locks: a thread holds load.c's lock to add functions to the table. No thread holds this lock
 * while it calls the dynamic loader, because a constructor can call a function of this folder while
 * the loader's lock is held.
 */
#ifndef LIB_CUDA_H
#define LIB_CUDA_H

#include <stdbool.h>
#include <stddef.h>

#define CUDA_LIBRARY	"libcuda.so.1"

/* enum CUresult has no negative value, so its underlying type is unsigned int. */
typedef unsigned int cuda_result;

struct CUctx_st;
struct CUevent_st;
struct CUgreenCtx_st;
struct CUstream_st;
typedef struct CUctx_st *cuda_context;
typedef struct CUevent_st *cuda_event;
typedef struct CUstream_st *cuda_stream;
typedef unsigned long long cuda_pointer;

/* Only the results that the callers handle. cuda_text() describes any result. */
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
	CUDA_SYMBOL_NOT_FOUND = 500,
	CUDA_NOT_READY = 600,
	CUDA_CONTEXT_IS_DESTROYED = 709,
	CUDA_ALREADY_REGISTERED = 712,
	CUDA_NOT_REGISTERED = 713,
	CUDA_NOT_PERMITTED = 800,
	CUDA_NOT_SUPPORTED = 801,
	CUDA_SYSTEM_NOT_READY = 802,
	CUDA_DRIVER_MISMATCH = 803,
	CUDA_STREAM_CAPTURE_UNSUPPORTED = 900,
};

/* Flags of cuMemHostRegister(). The flags of cuMemHostAlloc() have the same values. */
enum {
	CUDA_REGISTER_PORTABLE = 0x01,
	CUDA_REGISTER_DEVICEMAP = 0x02,
	CUDA_REGISTER_READ_ONLY = 0x08,
};

enum {
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_BLOCKING_SYNC = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_CAPTURE_NONE = 0,
};

#define CUDA_POINTER_CONTEXT	1	/* CU_POINTER_ATTRIBUTE_CONTEXT */
#define CUDA_NAME_BYTES		256
#define CUDA_BUS_ID_BYTES	32

/* Tasks that need the functions. */
enum cuda_use {
	CUDA_REGISTERS = 1 << 0,	/* to register regions */
	CUDA_ALLOCATES = 1 << 1,	/* to allocate memory in place of regions */
	CUDA_COPIES = 1 << 2,		/* to copy on streams: the handlers for XLA */
	CUDA_SERVES = 1 << 3,		/* to serve a program's own calls: the preload */
	CUDA_ALL = CUDA_REGISTERS | CUDA_COPIES | CUDA_SERVES,
	CUDA_OPTIONAL = 1 << 4,		/* libcuda may lack the function, which is then NULL */
};

/*
 * Each row has a function's name, its parameters and its uses (enum cuda_use). The attribute of
 * cuPointerGetAttribute() is an enum in NVIDIA's cuda.h.
 */
#define CUDA_FUNCTIONS(f)								\
	f(cuGetErrorName, (cuda_result error, const char **name), CUDA_ALL)		\
	f(cuGetErrorString, (cuda_result error, const char **text), CUDA_ALL)		\
	f(cuInit, (unsigned int flags), CUDA_REGISTERS)					\
	f(cuDriverGetVersion, (int *version), CUDA_REGISTERS)				\
	f(cuDeviceGetCount, (int *count), CUDA_ALL)					\
	f(cuDeviceGet, (int *device, int ordinal), CUDA_REGISTERS | CUDA_SERVES)	\
	f(cuDeviceGetName, (char *name, int length, int device), CUDA_REGISTERS)	\
	f(cuDeviceGetPCIBusId, (char *id, int length, int device), CUDA_REGISTERS)	\
	f(cuDevicePrimaryCtxRetain, (cuda_context *context, int device),		\
	  CUDA_REGISTERS | CUDA_SERVES)							\
	f(cuDevicePrimaryCtxRelease_v2, (int device), CUDA_REGISTERS | CUDA_SERVES)	\
	f(cuDevicePrimaryCtxGetState, (int device, unsigned int *flags, int *active),	\
	  CUDA_REGISTERS | CUDA_SERVES)							\
	f(cuCtxGetCurrent, (cuda_context *context), CUDA_REGISTERS | CUDA_SERVES)	\
	f(cuCtxPushCurrent_v2, (cuda_context context), CUDA_ALL)			\
	f(cuCtxPopCurrent_v2, (cuda_context *context), CUDA_ALL)			\
	f(cuCtxGetDevice, (int *device), CUDA_REGISTERS | CUDA_SERVES)			\
	f(cuCtxGetId, (cuda_context context, unsigned long long *id), CUDA_COPIES | CUDA_SERVES) \
	f(cuCtxSynchronize, (void), CUDA_SERVES)					\
	f(cuMemAlloc_v2, (cuda_pointer *pointer, size_t bytes), CUDA_COPIES)		\
	f(cuMemFree_v2, (cuda_pointer pointer), CUDA_COPIES)				\
	f(cuMemGetInfo_v2, (size_t *left, size_t *total), CUDA_REGISTERS | CUDA_COPIES)	\
	f(cuMemHostAlloc, (void **memory, size_t bytes, unsigned int flags),		\
	  CUDA_ALLOCATES | CUDA_COPIES)							\
	f(cuMemFreeHost, (void *memory), CUDA_ALLOCATES | CUDA_COPIES)			\
	f(cuMemHostRegister_v2, (void *address, size_t bytes, unsigned int flags),	\
	  CUDA_REGISTERS)								\
	f(cuMemHostUnregister, (void *address), CUDA_REGISTERS)				\
	f(cuMemHostGetFlags, (unsigned int *flags, void *address), CUDA_REGISTERS)	\
	f(cuMemHostGetDevicePointer_v2,							\
	  (cuda_pointer *pointer, void *address, unsigned int flags), CUDA_REGISTERS)	\
	f(cuPointerGetAttribute, (void *data, unsigned int attribute, cuda_pointer pointer), \
	  CUDA_REGISTERS)								\
	f(cuStreamCreate, (cuda_stream *stream, unsigned int flags), CUDA_COPIES)	\
	f(cuStreamDestroy_v2, (cuda_stream stream), CUDA_COPIES)			\
	f(cuStreamSynchronize, (cuda_stream stream), CUDA_COPIES)			\
	f(cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned int flags), \
	  CUDA_COPIES)									\
	f(cuStreamIsCapturing, (cuda_stream stream, unsigned int *status), CUDA_COPIES)	\
	f(cuStreamGetCtx, (cuda_stream stream, cuda_context *context), CUDA_COPIES)	\
	f(cuStreamGetCtx_v2, (cuda_stream stream, cuda_context *context,		\
			      struct CUgreenCtx_st **green), CUDA_COPIES | CUDA_OPTIONAL) \
	f(cuEventCreate, (cuda_event *event, unsigned int flags), CUDA_COPIES)		\
	f(cuEventDestroy_v2, (cuda_event event), CUDA_COPIES)				\
	f(cuEventRecord, (cuda_event event, cuda_stream stream), CUDA_COPIES)		\
	f(cuEventQuery, (cuda_event event), CUDA_COPIES)				\
	f(cuEventSynchronize, (cuda_event event), CUDA_COPIES)				\
	f(cuMemcpyHtoDAsync_v2,								\
	  (cuda_pointer to, const void *from, size_t bytes, cuda_stream stream), CUDA_COPIES) \
	f(cuMemcpyDtoHAsync_v2,								\
	  (void *to, cuda_pointer from, size_t bytes, cuda_stream stream), CUDA_COPIES)	\
	f(cuMemcpyDtoDAsync_v2,								\
	  (cuda_pointer to, cuda_pointer from, size_t bytes, cuda_stream stream), CUDA_COPIES) \
	f(cuMemsetD32Async,								\
	  (cuda_pointer to, unsigned int value, size_t count, cuda_stream stream), CUDA_COPIES)

#define CUDA_DECLARE(name, parameters, uses)	cuda_result (*name) parameters;

struct cuda_functions {
	CUDA_FUNCTIONS(CUDA_DECLARE)
};

#undef CUDA_DECLARE

/* After cuda_load(@uses) has returned 0, the functions for @uses are set. */
extern struct cuda_functions cuda;

/*
 * Loads libcuda.so.1 and finds the functions for @uses (flags of enum cuda_use), unless an earlier
 * call did. Returns 0, or -ENOENT or -EOPNOTSUPP with an error message in @words. Thread-safe.
 */
int cuda_load(unsigned int uses, char *words, size_t size);

/* In a forked child, returns true if no thread of the parent held load.c's lock at fork(). */
bool cuda_is_free(void);

#define CUDA_TEXT_MAX	256

/* Writes a result's name, number and description to @text, and returns @text. */
const char *cuda_text(char text[CUDA_TEXT_MAX], cuda_result result);

#define CUDA_TEXT(result)	cuda_text((char[CUDA_TEXT_MAX]){0}, (result))

/* Returns the errno that comes closest to a result. */
int cuda_errno(cuda_result result);

/* Returns true if the result means that the context and all its registrations are gone. */
bool cuda_context_is_gone(cuda_result result);

#endif /* LIB_CUDA_H */
