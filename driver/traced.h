/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is done for the tracepoints alone: measuring time, and naming what is
 * asked for.
 */
#ifndef _ACTMEM_TRACED_H
#define _ACTMEM_TRACED_H

#include <linux/timekeeping.h>

#include "actmem.h"

enum actmem_command_kind {
	ACTMEM_COMMAND_POPULATE = _IOC_NR(ACTMEM_IOC_POPULATE),
	ACTMEM_COMMAND_DISCARD = _IOC_NR(ACTMEM_IOC_DISCARD),
	ACTMEM_COMMAND_COPY = _IOC_NR(ACTMEM_IOC_COPY),
};

/**
 * struct actmem_command - a request that has been found valid
 * @region: whose pages it is about
 * @what: to be done
 * @offset: bytes, in the region
 * @length: bytes
 * @source: region to copy from, NULL if nothing is copied
 * @source_offset: bytes, in the source
 * @req: io_uring's request, as its own tracepoints name it; NULL of an ioctl
 */
struct actmem_command {
	const struct actmem_region *region;
	enum actmem_command_kind what;
	u64 offset;
	u64 length;
	const struct actmem_region *source;
	u64 source_offset;
	const void *req;
};

/* When something begins whose latency is @wanted, or 0: reading a clock takes time. */
static inline u64 actmem_latency_begin(bool wanted)
{
	return wanted ? ktime_get_ns() : 0;
}

static inline u64 actmem_latency_end(u64 began)
{
	return began ? ktime_get_ns() - began : 0;
}

#endif /* _ACTMEM_TRACED_H */
