/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * XLA's streams may be of green contexts, which have a part of the GPU. They share the ring of the
 * device, unless libcuda.so.1 is older than CUDA 12.5 and does not say whose they are.
 */
#include <dlfcn.h>

#include "xla_play.h"

#define BLOCK	(64 * 1024UL)
#define VALUES	12

static CUstream streams[2];		/* of the primary context, and of the green one */
static CUgreenCtx green;

static void make_green(void)
{
	CUdevResourceDesc described;
	CUdevResource all;

	if (gpu.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM) ||
	    gpu.cuDevResourceGenerateDesc(&described, &all, 1) ||
	    gpu.cuGreenCtxCreate(&green, described, 0, CU_GREEN_CTX_DEFAULT_STREAM) ||
	    gpu.cuGreenCtxStreamCreate(&streams[1], green, CU_STREAM_NON_BLOCKING, 0))
		tap_bail("a green context");
}

static bool tells_owner(void)
{
	return dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamGetCtx_v2");
}

/* Values are put on the one stream and taken on the other, after it. */
static void pass(unsigned int from, unsigned int to, uint32_t content)
{
	bool taken;

	its.xla.run++;
	its.xla.stream = streams[from];
	ok(xla_put_step(&its, "green", VALUES, BLOCK, content), "values are put: %s",
	   its.xla.words);
	cuda_ok(gpu.cuStreamSynchronize(streams[from]));
	its.xla.stream = streams[to];
	taken = xla_take_step(&its, NULL, VALUES, BLOCK);
	ok(taken && xla_good(&its, VALUES, BLOCK, content) == VALUES,
	   "and come back on the other stream: %s", its.xla.words);
}

static const char *slow_function;

static void test_ring(void)
{
	uint64_t one;

	slow(&gpu, slow_function, 500);
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
	slow(&gpu, slow_function, 0);
}

/* What the device has is not of the green context that used it first. */
static void test_destroy(void)
{
	pass(1, 1, 300);
	cuda_ok(gpu.cuStreamDestroy_v2(streams[1]));
	if (!tells_owner())
		actmem_xla_trim_devices();
	cuda_ok(gpu.cuGreenCtxDestroy(green));
	pass(0, 0, 400);
}

int main(void)
{
	static const char *const functions[] = {
		"cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2",
	};
	unsigned int i;

	xla_start(VALUES, BLOCK);
	streams[0] = its.xla.stream;
	make_green();
	for (i = 0; i < 3; i++) {
		slow_function = functions[i];
		XLA_RUN(test_ring, .ring_bytes = 32 * BLOCK);
	}
	XLA_RUN(test_destroy, .ring_bytes = 32 * BLOCK);
	its.xla.stream = streams[0];
	return xla_stop();
}
