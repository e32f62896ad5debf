/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internals of memory.c: a table of stores. The caller locks the table to make or end stores.
 */
#ifndef LIB_XLA_STORES_H
#define LIB_XLA_STORES_H

#include <stdatomic.h>
#include <stdbool.h>
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
	bool is_registered;		/* registered with the runtime of the place */
	bool is_far_told;		/* stores_tell_far() has printed its line */
	struct actmem_store_stats ended;	/* totals and peaks of the place's ended stores */
};

struct stores {
	struct actmem *am;		/* open while there is a store; else NULL */
	struct knobs chosen;		/* options of all stores */
	struct places places;
	struct shares shares;		/* shares.list[i] has the store of place i */
	struct store_there there[PLACES_MAX];
	bool has_devices;		/* 1: GPUs have used the table */
	uint32_t first_device;		/* first GPU that used the table */
	atomic_int checksum;		/* 1: new stores compute checksums */
	void (*name_block)(struct actmem_key key, char *name, size_t size);
};

/*
 * Returns the index of the place where the block's store is, or will be made. Returns PLACES_MAX if
 * the place is not known yet.
 */
unsigned int stores_place(const struct stores *stores, struct actmem_key key);

/*
 * Makes the store of the block unless it exists. Returns 0, or a negative errno with an error
 * message in @words. -EAGAIN means that other stores hold the whole budget, but will release part
 * of it.
 */
int stores_make(struct stores *stores, struct actmem_key key, char *words, size_t words_size);

/*
 * Ends all stores without blocks. If no store is left, closes the runtimes and the handle. Returns
 * the error of a store or runtime that could not be ended, or 0.
 */
int stores_end(struct stores *stores);

/*
 * Writes the library's error message to @words, and adds the options that the user should change.
 * Returns @error.
 */
int stores_explain(const struct stores *stores, int error, char *words, size_t words_size);

/*
 * Prints a line if the store of @place has memory on another socket than the GPU of @place. Prints
 * the line once for each store.
 */
void stores_tell_far(struct stores *stores, unsigned int place);

#endif /* LIB_XLA_STORES_H */
