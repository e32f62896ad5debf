/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A stream that is captured, as XLA does with what it records as a CUDA graph: handlers
 * refuse it and leave the capture as it is, and so they do nothing that another thread's
 * capture forbids.
 */
#include <stdio.h>
#include <string.h>

#include "xla_play.h"

#define BLOCK	(32 * 1024UL)

static struct cuda cuda;

static bool begins(CUstream stream, CUstreamCaptureMode mode)
{
	return !cuda.cuStreamBeginCapture_v2(stream, mode);
}

/* The handlers did nothing that spoils what is captured. */
static void ends_well(CUstream stream)
{
	CUgraph graph = NULL;

	cuda_returns(cuda.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	if (graph)
		cuda_returns(cuda.cuGraphDestroy(graph), CUDA_SUCCESS);
}

static void test_refused(struct xla_device *its)
{
	struct xla *xla = &its->xla;
	struct actmem_xla_stats stats;

	ok(begins(xla->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "a stream is captured");
	ok(!xla_put(xla, "captured", its->work, BLOCK, its->tokens) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "put: %s", xla->words);
	ok(!xla_take(xla, its->tokens, its->results, BLOCK) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "take refuses it");
	ok(!xla_tie(xla, its->tokens, 1) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "announce refuses it");
	stats = xla_stats();
	ok(!stats.live_blocks && !xla_transfers().ring_bytes, "nothing was made for it");
	ends_well(xla->stream);
}

static bool works(struct xla_device *its, uint32_t content)
{
	struct xla *xla = &its->xla;

	xla->run++;
	return xla_put_value(its, "captured", 0, BLOCK, content) &&
	       xla_take(xla, its->tokens, its->results, BLOCK) && xla_good(its, 1, BLOCK, content);
}

/* Of the thread itself; memory is made in it at the first put, and grows. */
static void test_beside(struct xla_device *its, CUstreamCaptureMode mode, const char *which)
{
	CUstream other = xla_stream_or_bail(&cuda);

	ok(begins(other, mode), "another stream is captured, %s", which);
	ok(works(its, (uint32_t)mode + 2), "put and take work meanwhile (%s)", its->xla.words);
	ends_well(other);
	cuda_returns(cuda.cuStreamDestroy_v2(other), CUDA_SUCCESS);
}

int main(void)
{
	struct memory memory = { .ring_bytes = 256 * 1024, .grow_bytes = 2 * MIB };
	struct xla_device its = { .xla = { .run = 0 } };
	struct actmem *am;

	cuda = xla_devices_or_skip(1);
	xla_begin(&its, &cuda, 0, 1, BLOCK);
	am = xla_open(&memory);
	test_refused(&its);
	ok(works(&its, 1), "it works when it is captured no longer (%s)", its.xla.words);
	test_beside(&its, CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
	xla_close(am, &cuda);
	xla_end(&its);
	return xla_finish(&cuda, 1, 1);
}
