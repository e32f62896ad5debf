/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Each call of CUDA that the handlers make fails once, wherever it is made: that is an
 * error in words of a put or a take, or of none, and then all works again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla_play.h"

#define BLOCK	(32 * 1024UL)
#define VALUES	4
#define IN_VAIN	10		/* failures in a row that nobody saw: there are no more */

static CUdeviceptr values;
static unsigned int left_by_puts;	/* steps in which puts left more, or less, than they should */

static const char *const functions[] = {
	"cuStreamIsCapturing", "cuStreamGetCtx_v2", "cuCtxGetId", "cuCtxPushCurrent_v2",
	"cuMemAlloc_v2", "cuMemHostAlloc",
	"cuStreamCreateWithPriority", "cuEventCreate", "cuEventRecord",
	"cuEventSynchronize", "cuStreamWaitEvent", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
	"cuMemcpyHtoDAsync_v2", "cuMemsetD32Async", "cuMemHostRegister_v2",
};

/* Without computing, so that what fails is the handlers'. The number of errors. */
static unsigned int step(unsigned int *answered)
{
	unsigned int errors = 0, put, i;

	its.xla.run++;
	*answered = 0;
	for (i = 0; i < VALUES; i++) {
		if (xla_put(&its.xla, "failures", values + i * BLOCK, BLOCK, xla_token(&its, i)))
			continue;
		errors++;
		*answered += !!*its.xla.words;
	}
	/* A put that failed has left nothing. */
	put = VALUES - errors;
	if (xla_stats().live_blocks != put)
		left_by_puts++;
	/* The last ones know their tokens. */
	if (!errors && !xla_tie(&its.xla, its.tokens, VALUES / 2)) {
		errors++;
		*answered += !!*its.xla.words;
	}
	for (i = VALUES; i-- > 0 && !errors; ) {
		if (xla_take_announced(&its.xla, "failures", (int32_t)i, xla_token(&its, i),
				       its.results + i * BLOCK, BLOCK))
			continue;
		errors++;
		*answered += !!*its.xla.words;
	}
	return errors;
}

/* Once for each call of it in a step that begins without a ring and a store. */
static void test_function(const char *function)
{
	unsigned int n, errors, answered, unanswered = 0, failures = 0, wrong = 0, after = 0;
	unsigned int in_vain = 0;
	struct actmem_xla_stats stats;

	/* Some are for what can be done without. */
	for (n = 1; in_vain < IN_VAIN; n++) {
		gpu.standin_fail(function, n, 1, CUDA_ERROR_UNKNOWN);
		errors = step(&answered);
		gpu.standin_fail("", 0, 0, 0);
		unanswered += errors - answered;
		failures += errors;
		wrong += !errors && xla_good(&its, VALUES, BLOCK, 1) != VALUES;
		gpu.cuStreamSynchronize(its.xla.stream);
		actmem_xla_reset(NULL, 0);
		/* In between the same things are still there. */
		after += step(&answered) || xla_good(&its, VALUES, BLOCK, 1) != VALUES;
		actmem_xla_trim_devices();
		actmem_xla_trim();
		stats = xla_stats();
		if (stats.live_blocks || xla_transfers().unfinished || xla_transfers().ring_bytes)
			after++;
		in_vain = errors ? 0 : in_vain + 1;
	}
	ok(failures && !unanswered && !wrong && !after && !left_by_puts,
	   "%s: %u errors, %u without words, %u steps wrong, %u afterwards, %u after puts",
	   function, failures, unanswered, wrong, after, left_by_puts);
	left_by_puts = 0;
}

static void test_functions(void)
{
	unsigned int i;

	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		test_function(functions[i]);
}

int main(void)
{
	unsigned int i;

	/* Else a region that is not registered is none of them. */
	setenv("ACTMEM_STRICT", "1", 1);
	xla_start(VALUES, BLOCK);
	xla_standin_or_skip();
	if (gpu.cuMemAlloc_v2(&values, VALUES * BLOCK))
		tap_bail("cuMemAlloc_v2");
	for (i = 0; i < VALUES; i++)
		xla_compute(&its.xla, values + i * BLOCK, BLOCK, i + 1);
	XLA_RUN(test_functions, .ring_bytes = 256 * 1024, .grow_bytes = 2 * MIB);
	cuda_ok(gpu.cuMemFree_v2(values));
	return xla_stop();
}
