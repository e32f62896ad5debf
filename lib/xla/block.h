/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A block that was put and not yet taken, and the put or take that asks for one. saved.h
 * has the calls.
 */
#ifndef ACTMEM_XLA_BLOCK_H
#define ACTMEM_XLA_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"

#define SAVED_WORDS	1024	/* enough for every message */
#define SHAPE_TEXT	48

struct generation;

/*
 * A token names one example of a block, and a program holds it. Under vmap a put makes one block of
 * all examples, and a token for each. In a program a token is uint32[4].
 */
struct token {
	uint64_t id;			/* of the block; 0: no block, its values are 0 */
	uint32_t example;
	uint32_t unused;		/* 0 */
};

/* Consecutive examples of one block, or @count tokens without a block. */
struct rows {
	uint64_t id;
	uint64_t first, count;
};

/* The type and dimensions of one example, on one device. */
struct shape {
	uint64_t hash;
	char text[SHAPE_TEXT];		/* as in "f32[3,4]", cut off if it is longer */
};

struct saved {
	uint64_t token;			/* the id in its tokens */
	uint64_t examples;		/* it is of so many, one behind the other */
	uint64_t references;		/* one for each token that was not ended yet */
	struct shape shape;		/* of each example */
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
	/* The table and the generations use these. */
	int busy;			/* a thread fills it, reads it ahead or begins to hold it */
	unsigned int readers;		/* takes under way that do not end it */
	int many;			/* there may be several takes: it is not read ahead */
	uint32_t layout;		/* the sharding of the value that it is a part of */
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
	int ends;			/* take: the last one of its tokens */
	uint64_t examples;		/* put */
	struct shape shape;		/* of each example */
	uint32_t layout;		/* identifies the sharding; 0 on one device */
	int64_t run;			/* each platform counts its own */
	uint32_t device;
	int is_gpu;
};

#endif /* ACTMEM_XLA_BLOCK_H */
