# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Adam's state on the host between steps.

Adam keeps two averages for each weight. Together, the averages are twice as large as the weights.
Only the update needs the averages. The program compares several ways to store the averages. In the
first, the averages are always on the device. In the second, the averages are inputs and outputs on
the host, and the step fetches them for the update. With actmem, the averages are in regions, and
the update copies them to the device one after the other. If the host computes the update, the
averages stay on the host, and only gradients and changes of weights move.
"""
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import SingleDeviceSharding

from offloading import report, tutorial

ON_DEVICE, ON_HOST = (SingleDeviceSharding(jax.devices()[0], memory_kind=kind)
                      for kind in ("device", "pinned_host"))
LAYERS = 4
STEPS = 3       # more than 1, because the state is zeros in the first step
# The epsilon is above the gradients' rounding error. With Adam's default, 1e-8, a difference in
# the last bit of a gradient near 0 would change the step, and results would not be comparable.
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0),
                        optax.adam(learning_rate=1e-3, eps=1e-6))


class Sizes(NamedTuple):
    """Each weight matrix, the input and the output have the shape (width, width)."""
    width: int


TUTORIAL, ON_CPU, SMALL = Sizes(7168), Sizes(1024), Sizes(64)


def initial_state(width, optimizer=OPTIMIZER):
    """Returns weights, Adam's state, and an input, which is also the expected output."""
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    *weights, x = [jax.random.normal(key, (width, width)) for key in keys]
    weights = [w * width ** -0.5 for w in weights]
    return weights, optimizer.init(weights), x


def layer(x, w):
    return jax.nn.gelu(x @ w)


def make_step(layer, fetch=lambda state: state, optimizer=OPTIMIZER):
    """Returns step(weights, state, x), which returns the new weights and the new state."""

    def loss(weights, x):
        answer = x
        for w in weights:
            answer = layer(answer, w)
        return (jnp.mean((answer - x) ** 2) +
                1e-3 * sum(jnp.sum(w ** 2) for w in weights))

    def step(weights, state, x):
        gradients = jax.grad(loss)(weights, x)
        changes, state = optimizer.update(gradients, fetch(state), weights)
        return optax.apply_updates(weights, changes), state

    return step


def train(step, weights, state, x, place):
    """Trains, and keeps Adam's state in the sharding `place` between steps. Returns the compiled
    step, and the final weights and state."""
    state = jax.device_put(state, place)
    compiled = step.lower(weights, state, x).compile()
    for _ in range(STEPS):
        weights, state = compiled(weights, state, x)
        state = jax.device_put(state, place)    # copies only on a CPU
    return compiled, (weights, state)


def kept(width):
    """Trains with the state on the device. Donates weights and state, so that the new weights and
    state reuse their memory."""
    step = jax.jit(make_step(layer), donate_argnums=(0, 1))
    return train(step, *initial_state(width), ON_DEVICE)


def fetching_step(layer, places):
    """Returns a step that fetches the state and leaves its results at `places`. The step does not
    donate arrays on the host, because such arrays occupy no device memory that the step could
    reuse."""
    step = make_step(layer, lambda state: jax.device_put(state, ON_DEVICE))
    return jax.jit(step, donate_argnums=0, out_shardings=places)


def offloaded(width):
    """Trains with the state on the host between steps."""
    # On CPUs, XLA cannot compile a step with results on the host.
    places = None if jax.default_backend() == "cpu" else (ON_DEVICE, ON_HOST)
    return train(fetching_step(layer, places), *initial_state(width), ON_HOST)


def in_actmem(width, on="device"):
    """Trains with the state in regions. The inputs of the layers are also in regions, until the
    backward pass. `on` selects whether the device or the host computes the update."""
    import actmem.jax
    import actmem.optax

    def is_stored(leaf):
        return isinstance(leaf, actmem.jax.Stored)
    # With this group_bytes, a group is the state of one weight.
    optimizer = actmem.optax.offload(OPTIMIZER, on=on, group_bytes=8 * width ** 2)
    kept = actmem.jax.checkpoint(layer, offload_argnums=0)
    step = jax.jit(make_step(kept, optimizer=optimizer), donate_argnums=(0, 1))
    weights, state, x = initial_state(width, optimizer)
    compiled = step.lower(weights, state, x).compile()
    for _ in range(STEPS):
        weights, state = compiled(weights, state, x)
    state = jax.tree.map(lambda leaf: leaf.value() if is_stored(leaf) else leaf, state,
                         is_leaf=is_stored)
    return compiled, (weights, state)


def main():
    options = report.options(__doc__)
    sizes = SMALL if options.small else TUTORIAL if report.on_gpu() else ON_CPU
    rows = report.Report("offload_optimizer", options, sizes)

    rows.add("kept", *kept(sizes.width), tutorial=tutorial.OPTIMIZER_KEPT)
    rows.add("offloaded", *offloaded(sizes.width), tutorial=tutorial.OPTIMIZER)
    if options.way == "actmem":
        rows.add("actmem", *in_actmem(sizes.width), in_actmem=True)
        rows.add("host update", *in_actmem(sizes.width, on="host"), in_actmem=True)
    return rows.finish()


if __name__ == "__main__":
    sys.exit(main())
