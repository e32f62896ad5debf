/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * XLA's streams may be of green contexts, which have a part of the GPU. They share the ring of the
 * device, unless libcuda.so.1 is older than CUDA 12.5 and does not say whose they are.
 */
#include <dlfcn.h>

#include "xla_play.h"

#define BLOCK	(64 * 1024UL)
#define VALUES	12

static struct cuda cuda;
static struct xla_device its;
static CUstream streams[2];		/* of the primary context, and of the green one */
static CUgreenCtx green;

static void make_green(void)
{
	CUdevResourceDesc described;
	CUdevResource all;

	if (cuda.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) ||
	    cuda.cuDevResourceGenerateDesc(&described, &all, 1) ||
	    cuda.cuGreenCtxCreate(&green, described, 0, CU_GREEN_CTX_DEFAULT_STREAM) ||
	    cuda.cuGreenCtxStreamCreate(&streams[1], green, CU_STREAM_NON_BLOCKING, 0))
		tap_bail("a green context");
}

static bool tells_owner(void)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamGetCtx_v2");
}

/* Values are put on the one stream and taken on the other, after it. */
static void pass(unsigned int from, unsigned int to, uint32_t content)
{
	unsigned int i, taken = 0;

	its.xla.run++;
	its.xla.stream = streams[from];
	ok(xla_put_step(&its, "green", VALUES, BLOCK, content), "values are put: %s",
	   its.xla.words);
	cuda_returns(cuda.cuStreamSynchronize(streams[from]), CUDA_SUCCESS);
	its.xla.stream = streams[to];
	for (i = VALUES; i-- > 0; )
		taken += xla_take(&its.xla, its.tokens + XLA_TOKEN_BYTES * i,
				  its.results + i * BLOCK, BLOCK);
	ok(taken == VALUES && xla_good(&its, VALUES, BLOCK, content) == VALUES,
	   "and come back on the other stream: %s", its.xla.words);
}

static void test_ring(const char *slow_function)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);
	uint64_t one;

	slow(&cuda, slow_function, 500);
	its.xla.run++;
	its.xla.stream = streams[0];
	ok(xla_put(&its.xla, "one", its.work, BLOCK, its.tokens) &&
	   xla_take(&its.xla, its.tokens, its.results, BLOCK), "a value passes the ring");
	one = xla_transfers().ring_bytes;
	pass(0, 1, 1);
	pass(1, 0, 100);
	pass(1, 1, 200);
	ok(xla_transfers().ring_bytes == (tells_owner() ? 1 : 2) * one,
	   "%s of %llu bytes", tells_owner() ? "they share a ring" : "each has a ring",
	   (unsigned long long)one);
	slow(&cuda, slow_function, 0);
	xla_close(am, &cuda);
}

/* What the device has is not of the green context that used it first. */
static void test_destroy(void)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);

	pass(1, 1, 300);
	cuda_returns(cuda.cuStreamDestroy_v2(streams[1]), CUDA_SUCCESS);
	if (!tells_owner())
		actmem_xla_trim_devices();
	cuda_returns(cuda.cuGreenCtxDestroy(green), CUDA_SUCCESS);
	pass(0, 0, 400);
	xla_close(am, &cuda);
}

int main(void)
{
	cuda = xla_devices_or_skip(1);
	xla_begin(&its, &cuda, 0, VALUES, BLOCK);
	streams[0] = its.xla.stream;
	make_green();
	test_ring("cuMemcpyDtoHAsync_v2");
	test_ring("cuMemcpyHtoDAsync_v2");
	test_ring("cuMemcpyDtoDAsync_v2");
	test_destroy();
	its.xla.stream = streams[0];
	xla_end(&its);
	return xla_finish(&cuda, 1, 1);
}
