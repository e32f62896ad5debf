/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Divides the one budget and the one spill limit of a process between its stores.
 *
 * Stores that spill get parts in proportion to the number of GPUs that they serve. When another
 * store is made, the parts of the existing stores shrink. A store that has more than its new part
 * spills blocks and closes regions. The new store gets this memory as soon as it is free. So all
 * stores together never exceed the budget. If stores do not spill, a store that runs out of memory
 * gets memory that other stores do not use.
 *
 * The caller ensures that no store is made or ended during a call.
 */
#ifndef LIB_XLA_SHARES_H
#define LIB_XLA_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_store.h"

enum share_of {
	SHARE_MEMORY,
	SHARE_FILES,
	SHARE_KINDS,
};

struct share {
	struct actmem_store *store;	/* NULL: none yet */
	unsigned int devices;		/* devices that the store serves or will serve */
	uint64_t given[SHARE_KINDS];	/* present limits of the store */
};

struct shares {
	unsigned int count;
	struct share *list;
	uint64_t total[SHARE_KINDS];	/* 0: no limit, so there is nothing to divide */
};

/*
 * Sets the limits of each store to its part, or to as much of its part as other stores have
 * released. Returns 1 if each store has its part, 0 if some stores have less, or -ERANGE if a part
 * is too small for a store.
 */
int shares_divide(struct shares *shares);

/* Returns the limit that store @index may have now. The caller calls shares_divide() first. */
uint64_t shares_left(const struct shares *shares, unsigned int index, enum share_of kind);

/* Returns true if @bytes is at least the store's part of the budget. */
bool shares_could_have(const struct shares *shares, unsigned int index, uint64_t bytes);

/* Returns true if a store has its whole part of the budget. */
bool shares_has_all(const struct shares *shares, unsigned int index);

/*
 * Gives a store all of the budget that no other store uses. Returns true if the store's limit rose.
 */
bool shares_borrow(struct shares *shares, unsigned int index);

#endif /* LIB_XLA_SHARES_H */
