/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that look up and call CUDA's functions at the same moment, in many processes
 * in which nobody has done so before.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "preload_test.h"

#define THREADS		8
#define RUNS		60

static pthread_barrier_t barrier;

struct found {
	unsigned int seed;
	void *functions[16];
	bool passed;
};

static void *look_up(void *context)
{
	struct found *found = context;
	CUresult (*free_host)(void *memory), wanted = CUDA_ERROR_NOT_INITIALIZED;
	CUresult (*get)(const char *, void **, int, cuuint64_t, void *);
	unsigned int i, count = 0;
	void *library;

	while (hooked_names[count])
		count++;
	pthread_barrier_wait(&barrier);
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	for (i = 0; library && i < count; i++) {
		unsigned int at = (i + found->seed) % count;

		found->functions[at] = dlsym(library, hooked_names[at]);
		if (dlerror())
			return NULL;
	}
	*(void **)&free_host = dlsym(library, "cuMemFreeHost");
	*(void **)&get = dlsym(library, "cuGetProcAddress_v2");
	found->passed = free_host(&library) == wanted &&
			!get("cuMemHostAlloc", &library, 13000, 0, NULL) &&
			library == found->functions[0];
	return NULL;
}

static bool race(void *context)
{
	struct found found[THREADS] = { 0 };
	pthread_t threads[THREADS];
	unsigned int i, passed = 0;

	pthread_barrier_init(&barrier, NULL, THREADS);
	for (i = 0; i < THREADS; i++) {
		found[i].seed = i;
		if (pthread_create(&threads[i], NULL, look_up, &found[i]))
			return false;
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		passed += found[i].passed && !memcmp(found[i].functions, found[0].functions,
						     sizeof(found[i].functions));
	}
	return passed == THREADS &&
	       !strcmp(owner(found[0].functions[0]), "libactmem_preload.so");
}

int main(void)
{
	unsigned int i, failed = 0;

	if (!in_child(race, NULL)) {
		cuda_or_skip();
		ok(false, "threads that begin together have the same");
		return tap_end();
	}
	for (i = 0; i < RUNS; i++)
		failed += !in_child(race, NULL);
	ok(!failed, "threads that begin together have the same (%u of %d runs failed)", failed,
	   RUNS);
	return tap_end();
}
