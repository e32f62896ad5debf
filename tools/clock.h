/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Time as the kernel's monotonic clock tells it, which is the store's, too. */
#ifndef ACTMEM_CLOCK_H
#define ACTMEM_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS	1000000ULL
#define NS_PER_SECOND	1000000000ULL

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

#endif
