/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A priority queue (pairing heap). Finds the item that is wanted soonest or, with last_first, the
 * item that is wanted latest. The links of the queue are in the items, so the functions allocate no
 * memory and cannot fail.
 */
#ifndef LIB_STORE_ORDER_H
#define LIB_STORE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The time at which an item is wanted. If the times @at of two items are equal, the item with the
 * larger @put is wanted sooner.
 */
struct want {
	uint64_t at;
	uint64_t put;
};

static inline bool want_is_sooner(const struct want *want, const struct want *other)
{
	return want->at != other->at ? want->at < other->at : want->put > other->put;
}

struct order_place {
	struct order_place *child, *next;
	struct order_place *previous;	/* previous sibling; for the first sibling, the parent */
	struct want want;		/* must not change while the item is in a queue */
};

struct order {
	struct order_place *first;		/* NULL: empty */
	bool last_first;		/* @first is the item that is wanted latest, not soonest */
	size_t count;
};

void order_add(struct order *order, struct order_place *place);
void order_remove(struct order *order, struct order_place *place);

#endif /* LIB_STORE_ORDER_H */
