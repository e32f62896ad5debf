# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Orbax saves the arrays of a stored state, and what it restores is stored again."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp

import actmem.jax
import actmem.optax


def parameters():
    return {f"w{i}": jax.random.normal(jax.random.key(i), (64, 64)) for i in range(3)}


def step_of(tx):
    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.tree.map(jnp.sin, params), state, params)
        return optax.apply_updates(params, updates), state
    return step


def same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_state_returns_from_a_checkpoint(tmp_path):
    optimizer = actmem.optax.offload(optax.adamw(1e-2))
    params = parameters()
    params, state = step_of(optimizer)(params, optimizer.init(params))
    path = tmp_path / "checkpoint"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, (params, actmem.optax.value(state)))
    wanted = step_of(optimizer)(params, state)
    wanted = wanted[0], actmem.optax.value(wanted[1])
    plain = jax.eval_shape(lambda params: (params, optax.adamw(1e-2).init(params)), params)
    del state

    with ocp.StandardCheckpointer() as checkpointer:
        params, state = checkpointer.restore(path, plain)
    state = actmem.optax.stored(state, jax.eval_shape(optimizer.init, params))
    assert isinstance(state[0].mu["w0"], actmem.jax.Stored)
    params, state = step_of(optimizer)(params, state)
    same((params, actmem.optax.value(state)), wanted)
