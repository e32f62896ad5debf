/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes what a process waits for now (stats.h), for `actmem waits`.
 *
 * Only what waits anyway publishes: a thread that is about to sleep or to have pages
 * made, and a queue of which another request is the oldest. A place is one writer's
 * from wait_begin() to wait_end().
 */
#ifndef LIB_WATCH_WAITS_H
#define LIB_WATCH_WAITS_H

#include <stdatomic.h>
#include <stdint.h>

#define WAITS_MAX	28
#define WAIT_WORDS	80

enum wait_kind {
	WAIT_NONE,
	WAIT_MEMORY,		/* a thread: room within a store's budget */
	WAIT_BLOCK,		/* a thread: a store's block that is being read */
	WAIT_REGION,		/* a thread: pages of a region, zeroed and pinned */
	WAIT_REGISTER,		/* a thread: an accelerator that a region is registered with */
	WAIT_FILE,		/* a thread: room in a store's files */
	WAIT_READ,		/* a queue: requests under way, the oldest a fill */
	WAIT_WRITE,		/* a spill */
	WAIT_COMMAND,		/* pages made or given back */
	WAIT_DEVICE,		/* a thread: an accelerator, told by actmem_device_wait_begin() */
	WAIT_KINDS,
};

/* The sequence number is odd while the place is written to. */
struct published_wait {
	_Atomic uint64_t sequence;
	_Atomic uint32_t taken;
	uint32_t kind;			/* WAIT_NONE: nothing */
	uint64_t since;			/* ns of CLOCK_MONOTONIC */
	uint64_t bytes;			/* what is wanted; of a queue, of the oldest request */
	_Atomic uint32_t requests;	/* of a queue, under way */
	int32_t thread;			/* as the process itself sees it; 0: a queue */
	char words[WAIT_WORDS];		/* which block, region or file */
};

/* These are all zeros of a library that does not publish them. */
struct published_waits {
	uint32_t places;
	uint32_t reserved;
	_Atomic uint64_t left_out;	/* waits for which there is no place, now */
	_Atomic uint64_t last;		/* ns: when the last wait, transfer, put or take ended */
	struct published_wait waits[WAITS_MAX];
};

/*
 * This thread begins to wait, or has since @since; 0: now. NULL: there is no place.
 * Takes no lock. The words are cut off where they do not fit.
 */
struct published_wait *wait_begin(struct published_waits *waits, enum wait_kind kind, uint64_t since,
				  uint64_t bytes, const char *words);
void wait_end(struct published_waits *waits, struct published_wait *wait);

/* Something has ended, some milliseconds ago at most. */
void wait_note(struct published_waits *waits);

#endif /* LIB_WATCH_WAITS_H */
