/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Threads that help a caller to populate a long range. A single thread needs about a second to
 * zero a few GiB.
 *
 * The caller populates the whole range with one call. Meanwhile the helpers populate parts of it,
 * from the range's end towards its beginning. When the caller's call reaches pages that exist
 * already, it skips them. Only the result of that call counts; the results of the helpers' calls
 * are ignored.
 *
 * The caller creates the helpers, so they inherit its cgroups, credentials, CPUs and scheduling
 * policy. Helpers block signals.
 */
#ifndef LIB_MACHINE_HELPERS_H
#define LIB_MACHINE_HELPERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "machine/cpus.h"

/* Ranges shorter than this get no helpers: the caller finishes before a helper could start. */
#define HELPERS_LENGTH	(64ULL << 20)

/* Together with the caller, this many threads come close to a node's memory bandwidth. */
#define HELPERS_MAX	15

struct helpers {
	/* Populates a part of the range. An error stops all helpers and is not reported. */
	int (*help)(const void *context, uint64_t offset, uint64_t length);
	const void *context;
	bool is_near;			/* run helpers on the caller's node, which gets the pages */
	uint64_t offset;
	uint64_t part_bytes;
	_Atomic uint64_t left;		/* bytes from @offset that no helper has begun */
	atomic_bool ended;
	unsigned int count;
	int cancel_state;		/* the caller's state, which helpers_end() restores */
	pthread_t threads[HELPERS_MAX];
	struct cpus cpus;
};

/*
 * Starts helpers for a range that consists of pages of @page_bytes. Starts at most one helper for
 * every two CPUs, because other threads need CPUs, too. Starts only helpers that save more time
 * than their start takes.
 */
void helpers_begin(struct helpers *helpers, uint64_t offset, uint64_t length,
		   uint64_t page_bytes);

/* Stops each helper after its current part and waits for it. Returns true if any helper ran. */
bool helpers_end(struct helpers *helpers);

#endif /* LIB_MACHINE_HELPERS_H */
