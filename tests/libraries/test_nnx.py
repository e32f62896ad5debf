# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Flax nnx: nnx.remat with a policy, in a loop and in nnx.scan, with dropout,
and a count that each call changes."""
import functools

import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from training import HIDDEN, LAYERS, RATE, STEPS, WIDTH, X, Y, compare


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.up = nnx.Linear(WIDTH, HIDDEN, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(RATE, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls[...] += 1
        x = x + self.attention(self.norm(x))
        h = checkpoint_name(self.up(x), "hidden")
        return x + checkpoint_name(self.down(self.dropout(nnx.gelu(h))), "out")


class Model(nnx.Module):
    def __init__(self, policy, scan, rngs):
        self.policy, self.scan = policy, scan
        self.layers = (nnx.vmap(Layer)(rngs.split(LAYERS)) if scan else
                       nnx.List([Layer(rngs) for _ in range(LAYERS)]))

    def __call__(self, x):
        def run(layer, x):
            return layer(x)
        if self.policy:
            run = nnx.remat(run, policy=self.policy, prevent_cse=not self.scan)
        if self.scan:
            return nnx.scan(lambda x, layer: run(layer, x), length=LAYERS,
                            in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)
        for layer in self.layers:
            x = run(layer, x)
        return x


@functools.cache
def start(scan):
    @nnx.jit
    def make():
        model = Model(None, scan, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    return make()


def train(policy, scan):
    model, optimizer = nnx.clone(start(scan))
    model.policy = policy

    @nnx.jit
    def step(model, optimizer):
        loss, gradients = nnx.value_and_grad(
            lambda model: jnp.mean((model(X) - Y) ** 2))(model)
        optimizer.update(model, gradients)
        return loss

    losses = [step(model, optimizer) for _ in range(STEPS)]
    layers = [model.layers] if scan else model.layers
    assert all((layer.calls[...] == STEPS).all() for layer in layers)
    return losses, nnx.to_pure_dict(nnx.state((model, optimizer)))


@pytest.mark.parametrize("scan", [False, True], ids=["loop", "scan"])
def test_nnx(scan):
    compare(lambda policy: train(policy, scan))
