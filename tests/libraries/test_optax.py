# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Gradient accumulation: by optax.MultiSteps, a call for each part of a batch,
and by lax.scan over the parts inside of one step."""
import jax
import jax.numpy as jnp
import optax
from jax.ad_checkpoint import checkpoint_name

from training import BYTES, HIDDEN, LAYERS, STEPS, WIDTH, X, Y, compare

PARTS = 2


def layer(w, x):
    h = checkpoint_name(x @ w["up"], "hidden")
    return x + checkpoint_name(jax.nn.relu(h) @ w["down"], "out")


def loss(weights, x, y, policy):
    run = jax.checkpoint(layer, policy=policy, prevent_cse=False) if policy else layer
    x, _ = jax.lax.scan(lambda x, w: (run(w, x), None), x, weights)
    return jnp.mean((x - y) ** 2)


def weights():
    up, down = jax.random.split(jax.random.key(0))
    return {"up": jax.random.normal(up, (LAYERS, WIDTH, HIDDEN)) * WIDTH ** -0.5,
            "down": jax.random.normal(down, (LAYERS, HIDDEN, WIDTH)) * HIDDEN ** -0.5}


def parts(array):
    return array.reshape(PARTS, -1, *array.shape[1:])


def by_multi_steps(policy):
    adam = optax.MultiSteps(optax.adam(1e-2), every_k_schedule=PARTS)

    @jax.jit
    def step(params, state, x, y):
        value, gradients = jax.value_and_grad(loss)(params, x, y, policy)
        updates, state = adam.update(gradients, state, params)
        return value, optax.apply_updates(params, updates), state

    params, losses = weights(), []
    state = adam.init(params)
    for _ in range(STEPS):
        for x, y in zip(parts(X), parts(Y)):
            value, params, state = step(params, state, x, y)
            losses.append(value)
    return losses, params, state


def by_scan(policy):
    adam = optax.adam(1e-2)

    @jax.jit
    def step(params, state):
        def add(total, part):
            value, gradients = jax.value_and_grad(loss)(params, *part, policy)
            return jax.tree.map(jnp.add, total, gradients), value
        total, values = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params),
                                     (parts(X), parts(Y)))
        mean = jax.tree.map(lambda gradient: gradient / PARTS, total)
        updates, state = adam.update(mean, state)
        return values, optax.apply_updates(params, updates), state

    params, losses = weights(), []
    state = adam.init(params)
    for _ in range(STEPS):
        values, params, state = step(params, state)
        losses.append(values)
    return losses, params, state


def test_multi_steps():
    compare(by_multi_steps, BYTES)


def test_scan_over_parts():
    compare(by_scan, BYTES)
