/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that make, map and close regions at the same time: each finds a place, of its
 * own, at a multiple of 2 MiB, and none takes another one's. And threads that look at one
 * registration, and end it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "actmem_runtime.h"
#include "common.h"

#define THREADS		8
#define ROUNDS		200
/* Where pages are small: so that places do not line up by themselves. */
#define SHORT		(64ULL << 10)

struct maker {
	pthread_t thread;
	struct actmem *am;
	uint64_t length;
	unsigned char mark;
	unsigned int made, placed, kept;
	char why[256];
};

static void one_round(struct maker *maker)
{
	struct actmem_region *region;
	unsigned char *memory;

	if (create_region(maker->am, maker->length, 0, &region) ||
	    actmem_region_map(region, (void **)&memory)) {
		snprintf(maker->why, sizeof(maker->why), "%s", actmem_error());
		return;
	}
	maker->made++;
	maker->placed += !((uintptr_t)memory % (2 * MIB));
	memset(memory, maker->mark, maker->length);
	maker->kept += all_bytes(memory, maker->length, maker->mark);
	actmem_region_close(region);
}

static void *make(void *context)
{
	struct maker *maker = context;
	unsigned int round;

	for (round = 0; round < ROUNDS; round++)
		one_round(maker);
	return NULL;
}

struct looker {
	pthread_t thread;
	struct actmem_region *region;
	unsigned int seen, wrong;
};

static void *look_at_registration(void *context)
{
	struct looker *looker = context;
	struct actmem_registration now;
	unsigned int round;

	for (round = 0; round < ROUNDS || !looker->seen; round++) {
		int error;

		ACTMEM_INIT(&now);
		error = actmem_region_get_registration(looker->region, &now);
		looker->seen += !error;
		looker->wrong += error ? error != -ENOENT && error != -EBUSY : now.chunks != 1;
	}
	return NULL;
}

/* While one thread looks at a registration, another ends it. */
static void test_registration(struct actmem *am)
{
	struct looker looker = { 0 };
	struct actmem_runtime *runtime;
	unsigned int round, refused = 0;

	returns(create_region(am, 2 * MIB, 0, &looker.region), 0);
	returns(actmem_runtime_open(am, NULL, &runtime), 0);
	looker.thread = start_thread(look_at_registration, &looker);
	for (round = 0; round < ROUNDS; round++) {
		refused += !!actmem_region_register(looker.region, runtime, 0);
		sched_yield();
		refused += !!actmem_region_unregister(looker.region);
	}
	returns(actmem_region_register(looker.region, runtime, 0), 0);
	pthread_join(looker.thread, NULL);
	ok(!looker.wrong && !refused, "a registration is looked at beside another thread");
	returns(actmem_region_unregister(looker.region), 0);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_region_close(looker.region), 0);
}

static void test_makers(struct actmem *am)
{
	struct maker makers[THREADS] = { 0 };
	unsigned int i;

	for (i = 0; i < THREADS; i++) {
		makers[i].am = am;
		makers[i].length = page_bytes_wanted() > SHORT ? page_bytes_wanted() : SHORT;
		makers[i].mark = (unsigned char)(i + 1);
		makers[i].thread = start_thread(make, &makers[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(makers[i].thread, NULL);
		ok(makers[i].made == ROUNDS, "a thread made %u of %u regions beside others %s",
		   makers[i].made, ROUNDS, makers[i].why);
		ok(makers[i].placed == ROUNDS, "each is at a multiple of 2 MiB");
		ok(makers[i].kept == ROUNDS, "each has what its thread wrote");
	}
}

int main(void)
{
	return RUN_TESTS(test_makers, test_registration);
}
