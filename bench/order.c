// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Creates orders of layers, some of them random. */
#include <stddef.h>
#include "order.h"
#include "pattern.h"

const char *const order_names[] = {
	[ORDER_REVERSE] = "reverse",
	[ORDER_FORWARD] = "forward",
	[ORDER_RANDOM] = "random",
	[ORDER_SHUFFLE] = "shuffle",
	NULL,
};

static void shuffle_layers(uint64_t seed, uint64_t step, uint32_t *layers, uint32_t layer_count)
{
	uint64_t state = pattern_seed(step, seed);
	uint32_t i, other, layer;

	for (i = layer_count; i > 1; i--) {
		state = pattern_seed(state, i);
		other = (uint32_t)(state % i);
		layer = layers[i - 1];
		layers[i - 1] = layers[other];
		layers[other] = layer;
	}
}

void order_make(enum order order, uint64_t seed, uint64_t step, uint32_t *layers,
		uint32_t layer_count)
{
	uint32_t i;

	for (i = 0; i < layer_count; i++)
		layers[i] = order == ORDER_REVERSE ? layer_count - 1 - i : i;
	if (order == ORDER_RANDOM || order == ORDER_SHUFFLE)
		shuffle_layers(seed, order == ORDER_SHUFFLE ? step : 0, layers, layer_count);
}
