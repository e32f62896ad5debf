/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two devices wait for each other, as in a collective, and share a store that spills: the
 * one that is ahead leaves memory to the other one, which it waits for. Each has its own
 * ring, streams and blocks, and a token of one is nothing to the other.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define DEVICES	2
#define BLOCK	(256 * 1024UL)
#define BUDGET	(16 * BLOCK)
#define VALUES	40
#define TESTS	3

static pthread_barrier_t collective;
static CUdeviceptr tokens_of[DEVICES];
static char folder[256];

struct worker {
	struct xla_device its;
	struct worker *ahead;		/* takes first, as far as it can without this one */
	unsigned int good, failed, puts;
	uint64_t stuck;			/* copies of the one ahead, while it waits for this one */
	bool announces, refused;
};

static void CUDA_CB meet(void *data)
{
	(void)data;
	pthread_barrier_wait(&collective);
}

static uint32_t content_of(const struct worker *worker, unsigned int i)
{
	return (uint32_t)worker->its.xla.device * VALUES + i;
}

static void put_all(struct worker *worker)
{
	struct xla_device *own = &worker->its;
	unsigned int i;

	for (i = 0; i < VALUES; i++) {
		worker->failed += !xla_put_value(own, "budget", i, BLOCK, content_of(worker, i));
		if (!i)
			worker->failed += gpu.cuLaunchHostFunc(own->xla.stream, meet, NULL) !=
					  CUDA_SUCCESS;
		__atomic_add_fetch(&worker->puts, 1, __ATOMIC_RELEASE);
	}
}

/* With another collective among the takes that were announced together. */
static void take_all(struct worker *worker)
{
	struct xla_device *own = &worker->its;
	unsigned int i;

	if (worker->announces)
		worker->failed += !xla_tie(&own->xla, own->tokens, VALUES);
	for (i = VALUES; i-- > 0; ) {
		worker->failed += !xla_take_announced(&own->xla, "budget", (int32_t)i,
						      xla_token(own, i),
						      own->results + i * BLOCK, BLOCK);
		if (i == VALUES - 2)
			worker->failed += gpu.cuLaunchHostFunc(own->xla.stream, meet, NULL) !=
					  CUDA_SUCCESS;
		__atomic_add_fetch(&worker->puts, 1, __ATOMIC_RELEASE);
	}
}

/* The token that the other device has for a value, on this one. */
static bool is_refused(struct worker *worker)
{
	struct xla_device *own = &worker->its;
	uint64_t token = 0;

	gpu.cuMemcpyDtoH_v2(&token, tokens_of[!own->xla.device], sizeof(token));
	gpu.cuMemcpyHtoD_v2(xla_token(own, 1), &token, sizeof(token));
	return !xla_take(&own->xla, xla_token(own, 1), own->work, BLOCK) &&
	       strstr(own->xla.words, "the program needs it on GPU device");
}

static struct actmem_xla_transfer_stats transfers_of(const struct worker *worker)
{
	struct actmem_xla_transfer_stats stats = { .size = sizeof(stats) };

	actmem_xla_transfer_stats((uint32_t)worker->its.xla.device, &stats);
	return stats;
}

/* What it has done, and what has been copied ahead for it. */
static uint64_t progress_of(const struct worker *worker)
{
	return __atomic_load_n(&worker->puts, __ATOMIC_ACQUIRE) +
	       transfers_of(worker).ahead_bytes_total;
}

/* Until it has stopped, as all that it may have is in use. */
static void wait_until_stopped(const struct worker *worker)
{
	uint64_t before;

	do {
		before = progress_of(worker);
		usleep(200000);
	} while (!__atomic_load_n(&worker->puts, __ATOMIC_ACQUIRE) ||
		 progress_of(worker) != before);
}

static void *work(void *data)
{
	struct worker *worker = data;
	struct xla_device *own = &worker->its;

	xla_begin(own, own->xla.device, VALUES, BLOCK);
	put_all(worker);
	if (worker->ahead) {
		wait_until_stopped(worker->ahead);
		worker->stuck = transfers_of(worker->ahead).unfinished;
	}
	take_all(worker);
	worker->good = xla_good(own, VALUES, BLOCK, content_of(worker, 0));
	tokens_of[own->xla.device] = own->tokens;
	worker->failed += !xla_put_value(own, "budget", 0, BLOCK, 0);
	gpu.cuStreamSynchronize(own->xla.stream);
	pthread_barrier_wait(&collective);
	worker->refused = is_refused(worker);
	pthread_barrier_wait(&collective);
	worker->failed += !xla_take(&own->xla, own->tokens, own->work, BLOCK);
	gpu.cuStreamSynchronize(own->xla.stream);
	xla_end(own);
	return NULL;
}

static void test(bool announces, uint64_t ring_bytes)
{
	struct memory memory = {
		.ring_bytes = ring_bytes, .budget_bytes = BUDGET, .grow_bytes = 2 * MIB, .spill = folder,
	};
	struct worker workers[DEVICES] = { { .its.xla.run = 7 }, { .its.xla.run = 7 } };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before[DEVICES], after = { .size = sizeof(after) };
	pthread_t threads[DEVICES];
	int i;

	for (i = 0; i < DEVICES; i++) {
		before[i].size = sizeof(before[i]);
		actmem_xla_transfer_stats((uint32_t)i, &before[i]);
	}
	for (i = DEVICES; i-- > 0; ) {
		workers[i].its.xla.device = i;
		workers[i].announces = announces;
		workers[i].ahead = i ? NULL : &workers[DEVICES - 1];
		threads[i] = start_thread(work, &workers[i]);
		if (i)
			wait_until_stopped(&workers[i]);
	}
	for (i = 0; i < DEVICES; i++)
		pthread_join(threads[i], NULL);
	/* They may be behind what it waits for, in a hardware queue, and each has a block in memory. */
	ok(workers[0].stuck <= BUDGET / BLOCK / 4, "%llu copies of a device that waits are not done",
	   (unsigned long long)workers[0].stuck);
	for (i = 0; i < DEVICES; i++) {
		ok(workers[i].good == VALUES && !workers[i].failed,
		   "device %d has its own values (%u of %u)", i, workers[i].good, VALUES);
		ok(workers[i].refused, "and not the other one's: %s", workers[i].its.xla.words);
		returns(actmem_xla_transfer_stats((uint32_t)i, &after), 0);
		ok(after.to_host_bytes_total - before[i].to_host_bytes_total ==
		   (VALUES + 1) * BLOCK && after.ring_bytes, "what it copied is counted");
	}
	xla_close(am);
}

int main(void)
{
	xla_devices_or_skip(DEVICES);
	make_folder(folder, sizeof(folder));
	pthread_barrier_init(&collective, NULL, DEVICES);
	test(false, MIB);
	test(true, MIB);
	/* Slots for more than the budget. */
	test(true, 8 * BUDGET);
	rmdir(folder);
	pthread_barrier_destroy(&collective);
	return xla_finish(DEVICES, TESTS);
}
