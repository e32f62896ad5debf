# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem.optax.offload: the states of Optax's transformations in actmem memory, beside the same
transformation with its state on the device."""
import copy
import ctypes
import gc
import logging
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import io_callback
from jax.sharding import NamedSharding, PartitionSpec as P

import actmem.jax
import actmem.optax
from actmem.jax import Stored
from actmem.plan.compiled import CALLS

SIDE = 72           # a matrix has 5,184 elements
BYTES = 4 * SIDE * SIDE
NAMES = [f"layer{i}" for i in range(3)]


def parameters(dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), len(NAMES))
    return {name: {"w": jax.random.normal(key, (SIDE, SIDE), dtype), "b": jnp.zeros(SIDE, dtype)}
            for name, key in zip(NAMES, keys)}


def loss(params, x):
    for name in NAMES:
        x = jnp.tanh(x @ params[name]["w"] + params[name]["b"])
    return jnp.mean((x - 0.3) ** 2)


def batch(number):
    return jax.random.normal(jax.random.key(number), (8, SIDE))


def stored_in(tree):
    return [leaf for leaf in jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, Stored))
            if isinstance(leaf, Stored)]


def arrays_of(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(
        tree, is_leaf=lambda leaf: isinstance(leaf, Stored))]


def same(one, other):
    for left, right in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_array_equal(left, right)


def step_of(tx, donate=(0, 1)):
    def step(params, state, x):
        grads = jax.grad(loss)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state
    program = jax.jit(step, donate_argnums=donate)
    return lambda *args: jax.block_until_ready(program(*args))


def train(tx, batches=range(5), dtype=jnp.float32, **options):
    params = parameters(dtype)
    state, step = tx.init(params), step_of(tx, **options)
    for number in batches:
        params, state = step(params, state, batch(number))
    return params, state


def count(name):
    return actmem.jax.stats()[name]


def middle_only(tree):
    return {name: {"w": name == "layer1", "b": True} for name in tree}


TRANSFORMATIONS = {
    "adam": optax.adam(1e-2),
    "adamw": optax.adamw(1e-2),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=64),
    "adafactor with momentum": optax.adafactor(1e-2, momentum=0.9),
    "nesterov": optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "schedule": optax.adam(optax.cosine_decay_schedule(1e-2, 50)),
    "clip": optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-2)),
    "clip afterwards": optax.chain(optax.scale_by_adam(), optax.clip_by_global_norm(0.1),
                                   optax.scale(-1e-2)),
    "apply_if_finite": optax.apply_if_finite(optax.adam(1e-2), 3),
    "muon": optax.contrib.muon(1e-2),
    "multi_transform": optax.multi_transform(
        {"a": optax.adam(1e-2), "s": optax.sgd(1e-2, 0.9)},
        {name: {"w": "as"[name == "layer1"], "b": "a"} for name in NAMES}),
    "two Adams with masks": optax.chain(
        optax.masked(optax.adam(1e-2), middle_only),
        optax.masked(optax.adam(1e-3), lambda tree: jax.tree.map(lambda is_in: not is_in,
                                                                 middle_only(tree)))),
    "MultiSteps": optax.MultiSteps(optax.adam(1e-2), 4).gradient_transformation(),
    "nested": optax.apply_if_finite(
        optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation(), 3),
    "bfloat16 moments": optax.adam(1e-2, mu_dtype=jnp.bfloat16),
}


def close(one, other):
    """Without LLVM's optimizations, XLA rounds differently beside a copy, and Adam's first steps
    amplify that. test_optax_spilled.py compares each bit, with optimizations."""
    for left, right in zip(arrays_of(one), arrays_of(other), strict=True):
        scale = np.max(np.abs(right.astype(np.float64)), initial=1e-30)
        np.testing.assert_allclose(left.astype(np.float64) / scale,
                                   right.astype(np.float64) / scale, atol=1e-3)


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_it_computes_what_optax_does(name):
    """Whatever the size of a group is, not a bit changes."""
    tx = TRANSFORMATIONS[name]
    wanted = train(tx)
    results = [train(actmem.optax.offload(tx, group_bytes=size))
               for size in (1, 1 << 40)]
    assert len(stored_in(results[0][1])) == sum(
        array.size >= 4096 for array in arrays_of(wanted[1]))
    same(results[1], results[0])
    close(results[0], wanted)
    stored = sum(len(stored_in(state)) for _, state in results)
    assert count("live_blocks") == stored


def test_fifty_steps_in_groups_of_one_three_and_all():
    tx = TRANSFORMATIONS["two Adams with masks"]
    results = [train(actmem.optax.offload(tx, group_bytes=size), range(50))
               for size in (BYTES, 3 * BYTES, 1 << 40)]
    same(results[1], results[0])
    same(results[2], results[0])
    counts = [leaf for leaf in jax.tree.leaves(results[0][1]) if leaf.dtype == jnp.int32]
    assert counts and all(int(leaf) == 50 for leaf in counts)


def test_leaves_of_every_shape():
    params = {"scalar": jnp.float32(1), "empty": jnp.zeros((0, 5000)), "vector": jnp.ones(5000),
              "matrix": jnp.ones((70, 70)), "small": jnp.ones(9)}
    tx = optax.adam(0.1)
    offloaded = actmem.optax.offload(tx)
    state, plain = offloaded.init(params), tx.init(params)
    assert [leaf.shape for leaf in stored_in(state)] == [(70, 70), (5000,)] * 2
    for _ in range(3):
        updates, state = offloaded.update(params, state, params)
        expected, plain = jax.jit(tx.update)(params, plain, params)
        close(updates, expected)
    close(state, plain)


def test_a_mask_chooses_leaves():
    seen = {}

    def mask(path, leaf):
        seen[path] = leaf.shape
        return ".nu" in path
    state = actmem.optax.offload(optax.adam(0.1), mask=mask).init(parameters())
    assert {leaf.label.split("'")[1] for leaf in stored_in(state)} == set(NAMES)
    assert all(leaf.label.startswith("[0].nu[") for leaf in stored_in(state))
    assert seen == {f"[0].{kind}['{name}']['w']": (SIDE, SIDE)
                    for kind in ("mu", "nu") for name in NAMES}


def test_a_skipped_step_reads_and_writes_nothing():
    tx = actmem.optax.offload(optax.apply_if_finite(optax.adam(1e-2), 3))
    step = step_of(tx)
    params = parameters()
    state = tx.init(params)
    for number in range(4):
        before = {name: count(name) for name in ("puts_total", "takes_total")}
        old = arrays_of((params, state.inner_state)) if number == 2 else None
        x = batch(number).at[0, 0].set(jnp.nan if number == 2 else 1)
        took = count("takes_total")
        params, state = step(params, state, x)
        if number == 2:
            assert count("puts_total") == before["puts_total"]
            assert count("takes_total") == took
            same((params, state.inner_state), old)
            assert int(state.total_notfinite) == 1
        else:
            assert count("puts_total") == before["puts_total"] + 6
    assert count("live_blocks") == 6


def skipping(inner):
    """Skips like programs that do not use optax.apply_if_finite."""
    def update(updates, state, params=None):
        is_finite = jnp.isfinite(optax.tree.norm(updates))
        new, after = inner.update(updates, state, params)
        return (jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, 0), new),
                jax.tree.map(lambda leaf, old: jnp.where(is_finite, leaf, old), after, state))
    return optax.GradientTransformation(inner.init, update)


def test_a_choice_by_where_is_made_first():
    tx = skipping(optax.adam(1e-2))
    offloaded = actmem.optax.offload(tx)
    batches = [batch(0), batch(1).at[0, 0].set(jnp.inf) * jnp.inf, batch(2)]
    results = []
    for one in (tx, offloaded):
        params = parameters()
        state, step, puts = one.init(params), step_of(one), []
        for x in batches:
            before = count("puts_total")
            params, state = step(params, state, x)
            puts.append(count("puts_total") - before)
        results.append((params, state))
    assert puts == [6, 0, 6]
    close(results[1], results[0])


def test_a_step_that_accumulates_leaves_the_moments_alone():
    tx = actmem.optax.offload(TRANSFORMATIONS["MultiSteps"])
    params = parameters()
    state, step, taken = tx.init(params), step_of(tx), []
    for number in range(8):
        before = count("takes_total"), count("puts_total")
        params, state = step(params, state, batch(number))
        taken.append((count("takes_total") - before[0], count("puts_total") - before[1]))
    assert taken == [(3, 3), (3, 3), (3, 3), (9, 9)] * 2


def test_an_effect_happens_once(capfd):
    inner = skipping(optax.adam(1e-2))

    def update(updates, state, params=None):
        jax.debug.print("the norm is {norm}", norm=optax.tree.norm(updates))
        return inner.update(updates, state, params)
    tx = actmem.optax.offload(optax.GradientTransformation(inner.init, update))
    params = parameters()
    jax.block_until_ready(jax.jit(tx.update)(params, tx.init(params)))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("the norm is") == 1


def test_leaves_that_change_places():
    """Each leaf of the new state is another leaf of the old one."""
    tx = optax.GradientTransformation(
        lambda params: {"a": params["x"], "b": 2 * params["x"], "c": 3 * params["x"]},
        lambda updates, state, params=None: (updates, {"a": state["b"], "b": state["c"],
                                                       "c": state["a"]}))
    offloaded, params = actmem.optax.offload(tx, group_bytes=1), {"x": jnp.ones((80, 80))}
    state = offloaded.init(params)
    step = jax.jit(offloaded.update, donate_argnums=1)
    for number in range(1, 5):
        _, state = step(params, state)
        assert [float(state[name][0, 0]) for name in "abc"] == [
            (number + i) % 3 + 1 for i in range(3)]


def test_an_array_is_read_without_an_update():
    params, state = train(actmem.optax.offload(optax.adam(1e-2)))
    _, plain = train(optax.adam(1e-2))
    leaf, wanted = state[0].nu["layer1"]["w"], plain[0].nu["layer1"]["w"]
    close([leaf, leaf[1:3]], [wanted, wanted[1:3]])
    assert leaf[3, 4] == np.asarray(leaf)[3, 4]
    assert (leaf.shape, leaf.dtype, leaf.nbytes) == (wanted.shape, wanted.dtype, wanted.nbytes)
    assert "float32[72, 72]" in repr(leaf)
    close(jax.tree.map(lambda leaf: leaf, state), plain)


def test_a_state_that_is_not_donated_stays():
    tx = actmem.optax.offload(optax.adam(1e-2))
    step, params = step_of(tx, donate=()), parameters()
    state = tx.init(params)
    one = step(params, state, batch(0))
    two = step(params, state, batch(0))
    same(one, two)
    assert count("live_blocks") == 18
    del one, two
    library = actmem.jax._handlers.library
    for number in range(20):
        params, state = step(params, state, batch(number))
        live = actmem.jax._handlers._native.initialized(actmem.jax._handlers.Stats)
        assert not library.actmem_xla_stats(ctypes.byref(live))     # stats() would drop the rest
        assert live.live_blocks <= 24


def test_a_donated_state_needs_its_memory_once():
    tx = actmem.optax.offload(optax.adam(1e-2))
    params = parameters()
    state, step = tx.init(params), step_of(tx)
    old = state
    blocks = count("live_blocks")
    for number in range(3):
        params, state = step(params, state, batch(number))
        assert count("live_blocks") == blocks == 6
    with pytest.raises(RuntimeError, match="deleted"):
        step(params, old, batch(0))


def test_steps_in_one_program():
    tx = actmem.optax.offload(optax.adam(1e-2))
    params = parameters()
    grads = jax.grad(loss)(params, batch(0))

    @jax.jit
    def steps(state):
        return jax.lax.scan(lambda state, _: (tx.update(grads, state)[1], None), state, None,
                            length=5)[0]
    plain = optax.adam(1e-2).init(params)
    for _ in range(10):
        _, plain = jax.jit(optax.adam(1e-2).update)(grads, plain)
    state = jax.jit(steps, donate_argnums=0)(steps(tx.init(params)))
    close(state, plain)
    assert count("live_blocks") == 6


def test_reset_keeps_a_state_and_frees_what_a_failed_step_left():
    tx = actmem.optax.offload(optax.adam(1e-2))
    params = parameters()
    state = tx.init(params)
    assert actmem.jax.reset() == 0

    def fail(_):
        raise ValueError("the step fails")

    def failing(grads, state):
        updates, state = tx.update(grads, state)
        return jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32),
                                 updates["layer0"]["w"][0, 0]), state
    logging.disable()       # pytest would keep the frames of the failed call, and their state
    with pytest.raises(jax.errors.JaxRuntimeError, match="the step fails"):
        jax.block_until_ready(jax.jit(failing)(params, state))
    logging.disable(logging.NOTSET)
    gc.collect()
    assert actmem.jax.reset() <= 6
    assert count("live_blocks") == 6
    same(state, optax.adam(1e-2).init(params))
    del state
    gc.collect()        # the traceback


def test_another_structure_is_refused():
    def update(updates, state, params=None):
        return updates, {"other": state["m"]}
    tx = actmem.optax.offload(optax.GradientTransformation(
        lambda params: {"m": jnp.zeros((SIDE, SIDE))}, update))
    with pytest.raises(ValueError, match=r"another structure than it got: .*\['m'\]"):
        tx.update({}, tx.init({}))
    twice = optax.chain(actmem.optax.offload(optax.adam(1)), optax.ema(0.9))
    with pytest.raises(ValueError, match=r"\[0\]\[0\].mu.* is stored already"):
        actmem.optax.offload(twice).init(parameters())
    with pytest.raises(ValueError, match=r"\[0\].mu\['layer0'\]\['w'\] .* is not stored: make"):
        actmem.optax.offload(optax.adam(1)).update(
            parameters(), optax.adam(1).init(parameters()))
    with pytest.raises(ValueError, match="group_bytes=0 must be at least 1"):
        actmem.optax.offload(optax.adam(1), group_bytes=0)


MESH_SPECS = {"layer0": P(None, "fsdp"), "layer1": P("fsdp", None), "layer2": P("fsdp")}


def on_mesh(tx, steps=4):
    mesh = jax.make_mesh((4,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    params = {name: {"w": jax.device_put(part["w"], NamedSharding(mesh, MESH_SPECS[name])),
                     "b": jax.device_put(part["b"], NamedSharding(mesh, P()))}
              for name, part in parameters().items()}
    state, step = tx.init(params), step_of(tx)
    for number in range(steps):
        x = jax.device_put(batch(number), NamedSharding(mesh, P("fsdp")))
        params, state = step(params, state, x)
    return params, state


def test_each_device_has_its_part():
    wanted = on_mesh(optax.adamw(1e-2))
    params, state = on_mesh(actmem.optax.offload(optax.adamw(1e-2), group_bytes=1))
    close((params, state), wanted)
    devices = actmem.jax.stats()["devices"].values()
    assert [device["live_bytes"] for device in devices] == [6 * BYTES // 4] * 4
    for leaf, plain in zip(stored_in(state), [leaf for leaf in jax.tree.leaves(wanted[1])
                                              if leaf.size >= 4096], strict=True):
        assert leaf.sharding.is_equivalent_to(plain.sharding, 2), leaf
        assert leaf.value().sharding.is_equivalent_to(plain.sharding, 2), leaf


def test_the_device_holds_two_groups():
    """XLA's temporary memory: two groups of two leaves, and the update of one leaf."""
    params = {f"w{i:02}": jax.ShapeDtypeStruct((256, 256), jnp.float32) for i in range(16)}
    tx = actmem.optax.offload(optax.adam(1e-2), group_bytes=2 * 4 * 256 * 256)
    state = jax.eval_shape(tx.init, params)
    program = jax.jit(lambda grads, state: tx.update(grads, state), donate_argnums=1)
    analysis = program.lower(params, state).compile().memory_analysis()
    assert analysis.temp_size_in_bytes <= 5 * 4 * 256 * 256 + 4096


def transformation(update):
    return actmem.optax.offload(optax.GradientTransformation(
        lambda params: {"a": jnp.ones((SIDE, SIDE)), "b": jnp.zeros((SIDE, SIDE))}, update))


def test_an_update_that_depends_on_order_is_refused():
    def with_ref(updates, state, params=None):
        ref = jax.new_ref(state["a"])
        ref[...] = state["b"] + 1
        return updates, {"a": ref[...], "b": state["b"]}

    def with_callbacks(updates, state, params=None):
        return updates, {name: io_callback(lambda leaf: leaf, leaf, leaf, ordered=True)
                         for name, leaf in state.items()}
    for update in (with_ref, with_callbacks):
        tx = transformation(update)
        with pytest.raises(NotImplementedError, match="must not use refs or ordered callbacks"):
            jax.jit(tx.update)({}, tx.init({}))


def test_many_choices_take_no_longer():
    """Each leaf has a condition of its own."""
    params = {f"w{i:02}": jnp.ones((64, 64)) for i in range(20)}

    def update(updates, state, params=None):
        return updates, jax.tree.map(lambda leaf, grad: jnp.where(
            jnp.isfinite(grad).all(), leaf + grad, leaf), state, updates)
    tx = optax.GradientTransformation(lambda params: params, update)
    stored = actmem.optax.offload(tx)
    bad = {**params, "w03": params["w03"] * jnp.nan}
    _, state = jax.jit(stored.update)(bad, stored.init(params))
    close(state, tx.update(bad, params)[1])


def test_each_bit_of_short_floats_is_kept():
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float16", "bfloat16"):
        bits = np.arange(1 << 13).astype("u1" if "8" in name else "u2") * (1 if "8" in name else 8)
        value = jnp.asarray(bits.view(name))
        state = actmem.optax.offload(optax.GradientTransformation(
            lambda params, value=value: value, None)).init({})
        isnan = np.isnan(bits.view(name).astype(np.float32))
        got = np.asarray(state).view(bits.dtype)
        np.testing.assert_array_equal(got[~isnan], bits[~isnan], err_msg=name)
        assert np.isnan(np.asarray(state).astype(np.float32))[isnan].all()


def test_what_a_state_refuses():
    state = actmem.optax.offload(optax.adam(1)).init(parameters())
    for call in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="neither pickled nor copied: use actmem.jax.save_state"):
            call(state)
    tx = actmem.optax.offload(optax.adam(1))
    with pytest.raises(NotImplementedError, match="cannot be under jax.vmap"):
        jax.vmap(lambda params: tx.update(params, state)[0])(
            jax.tree.map(lambda leaf: leaf[None], parameters()))
    with pytest.raises(NotImplementedError, match="has no derivative"):
        jax.grad(lambda params: tx.update(params, state)[0]["layer0"]["w"][0, 0])(parameters())


def test_a_state_is_no_array():
    """Each error names the call that returns arrays. Without its own __iter__, a leaf would have no
    last element, because JAX clamps an index."""
    state = actmem.optax.offload(optax.adam(1)).init(parameters())
    leaf = state[0].mu["layer0"]["w"]
    for call in (lambda: leaf + 1, lambda: 1 - leaf, lambda: leaf < 1, lambda: -leaf,
                 lambda: float(leaf), lambda: leaf.astype(jnp.float32), lambda: leaf.T,
                 lambda: optax.tree.norm(state), lambda: jax.jit(optax.tree.norm)(state),
                 lambda: jax.tree.map(lambda leaf: leaf * 2, state),
                 lambda: jax.jit(lambda leaf: leaf * 2)(leaf)):
        with pytest.raises((TypeError, AttributeError), match=r"actmem\.jax\.value\(\)"):
            call()
    assert not hasattr(leaf, "no_such")
    assert len(leaf) == len(list(leaf)) == SIDE
    assert float(jnp.sum(leaf)) == 0
    params, state = train(actmem.optax.offload(optax.adam(1e-2)))
    values = actmem.optax.value((params, state))
    assert not stored_in(values)
    same(values, (params, state))
    same(jax.jit(actmem.optax.value)(state), state)


def test_a_weak_type_is_refused():
    tx = actmem.optax.offload(optax.GradientTransformation(
        lambda params: {"m": jnp.full((SIDE, SIDE), 0.5)}, None))
    with pytest.raises(ValueError, match=r"\['m'\] .* has a weak type: give it a dtype"):
        tx.init({})


def test_an_update_without_jit():
    tx, params = actmem.optax.offload(optax.adam(1e-2)), parameters()
    with jax.disable_jit():
        _, state = tx.update(params, tx.init(params), params)
    close(state, optax.adam(1e-2).update(params, optax.adam(1e-2).init(params), params)[1])


def test_an_exported_update():
    """Its caller owns the tokens that it returns."""
    tx, params = actmem.optax.offload(optax.adam(1e-2)), parameters()
    leaves, tree = jax.tree.flatten(tx.init(params))

    def update(*leaves):
        return jax.tree.leaves(tx.update(params, jax.tree.unflatten(tree, leaves), params)[1])
    exported = jax.export.export(jax.jit(update), disabled_checks=CALLS)(*leaves)
    wanted = optax.adam(1e-2).update(params, optax.adam(1e-2).init(params), params)[1]
    before = count("live_blocks")
    for call in (exported.call, jax.jit(exported.call)):
        state = jax.tree.unflatten(tree, call(*leaves))
        close(state, wanted)
        del state
        assert count("live_blocks") == before


def test_arrays_to_store_that_are_refused():
    tx, params = actmem.optax.offload(optax.adam(1e-2)), {"w": jnp.ones((SIDE, SIDE))}
    like = jax.eval_shape(tx.init, params)
    for change, message in (
            (lambda state: state[0].mu.update({"w": jnp.ones(3)}),
             r"\[0\]\.mu\['w'\] is float32\[3\], but float32\[72, 72\]"),
            (lambda state: state[0].mu.update({"x": 1}), r"tree has \[0\]\.mu\['x'\]"),
            (lambda state: state[0].mu.pop("w"), r"`like` has \[0\]\.mu\['w'\]"),
            (lambda state: state[0].mu.update(tx.init(params)[0].mu), "is stored already")):
        state = optax.adam(1e-2).init(params)
        change(state)
        with pytest.raises(ValueError, match=message):
            actmem.optax.stored(state, like)


def test_an_extra_argument_may_be_static():
    def update(updates, state, params=None, *, flag=False):
        return updates, jax.tree.map(lambda leaf: leaf + 1 if flag else leaf, state)
    tx = actmem.optax.offload(optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros((SIDE, SIDE)), update))
    state = tx.init({})
    for flag in (True, False):
        _, state = jax.jit(lambda state, flag=flag: tx.update({}, state, flag=flag))(state)
        assert float(state[0, 0]) == 1
