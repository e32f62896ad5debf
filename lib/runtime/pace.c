/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Determines the length of the chunks in which heaps register regions, and the pause after each
 * chunk.
 *
 * While an accelerator's driver pins memory, the driver holds a lock. All other calls of the driver
 * wait for this lock, in the same process or on the whole machine. So each call must be short. The
 * thread that releases the lock can get it again before a waiting thread does. So a pause after
 * each call lets other threads get the lock.
 */
#include <errno.h>
#include <time.h>

#include "base/base.h"
#include "machine/machine.h"
#include "runtime/inside.h"

#define PIECE_NS	(5 * NS_PER_MS)
/* A pause takes 1/PAUSE_PART of the time of the call before it. A short call needs no pause. */
#define PAUSE_PART	32
#define PAUSE_LEAST_NS	50000ULL
#define PAUSE_MOST_NS	NS_PER_MS
/*
 * Do not learn from calls that register less than LEARN_LEAST: their time does not depend on the
 * length.
 */
#define LEARN_LEAST	(16ULL << 20)

static uint64_t between(uint64_t least, uint64_t value, uint64_t most)
{
	return value < least ? least : value > most ? most : value;
}

void pace_pause(uint64_t took_ns)
{
	struct timespec left = clock_time(between(PAUSE_LEAST_NS, took_ns / PAUSE_PART,
						  PAUSE_MOST_NS));

	if (took_ns <= PAUSE_LEAST_NS)
		return;
	thread_hold_cancellation();
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		;
	thread_let_cancellation();
}

void pace_learn(struct actmem_runtime *runtime, uint64_t bytes, uint64_t took_ns)
{
	uint64_t fit;

	if (bytes < LEARN_LEAST)
		return;
	fit = (uint64_t)((__uint128_t)bytes * PIECE_NS / (took_ns ? took_ns : 1));
	fit = between(PIECE_LEAST, fit, PIECE_MOST);
	pthread_mutex_lock(&runtime->lock);
	/* Shorten chunks at once, and lengthen them gradually. */
	if (fit > runtime->piece_bytes)
		fit = runtime->piece_bytes + (fit - runtime->piece_bytes) / 2;
	runtime->piece_bytes = fit / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	pthread_mutex_unlock(&runtime->lock);
}

void pace_limit(struct actmem_runtime *runtime, uint64_t bytes)
{
	pthread_mutex_lock(&runtime->lock);
	if (bytes < runtime->accepted_bytes)
		runtime->accepted_bytes = bytes;
	pthread_mutex_unlock(&runtime->lock);
}

uint64_t runtime_accepted_bytes(struct actmem_runtime *runtime)
{
	uint64_t bytes;

	pthread_mutex_lock(&runtime->lock);
	bytes = runtime->accepted_bytes;
	pthread_mutex_unlock(&runtime->lock);
	return bytes;
}

uint64_t runtime_piece_bytes(struct actmem_runtime *runtime)
{
	uint64_t bytes;

	pthread_mutex_lock(&runtime->lock);
	bytes = between(0, runtime->piece_bytes, runtime->accepted_bytes);
	pthread_mutex_unlock(&runtime->lock);
	return bytes;
}
