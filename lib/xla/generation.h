/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internals of the table of live blocks. saved.c adds blocks, claim.c removes them, and announce.c
 * records which blocks a program will take next. saved_lock guards the table and its blocks. For
 * each block that it puts or takes, a thread holds the lock for tens of nanoseconds. A thread never
 * holds the lock while it copies memory, or while it calls the store, because such a call may
 * sleep.
 */
#ifndef LIB_XLA_GENERATION_H
#define LIB_XLA_GENERATION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "xla/block.h"

/*
 * The upper bits of a block's id are the number of its site. The lower bits are a serial number,
 * which is never reused. So an error message can name the site of a block that has left the table.
 */
#define SERIAL_BITS	40
#define SERIAL_MASK	((UINT64_C(1) << SERIAL_BITS) - 1)

/* The blocks that one execution stored at one site on one device (saved.h). */
struct generation {
	int64_t run;
	uint32_t device;
	bool is_gpu;
	uint64_t first, last;		/* serial numbers of the first and last block */
	uint64_t blocks;		/* number of live blocks */
	uint64_t puts;
	struct saved *list;
	struct site *site;
	struct generation *next;	/* next younger generation */
};

extern pthread_mutex_t saved_lock;
extern pthread_cond_t saved_idle;	/* signaled when a block becomes idle */
extern uint64_t saved_serial;		/* serial number of the latest block */

/* Calls forked_check() with @words[SAVED_WORDS]. Must be called before any lock is acquired. */
int saved_check(char *words);

/* Removes a block from the table. Frees the block's generation if no other block belongs to it. */
void saved_unlink(struct saved *block);

/* Writes the error message for a @token that is not in the table. Caller holds the lock. */
int saved_explain_missing(uint64_t token, char *words);

/* Cancels the announcement of a block. */
void saved_unannounce(struct saved *block);

/* Frees a block that is not in the table and that no thread uses. */
void saved_drop(struct saved *block);

/*
 * Returns true if a thread uses the block. If the block has left the table, that thread drops it.
 */
static inline int saved_is_used(const struct saved *block)
{
	return block->busy || block->claims;
}

/*
 * Marks a block as not busy and wakes threads that wait for it. Drops the block if it has left the
 * table.
 */
void saved_is_idle(struct saved *block);

#endif /* LIB_XLA_GENERATION_H */
