# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Orbax saves the arrays of a stored state, and what it restores is stored again."""
import jax
import optax
import orbax.checkpoint as ocp

import actmem.jax
import actmem.optax
from test_optax import batch, same, step_of, train


def test_a_state_returns_from_a_checkpoint(tmp_path):
    plain = optax.adamw(1e-2)
    optimizer = actmem.optax.offload(plain)
    params, state = train(optimizer)
    path, step = tmp_path / "checkpoint", step_of(optimizer, donate=())
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, (params, actmem.optax.value(state)))
    wanted = step(params, state, batch(99))
    wanted = wanted[0], actmem.optax.value(wanted[1])
    shapes = jax.eval_shape(lambda params: (params, plain.init(params)), params)
    del state

    with ocp.StandardCheckpointer() as checkpointer:
        params, state = checkpointer.restore(path, shapes)
    state = actmem.optax.stored(state, jax.eval_shape(optimizer.init, params))
    assert isinstance(state[0].mu["layer0"]["w"], actmem.jax.Stored)
    same(step(params, state, batch(99)), wanted)
