/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of what was put and not yet taken: token → block, with the
 * generations that abandoned blocks are found by (see actmem_xla.h).
 *
 * A block goes through saved_begin() (in the table, being filled),
 * saved_filled() (its token may be used), saved_claim() (out of the table,
 * the claimer alone has it) and saved_release() (its memory is free again).
 * A block that is reclaimed while a thread is at it is dropped when that ends.
 *
 * Where values are on a device, blocks are filled after their put has returned: who
 * claims one waits for that. saved_next() reads one ahead, which is saved_staged()
 * once a device has it, and its memory free again.
 * saved_begin() and saved_claim() may wait for the store where blocks are spilled.
 */
#ifndef ACTMEM_XLA_SAVED_H
#define ACTMEM_XLA_SAVED_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"

#define SAVED_WORDS	1024	/* enough for every message */

struct generation;

struct saved {
	uint64_t token;
	struct actmem_key key;		/* in the store */
	int64_t run;			/* that put it */
	void *fill;			/* while it is being filled; NULL if bytes is 0 */
	const void *held;		/* while it is being taken; NULL if bytes is 0 */
	uint64_t bytes;
	uint64_t checksum;
	int has_checksum;
	const void *destination;	/* where it was taken to */
	uint32_t device;
	int is_gpu;			/* devices of CPUs have the same numbers */
	int failure;			/* a negative errno: it never got here */
	char *why;			/* in words; NULL: no memory for them */
	void *staged;			/* a device has it, and nothing else */
	void (*unstage)(void *staged);
	/* Of the table and of generations. */
	int busy;			/* a thread fills it, reads it ahead or begins to hold it */
	unsigned int holds;		/* of others than the first who may take it */
	unsigned int readers;		/* takes under way that do not end it */
	int many;			/* there may be several takes: it is not read ahead */
	uint32_t layout;		/* how the value it is a part of was spread */
	int abandoned;
	struct generation *generation;
	int64_t taker_run;		/* where it is announced: who will take it... */
	uint32_t taker_number;		/* ...as which of its site's */
	struct saved *announced_next, **announced_link;	/* NULL: it is not */
	struct saved *table_next;
	struct saved *next, **link;
};

/* The caller of a put or take: all that a handler knows of it. */
struct origin {
	const char *site;		/* of a take NULL, where it is not told */
	size_t site_length;
	int bounded;			/* put: 0: its generations are not limited */
	int many;			/* put: there may be several takes */
	int ends;			/* take: the last one */
	uint32_t layout;		/* of what is spread over devices: how; else 0 */
	int64_t run;			/* each platform counts its own */
	uint32_t device;
	int is_gpu;
};

/* 0 with *@block, or a negative errno and why in @words[SAVED_WORDS]. */
int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **block, char *words);
void saved_filled(struct saved *block);

/* Instead, where it could not be: its take fails by @error, with @why. */
void saved_failed(struct saved *block, int error, const char *why);

/* Instead, where its put fails: it was never there. */
void saved_undo(struct saved *block);

/*
 * @token will be taken by the execution of @taker, as @number of the site that it was put
 * at: fails as its take would, with @words[SAVED_WORDS], where it is not there. And then:
 * the token that the take of that site and number wants, 0 if it is not known without a
 * look at its operand; and whether the device has the block already.
 */
int saved_announce(uint64_t token, const struct origin *taker, uint32_t number, char *words);
uint64_t saved_announced(const struct origin *taker, uint32_t number, int *is_staged);

/*
 * By what puts on the same device. The block is out of the table if the take ends it, and
 * else stays there, to be read by others as well.
 */
int saved_claim(uint64_t token, uint64_t bytes, const struct origin *taker,
		struct saved **block, char *words);
void saved_release(struct saved *block);

/*
 * One more may take it, each of whom says when he will not any more; a take that ends the
 * block does so for all. Of a token whose block is gone, or of none, 0: nothing.
 */
void saved_hold(uint64_t token);
void saved_end(uint64_t token);

/*
 * The block that is expected to be wanted next, held: the youngest on GPU @device of the
 * execution that @run put, of @bytes_max at most. NULL: none, or it is not to be had.
 */
struct saved *saved_next(uint32_t device, int64_t run, uint64_t bytes_max);
/*
 * A device will have it, by @staged, which @unstage ends where nobody claims it. The
 * caller does memory_release() by its key once it has. Or it is left as it was.
 */
void saved_staged(struct saved *block, void *staged, void (*unstage)(void *staged));
void saved_not_staged(struct saved *block);

/* Whether new blocks are to be checksummed. */
int saved_checksum(void);
/* One more block's checksum was compared. */
void saved_checksum_compared(void);
/* The name of the site that a token was made at, "?" if there is none. */
const char *saved_site_name(uint64_t token);

#endif /* ACTMEM_XLA_SAVED_H */
