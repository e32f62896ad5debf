/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes the current waits of a process (stats.h), for `actmem waits`.
 *
 * Publishing costs time only when the process waits anyway. A thread publishes when it is about to
 * sleep or to populate pages. A queue publishes when another request becomes its oldest one. A
 * place (struct published_wait) belongs to one writer from wait_begin() to wait_end().
 */
#ifndef LIB_WATCH_WAITS_H
#define LIB_WATCH_WAITS_H

#include <stdatomic.h>
#include <stdint.h>

#define WAITS_MAX	28
#define WAIT_WORDS	80

/* What a thread or a queue waits for. */
enum wait_kind {
	WAIT_NONE,
	WAIT_MEMORY,		/* a thread: memory within a store's budget */
	WAIT_BLOCK,		/* a thread: a store's block that is being read */
	WAIT_REGION,		/* a thread: pages of a region, to be zeroed and pinned */
	WAIT_REGISTER,		/* a thread: the registration of memory with an accelerator */
	WAIT_FILE,		/* a thread: disk space for a store's files */
	WAIT_READ,		/* a queue: requests in flight, the oldest is a fill */
	WAIT_WRITE,		/* a queue: requests in flight, the oldest is a spill */
	WAIT_DEVICE,		/* a thread: an accelerator; see actmem_device_wait_begin() */
	WAIT_KINDS,
};

/* The sequence number is odd while a thread writes to the place. */
struct published_wait {
	_Atomic uint64_t sequence;
	_Atomic uint32_t taken;
	uint32_t kind;			/* WAIT_NONE: no wait */
	uint64_t since;			/* ns of CLOCK_MONOTONIC */
	uint64_t bytes;			/* awaited by a thread, or in a queue's oldest request */
	_Atomic uint32_t requests;	/* a queue's requests in flight */
	int32_t thread;			/* TID in the process's PID namespace; 0: a queue */
	char words[WAIT_WORDS];		/* names the block, region or file */
};

/* The waits of a process. All zeros if the process's library does not publish waits. */
struct published_waits {
	uint32_t places;
	uint32_t reserved;
	_Atomic uint64_t left_out;	/* current waits that got no place */
	_Atomic uint64_t last;		/* ns: end of the last event; see wait_note() */
	struct published_wait waits[WAITS_MAX];
};

/*
 * Publishes that this thread has been waiting since @since or, if @since is 0, since now. With
 * @kind WAIT_NONE, reserves a place for a queue. Returns NULL if no place is free. Takes no lock.
 * @words is cut off if it does not fit.
 */
struct published_wait *wait_begin(struct published_waits *waits, enum wait_kind kind, uint64_t since,
				  uint64_t bytes, const char *words);
void wait_end(struct published_waits *waits, struct published_wait *wait);

/*
 * Records that a wait, a transfer, or a call that puts or takes a store's block ended now. The time
 * is exact to a few milliseconds.
 */
void wait_note(struct published_waits *waits);

#endif /* LIB_WATCH_WAITS_H */
