/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What a program that XLA runs has on a device, and in memory of ours; see xla_play.h. */
#include <stdio.h>

#include "xla_play.h"

#define CHUNK_BYTES	4096UL

struct cuda gpu;
struct xla_device its;

CUstream xla_stream_or_bail(void)
{
	CUstream stream;

	if (gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
		tap_bail("cuStreamCreate");
	return stream;
}

static uint32_t word_of(uint32_t content, uint64_t chunk)
{
	return (content * 0x9e3779b9U) ^ ((uint32_t)chunk * 0x85ebca6bU) ^ content;
}

void xla_compute(struct xla *xla, CUdeviceptr value, uint64_t bytes, uint32_t content)
{
	uint64_t offset, length;

	for (offset = 0; offset < bytes; offset += CHUNK_BYTES) {
		length = bytes - offset < CHUNK_BYTES ? bytes - offset : CHUNK_BYTES;
		gpu.cuMemsetD32Async(value + offset, word_of(content, offset / CHUNK_BYTES),
				      length / 4, xla->stream);
	}
}

bool xla_is_content(const void *memory, uint64_t bytes, uint32_t content)
{
	const uint32_t *words = memory;
	uint64_t i;

	for (i = 0; i < bytes / 4; i++)
		if (words[i] != word_of(content, i * 4 / CHUNK_BYTES))
			return false;
	return true;
}

struct actmem *xla_open(const struct memory *memory)
{
	struct actmem_xla_options options = {
		.size = sizeof(options), .ring_bytes = memory->ring_bytes,
		.budget_bytes = memory->budget_bytes, .limit_bytes = memory->limit_bytes,
		.grow_bytes = memory->grow_bytes, .spill_paths = &memory->spill,
		.spill_path_count = !!memory->spill,
	};
	struct actmem *am = open_or_bail();

	if (actmem_xla_attach(am, &options))
		tap_bail("actmem_xla_attach");
	return am;
}

void xla_close(struct actmem *am)
{
	struct actmem_xla_stats stats;

	actmem_xla_trim_devices();
	returns(actmem_xla_trim(), 0);
	stats = xla_stats();
	ok(!stats.live_blocks && !stats.live_bytes && !stats.generations &&
	   !__atomic_load_n(&xla_errors, __ATOMIC_RELAXED),
	   "no block, no generation and no error is left");
	counters_are_zero(am);
	returns(actmem_xla_close(am), 0);
}

void xla_run(void (*test)(void), struct memory memory)
{
	struct actmem *am = xla_open(&memory);

	test();
	xla_close(am);
}

struct actmem_xla_stats xla_stats(void)
{
	struct actmem_xla_stats stats = { .size = sizeof(stats) };

	actmem_xla_stats(&stats);
	return stats;
}

struct actmem_xla_transfer_stats xla_transfers(void)
{
	struct actmem_xla_transfer_stats stats = { .size = sizeof(stats) };

	actmem_xla_transfer_stats(0, &stats);
	return stats;
}

struct actmem_store_stats xla_store_stats(void)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };

	if (actmem_xla_store_stats(&stats))
		tap_bail("actmem_xla_store_stats");
	return stats;
}

void xla_devices_or_skip(int wanted)
{
	char text[16];
	int count;

	snprintf(text, sizeof(text), "%d", wanted);
	setenv("STANDIN_CUDA_DEVICES", text, 1);
	gpu = cuda_or_skip();
	if (gpu.cuInit(0) || gpu.cuDeviceGetCount(&count))
		tap_bail("cuInit");
	if (count < wanted) {
		tap_skip("%d GPU here, of %d that are needed", count, wanted);
		exit(tap_end());
	}
}

void xla_standin_or_skip(void)
{
	if (gpu.standin_counts)
		return;
	tap_skip("a real GPU does not fail when it is asked to, and its machine knows where it is");
	exit(tap_end());
}

void xla_begin(struct xla_device *device, int ordinal, unsigned int values, uint64_t bytes)
{
	void *memory;

	device->xla.device = ordinal;
	if (gpu.cuDevicePrimaryCtxRetain(&device->context, ordinal) ||
	    gpu.cuCtxPushCurrent_v2(device->context) ||
	    gpu.cuMemAlloc_v2(&device->tokens, values * XLA_TOKEN_BYTES) ||
	    gpu.cuMemAlloc_v2(&device->work, bytes) ||
	    gpu.cuMemAlloc_v2(&device->results, values * bytes) ||
	    gpu.cuMemHostAlloc(&memory, values * bytes, 0))
		tap_bail("device %d", ordinal);
	device->seen = memory;
	device->xla.stream = xla_stream_or_bail();
}

void xla_end(struct xla_device *device)
{
	if (gpu.cuStreamDestroy_v2(device->xla.stream) || gpu.cuMemFree_v2(device->tokens) ||
	    gpu.cuMemFree_v2(device->work) || gpu.cuMemFree_v2(device->results) ||
	    gpu.cuMemFreeHost(device->seen))
		tap_bail("memory of device %d back", device->xla.device);
}

void xla_see(struct xla_device *device, uint64_t bytes)
{
	CUstream stream = device->xla.stream;

	if (gpu.cuMemcpyDtoHAsync_v2(device->seen, device->results, bytes, stream) ||
	    gpu.cuStreamSynchronize(stream))
		tap_bail("results of device %d", device->xla.device);
}

bool xla_put_value(struct xla_device *device, const char *site, unsigned int value, uint64_t bytes,
		   uint32_t content)
{
	xla_compute(&device->xla, device->work, bytes, content);
	return xla_put(&device->xla, site, device->work, bytes, xla_token(device, value));
}

bool xla_put_step(struct xla_device *device, const char *site, unsigned int values, uint64_t bytes,
		  uint32_t content)
{
	bool done = true;
	unsigned int i;

	for (i = 0; i < values; i++)
		done = done && xla_put_value(device, site, i, bytes, content + i);
	xla_compute(&device->xla, device->work, bytes, 0);
	return done;
}

unsigned int xla_good(struct xla_device *device, unsigned int values, uint64_t bytes,
		      uint32_t content)
{
	unsigned int good = 0, i;

	xla_see(device, values * bytes);
	for (i = 0; i < values; i++)
		good += xla_is_content(device->seen + i * bytes, bytes, content + i);
	return good;
}

bool xla_take_step(struct xla_device *device, const char *site, unsigned int values, uint64_t bytes)
{
	struct xla *xla = &device->xla;
	bool done = true;

	while (done && values--) {
		CUdeviceptr result = device->results + values * bytes;

		done = site ? xla_take_announced(xla, site, (int32_t)values, xla_token(device, values),
						 result, bytes) :
			      xla_take(xla, xla_token(device, values), result, bytes);
	}
	if (!done)
		printf("# %s\n", xla->words);
	return done;
}

void xla_start(unsigned int values, uint64_t bytes)
{
	xla_devices_or_skip(1);
	xla_begin(&its, 0, values, bytes);
}

int xla_stop(void)
{
	xla_end(&its);
	return xla_finish(1, 1);
}

int xla_finish(int devices, unsigned int times)
{
	int i;

	for (i = 0; i < devices * (int)times; i++)
		cuda_ok(gpu.cuDevicePrimaryCtxRelease_v2(i % devices));
	nothing_is_on_devices(&gpu);
	nothing_is_retained(&gpu);
	return tap_end();
}
