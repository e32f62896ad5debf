/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Reads CLOCK_MONOTONIC in nanoseconds: all interfaces of the library use this clock. */
#ifndef LIB_BASE_CLOCK_H
#define LIB_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS	1000000ULL
#define NS_PER_SECOND	1000000000ULL

static inline uint64_t clock_read(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_ns(void)
{
	return clock_read(CLOCK_MONOTONIC);
}

/*
 * Returns the time of the kernel's last timer tick. This time can be milliseconds old, but it is
 * the cheapest to read.
 */
static inline uint64_t clock_tick_ns(void)
{
	return clock_read(CLOCK_MONOTONIC_COARSE);
}

/* Returns the time @timeout_ns from now, or 0 (never) if the sum overflows. */
static inline uint64_t clock_after(uint64_t timeout_ns)
{
	uint64_t until = clock_ns() + timeout_ns;

	return until < timeout_ns ? 0 : until;
}

static inline struct timespec clock_time(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / NS_PER_SECOND), (long)(ns % NS_PER_SECOND) };
}

#endif /* LIB_BASE_CLOCK_H */
