/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The functions of the CUDA driver API that the handlers call, from the libcuda.so.1 that XLA uses,
 * and error messages for their results.
 */
#ifndef ACTMEM_XLA_CUDA_H
#define ACTMEM_XLA_CUDA_H

#include <stddef.h>
#include <stdint.h>

#include "machine/machine.h"

struct CUgreenCtx_st;
struct CUstream_st;
struct CUevent_st;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;

enum {
	CUDA_STREAM_NON_BLOCKING = 1,
	CUDA_EVENT_BLOCKING_SYNC = 1,
	CUDA_EVENT_DISABLE_TIMING = 2,
	CUDA_HOST_PORTABLE = 1,
	CUDA_NOT_READY = 600,
	CUDA_CAPTURE_NONE = 0,
};

/* name and parameters, as in machine/cuda_api.h */
#define CUDA_STREAM_FUNCTIONS(f)					\
	f(cuGetErrorName, (cuda_result error, const char **name))	\
	f(cuGetErrorString, (cuda_result error, const char **text))	\
	f(cuCtxPushCurrent_v2, (cuda_context context))			\
	f(cuCtxPopCurrent_v2, (cuda_context *context))			\
	f(cuDeviceGetCount, (int *count))				\
	f(cuCtxGetDevice, (int *device))				\
	f(cuCtxGetId, (cuda_context context, unsigned long long *id))	\
	f(cuMemAlloc_v2, (cuda_pointer *pointer, size_t bytes))		\
	f(cuMemFree_v2, (cuda_pointer pointer))				\
	f(cuMemGetInfo_v2, (size_t *left, size_t *total))		\
	f(cuMemHostAlloc, (void **memory, size_t bytes, unsigned int flags))	\
	f(cuMemFreeHost, (void *memory))				\
	f(cuStreamCreate, (cuda_stream *stream, unsigned int flags))	\
	f(cuStreamDestroy_v2, (cuda_stream stream))			\
	f(cuStreamSynchronize, (cuda_stream stream))			\
	f(cuStreamWaitEvent, (cuda_stream stream, cuda_event event, unsigned int flags))	\
	f(cuStreamIsCapturing, (cuda_stream stream, unsigned int *status))	\
	f(cuStreamGetCtx, (cuda_stream stream, cuda_context *context))	\
	f(cuEventCreate, (cuda_event *event, unsigned int flags))	\
	f(cuEventDestroy_v2, (cuda_event event))			\
	f(cuEventRecord, (cuda_event event, cuda_stream stream))	\
	f(cuEventQuery, (cuda_event event))				\
	f(cuEventSynchronize, (cuda_event event))			\
	f(cuMemcpyHtoDAsync_v2,						\
	  (cuda_pointer to, const void *from, size_t bytes, cuda_stream stream))	\
	f(cuMemcpyDtoHAsync_v2,						\
	  (void *to, cuda_pointer from, size_t bytes, cuda_stream stream))	\
	f(cuMemcpyDtoDAsync_v2,						\
	  (cuda_pointer to, cuda_pointer from, size_t bytes, cuda_stream stream))	\
	f(cuMemsetD32Async,						\
	  (cuda_pointer to, unsigned int value, size_t count, cuda_stream stream))

#define CUDA_STREAM_DECLARE(name, parameters)	cuda_result (*name) parameters;

struct cuda_stream_functions {
	CUDA_STREAM_FUNCTIONS(CUDA_STREAM_DECLARE)
};

#undef CUDA_STREAM_DECLARE

/* cuStreamGetCtx_v2(), of CUDA 12.5. */
typedef cuda_result cuda_stream_contexts(cuda_stream stream, cuda_context *context,
					 struct CUgreenCtx_st **green);

/* All functions are set after cuda_load() has returned 0. */
extern struct cuda_stream_functions cuda;

/* Loads the functions. Returns 0, or -ENOENT or -EOPNOTSUPP with an error message in @words. */
int cuda_load(char *words, size_t words_size);
/* Returns true, in a forked child, if no thread of the parent was loading CUDA at fork(). */
int cuda_is_free(void);

/*
 * Finds the context that owns the memory and events of a stream. For a green context's stream it is
 * the primary context, or the green one before CUDA 12.5.
 */
cuda_result cuda_context_of(cuda_stream stream, cuda_context *context);

/* Returns a negative errno for @result. Writes to @words that @what failed, and why. */
int cuda_failed(cuda_result result, const char *what, uint32_t device, char *words,
		size_t words_size);

/*
 * Makes one of several calls, unless an earlier one failed. The first failure sets *@result.
 * Example: CUDA_TRY(&result, cuEventRecord(event, stream));
 */
#define CUDA_TRY(result, call)			\
	do {					\
		if (!*(result))			\
			*(result) = cuda.call;	\
	} while (0)

#endif /* ACTMEM_XLA_CUDA_H */
