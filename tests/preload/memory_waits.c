/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Host memory is freed once no device can be at it: what is told of the thread that waits
 * for that, while a stream goes no further.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory_test.h"
#include "watch/published.h"

#define BYTES	(4 * MIB)
#define TRIES	20000		/* of a millisecond */

static sem_t is_held, goes_on;

static void CUDA_CB hold(void *unused)
{
	sem_post(&is_held);
	sem_wait(&goes_on);
}

struct freer {
	void *memory;
	_Atomic pid_t thread;
	CUresult result;
};

static void *free_memory(void *data)
{
	struct freer *freer = data;

	freer->thread = (pid_t)syscall(SYS_gettid);
	freer->result = api.cuCtxSetCurrent(primary);
	if (!freer->result)
		freer->result = api.cuMemFreeHost(freer->memory);
	return NULL;
}

static int has_wait(void *thread, int fd)
{
	struct published_waits waits;
	bool is_read = published_waits(fd, &waits);
	unsigned int i;

	close(fd);
	for (i = 0; is_read && i < WAITS_MAX; i++)
		if (waits.waits[i].kind == WAIT_DEVICE &&
		    waits.waits[i].thread == *(pid_t *)thread)
			return waits.waits[i].bytes == BYTES &&
			       strstr(waits.waits[i].words, "host memory is freed");
	return 0;
}

/* In whatever this process publishes. */
static bool is_told_now(pid_t thread)
{
	return published_walk(getpid(), &published_stats, has_wait, &thread) == 1;
}

static bool waits_for_streams(void)
{
	struct freer freer;
	pthread_t thread;
	CUstream stream;
	unsigned int try;
	bool told = false;

	sem_init(&is_held, 0, 0);
	sem_init(&goes_on, 0, 0);
	CHECK(!api.cuMemHostAlloc(&freer.memory, BYTES, 0) && is_in_region(freer.memory));
	CHECK(!api.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(!api.cuLaunchHostFunc(stream, hold, NULL));
	sem_wait(&is_held);
	freer.thread = 0;
	CHECK(!pthread_create(&thread, NULL, free_memory, &freer));
	for (try = 0; try < TRIES && !told; try++) {
		told = is_told_now(freer.thread);
		usleep(1000);
	}
	sem_post(&goes_on);
	pthread_join(thread, NULL);
	CHECK(told && !freer.result && !is_told_now(freer.thread));
	CHECK(!api.cuStreamDestroy_v2(stream));
	return true;
}

int main(void)
{
	skip_without_cuda();
	run_quiet("a thread that frees memory waits for a stream, and is told of",
		  waits_for_streams, "ACTMEM_CUDA=1", NULL);
	return tap_end();
}
