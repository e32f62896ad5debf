/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What comes meanwhile, as threads are in handlers. Forks: whatever lock one of them holds,
 * a child is told that nothing here is its own, by each call, and ends; and its parent goes
 * on. And rings that are given back.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xla/generation.h"
#include "xla_play.h"

#define BLOCK	(32 * 1024UL)
#define VALUES	4
#define FORKS	40
#define STEPS	150
#define HUNG	20		/* seconds */

static int is_over, is_child;

/* LeakSanitizer asks: a child does not see what the stacks of other threads had. */
int __lsan_is_turned_off(void) __attribute__((visibility("default")));

int __lsan_is_turned_off(void)
{
	return is_child;
}

/* Until told to end: at least one step. */
struct worker {
	struct xla_device its;
	unsigned int failed, steps;
};

static struct worker worker;

static void step(void)
{
	struct xla_device *own = &worker.its;
	uint32_t content = (uint32_t)++own->xla.run * VALUES;

	worker.failed += !xla_put_step(own, "fork", VALUES, BLOCK, content) ||
			  !xla_tie(&own->xla, own->tokens, VALUES) ||
			  !xla_take_step(own, "fork", VALUES, BLOCK) ||
			  xla_good(own, VALUES, BLOCK, content) != VALUES;
}

static void *run_steps(void *unused)
{
	if (gpu.cuCtxPushCurrent_v2(worker.its.context))
		tap_bail("cuCtxPushCurrent_v2");
	do {
		step();
		__atomic_add_fetch(&worker.steps, 1, __ATOMIC_RELEASE);
		actmem_xla_trim_devices();
	} while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE));
	return unused;
}

/* By which call it is not told; 0: by all it is. */
static int be_told(struct xla_device *own)
{
	struct actmem_xla_transfer_stats transfers = { .size = sizeof(transfers) };
	struct actmem_xla_device_stats device = { .size = sizeof(device) };
	struct actmem_xla_stats stats = { .size = sizeof(stats) };

	if (xla_put(&own->xla, "fork", own->work, BLOCK, own->tokens) ||
	    !strstr(own->xla.words, "forked"))
		return 1;
	if (xla_take(&own->xla, own->tokens, own->work, BLOCK) ||
	    !strstr(own->xla.words, "forked"))
		return 2;
	if (xla_tie(&own->xla, own->tokens, VALUES) || !strstr(own->xla.words, "forked"))
		return 3;
	if (actmem_xla_stats(&stats) != -EOWNERDEAD ||
	    actmem_xla_device_stats(0, &device) != -EOWNERDEAD ||
	    actmem_xla_transfer_stats(0, &transfers) != -EOWNERDEAD)
		return 4;
	if (actmem_xla_set_checksum(1) != -EOWNERDEAD ||
	    actmem_xla_set_generations(1) != -EOWNERDEAD)
		return 5;
	actmem_xla_trim_devices();
	return actmem_xla_reset(NULL, 0) || actmem_xla_trim() != -EOWNERDEAD ? 6 : 0;
}

static bool child_is_told(struct xla_device *own)
{
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		is_child = 1;
		alarm(HUNG);
		exit(be_told(own));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	if (status)
		printf("# a child ended with %#x\n", (unsigned int)status);
	return !status;
}

static void test_often(void)
{
	pthread_t thread = start_thread(run_steps, NULL);
	unsigned int i, told = 0;

	for (i = 0; i < FORKS && told == i; i++) {
		usleep(1000);
		told += child_is_told(&worker.its);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(told == FORKS, "%u of %u children are told, and end", told, FORKS);
	ok(!worker.failed, "and their parent goes on: %s", worker.its.xla.words);
}

/* Each value that is put comes back, whichever lane it went through. */
static void test_trims(void)
{
	pthread_t thread;
	unsigned int i;

	is_over = 0;
	worker.steps = 0;
	thread = start_thread(run_steps, NULL);
	for (i = 0; __atomic_load_n(&worker.steps, __ATOMIC_ACQUIRE) < STEPS; i++)
		actmem_xla_trim_devices();
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(!worker.failed, "%u steps have their values, and rings went %u times: %s",
	   worker.steps, i, worker.its.xla.words);
}

static void *fork_once(void *data)
{
	static bool told;

	told = child_is_told(data);
	return told ? &told : NULL;
}

/* Before there is any memory: a lock is all that a child can inherit. */
static void test_lock(void)
{
	pthread_t thread;
	void *told;

	pthread_mutex_lock(&saved_lock);
	thread = start_thread(fork_once, &worker.its);
	pthread_join(thread, &told);
	pthread_mutex_unlock(&saved_lock);
	ok(told, "a child of a thread that has the table is told, and ends");
}

int main(void)
{
	xla_devices_or_skip(1);
	xla_begin(&worker.its, 0, VALUES, BLOCK);
	test_lock();
	XLA_RUN(test_often, .ring_bytes = 32 * BLOCK);
	XLA_RUN(test_trims, .ring_bytes = 32 * BLOCK);
	xla_end(&worker.its);
	nothing_is_registered(&gpu);
	return xla_finish(1, 1);
}
