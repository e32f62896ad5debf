/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Rings are given back while another thread puts and takes.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "xla_play.h"

#define BLOCK	(32 * 1024UL)
#define VALUES	4
#define STEPS	150

static struct cuda cuda;
static CUcontext context;
static CUdeviceptr tokens, work, results;
static char *seen;
static unsigned int good, failed;
static int is_over;

static void step(struct xla *xla)
{
	unsigned int i;

	xla->run++;
	for (i = 0; i < VALUES; i++) {
		xla_compute(xla, work, BLOCK, (uint32_t)xla->run * VALUES + i);
		failed += !xla_put(xla, "trim", work, BLOCK, tokens + 8 * i);
	}
	for (i = VALUES; i-- > 0; )
		failed += !xla_take(xla, tokens + 8 * i, results + i * BLOCK, BLOCK);
	cuda.cuMemcpyDtoHAsync_v2(seen, results, VALUES * BLOCK, xla->stream);
	failed += cuda.cuStreamSynchronize(xla->stream) != CUDA_SUCCESS;
	for (i = 0; i < VALUES; i++)
		good += xla_is_content(seen + i * BLOCK, BLOCK, (uint32_t)xla->run * VALUES + i);
}

static void *run_steps(void *data)
{
	struct xla *xla = data;
	unsigned int i;

	if (cuda.cuCtxPushCurrent_v2(context))
		tap_bail("cuCtxPushCurrent_v2");
	for (i = 0; i < STEPS; i++)
		step(xla);
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* What is put comes back, whichever lane it went through. */
static void test_beside_steps(struct xla *xla)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);
	unsigned int trims = 0;
	pthread_t thread;

	if (pthread_create(&thread, NULL, run_steps, xla))
		tap_bail("pthread_create");
	for (; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); trims++)
		actmem_xla_trim_devices();
	pthread_join(thread, NULL);
	ok(good == STEPS * VALUES && !failed, "%u of %u values come back, and rings went %u times",
	   good, STEPS * VALUES, trims);
	xla_close(am, &cuda);
}

int main(void)
{
	struct xla xla = { .cuda = &cuda };
	CUdevice device;
	void *memory;

	cuda = cuda_or_skip();
	if (cuda.cuInit(0) || cuda.cuDeviceGet(&device, 0) ||
	    cuda.cuDevicePrimaryCtxRetain(&context, device) || cuda.cuCtxPushCurrent_v2(context) ||
	    cuda.cuMemAlloc_v2(&tokens, VALUES * 8) || cuda.cuMemAlloc_v2(&work, BLOCK) ||
	    cuda.cuMemAlloc_v2(&results, VALUES * BLOCK) ||
	    cuda.cuMemHostAlloc(&memory, VALUES * BLOCK, 0))
		tap_bail("a context and memory");
	seen = memory;
	xla.stream = xla_stream_or_bail(&cuda);
	test_beside_steps(&xla);
	cuda_returns(cuda.cuStreamDestroy_v2(xla.stream), CUDA_SUCCESS);
	cuda_returns(cuda.cuMemFree_v2(tokens), CUDA_SUCCESS);
	cuda_returns(cuda.cuMemFree_v2(work), CUDA_SUCCESS);
	cuda_returns(cuda.cuMemFree_v2(results), CUDA_SUCCESS);
	cuda_returns(cuda.cuMemFreeHost(seen), CUDA_SUCCESS);
	cuda_returns(cuda.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
	nothing_is_on_devices(&cuda);
	nothing_is_retained(&cuda);
	return tap_end();
}
