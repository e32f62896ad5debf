# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Random transformations with stored states, also delayed ones, beside the same ones with states on
the device.

ACTMEM_SEEDS=1000:1200 runs other seeds than `make check`."""
import os
import random
from functools import partial

import jax
import jax.numpy as jnp
import optax
import pytest

import actmem.jax
import actmem.optax
from test_optax import close, count, stored_in

LEAVES = "abc"
SIDE = 64


class Update:
    """A random function of gradients and state. It is the same one at each call."""

    def __init__(self, seed):
        self.seed = seed

    def predicate(self, chance, grads, old, new):
        kind = chance.randrange(6)
        if kind == 0:
            return old["step"] % 2 == chance.randrange(2)
        if kind == 1:
            return jnp.isfinite(optax.tree.norm(grads))
        if kind == 2:
            return grads["a"][0, 0] > 0
        if kind == 3:
            return ~(jnp.sum(grads["b"]) > 0)
        if kind == 4:       # needs a stored leaf
            return jnp.sum(old[chance.choice(LEAVES)]) > 0
        return jnp.mean(new[chance.choice(LEAVES)]) < 0.5

    def change(self, chance, grads, old, new, depth=0):
        """Returns `new` after one random change."""
        x, y = chance.choice(LEAVES), chance.choice(LEAVES)
        kind = chance.randrange(11 if depth < 2 else 7)
        new = dict(new)
        if kind == 0:
            new[x], new[y] = new[y], new[x]
        elif kind == 1:
            new[x] = new[y]
        elif kind == 2:
            new[y] = new[y] / (1 + optax.tree.norm(new[x]))
        elif kind == 3:
            new[x] = jax.lax.fori_loop(0, 2, lambda _, leaf: 0.5 * leaf + 0.1, new[y])
        elif kind == 4:
            new[x] = jnp.full((SIDE, SIDE), 0.25, jnp.float32)
        elif kind == 5:
            new[x] = old[y]
        elif kind == 6:
            new[x] = 0.9 * new[x] + 0.1 * grads[y]
        elif kind == 7:
            other = self.change(chance, grads, old, new, depth + 1)
            test = self.predicate(chance, grads, old, new)
            new = jax.tree.map(lambda one, two: jnp.where(test, one, two), other, old)
        elif kind == 8:
            new[x] = jnp.where(self.predicate(chance, grads, old, new), old[x], new[y] + 1)
        else:
            seeds = [chance.random() for _ in range(2 + kind % 2)]
            branches = [lambda new, seed=seed: self.change(
                random.Random(seed), grads, old, new, depth + 1) for seed in seeds[1:]]
            branches.append(lambda new: new)
            test = self.predicate(random.Random(seeds[0]), grads, old, new)
            new = jax.lax.switch(test.astype(jnp.int32), branches, new)
        return new

    def __call__(self, grads, state, params=None):
        chance = random.Random(self.seed)
        new = dict(state)
        for _ in range(chance.randint(1, 4)):
            new = self.change(chance, grads, state, new)
        new["step"] = state["step"] + 1
        updates = {name: grads[name] + sum(
            chance.choice((0, 0, 0.5)) * leaf[0, 0] for leaf in map(new.get, LEAVES))
            for name in LEAVES}
        if chance.random() < 0.3:
            updates[chance.choice(LEAVES)] = state[chance.choice(LEAVES)]
        return updates, new


def init(params):
    keys = jax.random.split(jax.random.key(1), len(LEAVES))
    return {name: jax.random.normal(key, (SIDE, SIDE)) for name, key in zip(LEAVES, keys)} | {
        "step": jnp.int32(0)}


def seeds():
    begin, _, end = os.environ.get("ACTMEM_SEEDS", "0:16").partition(":")
    return range(int(begin), int(end))


@pytest.mark.parametrize("seed", seeds())
def test_a_random_update(seed):
    tx = optax.GradientTransformation(init, Update(seed))
    chance = random.Random(seed)
    stored = actmem.optax.offload(tx, group_bytes=chance.choice((1, 2 * 4 * SIDE * SIDE, 1 << 30)))
    donated = chance.choice(((), (1,)))
    state, plain = stored.init({}), tx.init({})
    step, plainly = (jax.jit(one.update, donate_argnums=donate)
                     for one, donate in ((stored, donated), (tx, ())))
    for number in range(4):
        keys = jax.random.split(jax.random.key(number), len(LEAVES))
        grads = {name: jax.random.normal(key, (SIDE, SIDE)) for name, key in zip(LEAVES, keys)}
        updates, state = jax.block_until_ready(step(grads, state))
        wanted, plain = plainly(grads, plain)
        close((updates, state), (wanted, plain))
    blocks = {int(leaf.token.base[0]) for leaf in stored_in(state)}
    assert len(stored_in(state)) == len(LEAVES) and count("live_blocks") == len(blocks)


def gradients_by(seed):
    """Returns a function that uses parameters in a random order, also several at once."""
    def function(params, number):
        chance = random.Random(seed)
        keys = jax.random.split(jax.random.key(number), len(LEAVES))
        grads = {name: jax.random.normal(key, (SIDE, SIDE)) for name, key in zip(LEAVES, keys)}
        for _ in range(chance.randint(1, 5)):
            x, y = chance.choice(LEAVES), chance.choice(LEAVES)
            grads[x] = chance.choice((jnp.sin, lambda leaf: leaf))(
                0.1 * params[y] + grads[chance.choice(LEAVES)])
        return grads
    return function


@pytest.mark.parametrize("seed", seeds())
def test_a_random_delayed_update(seed):
    tx = optax.GradientTransformation(init, Update(seed))
    if seed % 2:
        tx = optax.chain(optax.clip_by_global_norm(5), tx)
    chance = random.Random(-seed)
    delayed = actmem.optax.delayed(tx, group_bytes=chance.choice(
        (1, 2 * 4 * SIDE * SIDE, 1 << 30)))
    donated = chance.choice(((), (0, 1)))
    function = gradients_by(seed)

    @partial(jax.jit, donate_argnums=donated)
    def step(params, state, number):
        grads, params, state = delayed.run(function, params, state, number)
        return params, delayed.keep(grads, state, params)

    @jax.jit
    def plainly(params, state, number):
        updates, state = tx.update(function(params, number), state, params)
        return optax.apply_updates(params, updates), state
    params = {name: jnp.full((SIDE, SIDE), i + 0.5) for i, name in enumerate(LEAVES)}
    wanted, plain, state = jax.tree.map(jnp.array, params), tx.init({}), delayed.init(params)
    for number in range(4):
        params, state = jax.block_until_ready(step(params, state, number))
        wanted, plain = plainly(wanted, plain, number)
        if chance.random() < 0.4:
            params, state = delayed.flush(params, state)
            close((params, state.state), (wanted, plain))
    params, state = delayed.flush(params, state)
    close((params, state.state), (wanted, plain))
