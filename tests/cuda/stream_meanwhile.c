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

static struct cuda cuda;
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

static void step(struct worker *worker)
{
	struct xla_device *its = &worker->its;
	uint32_t content = (uint32_t)++its->xla.run * VALUES;
	unsigned int i;

	for (i = 0; i < VALUES; i++)
		worker->failed += !xla_put_value(its, "fork", i, BLOCK, content + i);
	worker->failed += !xla_tie(&its->xla, its->tokens, VALUES);
	for (i = VALUES; i-- > 0; )
		worker->failed += !xla_take_announced(&its->xla, "fork", (int32_t)i,
						      its->tokens + XLA_TOKEN_BYTES * i,
						      its->results + i * BLOCK, BLOCK);
	worker->failed += xla_good(its, VALUES, BLOCK, content) != VALUES;
}

static void *run_steps(void *data)
{
	struct worker *worker = data;

	if (cuda.cuCtxPushCurrent_v2(worker->its.context))
		tap_bail("cuCtxPushCurrent_v2");
	do {
		step(worker);
		__atomic_add_fetch(&worker->steps, 1, __ATOMIC_RELEASE);
		actmem_xla_trim_devices();
	} while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE));
	return NULL;
}

/* By which call it is not told; 0: by all it is. */
static int be_told(struct xla_device *its)
{
	struct actmem_xla_transfer_stats transfers = { .size = sizeof(transfers) };
	struct actmem_xla_device_stats device = { .size = sizeof(device) };
	struct actmem_xla_stats stats = { .size = sizeof(stats) };

	if (xla_put(&its->xla, "fork", its->work, BLOCK, its->tokens) ||
	    !strstr(its->xla.words, "forked"))
		return 1;
	if (xla_take(&its->xla, its->tokens, its->work, BLOCK) ||
	    !strstr(its->xla.words, "forked"))
		return 2;
	if (xla_tie(&its->xla, its->tokens, VALUES) || !strstr(its->xla.words, "forked"))
		return 3;
	if (actmem_xla_stats(&stats) != -EOWNERDEAD ||
	    actmem_xla_device_stats(0, &device) != -EOWNERDEAD ||
	    actmem_xla_transfer_stats(0, &transfers) != -EOWNERDEAD)
		return 4;
	if (actmem_xla_set_checksum(1) != -EOWNERDEAD ||
	    actmem_xla_set_generations(1) != -EOWNERDEAD)
		return 5;
	actmem_xla_trim_devices();
	return actmem_xla_reset() || actmem_xla_trim() != -EOWNERDEAD ? 6 : 0;
}

static bool child_is_told(struct xla_device *its)
{
	int status = -1;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		is_child = 1;
		alarm(HUNG);
		exit(be_told(its));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return false;
	if (status)
		printf("# a child ended with %#x\n", (unsigned int)status);
	return !status;
}

static void test_often(struct worker *worker)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);
	unsigned int i, told = 0;
	pthread_t thread;

	thread = start_thread(run_steps, worker);
	for (i = 0; i < FORKS && told == i; i++) {
		usleep(1000);
		told += child_is_told(&worker->its);
	}
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(told == FORKS, "%u of %u children are told, and end", told, FORKS);
	ok(!worker->failed, "and their parent goes on: %s", worker->its.xla.words);
	xla_close(am, &cuda);
}

/* Each value that is put comes back, whichever lane it went through. */
static void test_trims(struct worker *worker)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);
	pthread_t thread;
	unsigned int i;

	is_over = 0;
	worker->steps = 0;
	thread = start_thread(run_steps, worker);
	for (i = 0; __atomic_load_n(&worker->steps, __ATOMIC_ACQUIRE) < STEPS; i++)
		actmem_xla_trim_devices();
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ok(!worker->failed, "%u steps have their values, and rings went %u times: %s",
	   worker->steps, i, worker->its.xla.words);
	xla_close(am, &cuda);
}

static void *fork_once(void *data)
{
	static bool told;

	told = child_is_told(data);
	return told ? &told : NULL;
}

/* Before there is any memory: a lock is all that a child can inherit. */
static void test_lock(struct worker *worker)
{
	pthread_t thread;
	void *told;

	pthread_mutex_lock(&saved_lock);
	thread = start_thread(fork_once, &worker->its);
	pthread_join(thread, &told);
	pthread_mutex_unlock(&saved_lock);
	ok(told, "a child of a thread that has the table is told, and ends");
}

int main(void)
{
	static struct worker worker;

	cuda = xla_devices_or_skip(1);
	xla_begin(&worker.its, &cuda, 0, VALUES, BLOCK);
	test_lock(&worker);
	test_often(&worker);
	test_trims(&worker);
	xla_end(&worker.its);
	nothing_is_registered(&cuda);
	return xla_finish(&cuda, 1, 1);
}
