/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of the table of live blocks: saved.c puts, claim.c takes, announce.c knows
 * of takes to come. One lock guards all of it: it is held for tens of nanoseconds per put or
 * take, never while memory is copied or the store is called, which can wait.
 */
#ifndef ACTMEM_XLA_GENERATION_H
#define ACTMEM_XLA_GENERATION_H

#include <pthread.h>
#include <stdint.h>

#include "xla/block.h"

/*
 * The id of a block is the number of its site in the upper bits and a serial number
 * that never recurs in the lower ones. So an error can name the site of a block that
 * is in the table no more.
 */
#define SERIAL_BITS	40
#define SERIAL_MASK	((UINT64_C(1) << SERIAL_BITS) - 1)

struct generation {
	int64_t run;
	uint32_t device;
	int is_gpu;
	uint64_t first, last;		/* serial numbers of its blocks */
	uint64_t blocks;		/* live ones */
	uint64_t puts;
	struct saved *list;
	struct site *site;
	struct generation *next;	/* younger */
};

extern pthread_mutex_t saved_lock;
extern pthread_cond_t saved_idle;	/* a block that a thread waits for is idle */
extern uint64_t saved_serial;		/* of the latest block */

/* As forked_check(), into @words[SAVED_WORDS]; a handler calls it before it locks. */
int saved_check(char *words);

/* Takes a block out of the table. Its generation ends with its last block. */
void saved_unlink(struct saved *block);

/* Says why @token is in no table; with the lock held. */
int saved_explain_missing(uint64_t token, char *words);

/* No take finds it by its announcement any more. */
void saved_unannounce(struct saved *block);

/* Frees a block that nobody wants any more, and that nobody has. */
void saved_drop(struct saved *block);

/* Whether a thread is at it, which will drop it if it is abandoned. */
static inline int saved_is_used(const struct saved *block)
{
	return block->busy || block->readers;
}

/* No thread is at it any more: one that waits for it may have it. */
void saved_is_idle(struct saved *block);

#endif /* ACTMEM_XLA_GENERATION_H */
