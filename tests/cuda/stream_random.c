/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that put, announce and take by the handlers for CUDA in any order, each on a
 * stream of its own, with a small ring and a store that spills most, while copies are slow now
 * and then. And threads of that kind that are killed.
 */
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"
#include "xla_play.h"

#define THREADS	3
#define ROUNDS	10
#define VALUES	24
#define BYTES	(512 * 1024UL)		/* the longest */
#define BUDGET	(8 * MIB)

static char folder[PATH_MAX];
static unsigned int wrong, failed;

/* What a thread works on. */
struct worker {
	struct xla_device its;
	uint64_t seed;
	uint64_t bytes[VALUES];
	unsigned int live[VALUES], count;
	char site[32];
};

static void count_failure(struct worker *worker)
{
	printf("# %s\n", worker->its.xla.words);
	__atomic_add_fetch(&failed, 1, __ATOMIC_RELAXED);
}

static uint32_t content_of(const struct worker *worker, unsigned int value)
{
	return (uint32_t)worker->its.xla.run * VALUES + value;
}

static void put(struct worker *worker, unsigned int value)
{
	struct xla *xla = &worker->its.xla;

	worker->bytes[value] = 4 * (1 + random_below(&worker->seed, BYTES / 4));
	if (!random_below(&worker->seed, 16))
		worker->bytes[value] = 0;
	xla_compute(xla, worker->its.work, worker->bytes[value], content_of(worker, value));
	if (!xla_put(xla, worker->site, worker->its.work, worker->bytes[value],
		     xla_token(&worker->its, value)))
		count_failure(worker);
	xla_compute(xla, worker->its.work, worker->bytes[value], 0);
	worker->live[worker->count++] = value;
}

/* Of those that are live, most often the last. */
static void take(struct worker *worker)
{
	unsigned int at = worker->count - 1, value;
	struct xla *xla = &worker->its.xla;

	if (!random_below(&worker->seed, 4))
		at = (unsigned int)random_below(&worker->seed, worker->count);
	if (!random_below(&worker->seed, 4) &&
	    !xla_tie_these(xla, worker->its.tokens, worker->live, worker->count))
		count_failure(worker);
	value = worker->live[at];
	worker->live[at] = worker->live[--worker->count];
	if (!xla_take_announced(xla, worker->site, (int32_t)value, xla_token(&worker->its, value),
				worker->its.work, worker->bytes[value]))
		count_failure(worker);
	gpu.cuMemcpyDtoDAsync_v2(worker->its.results + value * BYTES, worker->its.work,
				  worker->bytes[value], xla->stream);
	xla_compute(xla, worker->its.work, worker->bytes[value], 0);
}

static void round_of(struct worker *worker)
{
	unsigned int next = 0, i;

	worker->its.xla.run += THREADS;
	while (next < VALUES || worker->count) {
		if (next < VALUES && (!worker->count || random_below(&worker->seed, 3)))
			put(worker, next++);
		else
			take(worker);
	}
	gpu.cuMemcpyDtoHAsync_v2(worker->its.seen, worker->its.results, VALUES * BYTES,
				  worker->its.xla.stream);
	if (gpu.cuStreamSynchronize(worker->its.xla.stream))
		count_failure(worker);
	for (i = 0; i < VALUES; i++)
		if (!xla_is_content(worker->its.seen + i * BYTES, worker->bytes[i],
				    content_of(worker, i)))
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void *work(void *data)
{
	static const char *const functions[] = {
		"cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
	};
	struct worker *worker = data;
	const char *function;
	unsigned int i;

	xla_begin(&worker->its, 0, VALUES, BYTES);
	for (i = 0; i < ROUNDS; i++) {
		function = functions[random_below(&worker->seed, 3)];
		slow(&gpu, function, (unsigned int)random_below(&worker->seed, 400));
		round_of(worker);
		slow(&gpu, function, 0);
	}
	xla_end(&worker->its);
	return NULL;
}

static void run_workers(struct worker *workers)
{
	pthread_t threads[THREADS];
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .its.xla.run = i, .seed = i + 1 };
		snprintf(workers[i].site, sizeof(workers[i].site), "thread %u", i);
		threads[i] = start_thread(work, &workers[i]);
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static struct actmem *open_memory(void)
{
	struct memory memory = {
		.ring_bytes = MIB,
		.budget_bytes = BUDGET,
		.spill = folder,
	};

	return xla_open(&memory);
}

/* CUDA is of no use in a child of who used it: so this comes first. */
static void test_kill(void)
{
	static struct worker workers[THREADS];
	pid_t child = fork();

	if (!child) {
		xla_devices_or_skip(1);
		open_memory();
		for (;;)
			run_workers(workers);
	}
	usleep(400000);
	kill_and_wait(child);
	ok(!count_files(folder), "one that was killed leaves no file");
}

/* With blocks, a ring and threads, and nothing ended. */
static void test_exit(void)
{
	static struct worker worker = { .seed = 1 };
	pid_t child = fork();
	unsigned int i;

	if (!child) {
		xla_devices_or_skip(1);
		open_memory();
		xla_begin(&worker.its, 0, VALUES, BYTES);
		for (i = 0; i < VALUES; i++)
			put(&worker, i);
		take(&worker);
		exit(0);
	}
	ok(child_passed(child) && !count_files(folder), "one that just exits does so, and leaves no file");
}

int main(void)
{
	static struct worker workers[THREADS];
	struct actmem_store_stats store;
	struct actmem *am;

	make_folder(folder, sizeof(folder));
	test_kill();
	test_exit();
	xla_devices_or_skip(1);
	am = open_memory();
	actmem_xla_set_checksum(1);
	run_workers(workers);
	ok(!failed, "%u calls failed", failed);
	ok(!wrong, "%u of %u values came back as others", wrong, THREADS * ROUNDS * VALUES);
	store = xla_store_stats();
	ok(store.spilled_bytes_total && store.filled_bytes_total, "%llu bytes went through files",
	   (unsigned long long)store.filled_bytes_total);
	ok(xla_stats().checksums_total, "checksums were compared");
	xla_close(am);
	actmem_xla_set_checksum(0);
	ok(!count_files(folder), "no file is left");
	rmdir(folder);
	return xla_finish(1, THREADS);
}
