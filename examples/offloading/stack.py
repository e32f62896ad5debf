# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Creates the weights and the input of a stack of layers, and a function for the gradient of the
stack.

A layer is two matrix multiplications. The values are random and the loss is not linear, so a
program that confuses the activations of two layers or samples computes a different gradient.
"""
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Sizes(NamedTuple):
    """Sizes of the stack and of its input."""
    layers: int
    batch: int
    width: int
    hidden: int


TUTORIAL = Sizes(layers=10, batch=256, width=256, hidden=1024)
SMALL = Sizes(layers=4, batch=32, width=32, hidden=64)


def weights_and_input(sizes):
    """Returns float32 weights of shapes (layers, width, hidden) and (layers, hidden, width), and
    an input of shape (batch, width)."""
    into, out, x = jax.random.split(jax.random.key(0), 3)
    layers, batch, width, hidden = sizes
    weights = (jax.random.normal(into, (layers, width, hidden)) * width ** -0.5,
               jax.random.normal(out, (layers, hidden, width)) * hidden ** -0.5)
    return weights, jax.random.normal(x, (batch, width))


def gradient(layer, value_and_grad=jax.value_and_grad):
    """Returns a jitted function that computes the gradients of the weights. The function applies
    all layers, `layer(x, weights)`, by lax.scan. The loss is half the sum of the squares of the
    last output."""

    def loss(weights, x):
        x, _ = jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, weights)
        return jnp.sum(x * x) / 2

    return jax.jit(lambda weights, x: value_and_grad(loss)(weights, x)[1])
