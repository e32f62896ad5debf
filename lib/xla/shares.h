/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The parts that the stores of a process have of its one budget and its one spill limit.
 *
 * Stores that spill divide them in proportion to the GPUs that they serve. A store that has
 * more than its part when another one is made spills and closes regions, and the other one
 * gets these parts as they come free. So all stores together never have more than the budget.
 * Stores that do not spill lend unused memory to a store that would fail without it.
 *
 * The caller sees to it that stores are not made or ended meanwhile.
 */
#ifndef ACTMEM_XLA_SHARES_H
#define ACTMEM_XLA_SHARES_H

#include <stdint.h>

#include "actmem_store.h"

enum share_of {
	SHARE_MEMORY,
	SHARE_FILES,
	SHARE_KINDS,
};

struct share {
	struct actmem_store *store;	/* NULL: none yet */
	unsigned int devices;		/* that it serves, or will serve */
	uint64_t given[SHARE_KINDS];
};

struct shares {
	unsigned int count;
	struct share *list;
	uint64_t total[SHARE_KINDS];	/* 0: no limit, so there is nothing to divide */
};

/*
 * Gives each store its part, as far as others have left it. Returns 1 if all have theirs, 0 if
 * some are still waiting for it, or -ERANGE if a part is too small for a store.
 */
int shares_divide(struct shares *shares);

/* How much a store without its part yet may be made with, after shares_divide(). */
uint64_t shares_left(const struct shares *shares, unsigned int index, enum share_of kind);

/* Whether @bytes are the whole part of the budget of a store. */
int shares_could_have(const struct shares *shares, unsigned int index, uint64_t bytes);

/* Whether a store has its whole part of the budget. */
int shares_has_all(const struct shares *shares, unsigned int index);

/* Gives a store what all others do not use of the budget. Returns whether that is more. */
int shares_borrow(struct shares *shares, unsigned int index);

#endif /* ACTMEM_XLA_SHARES_H */
