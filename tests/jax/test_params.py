# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Weights in the store: the same training as with weights on the device."""
import gc
import logging
import warnings
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
from actmem.jax import Stored, _params

LAYERS, SIDE, EXAMPLES = 5, 72, 8
LAYER = 4 * SIDE * SIDE


def weights(dtype=jnp.float32):
    keys = jax.random.split(jax.random.key(0), 3)
    return {"first": jax.random.normal(keys[0], (SIDE, SIDE), dtype) / 8,
            "layers": {"w": jax.random.normal(keys[1], (LAYERS, SIDE, SIDE), dtype) / 8,
                       "b": jax.random.normal(keys[2], (LAYERS, SIDE), dtype) / 8}}


def stored(params):
    return {**params, "layers": actmem.jax.offload_params(params["layers"])}


def layer(x, params):
    params = actmem.jax.value(params)
    return jnp.tanh(x @ params["w"] + params["b"]), None


def loss(params, x, body=jax.checkpoint(layer)):
    x = x.astype(params["first"].dtype) @ params["first"]
    return jnp.mean((jax.lax.scan(body, x, params["layers"])[0] - 0.3) ** 2)


def batch(number):
    return jax.random.normal(jax.random.key(number), (EXAMPLES, SIDE))


def arrays_of(tree):
    return [np.asarray(leaf).astype(np.float64) for leaf in jax.tree.leaves(
        actmem.jax.value(tree)) if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]


def step_of(tx, gradients="store", of=loss):
    offloaded = actmem.optax.offload(tx)

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x):
        value, grads = actmem.jax.value_and_grad(of, gradients=gradients)(params, x)
        return *offloaded.apply(grads, state, params), value
    return offloaded, step


def train(tx, steps=4, dtype=jnp.float32, batches=batch, **options):
    offloaded, step = step_of(tx, **options)
    params = stored(weights(dtype))
    state = offloaded.init(params)
    for number in range(steps):
        params, state, _ = step(params, state, batches(number))
    return params, state


def plainly(tx, steps=4, dtype=jnp.float32, batches=batch):
    """The same training with all arrays on the device."""
    @jax.jit
    def step(params, state, x):
        updates, state = tx.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state
    params = weights(dtype)
    state = tx.init(params)
    for number in range(steps):
        params, state = step(params, state, batches(number))
    return params, state


def same(one, other):
    for left, right in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_array_equal(left, right)


def close(one, other, tolerance=2e-3):
    """As in test_optax.py: without optimizations, XLA rounds differently beside a copy."""
    for left, right in zip(arrays_of(one), arrays_of(other), strict=True):
        scale = np.max(np.abs(right), initial=1e-30)
        np.testing.assert_allclose(left / scale, right / scale, atol=tolerance)


def check_squares(gradients):
    for leaf in gradients["layers"].values():
        wanted = np.sum(np.asarray(leaf).astype(np.float64).reshape(LAYERS, -1) ** 2, 1)
        np.testing.assert_allclose(leaf.squares, wanted, rtol=1e-5)


def count(name):
    return actmem.jax.stats()[name]


TRANSFORMATIONS = {
    "adamw": optax.adamw(1e-2),
    "adafactor": optax.adafactor(1e-2, min_dim_size_to_factor=64),
    "lamb": optax.lamb(1e-2),
    "clip": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-2)),
    "clip afterwards": optax.chain(optax.scale_by_adam(), optax.clip_by_global_norm(0.1),
                                   optax.scale(-1e-2)),
    "noise": optax.chain(optax.add_noise(0.01, 0.5, 0), optax.sgd(1e-2)),
    "apply_if_finite": optax.apply_if_finite(optax.adam(1e-2), 3),
    "MultiSteps": optax.MultiSteps(optax.adam(1e-2), 2).gradient_transformation(),
    "not the first": optax.multi_transform(
        {"a": optax.adam(1e-2), "s": optax.set_to_zero()}, {"first": "s", "layers": "a"}),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_it_computes_what_optax_does(name):
    tx = TRANSFORMATIONS[name]
    params, state = train(tx)
    close((params, state), plainly(tx))
    blocks = sum(leaf.shape[0] if leaf.is_stack else 1 for leaf in jax.tree.leaves(
        (params, state), is_leaf=lambda leaf: isinstance(leaf, Stored))
                 if isinstance(leaf, Stored))
    assert count("live_blocks") == blocks > LAYERS


@pytest.mark.parametrize("gradients", ("store", "device"))
@pytest.mark.parametrize("dtype", (jnp.float32, jnp.bfloat16))
def test_gradients_are_those_of_jax(dtype, gradients):
    of = actmem.jax.value_and_grad(loss, gradients=gradients)
    wanted = jax.jit(jax.value_and_grad(loss))(weights(dtype), batch(0))
    for function in (jax.jit(of), of) if dtype == jnp.float32 else (jax.jit(of),):
        value, found = function(stored(weights(dtype)), batch(0))
        assert isinstance(found["layers"]["w"], Stored) == (gradients == "store")
        close((value, found), wanted)
        if gradients == "store":
            check_squares(found)
    if gradients == "device":
        same(train(TRANSFORMATIONS["adamw"], gradients=gradients, dtype=dtype),
             train(TRANSFORMATIONS["adamw"], dtype=dtype))


def test_activations_beside_weights():
    def body(x, params):
        params = actmem.jax.value(params)
        y = jax.ad_checkpoint.checkpoint_name(x @ params["w"], "y")
        return jnp.tanh(y + params["b"]), None
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["y"],
        offload_src="device", offload_dst="pinned_host")
    before = count("puts_total")
    close(train(TRANSFORMATIONS["adamw"], of=partial(
        loss, body=actmem.jax.checkpoint(body, policy=policy))), plainly(TRANSFORMATIONS["adamw"]))
    # Activations, weights, gradients and state of 4 steps; the biases' state is small.
    assert count("puts_total") - before >= 4 * LAYERS * (1 + 2 + 2 + 2)


def test_no_layer_is_on_the_device_for_long():
    """XLA's temporary memory: at most three layers of weights, gradients and state."""
    layers = 40
    params = weights()
    params["layers"] = jax.tree.map(lambda leaf: jnp.zeros((layers, *leaf.shape[1:])),
                                    params["layers"])
    offloaded, step = step_of(TRANSFORMATIONS["clip"])
    params = stored(params)
    state = offloaded.init(params)
    memory = step.lower(params, state, batch(0)).compile().memory_analysis()
    activations = 4 * layers * EXAMPLES * SIDE
    assert memory.temp_size_in_bytes < activations + 3 * 4 * LAYER + 100_000


def test_old_values_make_room_for_new_ones():
    """An update needs memory for one more layer, not for all."""
    seen = spilled.trained(MODEL, """
        actmem.open(budget=256 * MIB)
        train(tx, 2)
        print(json.dumps([store()["block_bytes_peak"], TREE]))
    """, "/tmp")
    peak, tree = seen
    assert tree <= peak < tree * 1.15


# 16 layers of 256 KiB: 16 MiB of weights, gradients and state, and 1.5 MiB of activations.
MODEL = """
    import optax
    import actmem.optax
    SIDE, LAYERS = 256, 16
    TREE = 4 * LAYERS * 4 * SIDE * SIDE
    w = jax.random.normal(jax.random.key(0), (LAYERS, SIDE, SIDE)) / 16
    @jax.checkpoint
    def layer(x, weights):
        return jnp.tanh(x @ actmem.jax.value(weights)["w"]), None
    def loss(params, x):
        return jnp.mean((jax.lax.scan(layer, x, params)[0] - 0.3) ** 2)
    def batch(number):
        return jax.random.normal(jax.random.key(number), (96, SIDE))
    tx = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(1e-3))
    def train(tx, steps):
        optimizer, losses = actmem.optax.offload(tx), []
        now = actmem.jax.offload_params({"w": w})
        state = optimizer.init(now)
        def step(params, state, x):
            value, gradients = actmem.jax.value_and_grad(loss)(params, x)
            return *optimizer.apply(gradients, state, params), value
        step = jax.jit(step, donate_argnums=(0, 1))
        for number in range(steps):
            now, state, value = jax.block_until_ready(step(now, state, batch(number)))
            losses.append(float(value))
        return now, state, losses
    def plainly(tx, steps):
        now, losses = {"w": w}, []
        state = tx.init(now)
        @jax.jit
        def step(params, state, x):
            value, gradients = jax.value_and_grad(loss)(params, x)
            updates, state = tx.update(gradients, state, params)
            return optax.apply_updates(params, updates), state, value
        for number in range(steps):
            now, state, value = step(now, state, batch(number))
            losses.append(float(value))
        return losses
"""


def test_weights_gradients_and_state_of_four_times_the_budget(tmp_path):
    """The losses are those of a run with enough memory, bit by bit."""
    program = """
        actmem.open(budget={} * MIB, spill=SPILL)
        now, state, losses = train(tx, 6)
        after = store()
        del now, state
        ended = store()
        without = optax.adamw(1e-3)
        print(json.dumps([losses, train(without, 6)[2], plainly(without, 6), after, ended,
                          os.listdir(SPILL)]))
    """
    enough = spilled.trained(MODEL, program.format(64), tmp_path, XLA_FLAGS="")
    seen = spilled.trained(MODEL, program.format(4), tmp_path, XLA_FLAGS="")
    losses, unclipped, plain, after, ended, left = seen
    assert losses == enough[0] and losses[-1] < losses[0]
    np.testing.assert_allclose(unclipped, plain, rtol=1e-6)
    assert after["memory_bytes_peak"] <= 4 << 20
    assert after["spilled_bytes_total"] >= 6 * (8 << 20)
    assert enough[3]["spilled_bytes_total"] == 0
    for name in ("blocks", "resident_bytes", "spilled_bytes"):
        assert ended[name] == 0, ended
    assert left == []


def test_a_scan_without_checkpoint_is_refused():
    params = stored(weights())
    def in_bfloat16(x, params):
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), actmem.jax.value(params))
        return jnp.tanh(x @ params["w"] + params["b"]).astype(x.dtype), None
    for body in (layer, in_bfloat16, jax.jit(layer)):
        with pytest.raises(ValueError, match=r"\['w'\] of the weights \(test_params.py:\d+\): .*"
                           "Put jax.checkpoint"):
            jax.jit(actmem.jax.value_and_grad(partial(loss, body=body)))(params, batch(0))
        jax.jit(partial(loss, body=body))(params, batch(0))     # without a backward pass


def test_second_derivatives_need_forward_mode():
    """The body of the scan has jax.checkpoint, so the error must not only ask for it."""
    params = stored(weights())

    def gradient(x):
        found = actmem.jax.value_and_grad(loss, gradients="device")(params, x)[1]
        return found["layers"]["w"]
    with pytest.raises(ValueError, match=r"value_and_grad\(\) itself: use jax.jvp instead"):
        jax.grad(lambda x: jnp.sum(gradient(x)))(batch(0))
    wanted = jax.jvp(lambda x: jax.grad(loss)(weights(), x)["layers"]["w"], (batch(0),), (batch(1),))
    close(jax.jvp(gradient, (batch(0),), (batch(1),)), wanted)


def test_a_weight_that_a_layer_takes_twice():
    def body(x, params):
        return layer(layer(x, params)[0], params)
    of = partial(loss, body=jax.checkpoint(body))
    params = stored(weights())
    with pytest.raises(NotImplementedError, match=r"gradient of \['.'\].* takes this weight several times"):
        jax.jit(actmem.jax.value_and_grad(of))(params, batch(0))
    close(actmem.jax.value_and_grad(of, gradients="device")(params, batch(0)),
          jax.value_and_grad(of)(weights(), batch(0)))


def test_weights_that_only_some_layers_use():
    def body(x, inputs):
        number, params = inputs
        return jax.lax.cond(number % 2 == 0, lambda x: layer(x, params)[0], lambda x: x, x), None

    def of(params, x):
        inputs = jnp.arange(LAYERS), params["layers"]
        return jnp.mean(jax.lax.scan(jax.checkpoint(body), x @ params["first"], inputs)[0] ** 2)
    params = {**stored(weights()), "unused": actmem.jax.offload_params(jnp.ones((2, 3)))}
    value, found = jax.jit(actmem.jax.value_and_grad(of))(params, batch(0))
    close((value, found), jax.value_and_grad(of)({**weights(), "unused": jnp.ones((2, 3))}, batch(0)))
    assert not np.any(found["layers"]["w"][1])
    assert np.any(found["layers"]["w"][2])
    check_squares(found)


def test_layers_by_index():
    def of(params, x):
        for i in range(LAYERS):
            x = jax.checkpoint(layer)(x, jax.tree.map(lambda leaf: leaf[i], params["layers"]))[0]
        return jnp.mean(x ** 2)
    with pytest.raises(NotImplementedError, match="indexes, repeats or selects stored weights"):
        jax.jit(actmem.jax.value_and_grad(of))(stored(weights()), batch(0))
    with jax.disable_jit(), pytest.raises(NotImplementedError, match="jax_disable_jit makes each scan"):
        actmem.jax.value_and_grad(loss)(stored(weights()), batch(0))
    close(actmem.jax.value_and_grad(of, gradients="device")(stored(weights()), batch(0)),
          jax.value_and_grad(of)(weights(), batch(0)))


def test_a_layer_under_vmap():
    def body(x, params):
        return jax.vmap(lambda row: layer(row, params)[0])(x), None
    value, found = actmem.jax.value_and_grad(partial(loss, body=jax.checkpoint(body)))(
        stored(weights()), batch(0))
    close((value, found), jax.value_and_grad(loss)(weights(), batch(0)))
    check_squares(found)


@pytest.mark.parametrize("gradients", ("store", "device"))
def test_weights_that_are_frozen(gradients):
    """Outside and inside the layer, and a part of them."""
    def inside(x, params):
        return layer(x, jax.lax.stop_gradient(params))
    cases = (lambda params, x: loss(jax.lax.stop_gradient(params), x),
             lambda params, x: loss(params, x, jax.checkpoint(inside)),
             lambda params, x: loss({**params, "layers": {
                 **params["layers"], "w": jax.lax.stop_gradient(params["layers"]["w"])}}, x))
    for of in cases:
        close(jax.jit(actmem.jax.value_and_grad(of, gradients=gradients))(
            stored(weights()), batch(0)), jax.jit(jax.value_and_grad(of))(weights(), batch(0)))


@pytest.mark.parametrize("dtype, more", (("float32", 0), ("bfloat16", 0), ("float16", 2)))
def test_the_norm_takes_no_stored_gradient(dtype, more):
    """The backward pass has computed the squares. In float16 they could be infinite, as in Optax."""
    def takes(tx):
        offloaded, step = step_of(tx)
        params = stored(weights(jnp.dtype(dtype)))
        return str(jax.make_jaxpr(step)(params, offloaded.init(params), batch(0))).count(
            "actmem_take[")
    assert takes(TRANSFORMATIONS["clip"]) == takes(TRANSFORMATIONS["adamw"]) + more


def of_numbers(change):
    """Returns a function that libraries for mixed precision apply to each leaf of a tree."""
    return lambda x: change(x) if jnp.issubdtype(x.dtype, jnp.floating) else x


CHANGES = {
    "nan_to_num": jnp.nan_to_num,
    "of NaN": lambda x: jnp.where(jnp.isnan(x), jnp.zeros_like(x), x),
    "unscaled": of_numbers(lambda x: x / 1024), "added": of_numbers(lambda x: x + 1e-8),
    "clipped": of_numbers(lambda x: jnp.clip(x, -1, 1)), "absolute": of_numbers(jnp.abs),
    "large": of_numbers(lambda x: jnp.where(abs(x) > 1e-3, x, 0)),
    "rolled": of_numbers(lambda x: jnp.roll(x, 2, -1)),
    "matrices": lambda x: x / 2 if jnp.issubdtype(x.dtype, jnp.floating) and x.ndim > 1 else x,
    "zeros": of_numbers(jnp.zeros_like), "converted": of_numbers(lambda x: x.astype(jnp.float16)),
    "rounded": of_numbers(lambda x: jax.lax.reduce_precision(x, 8, 7))}


def step_with(change, use, of=loss):
    """Returns a step that applies `change` to its gradients, and its arguments. Some are NaN."""
    params = stored(weights())
    offloaded = actmem.optax.offload(TRANSFORMATIONS["clip"], on="host" if use == "host" else "device")

    def step(params, state, x):
        gradients = jax.tree.map(change, actmem.jax.value_and_grad(of)(params, x)[1])
        return actmem.jax.value(gradients) if use == "value" else \
            offloaded.apply(gradients, state, params)
    return step, (params, offloaded.init(params), batch(0).at[0, 0].set(jnp.nan))


def check_failing(function, args):
    """Checks that a step fails because a change has not reached a stored gradient."""
    with pytest.raises((TypeError, jax.errors.JaxRuntimeError),
                       match=r"gradient of \[.* pass gradients=.?\"device"):
        jax.block_until_ready(function(*args))


@pytest.fixture
def failed_steps():
    logging.disable()           # pytest would keep the frames of the failed call, and their values
    yield
    logging.disable(logging.NOTSET)
    gc.collect()                # the tracebacks
    actmem.jax.reset()          # a step that failed has left values


@pytest.mark.parametrize("use", ("device", "host", "value"))
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_does_not_reach_stored_gradients_is_an_error(change, use, failed_steps):
    step, args = step_with(CHANGES[change], use)
    check_failing(jax.jit(step), args)


@jax.custom_vjp
def hooked(params):
    return params


hooked.defvjp(lambda params: (params, None), lambda _, gradients: (
    jax.tree.map(of_numbers(lambda x: jnp.clip(x, -1e-3, 1e-3)), gradients),))


def frozen_below(i, params):
    """Stops the gradients of the first layers."""
    return jax.lax.cond(i < 2, jax.lax.stop_gradient, lambda params: params, params)


def loss_with(change):
    def of(params, x):
        def body(x, one):
            i, params = one
            return layer(x, change(i, params))
        x = jnp.nan_to_num(x) @ params["first"]
        layers = jnp.arange(LAYERS), params["layers"]
        return jnp.mean((jax.lax.scan(jax.checkpoint(body), x, layers)[0] - 0.3) ** 2)
    return of


@pytest.mark.parametrize("change", (frozen_below, lambda _, params: hooked(params)))
def test_a_change_of_the_gradients_of_weights(change, failed_steps):
    """By a function of the weights, before their value()."""
    step, args = step_with(lambda x: x, "value", loss_with(change))
    check_failing(jax.jit(step), args)
    found = jax.jit(actmem.jax.value_and_grad(loss_with(change), gradients="device"))(*args[::2])
    close(found, jax.jit(jax.value_and_grad(loss_with(change)))(weights(), args[2]))


@pytest.mark.parametrize("name", ("float16", "float64", "complex64", "float8_e4m3fn",
                                  "float8_e8m0fnu", "float4_e2m1fn"))
def test_a_canary_of_each_dtype(name):
    canary = _params.canary_of(jnp.dtype(name), 0)
    assert canary.size and np.all(np.isfinite(canary.astype(np.complex64))), canary
    assert np.all(canary.astype(np.complex64) != 0), canary
    assert not np.iscomplexobj(canary) or np.all(canary != np.conj(canary)), canary


def test_gradients_of_all_layers_at_once():
    def of(params, x):
        layers = actmem.jax.value(params["layers"])
        return loss(params, x) + jnp.sum(layers["w"] ** 2)
    close(jax.jit(actmem.jax.value_and_grad(of, gradients="device"))(stored(weights()), batch(0)),
          jax.jit(jax.value_and_grad(of))(weights(), batch(0)))


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
@pytest.mark.parametrize("is_good", (True, False))
def test_a_step_that_is_skipped(is_good, dtype):
    """A loss scaler tests all gradients, and selects among tokens as among arrays."""
    def chosen(params, x):
        _, found = actmem.jax.value_and_grad(loss)(params, x)
        found = jax.tree.map(of_numbers(lambda x: x * 1), found)
        is_finite = jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(found)]).all()
        return jax.tree.map(lambda leaf: jnp.where(is_finite, leaf, jnp.zeros_like(leaf)), found)
    x = batch(0) if is_good else batch(0).at[0, 0].set(jnp.inf)
    found = jax.jit(chosen)(stored(weights(jnp.dtype(dtype))), x)
    wanted = jax.jit(jax.grad(loss))(weights(jnp.dtype(dtype)), x)
    close(found, wanted if is_good else jax.tree.map(jnp.zeros_like, wanted))


def test_a_strict_jax():
    """Other settings of JAX that programs use."""
    def body(x, params):
        params = actmem.jax.value(params)
        return jnp.tanh(x @ params["w"] + params["b"][None]), None
    step, args = step_with(lambda x: x, "value",
                           lambda params, x: loss(params, x, jax.checkpoint(body)))
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        jax.block_until_ready(jax.jit(step)(*args))
        del args
        actmem.jax.stats()
    step, args = step_with(lambda x: x, "device")
    with jax.enable_checks(True):
        jax.block_until_ready(jax.jit(step)(*args))


def test_gradients_under_vmap():
    _, found = jax.jit(actmem.jax.value_and_grad(loss))(stored(weights()), batch(0))
    found = found["layers"]["w"]
    sums = jax.jit(jax.vmap(lambda layer: jnp.sum(actmem.jax.value(layer))))(found)
    close(sums, jnp.sum(actmem.jax.value(found), (1, 2)))


def is_elementwise(function, x):
    """Returns whether a function maps each number of an array to a number of the same type."""
    try:
        found, other = function(x), function(x[::-1].swapaxes(1, 2))
    except Exception:       # pylint: disable=broad-exception-caught
        return False
    return isinstance(found, jax.Array) and (found.shape, found.dtype) == (x.shape, x.dtype) and \
        bool(jnp.array_equal(other, found[::-1].swapaxes(1, 2), equal_nan=True))


# JAX returns numbers of unknown types unchanged. docs/weights.md says so. With gradients it can be an error.
UNCHANGED = {"nan_to_num"}


@pytest.mark.filterwarnings("ignore")
def test_functions_refuse_stored_values_or_compute_the_right_ones():
    """Each elementwise function of jax.numpy and jax.nn computes what it computes of arrays, or
    raises an error."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 4)), jnp.float32)
    x = x.at[0, 0, :3].set(jnp.array([jnp.nan, jnp.inf, -jnp.inf]))
    refused, right, wrong = set(), set(), set()
    for name, function in (item for module in (jnp, jax.nn) for item in vars(module).items()):
        if not callable(function) or isinstance(function, type) or not is_elementwise(function, x):
            continue
        try:
            found = actmem.optax.value(jax.tree.map(function, actmem.jax.offload_params(x)))
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            refused.add(name)
            continue
        is_same = np.array_equal(np.asarray(found), function(x), equal_nan=True)
        (right if is_same else wrong).add(name)
        del found
    actmem.jax.reset()          # JAX's errors hold values
    assert wrong == UNCHANGED, wrong
    assert {"ones_like", "sin", "relu", "sqrt"} <= refused, refused
    assert {"zeros_like", "real", "conj"} <= right, right


def masked(mask):
    return lambda x: jnp.where(mask(x), x, jnp.zeros_like(x))


MOVES = {       # of elements
    "rev": lambda x: x[..., ::-1], "flip": lambda x: jnp.flip(x, -1), "roll": lambda x: jnp.roll(x, 1, -1),
    "gather": lambda x: x[..., jnp.array([1, 0, 2, 3])],
    "transpose": lambda x: x.transpose(0, *range(1, x.ndim)[::-1]),
    "set": lambda x: x.at[..., 0].set(x[..., 1]),
    "stack": lambda x: jnp.stack([x[i] for i in range(4)], x.ndim - 1),
    "unstack": lambda x: jnp.stack(jnp.unstack(x, axis=x.ndim - 1)),
    "mask": masked(lambda x: jnp.arange(x.shape[-1]) < 3),
    "random mask": masked(lambda x: jax.random.bernoulli(jax.random.key(0), 0.5, x.shape))}
MOVES_OF_LAYERS = {
    "rev": lambda x: x[::-1], "roll": lambda x: jnp.roll(x, 1, 0), "slice": lambda x: x[1:],
    "gather": lambda x: x[jnp.array([1, 0])], "set": lambda x: x.at[0].set(x[1]),
    "reshape": lambda x: x.reshape(1, 4, *x.shape[1:])[0], "repeat": lambda x: jnp.repeat(x, 2, 0),
    "stack": lambda x: jnp.stack([x[1], x[0]]), "tile": lambda x: jnp.tile(x, (2, *(1,) * (x.ndim - 1))),
    "mask": masked(lambda x: jnp.arange(4).reshape(4, *[1] * (x.ndim - 1)) < 3),
    "where": masked(lambda x: jnp.array([True, False]).any())}


def moved(move, way=jax.jit):
    """Returns layers that are as long as they are many and wide, after a function has moved them."""
    return actmem.optax.value(way(partial(jax.tree.map, move))(actmem.jax.offload_params(CUBE)))


CUBE = np.arange(4 * 4 * 4, dtype=np.float32).reshape(4, 4, 4)


@pytest.mark.parametrize("move", MOVES)
def test_functions_may_not_move_elements(move, failed_steps):
    """JAX applies them to the token and the ghost. docs/weights.md says so."""
    with pytest.raises(NotImplementedError, match="weights .*would move or select elements of this"):
        moved(MOVES[move])
    with pytest.raises((AttributeError, TypeError, IndexError, NotImplementedError, ValueError)):
        moved(MOVES[move], lambda function: function)


@pytest.mark.parametrize("move", MOVES_OF_LAYERS)
def test_functions_may_move_layers(move):
    np.testing.assert_array_equal(moved(MOVES_OF_LAYERS[move]), MOVES_OF_LAYERS[move](jnp.asarray(CUBE)))


@pytest.mark.parametrize("leaf", ("token", "ghost"))
def test_no_dtype_is_one_of_numpy(leaf):
    """NumPy takes an object with an attribute `dtype` for that dtype. JAX then mixes their programs."""
    dtype = getattr(actmem.jax.offload_params(CUBE), leaf).dtype
    assert np.dtype(np.float32) != dtype and dtype != np.dtype(np.float32)
    with pytest.raises(TypeError):
        np.dtype(dtype)


def test_vmap_moves_no_elements():
    """The batch's axis is among those of a block until vmap moves it to the front."""
    params = jax.random.normal(jax.random.key(0), (80, 3, 70))
    optimizer = actmem.optax.offload(actmem.optax.master_copy(optax.sgd(0.1)))
    found = jax.vmap(optimizer.init, in_axes=1)(params.astype(jnp.bfloat16))
    masters = [leaf for leaf in jax.tree.leaves(found, is_leaf=lambda leaf: isinstance(leaf, Stored))
               if isinstance(leaf, Stored)]
    wanted = jnp.moveaxis(params.astype(jnp.bfloat16), 1, 0).astype(jnp.float32)
    assert masters
    for leaf in masters:
        np.testing.assert_array_equal(jax.vmap(actmem.jax.value)(leaf), wanted)


@pytest.mark.parametrize("change", CHANGES.keys() - {"nan_to_num", "of NaN", "rolled"})
def test_a_change_that_does_not_reach_stored_weights_is_an_error(change, failed_steps):
    """In the function that value_and_grad() differentiates."""
    step, args = step_with(lambda x: x, "value", loss_with(
        lambda i, params: jax.tree.map(CHANGES[change], params)))
    with pytest.raises((TypeError, jax.errors.JaxRuntimeError),
                       match=r"\] of the weights .*(apply it to the result of|convert the) value\(\)"):
        jax.block_until_ready(jax.jit(step)(*args))


def test_a_norm_of_rounded_gradients():
    def rounding(x):
        rounded = x.astype(jnp.bfloat16).astype(jnp.float32)
        return jnp.ones_like(x) * (jnp.sum(jnp.square(x)) - jnp.sum(jnp.square(rounded)))
    tx = optax.stateless(lambda updates, params: jax.tree.map(rounding, updates))
    offloaded, step = step_of(tx)
    params = stored(weights())
    text = str(jax.make_jaxpr(step)(params, offloaded.init(params), batch(0)))
    # Both passes and the update take both weights. The norm takes both gradients.
    assert text.count("actmem_take[") == 3 * 2 + 2, text.count("actmem_take[")


def test_complex_weights():
    """Their squares are not computed."""
    def of(params, x):
        return jnp.mean(jnp.abs(jax.lax.scan(jax.checkpoint(lambda x, params: (
            jnp.tanh(x @ actmem.jax.value(params)), None)), x, params)[0]) ** 2)
    params = jax.random.normal(jax.random.key(0), (2, SIDE, SIDE), jnp.complex64) / 8
    x = batch(0).astype(jnp.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = actmem.jax.value_and_grad(of)(actmem.jax.offload_params(params), x)
    wanted = jax.value_and_grad(of)(params, x)
    np.testing.assert_allclose(np.asarray(found[1]), wanted[1], rtol=1e-4, atol=1e-7)


def test_a_stored_gradient_has_no_derivative():
    def penalty(scale, params):
        _, gradients = actmem.jax.value_and_grad(loss)(params, scale * batch(0))
        return jnp.sum(actmem.jax.value(gradients)["layers"]["w"] ** 2)
    with pytest.raises(NotImplementedError, match='is stored, so it has no derivative'):
        jax.jit(jax.grad(penalty))(1.0, stored(weights()))


def test_has_aux():
    def of(params, x):
        return loss(params, x), {"mean": jnp.mean(x), "params": params}
    (value, aux), found = jax.jit(actmem.jax.value_and_grad(of, has_aux=True))(
        stored(weights()), batch(0))
    same(aux["params"], weights())
    assert float(aux["mean"]) == float(jnp.mean(batch(0)))
    assert found["layers"]["w"].shape == (LAYERS, SIDE, SIDE)
    assert np.isfinite(float(value))


def test_a_skipped_step_writes_nothing():
    """Neither an update that is not finite, nor a step that only accumulates."""
    params = stored(weights())
    offloaded, step = step_of(TRANSFORMATIONS["apply_if_finite"])
    state = offloaded.init(params)
    before = arrays_of((params, state[3]))
    puts = count("puts_total")
    params, state, _ = jax.block_until_ready(step(params, state, batch(0) * jnp.nan))
    # Of gradients, and of weights, which Optax updates by zeros.
    assert count("puts_total") - puts == 2 * 2 * LAYERS
    for left, right in zip(before, arrays_of((params, state[3])), strict=True):
        np.testing.assert_array_equal(left, right)


def test_save_and_restore(tmp_path):
    params, state = train(TRANSFORMATIONS["adamw"])
    offloaded, step = step_of(TRANSFORMATIONS["adamw"])
    path = tmp_path / "step"
    actmem.jax.save_state(path, {"params": params, "state": state})
    like = {"params": jax.eval_shape(stored, weights()),
            "state": jax.eval_shape(offloaded.init, params)}
    restored = actmem.jax.restore_state(path, like)
    assert restored["params"]["layers"]["w"].is_stack
    assert restored["state"][0].mu["layers"]["w"].is_stack
    same(restored, {"params": params, "state": state})
    same(actmem.optax.stored(actmem.optax.value(state), state), state)
    same(step(restored["params"], restored["state"], batch(9)), step(params, state, batch(9)))


def test_numpy_arrays_are_stored_layer_by_layer():
    params = jax.tree.map(np.asarray, weights()["layers"])
    same(actmem.jax.offload_params(params), params)


@pytest.mark.parametrize("params, error, words", (
    ({"a": jnp.ones((2, 3)), "b": jnp.ones(3)}, ValueError, r"\['b'\] is float32\[3\].* layers, 2"),
    (jnp.ones((0, 3)), ValueError, r"is float32\[0, 3\].* at least 1"),
    ({"w": jnp.full((2, 3), 0.5)}, ValueError, r"\['w'\] is float32\[2, 3\] with a weak type"),
    ({"w": jnp.float32(1)}, ValueError, r"\['w'\] is float32\[\]"),
    ({"w": jnp.arange(3)}, TypeError, r"\['w'\] is int32"),
    ({"w": "x"}, TypeError, r"\['w'\] is str"),
))
def test_arrays_that_are_no_stack_of_weights(params, error, words):
    with pytest.raises(error, match=words):
        actmem.jax.offload_params(params)


def test_weights_are_stored_once():
    with pytest.raises(ValueError, match=r"\['b'\] is stored already"):
        actmem.jax.offload_params(stored(weights())["layers"])


def test_several_devices():
    mesh = Mesh(np.array(jax.devices()[:2]), "x")
    with pytest.raises(NotImplementedError, match="on 2 devices"):
        actmem.jax.offload_params(jax.device_put(weights()["layers"]["w"],
                                                 NamedSharding(mesh, P(None, "x"))))


def test_other_words():
    params = stored(weights())
    offloaded = actmem.optax.offload(optax.adam(1e-2))
    state = offloaded.init(params)
    _, gradients = actmem.jax.value_and_grad(loss)(params, batch(0))
    with pytest.raises(ValueError, match=r"call apply\(gradients, state, params\)"):
        offloaded.update(gradients, state, params)
    with pytest.raises(ValueError, match='"store" or "device"'):
        actmem.jax.value_and_grad(loss, gradients="disk")
    with pytest.raises(TypeError, match=r"\['n'\] of the weights is int32"):
        actmem.jax.value_and_grad(loss)({**params, "n": jnp.int32(1)}, batch(0))
    with pytest.raises(NotImplementedError, match="all layers at once"):
        actmem.jax.value_and_grad(lambda params: jnp.sum(actmem.jax.value(params["layers"])["w"]))(
            params)
    with pytest.raises(TypeError, match="must return a scalar"):
        actmem.jax.value_and_grad(lambda params: params["first"])(params)
    delayed = actmem.optax.delayed(optax.adam(1e-2))
    with pytest.raises(ValueError, match="offload"):
        delayed.init(params)


def test_gradients_that_a_state_keeps():
    """The state of a small weight is an array."""
    tx = optax.GradientTransformation(lambda params: jax.tree.map(jnp.zeros_like, params),
                                      lambda updates, state, params=None: (updates, updates))
    close(train(tx), plainly(tx))


def test_labels_name_the_users_line():
    like = jax.eval_shape(actmem.jax.offload_params, weights()["layers"])
    assert "(test_params.py:" in like["w"].label


def test_a_transformation_that_mixes_layers():
    tx = optax.stateless(lambda updates, params: jax.tree.map(
        lambda leaf: jnp.flip(leaf, 0) if leaf.ndim == 3 else leaf, updates))
    with pytest.raises(NotImplementedError, match="rev at .* needs several layers at once"):
        train(tx, 1)
