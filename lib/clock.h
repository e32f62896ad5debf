/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Time in nanoseconds. */
#ifndef LIB_CLOCK_H
#define LIB_CLOCK_H

#include <stdint.h>
#include <time.h>

#define SECOND_NS	1000000000ULL

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

#endif /* LIB_CLOCK_H */
