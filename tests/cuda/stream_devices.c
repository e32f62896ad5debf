/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two devices at the same time: each has its own ring, streams and blocks, and a token
 * of one is nothing to the other.
 */
#include <pthread.h>
#include <stdio.h>
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
	struct xla_device its;
	unsigned int good, wrong_calls;
	bool refused;
};

static void step(struct worker *worker)
{
	struct xla_device *its = &worker->its;
	struct xla *xla = &its->xla;
	uint32_t content = (uint32_t)(xla->run * VALUES);
	unsigned int i;

	for (i = 0; i < VALUES; i++)
		worker->wrong_calls += !xla_put_value(its, "devices", i, BLOCK, content + i);
	for (i = VALUES; i-- > 0; ) {
		worker->wrong_calls += !xla_take(xla, its->tokens + 8 * i, its->work, BLOCK);
		cuda.cuMemcpyDtoDAsync_v2(its->results + i * BLOCK, its->work, BLOCK, xla->stream);
	}
	worker->good += xla_good(its, VALUES, BLOCK, content);
	xla->run += DEVICES;
}

/* The number that the other device has for a value, on this one. */
static bool is_refused(struct worker *worker)
{
	struct xla_device *its = &worker->its;
	uint64_t token = 0;

	cuda.cuMemcpyDtoH_v2(&token, tokens_of[!its->xla.device], sizeof(token));
	cuda.cuMemcpyHtoD_v2(its->tokens + 8, &token, sizeof(token));
	return !xla_take(&its->xla, its->tokens + 8, its->work, BLOCK) &&
	       strstr(its->xla.words, "are wanted on GPU device");
}

static void *work(void *data)
{
	struct worker *worker = data;
	struct xla_device *its = &worker->its;
	unsigned int i;

	xla_begin(its, &cuda, its->xla.device, VALUES, BLOCK);
	tokens_of[its->xla.device] = its->tokens;
	for (i = 0; i < STEPS; i++)
		step(worker);
	worker->wrong_calls += !xla_put(&its->xla, "devices", its->work, BLOCK, its->tokens);
	cuda.cuStreamSynchronize(its->xla.stream);
	pthread_barrier_wait(&meet);
	worker->refused = is_refused(worker);
	pthread_barrier_wait(&meet);
	worker->wrong_calls += !xla_take(&its->xla, its->tokens, its->work, BLOCK);
	cuda.cuStreamSynchronize(its->xla.stream);
	xla_end(its);
	return NULL;
}

int main(void)
{
	static struct worker workers[DEVICES];
	struct memory memory = { .ring_bytes = MIB };
	struct actmem_xla_transfer_stats stats;
	pthread_t threads[DEVICES];
	struct actmem *am;
	int i;

	cuda = xla_devices_or_skip(DEVICES);
	am = xla_open(&memory);
	pthread_barrier_init(&meet, NULL, DEVICES);
	for (i = 0; i < DEVICES; i++) {
		workers[i].its.xla = (struct xla){ .device = i, .run = i };
		threads[i] = start_thread(work, &workers[i]);
	}
	for (i = 0; i < DEVICES; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < DEVICES; i++) {
		ok(workers[i].good == STEPS * VALUES && !workers[i].wrong_calls,
		   "device %d has its own values (%u of %u)", i, workers[i].good, STEPS * VALUES);
		ok(workers[i].refused, "and not the other one's: %s", workers[i].its.xla.words);
		ACTMEM_INIT(&stats);
		returns(actmem_xla_transfer_stats((uint32_t)i, &stats), 0);
		ok(stats.to_host_bytes_total == (STEPS * VALUES + 1) * BLOCK && stats.ring_bytes,
		   "of which %llu bytes are counted",
		   (unsigned long long)stats.to_host_bytes_total);
	}
	xla_close(am, &cuda);
	pthread_barrier_destroy(&meet);
	return xla_finish(&cuda, DEVICES, 1);
}
