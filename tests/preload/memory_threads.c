/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that begin at once, take and free blocks, also each other's, and register
 * ranges of their own, while the pool gives all back again and again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "memory_test.h"

#define THREADS		6
#define ROUNDS		32
#define SLOTS		8

static pthread_barrier_t barrier;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	void *memory;
	size_t bytes;
	unsigned int seed;
} slots[SLOTS];

/* One's own block for whatever another thread left. */
static bool exchange(unsigned int slot, void *memory, size_t bytes, unsigned int seed)
{
	void *other;
	size_t other_bytes;
	unsigned int other_seed;

	pthread_mutex_lock(&lock);
	other = slots[slot].memory;
	other_bytes = slots[slot].bytes;
	other_seed = slots[slot].seed;
	slots[slot].memory = memory;
	slots[slot].bytes = bytes;
	slots[slot].seed = seed;
	pthread_mutex_unlock(&lock);
	if (!other)
		return true;
	CHECK(is_filled(other, other_bytes, other_seed));
	CHECK(!api.cuMemFreeHost(other));
	return true;
}

static bool register_one(unsigned int seed)
{
	char *memory = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	CHECK(memory != MAP_FAILED && !api.cuMemHostRegister_v2(memory, 4 * MIB, 0));
	fill(memory, 4 * MIB, seed);
	CHECK(is_filled(memory, 4 * MIB, seed) && !api.cuMemHostUnregister(memory));
	CHECK(is_filled(memory, 4 * MIB, seed) && !munmap(memory, 4 * MIB));
	return true;
}

static bool work(unsigned int number)
{
	unsigned int round, flags;
	void *memory;

	for (round = 0; round < ROUNDS; round++) {
		unsigned int seed = number * ROUNDS + round;
		size_t bytes = MIB << (number + round) % 3;

		CHECK(!api.cuMemHostAlloc(&memory, bytes, round % 4));
		CHECK(!api.cuMemHostGetFlags(&flags, memory) && flags == round % 4);
		fill(memory, bytes, seed);
		CHECK(exchange((number + round) % SLOTS, memory, bytes, seed));
		if (!(round % 8))
			CHECK(register_one(seed));
	}
	return true;
}

static void *thread(void *number)
{
	api.cuCtxSetCurrent(primary);
	pthread_barrier_wait(&barrier);
	return work((unsigned int)(uintptr_t)number) ? thread : NULL;
}

static bool race(void)
{
	pthread_t threads[THREADS];
	bool passed = true;
	uintptr_t i;

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (i = 0; i < THREADS; i++)
		threads[i] = start_thread(thread, (void *)i);
	for (i = 0; i < THREADS; i++) {
		void *result;

		pthread_join(threads[i], &result);
		passed = passed && result;
	}
	CHECK(passed);
	for (i = 0; i < SLOTS; i++)
		CHECK(exchange((unsigned int)i, NULL, 0, 0));
	CHECK(!counts_now().allocated);
	return true;
}

static bool race_and_end(void)
{
	uint64_t listed;

	CHECK(race());
	CHECK(!own_regions(&listed) && !counts_now().registered);
	return true;
}

#ifndef MEMORY_DIRECT

static void *alloc_cancelled(void *memory)
{
	api.cuCtxSetCurrent(primary);
	pthread_cancel(pthread_self());
	api.cuMemHostAlloc(memory, 8 * MIB, 0);
	pthread_testcancel();
	return NULL;
}

/* A thread that ended there would leave the preload's locks taken. */
static bool not_cancelled(void)
{
	char *memory = NULL;
	void *result;

	CHECK(!pthread_join(start_thread(alloc_cancelled, &memory), &result));
	CHECK(result == PTHREAD_CANCELED && memory && is_in_region(memory));
	return !api.cuMemFreeHost(memory);
}

#endif

int main(void)
{
	skip_without_cuda();
	run_quiet("threads take and free blocks of a pool that keeps them", race,
		  "ACTMEM_CUDA_KEEP", NULL);
	run_quiet("and of one that gives all back", race_and_end, "ACTMEM_CUDA_KEEP=0",
		  "ACTMEM_HEAP_GROW=2M", NULL);
#ifndef MEMORY_DIRECT
	/* The sanitizers cannot end such a thread. */
	run_quiet("a thread that is cancelled does not end in cuMemHostAlloc", not_cancelled,
		  NULL);
#endif
	return tap_end();
}
