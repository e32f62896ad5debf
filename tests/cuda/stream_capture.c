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


static bool begins(CUstream stream, CUstreamCaptureMode mode)
{
	return !gpu.cuStreamBeginCapture_v2(stream, mode);
}

/* The handlers did nothing that spoils what is captured. */
static void ends_well(CUstream stream)
{
	CUgraph graph = NULL;

	cuda_ok(gpu.cuStreamEndCapture(stream, &graph));
	if (graph)
		cuda_ok(gpu.cuGraphDestroy(graph));
}

static void test_refused(void)
{
	struct xla *xla = &its.xla;

	ok(begins(xla->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "a stream is captured");
	ok(!xla_put(xla, "captured", its.work, BLOCK, its.tokens) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "put: %s", xla->words);
	ok(!xla_take(xla, its.tokens, its.results, BLOCK) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "take refuses it");
	ok(!xla_tie(xla, its.tokens, 1) &&
	   strstr(xla->words, "xla_gpu_enable_command_buffer"), "announce refuses it");
	ok(!xla_stats().live_blocks && !xla_transfers().ring_bytes, "nothing was made for it");
	ends_well(xla->stream);
}

static bool works(uint32_t content)
{
	struct xla *xla = &its.xla;

	xla->run++;
	return xla_put_value(&its, "captured", 0, BLOCK, content) &&
	       xla_take(xla, its.tokens, its.results, BLOCK) && xla_good(&its, 1, BLOCK, content);
}

/* Of the thread itself; memory is made in it at the first put, and grows. */
static void test_beside(CUstreamCaptureMode mode, const char *which)
{
	CUstream other = xla_stream_or_bail();

	ok(begins(other, mode), "another stream is captured, %s", which);
	ok(works((uint32_t)mode + 2), "put and take work meanwhile (%s)", its.xla.words);
	ends_well(other);
	cuda_ok(gpu.cuStreamDestroy_v2(other));
}

static void test_captures(void)
{
	test_refused();
	ok(works(1), "it works when it is captured no longer (%s)", its.xla.words);
	test_beside(CU_STREAM_CAPTURE_MODE_RELAXED, "relaxed");
}

int main(void)
{
	xla_start(1, BLOCK);
	XLA_RUN(test_captures, .ring_bytes = 256 * 1024, .grow_bytes = 2 * MIB);
	return xla_stop();
}
