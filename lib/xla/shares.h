/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Divides the one budget and the one spill limit of a process between its stores.
 *
 * Stores that spill get parts in proportion to the number of GPUs that they serve. When another
 * store is made, a store that has more than its part spills blocks and closes regions. The new
 * store gets that memory as it becomes free. So all stores together never exceed the budget. Stores
 * that do not spill lend unused memory to a store that would fail without it.
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
	unsigned int devices;		/* devices that the store serves, or will serve */
	uint64_t given[SHARE_KINDS];
};

struct shares {
	unsigned int count;
	struct share *list;
	uint64_t total[SHARE_KINDS];	/* 0: no limit, so there is nothing to divide */
};

/*
 * Gives each store its part, or as much of it as other stores have released. Returns 1 if each
 * store has its part, 0 if some still wait, or -ERANGE if a part is too small for a store.
 */
int shares_divide(struct shares *shares);

/* Returns the limit for a new store. The caller calls shares_divide() first. */
uint64_t shares_left(const struct shares *shares, unsigned int index, enum share_of kind);

/* Returns true if @bytes is the store's whole part of the budget, or more. */
bool shares_could_have(const struct shares *shares, unsigned int index, uint64_t bytes);

/* Returns true if a store has its whole part of the budget. */
bool shares_has_all(const struct shares *shares, unsigned int index);

/*
 * Gives a store the part of the budget that no other store uses. Returns true if the store got
 * more.
 */
bool shares_borrow(struct shares *shares, unsigned int index);

#endif /* LIB_XLA_SHARES_H */
