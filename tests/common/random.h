/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Random numbers of the tests beside a model. Each says the seed it began with;
 * SEED= repeats the run, STEPS= makes it longer.
 */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* splitmix64 */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
	return next_random(state) % bound;
}

static inline bool one_in(uint64_t *state, uint64_t times)
{
	return !random_below(state, times);
}

static inline uint64_t number_given(const char *variable, uint64_t otherwise)
{
	const char *given = getenv(variable);

	return given && *given ? strtoull(given, NULL, 0) : otherwise;
}

static inline uint64_t seed_given(void)
{
	uint64_t seed = number_given("SEED", (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid());

	printf("# SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

#endif /* TESTS_RANDOM_H */
