/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of memory.h: a table of stores, which are made and ended with it locked.
 */
#ifndef ACTMEM_XLA_STORES_H
#define ACTMEM_XLA_STORES_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"
#include "xla/grow.h"
#include "xla/knobs.h"
#include "xla/places.h"
#include "xla/shares.h"

/* The store of a place. */
struct store_there {
	struct grow *grow;
	int is_registered;		/* with the runtime of the place */
	int is_far_told;		/* that memory is on another socket */
	struct actmem_store_stats ended;	/* totals and peaks of stores that were ended */
};

struct stores {
	struct actmem *am;		/* open while there is a store; else NULL */
	struct knobs chosen;		/* of all stores */
	struct places places;
	struct shares shares;		/* their list has the stores, by place */
	struct store_there there[PLACES_MAX];
	int has_devices;		/* GPUs have used it... */
	uint32_t first_device;		/* ...this one first */
	void (*name_block)(struct actmem_key key, char *name, size_t size);
};

/* The place of the block's store, which may not be there; PLACES_MAX: not known yet. */
unsigned int stores_place(const struct stores *stores, struct actmem_key key);

/*
 * Makes the store of the block, unless it is there. -EAGAIN: others still have all of the
 * budget, and give it back. Else -errno. With @words.
 */
int stores_make(struct stores *stores, struct actmem_key key, char *words, size_t words_size);

/*
 * Ends all stores without blocks. After the last one it closes the runtimes and the memory.
 * @error is that of a store or runtime that could not be ended.
 */
int stores_end(struct stores *stores);

/* Writes the error of the library with the knobs that help. */
int stores_explain(const struct stores *stores, int ret, char *words, size_t words_size);

/* Prints a line, once for a store, if it has memory on another socket than its GPU. */
void stores_tell_far(struct stores *stores, unsigned int place);

#endif /* ACTMEM_XLA_STORES_H */
