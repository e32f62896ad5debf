# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""States of optimizers on several devices: shardings that differ between state, gradients and
parameters, and states in the wrong place."""
import gc
from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import actmem.jax
import actmem.optax
from actmem.jax import _state
from test_optax import BYTES, SIDE, TRANSFORMATIONS, close, count, skipping, stored_in

ROWS, COLUMNS, WHOLE = P("d"), P(None, "d"), P()


def mesh(kind=AxisType.Auto):
    return jax.make_mesh((4,), ("d",), axis_types=(kind,))


def sharded(spec, number=0, kind=AxisType.Auto):
    value = jax.random.normal(jax.random.key(number), (SIDE, SIDE))
    return {"w": jax.device_put(value, NamedSharding(mesh(kind), spec))}


def is_sharded(state, spec):
    return all(leaf.sharding.is_equivalent_to(NamedSharding(mesh(), spec), 2)
               for leaf in stored_in(state))


def step_of(tx):
    def step(gradients, state, params):
        updates, state = tx.update(gradients, state, params)
        return state, optax.apply_updates(params, updates)
    return jax.jit(step, donate_argnums=(1, 2))


def train(tx, gradients, params):
    """Trains with gradients and parameters of these shardings, one for each step."""
    weights = sharded(ROWS)
    state, step = tx.init(weights), step_of(tx)
    for number, (spec, other) in enumerate(zip(gradients, params)):
        weights = jax.device_put(weights, NamedSharding(mesh(), other))
        state, weights = jax.block_until_ready(step(sharded(spec, number), state, weights))
    return weights, state


@pytest.mark.parametrize("gradients,params", [
    ([COLUMNS] * 3, [ROWS] * 3), ([ROWS, COLUMNS, WHOLE, ROWS], [ROWS] * 4),
    ([ROWS, COLUMNS, COLUMNS], [ROWS, COLUMNS, ROWS]), ([WHOLE] * 3, [WHOLE] * 3)])
def test_a_state_keeps_its_sharding(gradients, params):
    weights, state = train(actmem.optax.offload(optax.adam(1e-2)), gradients, params)
    assert is_sharded(state, ROWS)
    devices = actmem.jax.stats()["devices"].values()
    assert [device["live_bytes"] for device in devices] == [2 * BYTES // 4] * 4
    close((weights, state), train(optax.adam(1e-2), gradients, params))


def test_states_of_one_line():
    """Of one offload(), and of two."""
    specs = (ROWS, COLUMNS, COLUMNS, ROWS)
    line = [actmem.optax.offload(optax.adam(1e-2)) for _ in range(2)]
    transformations = [line[0], line[0], line[1], line[1]]
    gradients = list(map(sharded, specs))
    states = [tx.init(params) for tx, params in zip(transformations, gradients)]
    plain = optax.adam(1e-2).init(gradients[0])
    for _ in range(2):
        states = [jax.jit(tx.update)(grads, state)[1]
                  for tx, grads, state in zip(transformations, gradients, states)]
        _, plain = jax.jit(optax.adam(1e-2).update)(gradients[0], plain)
    for state, spec in zip(states, specs):
        assert is_sharded(state, spec)
        close(state, plain)


def test_a_state_in_the_wrong_place():
    tx = actmem.optax.offload(optax.adam(1e-2))
    params = {"w": jnp.ones((SIDE, SIDE))}
    state = tx.init(params)
    place = r"\[0\].mu\['w'\] of the optimizer state .*float32\[72, 72\], is stored for "
    with pytest.raises(ValueError, match=place + r"\S*0, but \S*1 would need it: give"):
        jax.device_put(state, jax.devices()[1])
    with pytest.raises(ValueError, match=place.replace("mu", "[mn]u") + r"\S*0, but 4 devices from"):
        jax.jit(tx.update)(sharded(ROWS), state)
    assert count("live_blocks") == 2
    close(state, optax.adam(1e-2).init(params))


def test_a_state_is_on_the_device_of_its_parameters():
    tx, device = actmem.optax.offload(optax.adam(1e-2)), jax.devices()[1]
    params = jax.device_put({"w": jnp.ones((SIDE, SIDE))}, device)
    state = jax.jit(tx.update)(params, tx.init(params))[1]
    assert all(leaf.sharding.device_set == {device} for leaf in stored_in(state))
    close(state, jax.jit(optax.adam(1e-2).update)(params, optax.adam(1e-2).init(params))[1])


def test_arrays_are_stored_with_the_sharding_of_another_state():
    tx = actmem.optax.offload(optax.adam(1e-2))
    like = tx.init(sharded(ROWS))
    arrays = jax.tree.map(np.asarray, optax.adam(1e-2).init(sharded(ROWS)))
    state = actmem.optax.stored(arrays, like)
    assert is_sharded(state, ROWS)
    del like
    close(jax.jit(tx.update)(sharded(ROWS), state)[1],
          jax.jit(optax.adam(1e-2).update)(sharded(ROWS), arrays)[1])


def test_another_sharding_than_the_program_has():
    tx = actmem.optax.offload(optax.trace(0.9))
    state = tx.init(sharded(ROWS))
    step = jax.jit(lambda state: tx.update(sharded(ROWS), state))
    step(state)
    other = _state.store_all([sharded(COLUMNS)["w"]], (stored_in(state)[0].label,),
                             (False,))
    state = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(other))
    with pytest.raises(Exception, match="another sharding than the program needs; make the state by "
                                        r"init\(\)"):
        jax.block_until_ready(step(state))
    close(state, other)


def types_of(tree):
    return [str(jax.typeof(leaf)) for leaf in jax.tree.leaves(tree)]


# The puts of each device, for each step.
EXPLICIT = {"where": (skipping(optax.adam(1e-2)), [2, 0, 2]),
            "apply_if_finite": (TRANSFORMATIONS["apply_if_finite"], [2, 0, 2]),
            "nested": (TRANSFORMATIONS["nested"], [1, 0, 3])}


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("context", [nullcontext, lambda: jax.set_mesh(mesh(AxisType.Explicit))])
def test_explicit_axes(name, context, tmp_path):
    """A step that keeps the state does not touch it, and a restored state has the same type."""
    tx, wanted = EXPLICIT[name]
    with context():
        results = []
        for one in (tx, actmem.optax.offload(tx)):
            weights, puts = sharded(ROWS, kind=AxisType.Explicit), []
            state, step = jax.block_until_ready(one.init(weights)), step_of(one)
            for number, factor in enumerate((1, jnp.nan, 1)):
                before = count("puts_total")
                gradients = sharded(ROWS, number, AxisType.Explicit)["w"] * factor
                state, weights = jax.block_until_ready(step({"w": gradients}, state, weights))
                puts.append((count("puts_total") - before) / 4)
            results.append((weights, state))
        assert puts == wanted
        close(results[1], results[0])
        devices = actmem.jax.stats()["devices"].values()
        assert [device["live_bytes"] for device in devices] == [
            len(stored_in(state)) * BYTES // 4] * 4

        path = tmp_path / "state"
        actmem.jax.save_state(path, results[1])
        like = weights, jax.eval_shape(one.init, weights)
        for shapes in (like, jax.eval_shape(lambda tree: tree, results[1])):
            restored = actmem.jax.restore_state(path, shapes)
            assert types_of(restored) == types_of(results[1])
            close(restored, results[1])
        jax.block_until_ready(step({"w": gradients}, restored[1], restored[0]))
    two = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2])
    other = {"w": jax.device_put(jnp.ones((SIDE, SIDE)), NamedSharding(two, ROWS))}
    with pytest.raises(ValueError, match=r"\[0\]\['w'\] in `like` is on the mesh .* not known"):
        actmem.jax.restore_state(path, (jax.eval_shape(lambda tree: tree, other), results[1][1]))


def test_a_state_ends_under_another_mesh():
    """Whatever the axes of either mesh are."""
    for kinds in ((AxisType.Explicit, AxisType.Explicit), (AxisType.Auto, AxisType.Explicit),
                  (AxisType.Explicit, AxisType.Auto)):
        one, other = (jax.make_mesh(sizes, ("d", "e")[:len(sizes)], axis_types=(kind,) * len(sizes))
                      for sizes, kind in zip(((4,), (2, 2)), kinds))
        state = actmem.optax.offload(optax.adam(1e-2)).init(
            {"w": jax.device_put(jnp.ones((80, 80)), NamedSharding(one, P("d")))})
        jax.block_until_ready(state)
        assert actmem.jax.stats()["live_blocks"] == 8
        del state
        gc.collect()
        with jax.set_mesh(other):
            assert actmem.jax.stats()["live_blocks"] == 0
