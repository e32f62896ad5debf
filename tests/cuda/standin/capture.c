/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Streams that are captured: what they are given to do is left undone, and waiting for any
 * of it, or for their whole context, fails, and spoils the capture, as cuda.h says. What
 * is captured cannot be launched.
 *
 * So do calls that may wait for the device by themselves, by whom the mode of a capture
 * keeps from them: the thread that captures, or all. A stream that waits for an event of
 * one that is captured would be captured itself; here that fails.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

struct capture {
	struct capture *next;
	CUstream stream;
	CUcontext context;
	CUstreamCaptureMode mode;
	pthread_t thread;
	bool invalidated;
};

struct CUgraph_st {
	char unused;
};

static struct capture *captures;
static __thread CUstreamCaptureMode thread_mode;	/* of cuda.h the first, GLOBAL */

static const char *const unsafe[] = {
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemFreeHost",
	"cuMemHostRegister_v2", "cuMemHostUnregister", "cuEventQuery",
};

static bool is_unsafe(const char *function)
{
	size_t i;

	for (i = 0; i < sizeof(unsafe) / sizeof(unsafe[0]); i++)
		if (!strcmp(unsafe[i], function))
			return true;
	return false;
}

static bool keeps_from_it(const struct capture *capture)
{
	if (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
	    thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return pthread_equal(capture->thread, pthread_self()) ||
	       (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult capture_forbids(const char *function)
{
	CUresult result = CUDA_SUCCESS;
	struct capture *capture;

	if (!captures || !is_unsafe(function))
		return CUDA_SUCCESS;
	for (capture = captures; capture; capture = capture->next) {
		if (keeps_from_it(capture)) {
			capture->invalidated = true;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

CUresult capture_forbids_waiting(CUcontext context, CUstream stream)
{
	CUresult result = CUDA_SUCCESS;
	struct capture *capture;

	for (capture = captures; capture; capture = capture->next) {
		if (stream ? capture->stream == stream : capture->context == context) {
			capture->invalidated = true;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

static struct capture **find(CUstream stream)
{
	struct capture **link = &captures;

	while (*link && (*link)->stream != stream)
		link = &(*link)->next;
	return link;
}

bool stream_is_captured(CUstream stream)
{
	return *find(stream);
}

void capture_drop(CUstream stream)
{
	struct capture **link = find(stream), *capture = *link;

	if (capture)
		*link = capture->next;
	free(capture);
}

void captures_end_context(CUcontext context)
{
	struct capture **link = &captures, *capture;

	while ((capture = *link)) {
		if (capture->context == context) {
			*link = capture->next;
			free(capture);
		} else {
			link = &capture->next;
		}
	}
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	struct capture *capture;

	ENTER();
	TRY(mode > CU_STREAM_CAPTURE_MODE_RELAXED ? CUDA_ERROR_INVALID_VALUE :
	    stream_check(hStream));
	if (stream_is_captured(hStream))
		return CUDA_ERROR_ILLEGAL_STATE;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*capture = (struct capture){ captures, hStream, stream_context(hStream), mode,
				     pthread_self(), false };
	captures = capture;
	return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CUresult result;
	struct capture **link, *capture;

	ENTER();
	TRY(phGraph ? stream_check(hStream) : CUDA_ERROR_INVALID_VALUE);
	link = find(hStream);
	capture = *link;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	*phGraph = capture->invalidated ? NULL : calloc(1, sizeof(**phGraph));
	result = *phGraph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*link = capture->next;
	free(capture);
	return result;
}

CUresult cuGraphDestroy(CUgraph hGraph)
{
	ENTER();
	free(hGraph);
	return hGraph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
	const struct capture *capture;

	ENTER();
	TRY(captureStatus ? stream_check(hStream) : CUDA_ERROR_INVALID_VALUE);
	capture = *find(hStream);
	*captureStatus = !capture ? CU_STREAM_CAPTURE_STATUS_NONE : capture->invalidated ?
			 CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	ENTER();
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
