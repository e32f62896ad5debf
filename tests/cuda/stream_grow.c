/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory is registered before puts want it, by another thread than theirs; where that
 * fails, the put that wants more than there is says why.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(512 * 1024UL)
#define VALUES	48
#define GROW	(4 * MIB)
#define SLOW	20000		/* microseconds for each region */

static uint64_t registrations_of_this_thread(void)
{
	return counts_of(&gpu).own_registrations;
}

static uint64_t free_bytes(void)
{
	struct actmem_store_stats stats = xla_store_stats();

	return stats.memory_bytes - stats.block_bytes;
}

static bool put(unsigned int value)
{
	return xla_put(&its.xla, "grow", its.work, BLOCK, xla_token(&its, value));
}

static unsigned int take_all(unsigned int count)
{
	unsigned int good = 0;

	while (count-- > 0)
		good += xla_take(&its.xla, xla_token(&its, count), its.work, BLOCK);
	cuda_ok(gpu.cuStreamSynchronize(its.xla.stream));
	return good;
}

/* A program computes between its puts for as long as the thread takes. */
static void test_ahead(void)
{
	uint64_t before, regions;
	unsigned int i, done = 0;

	slow(&gpu, "cuMemHostRegister_v2", SLOW);
	its.xla.run++;
	ok(put(0), "the first put makes the store");
	before = registrations_of_this_thread();
	for (i = 1; i < VALUES; i++) {
		while (free_bytes() < GROW / 2)
			usleep(1000);
		done += put(i);
	}
	regions = xla_store_stats().memory_bytes / GROW;
	ok(done == VALUES - 1 && regions > 2 && registrations_of_this_thread() == before,
	   "%u puts had their memory registered for them, in %llu regions", done,
	   (unsigned long long)regions);
	ok(xla_store_stats().memory_bytes < VALUES * BLOCK + 2 * GROW, "and not much more of it");
	ok(take_all(VALUES) == VALUES, "all are taken");
	slow(&gpu, "cuMemHostRegister_v2", 0);
}

/* Without waiting for it, so that some have to. */
static void test_faster(void)
{
	unsigned int i, done = 0;

	slow(&gpu, "cuMemHostRegister_v2", SLOW);
	its.xla.run++;
	for (i = 0; i < VALUES; i++)
		done += put(i);
	ok(done == VALUES && take_all(VALUES) == VALUES, "puts that are faster wait for it");
	slow(&gpu, "cuMemHostRegister_v2", 0);
}

static void test_limit(void)
{
	unsigned int i, done = 0;

	its.xla.run++;
	for (i = 0; i < 2 * GROW / BLOCK; i++)
		done += put(i);
	ok(done == i && xla_store_stats().memory_bytes == 2 * GROW, "no more is made than the limit");
	ok(take_all(done) == done, "all are taken");
}

/* The memory that is there serves, and the put that comes to the failure tells it. */
static void test_failure(void)
{
	uint64_t before, memory_bytes;
	unsigned int done = 0;

	its.xla.run++;
	ok(put(done), "the first put");
	done++;
	gpu.standin_fail("cuMemHostRegister_v2", 1, 1000, CUDA_ERROR_OUT_OF_MEMORY);
	while (done < VALUES && put(done))
		done++;
	ok(done >= GROW / BLOCK && done < VALUES, "%u puts had memory", done);
	ok(strstr(its.xla.words, "CUDA_ERROR_OUT_OF_MEMORY") && strstr(its.xla.words, "at grow"),
	   "the next one had not: %s", its.xla.words);
	gpu.standin_fail("", 0, 0, 0);
	ok(put(done), "and has, once it can be registered");
	done++;
	/* That put may have registered no more than it needs. */
	while (free_bytes() < GROW / 2)
		usleep(1000);
	before = registrations_of_this_thread();
	memory_bytes = xla_store_stats().memory_bytes;
	while (xla_store_stats().memory_bytes < memory_bytes + GROW && put(done)) {
		done++;
		while (free_bytes() < GROW / 2)
			usleep(1000);
	}
	ok(xla_store_stats().memory_bytes > memory_bytes && registrations_of_this_thread() == before,
	   "by the thread again, which had given it up");
	ok(take_all(done) == done, "all are taken");
}

int main(void)
{
	xla_start(VALUES, BLOCK);
	XLA_RUN(test_ahead, .ring_bytes = MIB, .grow_bytes = GROW);
	XLA_RUN(test_faster, .ring_bytes = MIB, .grow_bytes = GROW);
	XLA_RUN(test_limit, .ring_bytes = MIB, .grow_bytes = GROW, .limit_bytes = 2 * GROW);
	setenv("ACTMEM_STRICT", "1", 1);
	if (gpu.standin_fail)
		XLA_RUN(test_failure, .ring_bytes = MIB, .grow_bytes = GROW);
	return xla_stop();
}
