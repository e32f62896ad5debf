# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The order in which XLA's compiler for GPUs has a step whose layers are unrolled: the puts
of each layer are in the forward pass, before those of the next layer, and not where their
takes are. Nothing is run. Prints TAP."""
import os
import sys

import jax

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../gpu"))

import layers_case  # noqa: E402
import order  # noqa: E402
import stack  # noqa: E402
from stock import check, finish  # noqa: E402

LAYERS = 6


def compiled():
    sizes = stack.MODELS["small"]._replace(layers=LAYERS)
    layer = layers_case.wrapper("actmem", stack.OFFLOADED)(stack.make_layer(sizes, "xla"))
    weights = jax.eval_shape(lambda: stack.make_weights(sizes, True))
    batch = jax.eval_shape(lambda: stack.make_batch(sizes))
    step = jax.jit(jax.value_and_grad(stack.make_loss(layer, True)))
    return step.lower(weights, batch).compile().as_text()


def main():
    text = compiled()
    check("is_scheduled=true" in text, "XLA tells the order")
    calls = order.calls(text)
    puts = [i for i, name in calls if name == "put"]
    tie = next(i for i, name in calls if name == "tie")
    check(len(puts) == 3 * LAYERS and puts[-1] < tie,
          f"{len(puts)} puts come before the first layer's takes are tied, at {tie}: {puts}")
    gaps = [puts[i] - puts[i - 1] for i in range(3, len(puts), 3)]
    within = [puts[i + 2] - puts[i] for i in range(0, len(puts), 3)]
    check(min(gaps) > max(within),
          f"what a layer computes after its puts is before the next layer's: {gaps}")
    late = order.late_share(text)
    check(0 < late < 0.5, f"{late:.2f} of the puts are in the last quarter of the forward pass")
    finish()


if __name__ == "__main__":
    main()
