/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What is told of threads that wait for a device which goes no further: a host function
 * on XLA's stream holds up all that comes behind it.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/context.h"
#include "watch/published.h"
#include "xla_play.h"

#define BLOCK	(256 * 1024UL)
#define TRIES	20000		/* of a millisecond */

static sem_t is_held, goes_on;
static struct memory memory = { .ring_bytes = 32 * BLOCK };

static void CUDA_CB hold(void *unused)
{
	sem_post(&is_held);
	sem_wait(&goes_on);
}

static void hold_stream(void)
{
	if (gpu.cuLaunchHostFunc(its.xla.stream, hold, NULL))
		tap_bail("cuLaunchHostFunc");
	sem_wait(&is_held);
}

/* A thread that takes the value of a token, and what came of it. */
struct taker {
	struct xla xla;
	CUdeviceptr token;
	_Atomic pid_t thread;
	bool has_it;
};

static void *take(void *data)
{
	struct taker *taker = data;

	if (gpu.cuCtxPushCurrent_v2(its.context))
		tap_bail("cuCtxPushCurrent_v2");
	taker->thread = (pid_t)syscall(SYS_gettid);
	taker->has_it = xla_take(&taker->xla, taker->token, its.results, BLOCK);
	return NULL;
}

/* The wait with these words, when it is told; false: it never is. */
static bool is_told(struct actmem *am, const char *words, struct published_wait *result)
{
	struct published_waits waits;
	unsigned int i, try;

	for (try = 0; try < TRIES; try++) {
		if (!published_waits(am->stats.fd, &waits))
			return false;
		for (i = 0; i < WAITS_MAX; i++) {
			*result = waits.waits[i];
			if (result->kind == WAIT_DEVICE && !strcmp(result->words, words))
				return true;
		}
		usleep(1000);
	}
	printf("# not told: %s\n", words);
	return false;
}

static unsigned int told_of_devices(struct actmem *am)
{
	struct published_waits waits;
	unsigned int i, count = 0;

	if (!published_waits(am->stats.fd, &waits))
		tap_bail("nothing is published");
	for (i = 0; i < WAITS_MAX; i++)
		count += waits.waits[i].kind == WAIT_DEVICE;
	return count;
}

static void test_told(void)
{
	struct taker taker = { .xla = its.xla, .token = its.tokens };
	struct published_wait first, other;
	struct actmem *am = xla_open(&memory);
	pthread_t thread;

	hold_stream();
	ok(xla_put(&taker.xla, "site", its.work, BLOCK, taker.token), "put");
	ok(is_told(am, "GPU 0: a copy to the host of a value put at site", &first) && first.bytes == BLOCK &&
	   first.since && first.thread != (int)syscall(SYS_gettid),
	   "the thread that ends copies waits for that of the value");
	thread = start_thread(take, &taker);
	ok(is_told(am, "GPU 0: tokens of values", &other) && other.thread == taker.thread &&
	   other.since >= first.since, "the thread that takes it waits for its token");
	ok(is_told(am, "GPU 0: a copy to the host of a value put at site", &other) &&
	   other.since == first.since, "and the other one since then");
	sem_post(&goes_on);
	pthread_join(thread, NULL);
	ok(taker.has_it, "it is taken: %s", taker.xla.words);
	actmem_xla_trim_devices();
	ok(!told_of_devices(am), "nothing waits then");
	xla_close(am);
}

/* A take of what is not there, as memory with a block in it cannot be closed. */
static void test_closed_meanwhile(void)
{
	struct taker taker = { .xla = its.xla, .token = its.tokens };
	struct published_wait told;
	struct actmem *am = xla_open(&memory);
	pthread_t thread;

	ok(xla_put(&taker.xla, "site", its.work, BLOCK, taker.token) &&
	   xla_take(&taker.xla, taker.token, its.work, BLOCK), "put and taken");
	while (xla_transfers().unfinished)
		usleep(1000);
	/* The device's side stays; CUDA would wait for the device to unregister memory. */
	returns(actmem_xla_trim(), 0);
	hold_stream();
	thread = start_thread(take, &taker);
	ok(is_told(am, "GPU 0: tokens of values", &told), "a thread waits for its token");
	counters_are_zero(am);
	returns(actmem_xla_close(am), 0);
	sem_post(&goes_on);
	pthread_join(thread, NULL);
	ok(!taker.has_it && strstr(taker.xla.words, "after its last use"), "what is not there is not taken: %s",
	   taker.xla.words);
	actmem_xla_trim_devices();
}

int main(void)
{
	sem_init(&is_held, 0, 0);
	sem_init(&goes_on, 0, 0);
	xla_start(1, BLOCK);
	its.xla.run = 1;
	test_told();
	test_closed_meanwhile();
	return xla_stop();
}
