/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two devices wait for each other, as in a collective, and share a store that spills: the
 * one that is ahead leaves memory to the other one, which it waits for.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "xla_play.h"

#define DEVICES	2
#define BLOCK	(256 * 1024UL)
#define BUDGET	(16 * BLOCK)
#define VALUES	40

static struct cuda cuda;
static pthread_barrier_t collective;
static char folder[256];

struct worker {
	struct xla xla;
	CUcontext context;
	CUdeviceptr tokens, work, results;
	char *seen;
	unsigned int good, failed, puts;
};

static void CUDA_CB meet(void *data)
{
	(void)data;
	pthread_barrier_wait(&collective);
}

static void begin(struct worker *worker)
{
	int device = worker->xla.device;
	void *memory;

	if (cuda.cuDevicePrimaryCtxRetain(&worker->context, device) ||
	    cuda.cuCtxPushCurrent_v2(worker->context) ||
	    cuda.cuMemAlloc_v2(&worker->tokens, VALUES * 8) ||
	    cuda.cuMemAlloc_v2(&worker->work, BLOCK) ||
	    cuda.cuMemAlloc_v2(&worker->results, VALUES * BLOCK) ||
	    cuda.cuMemHostAlloc(&memory, VALUES * BLOCK, 0))
		tap_bail("device %d", device);
	worker->seen = memory;
	worker->xla.stream = xla_stream_or_bail(&cuda);
}

static void end(struct worker *worker)
{
	if (cuda.cuStreamDestroy_v2(worker->xla.stream) || cuda.cuMemFree_v2(worker->tokens) ||
	    cuda.cuMemFree_v2(worker->work) || cuda.cuMemFree_v2(worker->results) ||
	    cuda.cuMemFreeHost(worker->seen))
		tap_bail("memory back");
}

static void *work(void *data)
{
	struct worker *worker = data;
	struct xla *xla = &worker->xla;
	unsigned int i;

	begin(worker);
	for (i = 0; i < VALUES; i++) {
		xla_compute(xla, worker->work, BLOCK, (uint32_t)xla->device * VALUES + i);
		worker->failed += !xla_put(xla, "budget", worker->work, BLOCK,
					   worker->tokens + 8 * i);
		if (!i)
			worker->failed += cuda.cuLaunchHostFunc(xla->stream, meet, NULL) !=
					  CUDA_SUCCESS;
		__atomic_add_fetch(&worker->puts, 1, __ATOMIC_RELEASE);
	}
	for (i = VALUES; i-- > 0; )
		worker->failed += !xla_take(xla, worker->tokens + 8 * i,
					    worker->results + i * BLOCK, BLOCK);
	cuda.cuMemcpyDtoHAsync_v2(worker->seen, worker->results, VALUES * BLOCK, xla->stream);
	worker->failed += cuda.cuStreamSynchronize(xla->stream) != CUDA_SUCCESS;
	for (i = 0; i < VALUES; i++)
		worker->good += xla_is_content(worker->seen + i * BLOCK, BLOCK,
					       (uint32_t)xla->device * VALUES + i);
	end(worker);
	return NULL;
}

/* Until it has stopped, as all that it may have is in use. */
static void wait_until_stopped(const struct worker *worker)
{
	unsigned int before;

	do {
		before = __atomic_load_n(&worker->puts, __ATOMIC_ACQUIRE);
		usleep(200000);
	} while (!before || __atomic_load_n(&worker->puts, __ATOMIC_ACQUIRE) != before);
}

int main(void)
{
	static struct worker workers[DEVICES];
	struct memory memory = {
		.ring_bytes = MIB, .budget_bytes = BUDGET, .grow_bytes = 2 * MIB, .spill = folder,
	};
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
	snprintf(folder, sizeof(folder), "%s/budget-XXXXXX",
		 getenv("SPILL") ? getenv("SPILL") : "build/tests");
	if (!mkdtemp(folder))
		tap_bail("%s", folder);
	am = xla_open(&memory);
	pthread_barrier_init(&collective, NULL, DEVICES);
	for (i = DEVICES; i-- > 0; ) {
		workers[i].xla = (struct xla){ .cuda = &cuda, .device = i, .run = 7 };
		if (pthread_create(&threads[i], NULL, work, &workers[i]))
			tap_bail("pthread_create");
		if (i)
			wait_until_stopped(&workers[i]);
	}
	for (i = 0; i < DEVICES; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < DEVICES; i++)
		ok(workers[i].good == VALUES && !workers[i].failed,
		   "device %d has its own values (%u of %u): %s", i, workers[i].good, VALUES,
		   workers[i].xla.words);
	xla_close(am, &cuda);
	rmdir(folder);
	for (i = 0; i < DEVICES; i++)
		cuda_returns(cuda.cuDevicePrimaryCtxRelease_v2(i), CUDA_SUCCESS);
	pthread_barrier_destroy(&collective);
	nothing_is_on_devices(&cuda);
	nothing_is_retained(&cuda);
	return tap_end();
}
