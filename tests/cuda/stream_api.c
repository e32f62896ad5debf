/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the handlers on a GPU's stream rely on of streams, events and copies, asked of
 * the libcuda.so.1 itself: so that the stand-in is held to the same as the real one.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

#define BYTES	(1 * MIB)
#define SLOW	20000		/* microseconds */

static struct cuda cuda;
static char *pinned;
static uint32_t *gate;		/* pinned, too */
static CUdeviceptr first, second;

static CUstream stream_or_bail(void)
{
	CUstream stream;

	if (cuda.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0))
		tap_bail("cuStreamCreateWithPriority");
	return stream;
}

static CUevent event_or_bail(void)
{
	CUevent event;

	if (cuda.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC))
		tap_bail("cuEventCreate");
	return event;
}

/* 0 as well: it has none of the bytes. */
static size_t bytes_that_are(const char *memory, char value)
{
	size_t count = 0, i;

	for (i = 0; i < BYTES; i++)
		count += memory[i] == value;
	return count;
}

static void test_errors(void)
{
	CUcontext context = current_context(&cuda), popped, of_stream = NULL;
	CUstream stream = stream_or_bail();
	CUevent event = event_or_bail();
	CUdeviceptr none;

	cuda_returns(cuda.cuMemAlloc_v2(&none, 0), CUDA_ERROR_INVALID_VALUE);
	cuda_returns(cuda.cuMemAlloc_v2(&none, 1UL << 50), CUDA_ERROR_OUT_OF_MEMORY);
	cuda_returns(cuda.cuStreamCreateWithPriority(&stream, 0x100, 0), CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuda.cuEventQuery(event));
	cuda_ok(cuda.cuStreamQuery(stream));
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuStreamGetCtx(stream, &of_stream));
	ok(of_stream == context, "a stream says its context, without a current one");
	cuda_ok(cuda.cuCtxPushCurrent_v2(context));
	cuda_ok(cuda.cuEventDestroy_v2(event));
	cuda_ok(cuda.cuStreamDestroy_v2(stream));
}

/* Holds up a stream until the host writes 7 to *gate. */
static void hold(CUstream stream)
{
	*gate = 0;
	cuda_ok(cuda.cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate, 7,
					    CU_STREAM_WAIT_VALUE_EQ));
}

static void release(void)
{
	__atomic_store_n(gate, 7, __ATOMIC_RELEASE);
}

/* The second stream's copy waits for the first one's. */
static void test_order(void)
{
	CUstream one = stream_or_bail(), other = stream_or_bail();
	CUevent event = event_or_bail();

	slow(&cuda, "cuMemsetD8Async", SLOW);
	memset(pinned, 0, BYTES);
	if (cuda.standin_slow)
		hold(one);
	cuda_ok(cuda.cuMemsetD8Async(first, 7, BYTES, one));
	cuda_ok(cuda.cuMemcpyDtoDAsync_v2(second, first, BYTES, one));
	cuda_ok(cuda.cuEventRecord(event, one));
	cuda_ok(cuda.cuStreamWaitEvent(other, event, 0));
	cuda_ok(cuda.cuMemcpyDtoHAsync_v2(pinned, second, BYTES, other));
	/* The event may be recorded anew: who waits waits for what was recorded then. */
	cuda_ok(cuda.cuMemsetD8Async(second, 9, BYTES, other));
	cuda_ok(cuda.cuEventRecord(event, other));
	if (cuda.standin_slow) {
		cuda_returns(cuda.cuEventQuery(event), CUDA_ERROR_NOT_READY);
		release();
	}
	cuda_ok(cuda.cuEventSynchronize(event));
	ok(bytes_that_are(pinned, 7) == BYTES, "the copy came after what it waited for");
	cuda_ok(cuda.cuMemcpyDtoH_v2(pinned, second, BYTES));
	ok(bytes_that_are(pinned, 9) == BYTES, "and before what followed it");
	slow(&cuda, "cuMemsetD8Async", 0);

	/* Copies under way go on, though their handles are gone. */
	cuda_ok(cuda.cuMemcpyHtoDAsync_v2(first, pinned, BYTES, one));
	cuda_ok(cuda.cuEventRecord(event, one));
	cuda_ok(cuda.cuStreamWaitEvent(other, event, 0));
	cuda_ok(cuda.cuEventDestroy_v2(event));
	cuda_ok(cuda.cuStreamDestroy_v2(one));
	cuda_ok(cuda.cuStreamSynchronize(other));
	cuda_ok(cuda.cuStreamDestroy_v2(other));
	cuda_ok(cuda.cuMemcpyDtoH_v2(pinned, first, BYTES));
	ok(bytes_that_are(pinned, 9) == BYTES, "a copy of a stream that was destroyed is done");
}

/* An event that is recorded anew, by a stream that is sooner there, is still waited for. */
static void test_recorded_anew(void)
{
	CUstream one = stream_or_bail(), other = stream_or_bail(), third = stream_or_bail();
	CUevent event = event_or_bail();

	slow(&cuda, "cuMemsetD8Async", SLOW);
	cuda_ok(cuda.cuMemsetD8Async(first, 5, BYTES, one));
	slow(&cuda, "cuMemsetD8Async", 0);
	cuda_ok(cuda.cuEventRecord(event, one));
	cuda_ok(cuda.cuStreamWaitEvent(other, event, 0));
	cuda_ok(cuda.cuMemcpyDtoHAsync_v2(pinned, first, BYTES, other));
	cuda_ok(cuda.cuEventRecord(event, third));
	cuda_ok(cuda.cuStreamSynchronize(third));
	cuda_ok(cuda.cuEventQuery(event));
	cuda_ok(cuda.cuStreamSynchronize(other));
	ok(bytes_that_are(pinned, 5) == BYTES, "the copy came after the record that it waited for");
	cuda_ok(cuda.cuEventDestroy_v2(event));
	cuda_ok(cuda.cuStreamDestroy_v2(one));
	cuda_ok(cuda.cuStreamDestroy_v2(other));
	cuda_ok(cuda.cuStreamDestroy_v2(third));
}

/*
 * A stream waits for a word that the host writes. Work of another stream goes on meanwhile, or
 * waits too if both streams share a hardware queue.
 */
static void test_queues(const char *queues, bool waits)
{
	CUstream waiting, other;

	setenv("STANDIN_CUDA_QUEUES", queues, 1);
	waiting = stream_or_bail();
	other = stream_or_bail();
	hold(waiting);
	cuda_ok(cuda.cuMemsetD8Async(first, 6, BYTES, other));
	if (waits)
		usleep(SLOW);
	else
		cuda_ok(cuda.cuStreamSynchronize(other));
	cuda_returns(cuda.cuStreamQuery(other), waits ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
	cuda_returns(cuda.cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	release();
	cuda_ok(cuda.cuStreamSynchronize(waiting));
	cuda_ok(cuda.cuStreamSynchronize(other));
	cuda_ok(cuda.cuStreamDestroy_v2(waiting));
	cuda_ok(cuda.cuStreamDestroy_v2(other));
	unsetenv("STANDIN_CUDA_QUEUES");
}

/* Returns true if a copy of @other came before the copy of @one that takes this long. */
static bool comes_too_early(CUstream one, CUstream other, unsigned int microseconds)
{
	slow(&cuda, "cuMemcpyHtoDAsync_v2", microseconds);
	memset(pinned, 3, BYTES);
	cuda_ok(cuda.cuMemsetD8Async(first, 4, BYTES, one));
	cuda_ok(cuda.cuStreamSynchronize(one));
	cuda_ok(cuda.cuMemcpyHtoDAsync_v2(first, pinned, BYTES, one));
	cuda_ok(cuda.cuMemcpyDtoDAsync_v2(second, first, BYTES, other));
	cuda_ok(cuda.cuStreamSynchronize(one));
	cuda_ok(cuda.cuStreamSynchronize(other));
	cuda_ok(cuda.cuMemcpyDtoH_v2(pinned, second, BYTES));
	slow(&cuda, "cuMemcpyHtoDAsync_v2", 0);
	return !bytes_that_are(pinned, 3);
}

/*
 * Without an event, the second stream is too early, so that a test sees a missing event. If this
 * test was not scheduled for so long, the second stream can be late: try again, more slowly.
 */
static void test_that_order_is_needed(void)
{
	CUstream one = stream_or_bail(), other = stream_or_bail();
	bool early = comes_too_early(one, other, SLOW);

	if (cuda.standin_slow)
		ok(early || comes_too_early(one, other, 10 * SLOW) ||
		   comes_too_early(one, other, 100 * SLOW),
		   "streams are in no order by themselves");
	cuda_ok(cuda.cuStreamDestroy_v2(one));
	cuda_ok(cuda.cuStreamDestroy_v2(other));
}

/* Whoever waits for the context of what is captured spoils it; that is told at its end. */
static void test_capture(void)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream = stream_or_bail(), other = stream_or_bail();
	CUevent event = event_or_bail();
	CUgraph graph = NULL;

	cuda_ok(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	cuda_ok(cuda.cuMemsetD8Async(first, 1, BYTES, stream));
	/* The manual does not tell which calls it holds to be unsafe. */
	if (cuda.standin_counts)
		cuda_ok(cuda.cuStreamSynchronize(other));
	cuda_ok(cuda.cuStreamEndCapture(stream, &graph));
	cuda_ok(cuda.cuGraphDestroy(graph));

	cuda_ok(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	cuda_ok(cuda.cuEventRecord(event, stream));
	ok(cuda.cuEventSynchronize(event), "what is captured is nothing to wait for");
	/* That the capture is spoilt by it is not said. */
	graph = NULL;
	if (!cuda.cuStreamEndCapture(stream, &graph))
		cuda.cuGraphDestroy(graph);

	cuda_ok(cuda.cuThreadExchangeStreamCaptureMode(&relaxed));
	cuda_ok(cuda.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	cuda_returns(cuda.cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	cuda_returns(cuda.cuStreamEndCapture(stream, &graph),
		     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	cuda_ok(cuda.cuThreadExchangeStreamCaptureMode(&relaxed));
	cuda_ok(cuda.cuEventDestroy_v2(event));
	cuda_ok(cuda.cuStreamDestroy_v2(other));
	cuda_ok(cuda.cuStreamDestroy_v2(stream));
}

/* A range that is registered in part, or in two, is none to copy. */
static void test_partly_pinned(void)
{
	CUstream stream = stream_or_bail();
	char *memory = aligned_alloc(4096, BYTES);

	if (!memory)
		tap_bail("aligned_alloc");
	cuda_ok(cuda.cuMemHostRegister_v2(memory, BYTES / 2, 0));
	cuda_ok(cuda.cuMemcpyHtoDAsync_v2(first, memory, BYTES / 2, stream));
	cuda_returns(cuda.cuMemcpyHtoDAsync_v2(first, memory, BYTES, stream),
		     CUDA_ERROR_INVALID_VALUE);
	cuda_ok(cuda.cuStreamSynchronize(stream));
	/* Of two that follow each other the manual says nothing; we do not ask for it. */
	if (cuda.standin_counts) {
		cuda_ok(cuda.cuMemHostRegister_v2(memory + BYTES / 2, BYTES / 2, 0));
		cuda_returns(cuda.cuMemcpyDtoHAsync_v2(memory, first, BYTES, stream),
			     CUDA_ERROR_INVALID_VALUE);
		cuda_ok(cuda.cuMemHostUnregister(memory + BYTES / 2));
	}
	cuda_ok(cuda.cuMemHostUnregister(memory));
	cuda_ok(cuda.cuStreamDestroy_v2(stream));
	free(memory);
}

static void CUDA_CB call_cuda(void *data)
{
	size_t unused;

	*(CUresult *)data = cuda.cuMemGetInfo_v2(&unused, &unused);
}

/* Where it may, the manual does not promise what happens: the real one is not asked. */
static void test_host_function(void)
{
	CUstream stream = stream_or_bail();
	CUresult result = CUDA_SUCCESS;

	cuda_ok(cuda.cuLaunchHostFunc(stream, call_cuda, &result));
	cuda_ok(cuda.cuStreamSynchronize(stream));
	ok(result, "a stream's host function may not call CUDA (%d)", result);
	cuda_ok(cuda.cuStreamDestroy_v2(stream));
}

/* The real one has no fault at hand. */
static void test_poison(CUdevice device)
{
	CUcontext context = current_context(&cuda), popped;
	CUstream stream = stream_or_bail();
	CUevent event = event_or_bail();
	size_t unused;

	cuda.standin_poison("cuMemcpyDtoHAsync_v2", 1, CUDA_ERROR_ECC_UNCORRECTABLE);
	cuda_ok(cuda.cuMemcpyDtoHAsync_v2(pinned, first, BYTES, stream));
	cuda.cuEventRecord(event, stream);
	cuda_returns(cuda.cuEventSynchronize(event), CUDA_ERROR_ECC_UNCORRECTABLE);
	cuda_returns(cuda.cuStreamQuery(stream), CUDA_ERROR_ECC_UNCORRECTABLE);
	cuda_returns(cuda.cuMemGetInfo_v2(&unused, &unused), CUDA_ERROR_ECC_UNCORRECTABLE);
	cuda_ok(cuda.cuCtxPopCurrent_v2(&popped));
	cuda_ok(cuda.cuDevicePrimaryCtxReset_v2(device));
	cuda_returns(cuda.cuCtxPushCurrent_v2(context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

int main(void)
{
	CUcontext context;
	CUdevice device;
	void *memory;

	cuda = cuda_or_skip();
	if (cuda.cuInit(0) || cuda.cuDeviceGet(&device, 0) ||
	    cuda.cuDevicePrimaryCtxRetain(&context, device) || cuda.cuCtxPushCurrent_v2(context) ||
	    cuda.cuMemHostAlloc(&memory, BYTES + sizeof(*gate), 0) ||
	    cuda.cuMemAlloc_v2(&first, BYTES) || cuda.cuMemAlloc_v2(&second, BYTES))
		tap_bail("a context and memory");
	pinned = memory;
	gate = (uint32_t *)(pinned + BYTES);
	test_errors();
	test_order();
	test_recorded_anew();
	test_that_order_is_needed();
	test_partly_pinned();
	test_capture();
	if (cuda.standin_poison) {
		test_queues("1", true);
		test_queues("2", false);
		test_host_function();
		test_poison(device);
	} else {
		cuda_ok(cuda.cuMemFree_v2(first));
		cuda_ok(cuda.cuMemFree_v2(second));
		cuda_ok(cuda.cuMemFreeHost(memory));
	}
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(device));
	nothing_is_on_devices(&cuda);
	nothing_is_retained(&cuda);
	return tap_end();
}
