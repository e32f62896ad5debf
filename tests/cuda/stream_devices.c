/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two devices at the same time: each has its own ring, streams and blocks, and a token
 * of one is nothing to the other.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla_play.h"

#define DEVICES	2
#define VALUES	8
#define BLOCK	(128 * 1024UL)
#define STEPS	6

static struct cuda cuda;
static pthread_barrier_t meet;
static CUdeviceptr tokens_of[DEVICES];

struct worker {
	struct xla xla;
	CUcontext context;
	CUdeviceptr work, results;
	char *seen;
	unsigned int good, wrong_calls;
	bool refused;
};

static void step(struct worker *worker)
{
	struct xla *xla = &worker->xla;
	CUdeviceptr tokens = tokens_of[xla->device];
	uint32_t content = (uint32_t)(xla->run * VALUES);
	unsigned int i;

	for (i = 0; i < VALUES; i++) {
		xla_compute(xla, worker->work, BLOCK, content + i);
		worker->wrong_calls += !xla_put(xla, "devices", worker->work, BLOCK, tokens + 8 * i);
	}
	for (i = VALUES; i-- > 0; ) {
		worker->wrong_calls += !xla_take(xla, tokens + 8 * i, worker->work, BLOCK);
		cuda.cuMemcpyDtoDAsync_v2(worker->results + i * BLOCK, worker->work, BLOCK,
					  xla->stream);
	}
	cuda.cuMemcpyDtoHAsync_v2(worker->seen, worker->results, VALUES * BLOCK, xla->stream);
	worker->wrong_calls += cuda.cuStreamSynchronize(xla->stream) != CUDA_SUCCESS;
	for (i = 0; i < VALUES; i++)
		worker->good += xla_is_content(worker->seen + i * BLOCK, BLOCK, content + i);
	xla->run += DEVICES;
}

/* The number that the other device has for a value, on this one. */
static bool is_refused(struct worker *worker)
{
	CUdeviceptr mine = tokens_of[worker->xla.device];
	uint64_t token = 0;

	cuda.cuMemcpyDtoH_v2(&token, tokens_of[!worker->xla.device], sizeof(token));
	cuda.cuMemcpyHtoD_v2(mine + 8, &token, sizeof(token));
	return !xla_take(&worker->xla, mine + 8, worker->work, BLOCK) &&
	       strstr(worker->xla.words, "are wanted on GPU device");
}

static void *work(void *data)
{
	struct worker *worker = data;
	int device = worker->xla.device;
	unsigned int i;
	void *memory;

	if (cuda.cuDevicePrimaryCtxRetain(&worker->context, device) ||
	    cuda.cuCtxPushCurrent_v2(worker->context) ||
	    cuda.cuMemAlloc_v2(&tokens_of[device], VALUES * 8) ||
	    cuda.cuMemAlloc_v2(&worker->work, BLOCK) ||
	    cuda.cuMemAlloc_v2(&worker->results, VALUES * BLOCK) ||
	    cuda.cuMemHostAlloc(&memory, VALUES * BLOCK, 0))
		tap_bail("device %d", device);
	worker->seen = memory;
	worker->xla.stream = xla_stream_or_bail(&cuda);
	for (i = 0; i < STEPS; i++)
		step(worker);
	worker->wrong_calls += !xla_put(&worker->xla, "devices", worker->work, BLOCK,
					tokens_of[device]);
	cuda.cuStreamSynchronize(worker->xla.stream);
	pthread_barrier_wait(&meet);
	worker->refused = is_refused(worker);
	pthread_barrier_wait(&meet);
	worker->wrong_calls += !xla_take(&worker->xla, tokens_of[device], worker->work, BLOCK);
	cuda.cuStreamSynchronize(worker->xla.stream);
	if (cuda.cuStreamDestroy_v2(worker->xla.stream) || cuda.cuMemFree_v2(tokens_of[device]) ||
	    cuda.cuMemFree_v2(worker->work) || cuda.cuMemFree_v2(worker->results) ||
	    cuda.cuMemFreeHost(memory))
		tap_bail("memory back");
	return NULL;
}

int main(void)
{
	static struct worker workers[DEVICES];
	struct memory memory = { .ring_bytes = MIB };
	struct actmem_xla_transfer_stats stats;
	pthread_t threads[DEVICES];
	struct actmem *am;
	int count, i;

	setenv("STANDIN_CUDA_DEVICES", "2", 1);
	cuda = cuda_or_skip();
	if (cuda.cuInit(0) || cuda.cuDeviceGetCount(&count))
		tap_bail("cuInit");
	if (count < DEVICES) {
		tap_skip("one GPU here, of two that are needed");
		return tap_end();
	}
	am = xla_open(&memory);
	pthread_barrier_init(&meet, NULL, DEVICES);
	for (i = 0; i < DEVICES; i++) {
		workers[i].xla = (struct xla){ .cuda = &cuda, .device = i, .run = i };
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			tap_bail("pthread_create");
	}
	for (i = 0; i < DEVICES; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < DEVICES; i++) {
		ok(workers[i].good == STEPS * VALUES && !workers[i].wrong_calls,
		   "device %d has its own values (%u of %u)", i, workers[i].good, STEPS * VALUES);
		ok(workers[i].refused, "and not the other one's: %s", workers[i].xla.words);
		ACTMEM_INIT(&stats);
		returns(actmem_xla_transfer_stats((uint32_t)i, &stats), 0);
		ok(stats.to_host_bytes_total == (STEPS * VALUES + 1) * BLOCK && stats.ring_bytes,
		   "of which %llu bytes are counted",
		   (unsigned long long)stats.to_host_bytes_total);
	}
	xla_close(am, &cuda);
	for (i = 0; i < DEVICES; i++)
		cuda_returns(cuda.cuDevicePrimaryCtxRelease_v2(i), CUDA_SUCCESS);
	pthread_barrier_destroy(&meet);
	nothing_is_on_devices(&cuda);
	nothing_is_retained(&cuda);
	return tap_end();
}
