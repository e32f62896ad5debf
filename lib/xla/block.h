/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handler actmem_put copies a value of a program into a block of a store, and actmem_take
 * copies it back. The structs below describe blocks, and calls of these handlers. saved.h has the
 * functions for blocks.
 */
#ifndef LIB_XLA_BLOCK_H
#define LIB_XLA_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"

#define SAVED_WORDS	1024	/* enough for every error message */
#define SHAPE_TEXT	48

struct generation;

/*
 * Programs hold tokens, as uint32[4]. A token identifies one example of a block. Under vmap,
 * actmem_put stores all examples of the batch in one block. Without vmap, a block has one example.
 */
struct token {
	uint64_t id;			/* block's id; 0: no block, so actmem_take returns zeros */
	uint32_t example;
	uint32_t changed;		/* not 0: a function changed the value; actmem_take fails */
};

/*
 * Consecutive examples of one block. If @id is 0, the struct stands for @count tokens that have no
 * block.
 */
struct rows {
	uint64_t id;
	uint64_t first, count;
	bool changed;			/* a token has a @changed that is not 0 */
};

/* The type and dimensions of one example, on one device. */
struct shape {
	uint64_t hash;			/* hash of the dimensions, plus @type */
	uint32_t type;			/* XLA_FFI_DataType */
	char text[SHAPE_TEXT];		/* such as "f32[3,4]", cut off if it does not fit */
};

struct saved {
	uint64_t token;			/* the id in the block's tokens */
	uint64_t examples;		/* number of examples, which are contiguous in memory */
	uint64_t references;		/* one for each token that has not been dropped */
	struct shape shape;		/* of each example */
	struct actmem_key key;		/* the block's key in the store */
	int64_t run;			/* execution that stored the value in the block */
	void *fill;			/* memory to fill; NULL after the block is filled */
	uint64_t bytes;
	uint32_t device;
	bool is_gpu;			/* distinguishes GPU 0 from CPU device 0 */
	int failure;			/* negative errno if the copy from the device failed */
	char *why;			/* error message of the failure; NULL: no memory for it */
	void *staged;			/* copy on a device; if not NULL, the only copy */
	void (*unstage)(void *staged);
	/* The table of live blocks and its generations (generation.h) use the fields below. */
	bool busy;			/* a thread fills the block or reads it ahead */
	unsigned int claims;		/* calls of actmem_take that use the block */
	bool is_released;		/* actmem_take has released the block's memory */
	bool many;			/* the block can be taken several times; never prefetched */
	bool is_kept;			/* the current actmem_xla_reset() keeps the block */
	uint32_t layout;		/* identifies the sharding of the value */
	struct generation *generation;	/* NULL: not in the table; the last user frees the block */
	int64_t taker_run;		/* if announced: the execution that will take the block */
	uint32_t taker_number;		/* if announced: attribute `number` of actmem_take */
	struct saved *announced_next, **announced_link;	/* link is NULL if not announced */
	struct saved *table_next;
	struct saved *next, **link;
};

/* A call of actmem_take that is under way. */
struct claim {
	struct saved *block;
	const void *memory;		/* memory of the rows; NULL: on the device, or no bytes */
	uint64_t offset;		/* offset of the rows in the block */
	bool ends;			/* this call takes the block for the last time */
};

/* Properties of a call of actmem_put or actmem_take. */
struct origin {
	const char *site;		/* NULL: actmem_take without attribute `number` */
	size_t site_length;
	bool bounded;			/* put: the limit on generations applies (actmem_xla.h) */
	bool many;			/* put: the block can be taken several times */
	bool ends;			/* take: it is the last use of its tokens */
	uint64_t examples;		/* put: number of examples */
	struct shape shape;		/* of each example */
	uint32_t layout;		/* identifies the sharding; 0 on one device */
	int64_t run;			/* number of the execution on its platform */
	uint32_t device;
	bool is_gpu;
};

#endif /* LIB_XLA_BLOCK_H */
