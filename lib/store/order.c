/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A pairing heap, which finds the item that is wanted soonest, or latest. */
#include "store/order.h"

static bool comes_first(const struct order *order, const struct order_place *place,
			const struct order_place *other)
{
	return order->last_first ? want_is_sooner(&other->want, &place->want) :
	       want_is_sooner(&place->want, &other->want);
}

/* Merges two items without siblings. The item that comes first becomes the other item's parent. */
static struct order_place *merge(const struct order *order, struct order_place *a,
				 struct order_place *b)
{
	struct order_place *below = b;

	if (!a || !b)
		return a ? a : b;
	if (comes_first(order, b, a)) {
		below = a;
		a = b;
	}
	below->previous = a;
	below->next = a->child;
	if (below->next)
		below->next->previous = below;
	a->child = below;
	return a;
}

static struct order_place *alone(struct order_place *place)
{
	if (place) {
		place->next = NULL;
		place->previous = NULL;
	}
	return place;
}

/* Merges a list of siblings: first in pairs, then the pairs from the last to the first. */
static struct order_place *merge_all(const struct order *order, struct order_place *sibling)
{
	struct order_place *merged = NULL, *pairs = NULL, *pair, *next;

	while (sibling) {
		next = sibling->next;
		pair = next;
		next = next ? next->next : NULL;
		pair = merge(order, alone(sibling), alone(pair));
		pair->next = pairs;
		pairs = pair;
		sibling = next;
	}
	for (; pairs; pairs = next) {
		next = pairs->next;
		merged = merge(order, merged, alone(pairs));
	}
	return merged;
}

void order_add(struct order *order, struct order_place *place)
{
	place->child = NULL;
	order->first = merge(order, order->first, alone(place));
	order->count++;
}

void order_remove(struct order *order, struct order_place *place)
{
	struct order_place *rest = merge_all(order, place->child);

	order->count--;
	if (order->first == place) {
		order->first = rest;
		return;
	}
	if (place->previous->child == place)
		place->previous->child = place->next;
	else
		place->previous->next = place->next;
	if (place->next)
		place->next->previous = place->previous;
	order->first = merge(order, order->first, rest);
}
