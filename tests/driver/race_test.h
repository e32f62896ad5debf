/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Processes that race for the pages under a limit of LIMIT pages. */
#ifndef RACE_TEST_H
#define RACE_TEST_H

#include <pthread.h>

#include "driver_test.h"

#define WORKERS	4

/* The state of one race, which its processes share. */
static struct race {
	int device;
	/* Pages that processes got and have not given up, at most. */
	int held;
	bool exceeded;
	/* Processes that no longer give up pages. */
	int done;
	pthread_barrier_t barrier;
} *race;

/* @waiting: the number of processes that meet at the barrier. */
static inline void make_race(int device, unsigned int waiting)
{
	pthread_barrierattr_t shared;

	race = mapped(mmap(NULL, sizeof(*race), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	race->device = device;
	must(-pthread_barrierattr_init(&shared));
	must(-pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED));
	must(-pthread_barrier_init(&race->barrier, &shared, waiting));
}

static inline void claim(int pages)
{
	if (__atomic_add_fetch(&race->held, pages, __ATOMIC_SEQ_CST) > LIMIT)
		race->exceeded = true;
}

#endif
