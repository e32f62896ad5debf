/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that help a caller who has pages made in a long range, which takes one
 * thread a second for a few GiB, to zero them.
 *
 * The caller has all of the range made, in one call of his own, and beside him each
 * helper has a part of it made, from the range's end towards its beginning. Where the
 * caller comes upon pages that are there he goes on behind them: what has come of it is
 * what his own call says, and the helpers' calls say nothing to anybody.
 *
 * They are threads of the caller, and so have his cgroups, credentials, CPUs and policy
 * of scheduling. No signal is delivered in them.
 */
#ifndef LIB_MACHINE_HELPERS_H
#define LIB_MACHINE_HELPERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The caller has made all of a shorter range before a thread has begun. */
#define HELPERS_LENGTH	(64ULL << 20)

/* With the caller, so many come close to a node's memory bandwidth. */
#define HELPERS_MAX	15

#define HELPERS_CPUS	8192

struct helpers {
	/* Makes what is missing in a part; an error ends the help, and is not told. */
	int (*help)(const void *context, uint64_t offset, uint64_t length);
	const void *context;
	bool is_near;			/* to stay on the caller's node, as pages go where the CPU is */
	uint64_t offset;
	uint64_t part_bytes;
	_Atomic uint64_t left;		/* bytes from @offset that no helper has begun */
	atomic_bool ended;
	unsigned int count;
	int cancel_state;		/* of the caller, who must not unwind while they work */
	pthread_t threads[HELPERS_MAX];
	unsigned long cpus[HELPERS_CPUS / (8 * sizeof(unsigned long))];
};

/*
 * Begins, of a range of whole pages of @page_bytes: as many as half of the CPUs, since
 * others want some, or fewer, where no more can be had or are of use.
 */
void helpers_begin(struct helpers *helpers, uint64_t offset, uint64_t length,
		   uint64_t page_bytes);

/* Has them stop after the part that each is at, and waits. Whether there were any. */
bool helpers_end(struct helpers *helpers);

#endif /* LIB_MACHINE_HELPERS_H */
