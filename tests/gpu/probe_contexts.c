// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What becomes of registered memory where no context is current, where it was reset, where
 * copies go across the end of a range, and while a stream is captured.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "probe.h"

#define BYTES	(8 * MIB)

static void tell(CUresult result, const char *question)
{
	fact(error_name(result), "%s", question);
}

static void ask_id(const char *what, CUcontext context)
{
	static unsigned long long before;
	unsigned long long id = 0;
	CUresult result = cuda.cuCtxGetId(context, &id);

	fact(result ? error_name(result) : !before || id == before ? "the same" : "another",
	     "cuCtxGetId %s", what);
	if (!result)
		before = id;
}

static void ask_state(const char *what)
{
	unsigned int flags;
	int active = -1;
	CUresult result = cuda.cuDevicePrimaryCtxGetState(0, &flags, &active);

	fact(result ? error_name(result) : active ? "active" : "not active",
	     "the primary context %s", what);
}

static void ask_without_context(void *memory)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory, pointer;
	unsigned int flags, type;
	CUcontext context = NULL;
	CUdevice device;

	tell(cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address),
	     "cuPointerGetAttribute(CONTEXT) without a current context");
	tell(cuda.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
	     "cuPointerGetAttribute(MEMORY_TYPE) without a current context");
	tell(cuda.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address),
	     "cuPointerGetAttribute(DEVICE_POINTER) without a current context");
	tell(cuda.cuMemHostGetFlags(&flags, memory), "cuMemHostGetFlags without a current context");
	tell(cuda.cuMemHostGetDevicePointer_v2(&pointer, memory, 0),
	     "cuMemHostGetDevicePointer without a current context");
	tell(cuda.cuCtxGetDevice(&device), "cuCtxGetDevice without a current context");
	tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister without a current context");
}

void ask_resetting(void)
{
	char *memory = map_memory(MEMORY_MEMFD, BYTES);
	CUcontext primary, context = NULL;
	size_t unused;
	CUdevice device;

	if (!memory || cuda.cuCtxGetCurrent(&primary))
		return;
	ask_id("at first", primary);
	tell(cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE),
	     "cuMemHostRegister before a reset");
	tell(cuda.cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset");
	ask_state("after a reset");
	tell(cuda.cuCtxGetDevice(&device), "cuCtxGetDevice after a reset");
	tell(cuda.cuMemGetInfo_v2(&unused, &unused), "cuMemGetInfo after a reset");
	ask_id("after a reset", primary);
	tell(cuda.cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT,
					(CUdeviceptr)(uintptr_t)memory),
	     "cuPointerGetAttribute(CONTEXT) after a reset");
	tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister after a reset");
	tell(cuda.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain after a reset");
	fact(context == primary ? "the same" : "another", "the handle of the context after a reset");
	ask_id("after a reset and a retain", context);
	tell(cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE),
	     "cuMemHostRegister after a reset and a retain");
	tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister of that");
	cuda.cuDevicePrimaryCtxRelease_v2(0);
	ask_state("after a reset, a retain and a release");
}

void ask_contexts(void)
{
	char *memory = map_memory(MEMORY_MEMFD, BYTES);
	CUcontext primary;

	if (!memory || cuda.cuCtxGetCurrent(&primary) ||
	    cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE))
		return;
	cuda.cuCtxSetCurrent(NULL);
	ask_without_context(memory);
	cuda.cuCtxSetCurrent(primary);
	cuda.cuMemHostUnregister(memory);
	munmap(memory, BYTES);
}

static void ask_copy(const char *what, CUdeviceptr device, char *memory, size_t bytes,
		     CUstream stream)
{
	char question[128];

	snprintf(question, sizeof(question), "cuMemcpyHtoDAsync of %s", what);
	tell(cuda.cuMemcpyHtoDAsync_v2(device, memory, bytes, stream), question);
	snprintf(question, sizeof(question), "cuMemcpyDtoHAsync to %s", what);
	tell(cuda.cuMemcpyDtoHAsync_v2(memory, device, bytes, stream), question);
	snprintf(question, sizeof(question), "cuStreamSynchronize after copies of %s", what);
	tell(cuda.cuStreamSynchronize(stream), question);
}

void ask_ranges(void)
{
	char *memory = map_memory(MEMORY_MEMFD, BYTES);
	CUdeviceptr device, pointer;
	CUstream stream;

	if (!memory || !cuda.cuMemAlloc_v2 || !cuda.cuStreamCreate ||
	    cuda.cuMemAlloc_v2(&device, BYTES) ||
	    cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) ||
	    cuda.cuMemHostRegister_v2(memory, BYTES / 2, CU_MEMHOSTREGISTER_PORTABLE))
		return;
	tell(cuda.cuMemHostGetDevicePointer_v2(&pointer, memory, 0),
	     "cuMemHostGetDevicePointer of memory registered without DEVICEMAP");
	ask_copy("registered memory", device, memory + 1, BYTES / 2 - 1, stream);
	ask_copy("what is registered in part", device, memory, BYTES, stream);
	if (!cuda.cuMemHostRegister_v2(memory + BYTES / 2, BYTES / 2, CU_MEMHOSTREGISTER_PORTABLE)) {
		ask_copy("two ranges that follow each other", device, memory, BYTES, stream);
		cuda.cuMemHostUnregister(memory + BYTES / 2);
	}
	cuda.cuMemHostUnregister(memory);
	cuda.cuStreamDestroy_v2(stream);
	cuda.cuMemFree_v2(device);
	munmap(memory, BYTES);
}

/* What another thread does meanwhile, and whether the capture bears it. */
struct deed {
	const char *name;
	CUresult (*before)(void), (*begin)(void), (*after)(void);
	CUcontext context;
	CUresult result;
};

static char *deed_memory;
static void *deed_allocated;

static CUresult allocate(void)
{
	return cuda.cuMemHostAlloc(&deed_allocated, BYTES, CU_MEMHOSTALLOC_PORTABLE);
}

static CUresult free_it(void)
{
	return cuda.cuMemFreeHost(deed_allocated);
}

static CUresult register_it(void)
{
	return cuda.cuMemHostRegister_v2(deed_memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE);
}

static CUresult unregister_it(void)
{
	return cuda.cuMemHostUnregister(deed_memory);
}

static CUresult synchronize(void)
{
	return cuda.cuCtxSynchronize();
}

static void *do_it(void *argument)
{
	struct deed *deed = argument;

	deed->result = cuda.cuCtxSetCurrent(deed->context);
	if (!deed->result)
		deed->result = deed->begin();
	return NULL;
}

static void ask_deed(struct deed *deed, CUstream stream, CUstreamCaptureMode mode,
		     const char *mode_name)
{
	CUgraph graph = NULL;
	pthread_t thread;
	CUresult ended;
	char answer[160];

	if ((deed->before && deed->before()) || cuda.cuStreamBeginCapture_v2(stream, mode))
		return;
	if (pthread_create(&thread, NULL, do_it, deed))
		abort();
	pthread_join(thread, NULL);
	ended = cuda.cuStreamEndCapture(stream, &graph);
	if (!ended && graph)
		cuda.cuGraphDestroy(graph);
	/* What it could not do, or undo, is undone. */
	if (deed->after && !deed->result == !deed->before)
		deed->after();
	snprintf(answer, sizeof(answer), "%s, and the capture ends with %s",
		 error_name(deed->result), error_name(ended));
	fact(answer, "%s by another thread during a capture (%s)", deed->name, mode_name);
}

void ask_capture(void)
{
	static struct deed deeds[] = {
		{ "cuMemHostAlloc", NULL, allocate, free_it, NULL, CUDA_SUCCESS },
		{ "cuMemFreeHost", allocate, free_it, free_it, NULL, CUDA_SUCCESS },
		{ "cuMemHostRegister", NULL, register_it, unregister_it, NULL, CUDA_SUCCESS },
		{ "cuMemHostUnregister", register_it, unregister_it, unregister_it, NULL,
		  CUDA_SUCCESS },
		{ "cuCtxSynchronize", NULL, synchronize, NULL, NULL, CUDA_SUCCESS },
	};
	CUcontext context;
	CUstream stream;
	unsigned int i;

	deed_memory = map_memory(MEMORY_MEMFD, BYTES);
	if (!cuda.cuStreamBeginCapture_v2 || !cuda.cuStreamEndCapture || !cuda.cuGraphDestroy ||
	    !deed_memory || cuda.cuCtxGetCurrent(&context) ||
	    cuda.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		return;
	for (i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++) {
		deeds[i].context = context;
		ask_deed(&deeds[i], stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, "thread local");
	}
	for (i = 0; i < sizeof(deeds) / sizeof(deeds[0]); i++)
		ask_deed(&deeds[i], stream, CU_STREAM_CAPTURE_MODE_GLOBAL, "global");
	cuda.cuStreamDestroy_v2(stream);
}
