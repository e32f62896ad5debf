/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Which of many is wanted first, or last: a heap whose links lie in its items, so
 * that nothing here can fail.
 */
#ifndef LIB_STORE_ORDER_H
#define LIB_STORE_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* When something is wanted: a time, and among those of one time the later put first. */
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
	struct order_place *previous;	/* among its siblings; of the first: the parent */
	struct want want;		/* the same as long as it is in an order */
};

struct order {
	struct order_place *first;		/* NULL: empty */
	bool last_first;
	size_t count;
};

void order_add(struct order *order, struct order_place *place);
void order_remove(struct order *order, struct order_place *place);

#endif /* LIB_STORE_ORDER_H */
