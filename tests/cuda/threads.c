/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that open runtimes, register and unregister at the same time: regions of
 * their own, one that they all unregister too, and one that they all want.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "cuda_test.h"

#define THREADS	8
#define ROUNDS	30
#define SHARED_ROUNDS	200

static struct cuda cuda;
static struct actmem *am;
static struct actmem_runtime *runtime;
static struct actmem_region *wanted_by_all, *shared;
static pthread_barrier_t start;
static unsigned int had, odd;

static void count_of(int error)
{
	if (!error)
		__atomic_add_fetch(&had, 1, __ATOMIC_RELAXED);
	else if (error != -EEXIST)
		__atomic_add_fetch(&odd, 1, __ATOMIC_RELAXED);
}

static bool is_odd(int error)
{
	return error && error != -EEXIST && error != -ENOENT && error != -EBUSY;
}

static void *work(void *region)
{
	unsigned int failed = 0, round;
	struct actmem_runtime *own;
	uint64_t pointer;
	void *memory;

	pthread_barrier_wait(&start);
	failed += actmem_runtime_open(am, NULL, &own) != 0;
	failed += actmem_runtime_close(own) != 0;
	failed += actmem_region_map(region, &memory) != 0;
	for (round = 0; round < ROUNDS; round++) {
		failed += actmem_region_register(region, runtime, ACTMEM_REGISTER_DEVICEMAP) != 0;
		failed += actmem_runtime_pointer(runtime, (char *)memory + CHUNK, &pointer,
						 NULL) != 0;
		failed += actmem_region_unregister(region) != 0;
		failed += current_context(&cuda) != NULL;
	}
	pthread_barrier_wait(&start);
	/* Another thread may unregister the region before the call that registered it returns. */
	for (round = 0; round < SHARED_ROUNDS; round++) {
		failed += is_odd(actmem_region_register(shared, runtime,
							ACTMEM_REGISTER_DEVICEMAP));
		failed += is_odd(actmem_region_unregister(shared));
	}
	pthread_barrier_wait(&start);
	count_of(actmem_region_register(wanted_by_all, runtime, ACTMEM_REGISTER_DEVICEMAP));
	return (void *)(uintptr_t)failed;
}

int main(void)
{
	struct actmem_region *regions[THREADS];
	pthread_t threads[THREADS];
	struct actmem_runtime_info info;
	struct usage before;
	unsigned int i;
	CUcontext primary;
	void *failed;

	am = cuda_begin(&cuda, &before);
	/* As a program does. Otherwise NVIDIA's driver makes a context for each registration. */
	cuda_ok(cuda.cuDevicePrimaryCtxRetain(&primary, 0));
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	wanted_by_all = region_or_bail(am, "wanted by all");
	shared = region_or_bail(am, "shared");
	pthread_barrier_init(&start, NULL, THREADS);
	for (i = 0; i < THREADS; i++) {
		regions[i] = region_or_bail(am, "of a thread");
		threads[i] = start_thread(work, regions[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		ok(!failed, "thread %u had no failure", i);
	}
	info = runtime_info(runtime);
	ok(had == 1 && !odd && info.regions == 1, "one thread of %u has the region that all want", THREADS);
	returns(actmem_region_unregister(wanted_by_all), 0);
	info = runtime_info(runtime);
	ok(!info.regions && !info.bytes && !info.chunks && !info.far_bytes && !info.lost_total &&
	   !info.failures_total && info.regions_total > THREADS * ROUNDS + 1,
	   "the counts are right (%llu regions in all)", (unsigned long long)info.regions_total);
	for (i = 0; i < THREADS; i++)
		returns(actmem_region_close(regions[i]), 0);
	actmem_region_unregister(shared);
	returns(actmem_region_close(shared), 0);
	returns(actmem_region_close(wanted_by_all), 0);
	returns(actmem_runtime_close(runtime), 0);
	pthread_barrier_destroy(&start);
	cuda_ok(cuda.cuDevicePrimaryCtxRelease_v2(0));
	return cuda_end(&cuda, am, before);
}
