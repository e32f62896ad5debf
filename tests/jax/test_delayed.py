# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem.optax.delayed: updates that run during the next step, beside the same transformation under
actmem.optax.offload()."""
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import io_callback

import actmem.jax
import actmem.optax
from actmem.jax import Stored
from test_optax import (BYTES, SIDE, TRANSFORMATIONS, batch, count, loss, on_mesh, parameters, same,
                        stored_in, train)


def step_of(optimizer, donate=(0, 1), function=loss):
    @partial(jax.jit, donate_argnums=donate)
    def step(params, state, x):
        gradients, params, state = optimizer.run(jax.grad(function), params, state, x)
        return params, optimizer.keep(gradients, state, params)
    return lambda *args: jax.block_until_ready(step(*args))


def train_delayed(tx, batches=range(5), **options):
    optimizer, params = actmem.optax.delayed(tx, **options), parameters()
    state, step = optimizer.init(params), step_of(optimizer)
    for number in batches:
        params, state = step(params, state, batch(number))
    params, state = optimizer.flush(params, state)
    return params, state.state


@pytest.mark.parametrize("name", [
    "adafactor with momentum", "clip", "clip afterwards", "apply_if_finite", "muon", "MultiSteps"])
def test_it_computes_what_offload_does(name):
    tx = TRANSFORMATIONS[name]
    wanted = train(actmem.optax.offload(tx))
    for size in (1, 1 << 40):
        result = train_delayed(tx, group_bytes=size)
        same(result, wanted)
        del result
    assert count("live_blocks") == len(stored_in(wanted))


def test_a_nan_changes_nothing():
    tx = TRANSFORMATIONS["apply_if_finite"]
    optimizer, params = actmem.optax.delayed(tx), parameters()
    state, step = optimizer.init(params), step_of(optimizer)
    params, state = step(params, state, batch(0))
    params, state = step(params, state, batch(1).at[0, 0].set(jnp.nan))
    before = count("puts_total"), count("takes_total")
    old = jax.tree.map(np.asarray, params)
    params, state = step(params, state, batch(2))
    assert (count("puts_total"), count("takes_total")) == before
    same(params, old)
    assert int(state.state.total_notfinite) == 1


def order_of(jaxpr):
    """Returns the takes, puts and products of a program, in their order."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("actmem_take", "actmem_put", "dot_general"):
            found.append(eqn.primitive.name)
            continue
        for part in actmem.jax._private.inner_jaxprs(eqn.params):
            found += order_of(actmem.jax._private.open_jaxpr(part))
    return found


def tied_to(jaxpr):
    """Returns the primitives of the forward pass to whose results takes are tied."""
    inner = actmem.jax._private.open_jaxpr(jaxpr.eqns[-1].params["jaxpr"])
    made = {var: eqn.primitive.name for eqn in inner.eqns for var in eqn.outvars}
    return [made[atom] for eqn in inner.eqns if eqn.primitive.name == "actmem_tie"
            for atom in eqn.invars if made.get(atom) in ("tanh", "add", "dot_general")]


def test_an_update_runs_just_before_its_parameter_is_used():
    optimizer = actmem.optax.delayed(TRANSFORMATIONS["clip"], group_bytes=2 * BYTES)
    params = parameters()
    state = optimizer.keep(params, optimizer.init(params), params)
    jaxpr = jax.make_jaxpr(lambda *args: optimizer.run(loss, *args))(params, state, batch(0)).jaxpr
    order = order_of(jaxpr)
    layer = ["actmem_take"] * 2 + ["actmem_put"] * 2
    assert [kind for kind in order if kind != "dot_general"] == 3 * layer
    products = [i for i, kind in enumerate(order) if kind == "dot_general"]
    assert products == [4, 9, 14], order
    # The takes of the last group wait for the first layer.
    assert tied_to(jaxpr) == ["tanh"], jaxpr


def test_only_small_values_are_computed_early():
    optimizer, params = actmem.optax.delayed(TRANSFORMATIONS["clip"]), parameters()
    state = optimizer.keep(params, optimizer.init(params), params)
    values = [value.shape for value in state.pending.values]
    assert values[:2] == [(), ()] and set(values[2:]) == {(SIDE,)}, values
    before = count("takes_total")
    jax.block_until_ready(optimizer.keep(params, state._replace(pending=None), params).pending)
    assert count("takes_total") == before


def test_effects_happen_once_per_step():
    calls = []
    adam = optax.adam(1e-2)

    def seen(norm):
        calls.append(float(norm))
        return norm

    def update(updates, state, params=None):
        norm = io_callback(seen, jax.ShapeDtypeStruct((), jnp.float32), optax.tree.norm(updates))
        scale = io_callback(seen, jax.ShapeDtypeStruct((), jnp.float32), jnp.float32(1))
        jax.debug.callback(lambda norm: calls.append(float(norm)), norm)
        return adam.update(jax.tree.map(lambda leaf: leaf * scale / norm, updates), state, params)
    train_delayed(optax.GradientTransformation(adam.init, update), range(3))
    jax.effects_barrier()
    assert len(calls) == 9


def test_hyperparameters_that_change_are_for_the_next_update():
    tx = optax.inject_hyperparams(lambda rate: optax.chain(
        optax.clip_by_global_norm(1.0), optax.sgd(rate, 0.9)))(rate=0.1)
    results = []
    for is_delayed in (False, True):
        make = actmem.optax.delayed if is_delayed else actmem.optax.offload
        optimizer, params = make(tx), parameters()
        state = optimizer.init(params)
        for number in range(4):
            if is_delayed:
                state = optimizer.keep(params, state, params)
            else:
                updates, state = optimizer.update(params, state, params)
                params = optax.apply_updates(params, updates)
            inner = state.state if is_delayed else state
            inner.hyperparams["rate"] = jnp.float32(0.1 * number)
            if is_delayed:
                params, state = optimizer.flush(params, state)
                inner = state.state
        results.append((params, inner))
    same(*results)
    assert float(results[1][1].hyperparams["rate"]) == np.float32(0.1 * 3)


def test_extra_arguments_are_kept():
    def update(updates, state, params=None, *, value):
        return jax.tree.map(lambda leaf, trace: leaf * value + trace, updates, state), updates
    tx = optax.GradientTransformationExtraArgs(
        lambda params: jax.tree.map(jnp.zeros_like, params), update)
    optimizer, params = actmem.optax.delayed(tx), {"w": jnp.ones((80, 80))}
    state = optimizer.keep(params, optimizer.init(params), params, value=jnp.float32(3))
    params, state = optimizer.flush(params, state)
    state = optimizer.keep(params, state, params, value=5)
    params, state = optimizer.flush(params, state)
    assert float(params["w"][0, 0]) == 4 + 4 * 5 + 1


def test_a_program_may_return_its_parameters_and_offload():
    """Activations and state are in actmem at the same time."""
    layer = actmem.jax.checkpoint(lambda part, x: jnp.tanh(x @ part["w"] + part["b"]),
                                  offload_argnums=1, min_bytes=0)

    def offloading(params, x):
        for part in params.values():
            x = layer(part, x)
        return jnp.mean((x - 0.3) ** 2)
    optimizer = actmem.optax.delayed(TRANSFORMATIONS["clip"], group_bytes=1)
    params = parameters()
    state, step = optimizer.init(params), step_of(optimizer, function=offloading)
    for number in range(3):
        params, state = step(params, state, batch(number))
    seen, params, state = jax.jit(lambda params, state: optimizer.run(
        lambda params: (params, 7), params, state))(params, state)
    same(seen[0], params)
    wanted, _ = train_delayed(TRANSFORMATIONS["clip"], range(3))
    for name, part in wanted.items():
        np.testing.assert_allclose(params[name]["w"], part["w"], rtol=1e-4, atol=1e-5)


def test_a_flush_without_gradients_changes_nothing():
    optimizer, params = actmem.optax.delayed(optax.adam(1e-2)), parameters()
    state = optimizer.init(params)
    assert optimizer.flush(params, state) == (params, state)
    state = optimizer.keep(params, state, params)
    with pytest.raises(ValueError, match=r"keep\(\) was called twice: .* run\(\) or flush\(\)"):
        optimizer.keep(params, state, params)
    with pytest.raises(ValueError, match="group_bytes=0 must be at least 1"):
        actmem.optax.delayed(optax.adam(1), group_bytes=0)


def test_a_saved_state_has_its_gradients(tmp_path):
    optimizer, params = actmem.optax.delayed(TRANSFORMATIONS["clip"]), parameters()
    step = step_of(optimizer, donate=())
    params, state = step(params, optimizer.init(params), batch(0))
    path = os.path.join(tmp_path, "step")
    actmem.jax.save_state(path, (params, state))
    like = jax.eval_shape(lambda tree: tree, (params, state))
    restored = actmem.jax.restore_state(path, like)
    assert all(isinstance(leaf, Stored) for leaf in stored_in(restored)) and stored_in(restored)
    same(step(*restored, batch(1)), step(params, state, batch(1)))


class _OnMesh:
    """A transformation for test_optax.on_mesh(), whose update() keeps and flushes."""

    def __init__(self, tx):
        self.optimizer = actmem.optax.delayed(tx, group_bytes=1)
        self.init = self.optimizer.init

    def update(self, gradients, state, params):
        state = self.optimizer.keep(gradients, state, params)
        new, state = self.optimizer.flush(params, state)
        return jax.tree.map(lambda one, other: one - other, new, params), state


def test_each_device_has_its_part():
    wanted = on_mesh(actmem.optax.offload(TRANSFORMATIONS["clip"]))
    params, state = on_mesh(_OnMesh(TRANSFORMATIONS["clip"]))
    devices = actmem.jax.stats()["devices"].values()
    assert [device["live_bytes"] for device in devices] == [2 * 6 * BYTES // 4] * 4
    for name, part in wanted[0].items():
        np.testing.assert_allclose(params[name]["w"], part["w"], rtol=1e-4, atol=1e-5)
    assert stored_in(state)[0].value().shape == (SIDE, SIDE)
