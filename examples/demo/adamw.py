# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""AdamW: decoupled weight decay, clipping by global norm, warm-up and cosine."""
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Settings(NamedTuple):
    steps: int
    peak_rate: float = 3e-3
    warmup_steps: int = 10
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    clip_norm: float = 1.0


class State(NamedTuple):
    step: jax.Array
    mean: dict
    square: dict


def initial_state(parameters):
    # The two trees of zeros must not share arrays: the step donates both trees, and JAX cannot
    # donate an array twice.
    return State(jnp.zeros((), jnp.int32),
                 jax.tree.map(jnp.zeros_like, parameters),
                 jax.tree.map(jnp.zeros_like, parameters))


def learning_rate(step, settings):
    warmup = (step + 1) / settings.warmup_steps
    progress = jnp.clip(step / settings.steps, 0, 1)
    cosine = 0.55 + 0.45 * jnp.cos(jnp.pi * progress)
    return settings.peak_rate * jnp.minimum(warmup, cosine)


def update(parameters, gradients, state, settings):
    """Computes one step. Returns the new parameters and the new state."""
    norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
    clip = jnp.minimum(1.0, settings.clip_norm / (norm + 1e-12))
    gradients = jax.tree.map(lambda g: clip * g, gradients)

    beta1, beta2 = settings.beta1, settings.beta2
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g,
                        state.mean, gradients)
    square = jax.tree.map(lambda s, g: beta2 * s + (1 - beta2) * g * g,
                          state.square, gradients)
    count = state.step + 1
    mean_bias, square_bias = 1 - beta1 ** count, 1 - beta2 ** count
    rate = learning_rate(state.step, settings)

    def move(path, p, m, s):
        change = (m / mean_bias) / (jnp.sqrt(s / square_bias)
                                    + settings.epsilon)
        if not path[-1].key.endswith("norm"):
            change += settings.weight_decay * p
        return p - rate * change

    moved = jax.tree_util.tree_map_with_path(move, parameters, mean, square)
    return moved, State(count, mean, square)
