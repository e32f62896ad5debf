# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Equinox: eqx.filter_checkpoint with a policy, in a loop and in lax.scan,
with dropout."""
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest
from jax.ad_checkpoint import checkpoint_name

from training import BATCH, HIDDEN, LAYERS, RATE, STEPS, WIDTH, X, Y, compare

adam = optax.adam(1e-2)


class Layer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.attention = eqx.nn.MultiheadAttention(2, WIDTH, key=keys[0])
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.up = eqx.nn.Linear(WIDTH, HIDDEN, key=keys[1])
        self.down = eqx.nn.Linear(HIDDEN, WIDTH, key=keys[2])
        self.dropout = eqx.nn.Dropout(RATE)

    def __call__(self, x, key):
        """Of one sequence: tokens, width."""
        h = jax.vmap(self.norm)(x)
        x = x + self.attention(h, h, h)
        h = checkpoint_name(jax.vmap(self.up)(x), "hidden")
        h = self.dropout(jax.nn.gelu(h), key=key)
        return x + checkpoint_name(jax.vmap(self.down)(h), "out")


def on_batch(layer, x, key):
    return jax.vmap(layer)(x, jax.random.split(key, BATCH))


def forward(layers, x, key, policy, scan):
    keys = jax.random.split(key, LAYERS)
    run = on_batch
    if policy:
        run = eqx.filter_checkpoint(on_batch, policy=policy, prevent_cse=not scan)
    if not scan:
        for layer, key in zip(layers, keys):
            x = run(layer, x, key)
        return x
    arrays, static = eqx.partition(layers, eqx.is_array)

    def body(x, scanned):
        arrays, key = scanned
        return run(eqx.combine(arrays, static), x, key), None
    return jax.lax.scan(body, x, (arrays, keys))[0]


@functools.cache
def start(scan):
    @eqx.filter_jit
    def make():
        keys = jax.random.split(jax.random.key(0), LAYERS)
        layers = eqx.filter_vmap(Layer)(keys) if scan else [Layer(key) for key in keys]
        return layers, adam.init(eqx.filter(layers, eqx.is_inexact_array))
    return make()


def train(policy, scan):
    layers, state = start(scan)

    @eqx.filter_jit
    def step(layers, state, key):
        loss, gradients = eqx.filter_value_and_grad(lambda layers: jnp.mean(
            (forward(layers, X, key, policy, scan) - Y) ** 2))(layers)
        updates, state = adam.update(gradients, state)
        return loss, eqx.apply_updates(layers, updates), state

    losses = []
    for i in range(STEPS):
        loss, layers, state = step(layers, state, jax.random.key(i))
        losses.append(loss)
    return losses, eqx.filter(layers, eqx.is_array), state


@pytest.mark.parametrize("scan", [False, True], ids=["loop", "scan"])
def test_equinox(scan):
    compare(lambda policy: train(policy, scan))
