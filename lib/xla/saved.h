/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of what was put and not yet taken: token → block, with the
 * generations that abandoned blocks are found by (see actmem_xla.h).
 *
 * A block goes through saved_begin() (in the table, being filled),
 * saved_filled() (its token may be used), saved_claim() (out of the table,
 * the claimer alone has it) and saved_release() (its memory is free again).
 * A block that is reclaimed while it is being filled is dropped when that ends.
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
	void *fill;			/* while it is being filled; NULL if bytes is 0 */
	const void *held;		/* while it is being taken; NULL if bytes is 0 */
	uint64_t bytes;
	uint64_t checksum;
	int has_checksum;
	const void *destination;	/* where it was taken to */
	uint32_t device;
	/* Of the table and of generations. */
	int filling;
	int abandoned;
	struct generation *generation;
	struct saved *table_next;
	struct saved *next, **link;
};

/* Who puts: all that a handler knows of its call. */
struct origin {
	const char *site;
	size_t site_length;
	int bounded;			/* 0: its generations are not limited */
	int64_t run;
	uint32_t device;
};

/* 0 with *@block, or a negative errno and why in @words[SAVED_WORDS]. */
int saved_begin(const struct origin *origin, uint64_t bytes,
		struct saved **block, char *words);
void saved_filled(struct saved *block);

int saved_claim(uint64_t token, uint64_t bytes, uint32_t device, int64_t run,
		struct saved **block, char *words);
void saved_release(struct saved *block);

/* Whether new blocks are to be checksummed. */
int saved_checksum(void);
/* One more block's checksum was compared. */
void saved_checksum_compared(void);
/* The name of the site that a token was made at, "?" if there is none. */
const char *saved_site_name(uint64_t token);

#endif /* ACTMEM_XLA_SAVED_H */
