# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Weights and input of a stack of layers, and the gradient of such a stack.

A layer is two matrix multiplications. The values are random, and the loss not linear, so
that an activation shows in the gradient where it is taken for that of another layer or
of another sample.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sizes(NamedTuple):
    """Of the stack and of its input."""
    layers: int
    batch: int
    width: int
    hidden: int


TUTORIAL = Sizes(layers=10, batch=256, width=256, hidden=1024)
SMALL = Sizes(layers=4, batch=32, width=32, hidden=64)


def weights_and_input(sizes):
    """((layers, width, hidden), (layers, hidden, width)) and (batch, width), float32."""
    into, out, x = jax.random.split(jax.random.key(0), 3)
    layers, batch, width, hidden = sizes
    weights = (jax.random.normal(into, (layers, width, hidden)) * width ** -0.5,
               jax.random.normal(out, (layers, hidden, width)) * hidden ** -0.5)
    return weights, jax.random.normal(x, (batch, width))


def gradient(layer):
    """Jitted, of half the square of what lax.scan over `layer(x, weights)` yields: the
    gradients of the weights, in their shapes."""

    def loss(weights, x):
        x, _ = jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, weights)
        return jnp.sum(x * x) / 2

    return jax.jit(jax.grad(loss))
