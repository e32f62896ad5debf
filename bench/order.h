/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The order in which a backward pass needs its layers. */
#ifndef ACTMEM_ORDER_H
#define ACTMEM_ORDER_H

#include <stdint.h>

enum order {
	ORDER_REVERSE,		/* last layer first */
	ORDER_FORWARD,
	ORDER_RANDOM,		/* the same in every step */
	ORDER_SHUFFLE,		/* a new one in every step */
};

/* The names of the orders, and a NULL at the end. */
extern const char *const order_names[];

/* Writes the layers in the order of that step. The same seed gives the same order. */
void order_make(enum order order, uint64_t seed, uint64_t step, uint32_t *layers,
		uint32_t layer_count);

#endif
