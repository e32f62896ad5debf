# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The update on the host: each element is what the operations of Optax give, one by one."""
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import actmem.jax
import actmem.optax
import spilled
from actmem.jax import Stored
from test_params import LAYERS, MODEL, batch, close, count, loss, same, stored, weights

SHAPES = {"w": (72, 64), "b": (4097,), "small": (3,)}
# Optax computes each of these by operations that the host has. What needs more, such as a norm of
# each update, or the matrix of Muon, stays on the device.
TRANSFORMATIONS = {
    "adamw": optax.adamw(1e-2),
    "clip": optax.chain(optax.clip_by_global_norm(0.5),
                        optax.adamw(optax.cosine_decay_schedule(1e-2, 10))),
    "clip each": optax.chain(optax.clip(0.1), optax.adam(1e-2)),
    "lion": optax.lion(1e-2),
    "momentum": optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "rmsprop": optax.rmsprop(1e-2),
    "amsgrad": optax.amsgrad(1e-2),
    "adamax": optax.adamax(1e-2),
    "yogi": optax.yogi(1e-2),
    "lamb": optax.lamb(1e-2),
    "muon": optax.contrib.muon(1e-2),
    "apply_if_finite": optax.apply_if_finite(optax.adam(1e-2), 3),
    "MultiSteps": optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation(),
    "master": actmem.optax.master_copy(optax.adamw(1e-2)),
}
# XLA computes these with other sums in a program than one by one.
SUMS = {"clip", "lamb", "muon"}


def arrays(number, dtype):
    keys = jax.random.split(jax.random.key(number), len(SHAPES))
    return {name: jax.random.normal(key, shape, dtype)
            for key, (name, shape) in zip(keys, SHAPES.items())}


def train(tx, dtype, steps=4, applies=False, number=0):
    offloaded = actmem.optax.offload(tx, on="host")

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, gradients):
        if applies:
            return offloaded.apply(gradients, state, params)
        updates, state = offloaded.update(gradients, state, params)
        return optax.apply_updates(params, updates), state
    params = arrays(number, dtype)
    state = offloaded.init(params)
    for number in range(1, steps + 1):
        params, state = step(params, state, arrays(number, dtype))
    return params, state


def one_by_one(tx, dtype, steps=4, number=0):
    """Each operation is a program of its own, so XLA fuses none."""
    params = arrays(number, dtype)
    state = tx.init(params)
    for number in range(1, steps + 1):
        updates, state = tx.update(arrays(number, dtype), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize("dtype, applies", ((jnp.float32, False), (jnp.bfloat16, True)))
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_it_computes_what_optax_does(name, dtype, applies):
    tx = TRANSFORMATIONS[name]
    found, wanted = train(tx, dtype, applies=applies), one_by_one(tx, dtype)
    if name in SUMS:
        close(found, wanted, 2e-3 if dtype == jnp.float32 else 2e-2)
    else:
        close(found[0], wanted[0])
        same(found[1], wanted[1])


def test_a_sum():
    """It needs neither constants nor scalars."""
    tx = optax.trace(1.0)
    same(train(tx, jnp.float32)[1], one_by_one(tx, jnp.float32)[1])
    sums = optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda updates, state, params: (updates, jax.tree.map(jnp.add, updates, state)))
    same(train(sums, jnp.float32)[1], one_by_one(sums, jnp.float32)[1])


@pytest.mark.parametrize("gradients", ("store", "device"))
@pytest.mark.parametrize("name", ("adamw", "clip", "MultiSteps", "apply_if_finite", "master"))
def test_weights_in_the_store(name, gradients):
    def trained(on):
        offloaded = actmem.optax.offload(TRANSFORMATIONS[name], on=on)

        @partial(jax.jit, donate_argnums=(0, 1))
        def step(params, state, x):
            value, grads = actmem.jax.value_and_grad(loss, gradients=gradients)(params, x)
            return *offloaded.apply(grads, state, params), value
        params = stored(weights(jnp.bfloat16))
        state = offloaded.init(params)
        for number in range(4):
            params, state, _ = step(params, state, batch(number))
        return params, state
    close(trained("host"), trained("device"), 2e-2)
    assert count("live_blocks") == 0


@pytest.mark.parametrize("applies", (False, True))
def test_a_master_copy(applies):
    """The weights are the rounded weights of a run in float32, and 2 bytes of each cross the link."""
    tx = actmem.optax.master_copy(optax.adamw(1e-4))
    params, state = train(tx, jnp.bfloat16, 30, applies)
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), arrays(0, jnp.bfloat16))
    inner = optax.adamw(1e-4).init(wide)
    for number in range(1, 31):
        gradients = jax.tree.map(lambda leaf: leaf.astype(jnp.float32),
                                 arrays(number, jnp.bfloat16))
        updates, inner = optax.adamw(1e-4).update(gradients, inner, wide)
        wide = optax.apply_updates(wide, updates)
    same((state.master, state.state), (wide, inner))
    same(params, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), wide))
    offloaded = actmem.optax.offload(tx, on="host")
    text = jax.jit(offloaded.apply if applies else offloaded.update).lower(
        params, state, params).as_text()
    moved = [line for line in text.splitlines()
             if "@actmem_put" in line or "@actmem_take" in line]
    assert len(moved) == 4 and all("bf16>" in line and "xf32>" not in line for line in moved)


def test_a_master_copy_of_some_weights():
    """Weights of float32 and integers have none, and are updated as usual."""
    tx = actmem.optax.master_copy(optax.sgd(0.25))
    params = {"wide": jnp.ones(3), "narrow": jnp.ones(3, jnp.bfloat16)}
    state = tx.init(params)
    assert jax.tree.map(lambda leaf: leaf.dtype, state.master) == {
        "wide": optax.MaskedNode(), "narrow": jnp.float32}
    updates, state = tx.update(params, state, params)
    same(optax.apply_updates(params, updates), jax.tree.map(lambda leaf: leaf * 0.75, params))
    with pytest.raises(ValueError, match="needs the parameters"):
        tx.update(params, state)


def test_the_weights_stay_where_they_are():
    """An update of stored weights moves only what other layers need."""
    tx = optax.adamw(1e-2)
    offloaded = actmem.optax.offload(tx, on="host")
    params = actmem.jax.offload_params({"w": jnp.ones((LAYERS, 64, 64))})
    gradients = actmem.jax.offload_params({"w": jnp.ones((LAYERS, 64, 64))})
    state = offloaded.init(params)
    text = jax.jit(offloaded.apply).lower(gradients, state, params).as_text()
    assert "actmem_update" in text
    assert "actmem_take" not in text and "actmem_put" not in text


def test_a_gradient_of_zeros():
    """JAX makes tokens without a value for weights that a loss does not use."""
    tx = optax.adamw(1e-2)
    offloaded = actmem.optax.offload(tx, on="host")
    params = {"layers": actmem.jax.offload_params({"w": jnp.ones((LAYERS, 64, 64))}),
              "x": jnp.ones(3)}
    state = offloaded.init(params)

    @jax.jit
    def step(params, state):
        _, gradients = actmem.jax.value_and_grad(lambda params: jnp.sum(params["x"]))(params)
        return offloaded.apply(gradients, state, params)
    new, state = step(params, state)
    plain = {"layers": {"w": jnp.ones((LAYERS, 64, 64))}, "x": jnp.ones(3)}
    updates, _ = tx.update({"layers": {"w": jnp.zeros((LAYERS, 64, 64))}, "x": jnp.ones(3)},
                           tx.init(plain), plain)
    close(new, optax.apply_updates(plain, updates))


def test_a_skipped_step_writes_nothing():
    offloaded = actmem.optax.offload(optax.apply_if_finite(optax.adam(1e-2), 3), on="host")
    params = arrays(0, jnp.float32)
    state = offloaded.init(params)
    step = jax.jit(offloaded.update, donate_argnums=1)
    _, state = step(jax.tree.map(lambda leaf: leaf * jnp.nan, params), state, params)
    jax.block_until_ready(state.notfinite_count)
    before = count("puts_total")
    _, state = step(jax.tree.map(lambda leaf: leaf * jnp.nan, params), state, params)
    jax.block_until_ready(state.notfinite_count)
    assert count("puts_total") == before
    assert state.notfinite_count == 2


def test_prints_stay(capsys):
    """Of gradients, of new state, and of state that the host makes only for the print."""
    def update(updates, state, params=None):
        new = jax.tree.map(lambda one, other: one + other, updates, state)
        jax.debug.print("{} {} {}", *(jnp.sum(tree["w"]) for tree in (
            updates, new, jax.tree.map(lambda leaf: leaf * 2, new))))
        return updates, new
    tx = optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params), update)
    offloaded = actmem.optax.offload(tx, on="host")
    params = {"w": jnp.ones((64, 64))}
    step = jax.jit(offloaded.update, donate_argnums=1)
    _, state = step(params, offloaded.init(params), params)
    _, state = step(params, state, params)
    jax.effects_barrier()
    assert capsys.readouterr().out == "4096.0 4096.0 8192.0\n4096.0 8192.0 16384.0\n"


def test_old_values_stay_without_donation():
    offloaded = actmem.optax.offload(optax.adam(1e-2), on="host")
    params = arrays(0, jnp.float32)
    state = offloaded.init(params)
    step = jax.jit(offloaded.update)
    first = step(arrays(1, jnp.float32), state, params)
    again = step(arrays(1, jnp.float32), state, params)
    same(first, again)
    assert np.all(np.asarray(state[0].mu["w"]) == 0)
    assert isinstance(first[1][0].mu["w"], Stored)


def test_a_budget_and_a_disk(tmp_path):
    """Weights, gradients and state are four times the budget: the losses are those of a run with
    enough memory, bit by bit."""
    model = MODEL.replace("offload(tx)", 'offload(tx, on="host")')
    program = """
        actmem.open(budget={} * MIB, spill=SPILL)
        now, state, losses = train(tx, 6)
        after = store()
        del now, state
        print(json.dumps([losses, after, store()]))
    """
    enough = spilled.trained(model, program.format(64), tmp_path, XLA_FLAGS="")
    losses, after, ended = spilled.trained(model, program.format(4), tmp_path, XLA_FLAGS="")
    assert losses == enough[0] and losses[-1] < losses[0]
    assert after["memory_bytes_peak"] <= 4 << 20
    assert after["spilled_bytes_total"] >= 6 * (8 << 20)
    for name in ("blocks", "resident_bytes", "spilled_bytes"):
        assert ended[name] == 0, ended


def test_a_leaf_that_is_longer_than_the_budget(tmp_path):
    program = """
        import optax, actmem.optax
        actmem.open(budget=16 * MIB, spill=SPILL)
        optimizer = actmem.optax.offload(optax.adam(1e-3), on="host")
        params = {"w": jnp.ones((1024, 1024))}
        state = optimizer.init(params)
        print(json.dumps([message(jax.jit(optimizer.update), params, state, params)]))
    """
    words, = spilled.trained("", program, tmp_path)
    assert "the update of [0].mu['w'] of the optimizer state" in words
    assert "needs 25165824 bytes at once" in words and "the budget is 16777216 bytes" in words
    assert "ACTMEM_BUDGET" in words


def is_refused(tx, params, words):
    offloaded = actmem.optax.offload(tx, on="host")
    state = offloaded.init(params)
    with pytest.raises(NotImplementedError, match=words):
        jax.jit(offloaded.update)(params, state, params)


def test_what_the_host_cannot_compute():
    params = {"w": jnp.ones((128, 128))}
    offloaded = actmem.optax.offload(optax.scale_by_factored_rms(), on="host",
                                     mask=lambda path, leaf: True)
    state = offloaded.init(params)
    assert np.asarray(jax.jit(offloaded.update)(params, state, params)[0]["w"]).shape == (128, 128)
    spread = optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda updates, state, params: (updates, jax.tree.map(
            lambda new, old: jnp.cumsum(old, 0) + new, updates, state)))
    is_refused(spread, params, r'on="host".*cumsum at .*"device"')
    scaled = optax.GradientTransformation(
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda updates, state, params: (updates, jax.tree.map(
            lambda new, old: new + old / jnp.max(old), updates, state)))
    is_refused(scaled, params, "reduce_max at test_host.py")


def made_of(update, *like):
    """A transformation whose state begins as these arrays."""
    return optax.GradientTransformation(lambda params: like, update)


def test_arrays_of_several_shapes():
    """The device changes shapes, also of what the host then reads. A stored value of another shape
    than its results is refused."""
    params = {"w": jnp.ones((64, 65))}
    flat = made_of(lambda updates, state, params=None: (
        updates, (state[0] * 0.5 + updates["w"].reshape(-1),)), jnp.ones(64 * 65))
    for tx in (flat, optax.chain(optax.centralize(), optax.trace(0.9)), optax.sm3(0.1),
               optax.contrib.dadapt_adamw(1.0)):
        offloaded = actmem.optax.offload(tx, on="host")
        state, plain, step = offloaded.init(params), tx.init(params), jax.jit(offloaded.update)
        for number in range(1, 3):
            gradients = {"w": jax.random.normal(jax.random.key(number), (64, 65))}
            found, state = step(gradients, state, params)
            wanted, plain = tx.update(gradients, plain, params)
        close((found, state), (wanted, plain), 1e-4)
    is_refused(made_of(lambda updates, state, params=None: (
        updates, (state[0] * 0.9, (state[0] * 0.5).reshape(64, 65))), jnp.ones(64 * 65),
        jnp.ones((64, 65))), params, "reshape at test_host.py")


def test_a_state_of_truth_values():
    tx = made_of(lambda updates, state, params=None: (
        updates, (state[0], jnp.where(state[0], updates["w"], state[1]))),
        jnp.ones((64, 65), bool), jnp.zeros((64, 65)))
    is_refused(tx, {"w": jnp.ones((64, 65))}, r"array of bool\[64, 65\] on the host")


def test_too_many_operations():
    def update(updates, state, params=None):
        new = state[0]
        for _ in range(600):
            new = new * 0.5 + updates["w"]
        return updates, (new,)
    is_refused(made_of(update, jnp.ones((64, 65))), {"w": jnp.ones((64, 65))},
               "has 1200 operations.*1024 operations")


def test_the_reduction_is_named():
    """A condition depends on it."""
    tx = optax.MultiSteps(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)), 2)
    is_refused(tx.gradient_transformation(), arrays(0, jnp.float32), "reduce_sum at")


@pytest.mark.parametrize("wrap", (jax.jit, lambda function: function))
def test_an_update_has_no_derivative(wrap):
    offloaded = actmem.optax.offload(optax.trace(0.9), on="host")
    params = {"w": jnp.ones((64, 65))}
    state = offloaded.init(params)
    with pytest.raises(NotImplementedError, match="no derivative"):
        jax.grad(wrap(lambda updates: jnp.sum(offloaded.update(updates, state)[0]["w"])))(params)


def test_without_jit():
    offloaded = actmem.optax.offload(optax.trace(0.5), on="host")
    params = {"w": jnp.ones((64, 65))}
    state = offloaded.init(params)
    with jax.disable_jit():
        _, state = offloaded.update(params, state)
        _, state = offloaded.update(params, state)
    same(actmem.optax.value(state).trace, {"w": jnp.full((64, 65), 1.5)})


@pytest.mark.parametrize("gradients", ("store", "device"))
def test_a_gradient_that_is_kept(gradients):
    """The host reads it, and it becomes a part of the state as it is."""
    def trained(on):
        offloaded = actmem.optax.offload(optax.optimistic_gradient_descent(0.1), on=on)
        params = stored(weights(jnp.float32))
        state = offloaded.init(params)
        for number in range(3):
            _, grads = actmem.jax.value_and_grad(loss, gradients=gradients)(params, batch(number))
            params, state = jax.jit(offloaded.apply)(grads, state, params)
        return params, state
    close(trained("host"), trained("device"), 1e-5)


def test_several_devices():
    mesh = Mesh(np.array(jax.devices()[:2]), ("x",))
    params = {"w": jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P("x")))}
    offloaded = actmem.optax.offload(optax.adam(1e-2), on="host")
    state = offloaded.init(params)
    with pytest.raises(NotImplementedError, match="works on one device"):
        jax.jit(offloaded.update)(params, state, params)


def test_another_place():
    with pytest.raises(ValueError, match='on=\'disk\' must be "device" or "host"'):
        actmem.optax.offload(optax.adam(1e-2), on="disk")
