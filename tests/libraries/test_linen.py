# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Flax linen, trained by Optax: nn.remat with a policy, in a loop and in
nn.scan, with dropout."""
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from jax.ad_checkpoint import checkpoint_name

from training import HIDDEN, LAYERS, RATE, STEPS, WIDTH, X, Y, compare

adam = optax.adam(1e-2)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic):
        x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
        h = checkpoint_name(nn.Dense(HIDDEN)(nn.LayerNorm()(x)), "hidden")
        h = nn.Dropout(RATE, deterministic=deterministic)(nn.gelu(h))
        return x + checkpoint_name(nn.Dense(WIDTH)(h), "out")


class Model(nn.Module):
    policy: object
    scan: bool

    @nn.compact
    def __call__(self, x):
        layer = Layer
        if self.policy:
            layer = nn.remat(Layer, policy=self.policy, static_argnums=(2,),
                             prevent_cse=not self.scan)
        if not self.scan:
            for i in range(LAYERS):
                x = layer(name=f"layer{i}")(x, False)
            return x
        run = nn.scan(lambda layer, x, _: (layer(x, False), None),
                      length=LAYERS, variable_axes={"params": 0},
                      split_rngs={"params": True, "dropout": True})
        return run(layer(name="layers"), x, None)[0]


@functools.cache
def start(scan):
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    params = jax.jit(Model(None, scan).init)(keys, X)
    return params, adam.init(params)


def train(policy, scan):
    model = Model(policy, scan)

    @jax.jit
    def step(params, state, key):
        def loss(params):
            return jnp.mean((model.apply(params, X, rngs={"dropout": key}) - Y) ** 2)
        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = adam.update(gradients, state)
        return value, optax.apply_updates(params, updates), state

    params, state = start(scan)
    losses = []
    for i in range(STEPS):
        loss, params, state = step(params, state, jax.random.key(i))
        losses.append(loss)
    return losses, params, state


@pytest.mark.parametrize("scan", [False, True], ids=["loop", "scan"])
def test_linen(scan):
    compare(lambda policy: train(policy, scan))
