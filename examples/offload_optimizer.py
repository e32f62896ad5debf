# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Adam's state on the host between steps.

Adam keeps two averages for each weight, twice the weights' bytes, and needs them in
the update alone. In turn, they are on the device throughout; and they are inputs and
outputs on the host, fetched for the update.
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
STEPS = 3       # the first one's state is zeros, wherever it lies
# Its epsilon is above the gradients' rounding: with Adam's own, 1e-8, an element near 0
# would turn a last bit into a step of its own, and results could not be compared.
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0),
                        optax.adam(learning_rate=1e-3, eps=1e-6))


class Sizes(NamedTuple):
    """Weights, input and output are all (width, width)."""
    width: int


TUTORIAL, ON_CPU, SMALL = Sizes(7168), Sizes(1024), Sizes(64)


def initial_state(width):
    """Weights, Adam's state, and an input, which is also what to answer."""
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    *weights, x = [jax.random.normal(key, (width, width)) for key in keys]
    weights = [w * width ** -0.5 for w in weights]
    return weights, OPTIMIZER.init(weights), x


def layer(x, w):
    return jax.nn.gelu(x @ w)


def make_step(layer, fetch=lambda state: state):
    """step(weights, state, x): the new weights and the new state."""

    def loss(weights, x):
        answer = x
        for w in weights:
            answer = layer(answer, w)
        return (jnp.mean((answer - x) ** 2) +
                1e-3 * sum(jnp.sum(w ** 2) for w in weights))

    def step(weights, state, x):
        gradients = jax.grad(loss)(weights, x)
        changes, state = OPTIMIZER.update(gradients, fetch(state), weights)
        return optax.apply_updates(weights, changes), state

    return step


def train(step, weights, state, x, place):
    """The compiled step, and what it makes of weights and a state that is at `place`."""
    state = jax.device_put(state, place)
    compiled = step.lower(weights, state, x).compile()
    for _ in range(STEPS):
        weights, state = compiled(weights, state, x)
        state = jax.device_put(state, place)    # nothing to do, but on a CPU
    return compiled, (weights, state)


def kept(width):
    """Weights and state are donated: the new ones take their places."""
    step = jax.jit(make_step(layer), donate_argnums=(0, 1))
    return train(step, *initial_state(width), ON_DEVICE)


def fetching_step(layer, places):
    """A step that fetches the state, and whose results are at `places`. Arrays on the host
    are not donated: the device has nothing of them to reuse."""
    step = make_step(layer, lambda state: jax.device_put(state, ON_DEVICE))
    return jax.jit(step, donate_argnums=0, out_shardings=places)


def offloaded(width, layer=layer):
    """The state is on the host between steps."""
    # For CPUs XLA cannot compile a step that has results on the host.
    places = None if jax.default_backend() == "cpu" else (ON_DEVICE, ON_HOST)
    return train(fetching_step(layer, places), *initial_state(width), ON_HOST)


def main():
    options = report.options(__doc__)
    sizes = SMALL if options.small else TUTORIAL if report.on_gpu() else ON_CPU
    rows = report.Report("offload_optimizer", options, sizes)

    rows.add("kept", *kept(sizes.width), tutorial=tutorial.OPTIMIZER_KEPT)
    rows.add("offloaded", *offloaded(sizes.width), tutorial=tutorial.OPTIMIZER)
    if options.way == "actmem":
        # The state is new in every step, and XLA's own; the layers' inputs go to regions.
        import actmem.jax
        in_actmem = actmem.jax.checkpoint(layer, offload_argnums=0)
        rows.add("actmem", *offloaded(sizes.width, in_actmem), in_actmem=True)
    return rows.finish()


if __name__ == "__main__":
    sys.exit(main())
