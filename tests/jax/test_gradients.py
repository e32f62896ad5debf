# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Gradients are those of the plain function and of jax.checkpoint with the
same policy, whatever transformation the checkpointed function is under."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name

import actmem.jax
from actmem.jax._primitives import _take_now
from actmem.plan.compiled import CALLS
from models import FORMS, LAYERS, Count, compare, data, layer, normal, scanned, unrolled

policies = jax.checkpoint_policies
NAMES = policies.save_only_these_names("a", "b")


def small(x, w):
    a = checkpoint_name(jnp.sin(x @ w), "a")
    b = checkpoint_name(jnp.cos(a) * x, "b")
    return jnp.tanh(b @ w) + x


def inputs(dtype=jnp.float32):
    return [normal(seed, 16, 16).astype(dtype) for seed in range(2)]


def square(result):
    return jnp.sum(result.astype(jnp.float32) ** 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_layers_under_jit(form, dtype):
    weights, x = data(dtype)
    puts = compare(
        lambda wrap: jax.jit(jax.value_and_grad(
            FORMS[form](wrap(layer)), argnums=(0, 1)))(weights, x),
        offload_argnums=(0,))
    assert puts == 4 * LAYERS


@pytest.mark.parametrize("form", FORMS)
def test_layers_eager(form):
    weights, x = data()
    compare(lambda wrap: jax.grad(FORMS[form](wrap(layer)))(weights, x),
            offload_argnums=0, puts=4 * LAYERS)


OFFLOAD = {"offload_src": "device", "offload_dst": "pinned_host"}


@pytest.mark.parametrize("name,policy,stock,puts", [
    ("none", None, None, 1),
    ("nothing", policies.nothing_saveable, policies.nothing_saveable, 1),
    ("dots", policies.dots_saveable, policies.dots_saveable, 3),
    ("everything", policies.everything_saveable,
     policies.everything_saveable, None),
    ("any names but these", policies.save_any_names_but_these("a"),
     policies.save_any_names_but_these("a"), 2),
    ("save a, offload b", policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"],
        **OFFLOAD), NAMES, 2),
    ("offload dots", policies.offload_dot_with_no_batch_dims(*OFFLOAD.values()),
     policies.dots_with_no_batch_dims_saveable, 3),
])
def test_policies(name, policy, stock, puts):
    x, w = inputs()
    compare(lambda wrap: jax.jit(jax.grad(
        lambda x, w: square(wrap(small)(x, w)), (0, 1)))(x, w),
        policy=policy, stock_policy=stock, offload_argnums=(0,), puts=puts)


def test_offload_policy_inside_scan_and_jit():
    """What the policy offloads is recognized where it is a loop's result."""
    x, w = inputs()

    def f(x, w):
        x, _ = jax.lax.scan(lambda x, _: (small(x, w), None), x, length=3)
        return jax.jit(small)(x, w)
    policy = policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"],
        **OFFLOAD)
    compare(lambda wrap: jax.jit(jax.grad(
        lambda x, w: square(wrap(f)(x, w)), (0, 1)))(x, w),
        policy=policy, stock_policy=NAMES, puts=4)


def test_vmap_outside_and_inside():
    _, w = inputs()
    xs = normal(2, 3, 5, 16, 16)

    def outside(wrap):
        gradient = jax.grad(lambda x, w: square(wrap(small)(x, w)), (0, 1))
        for _ in range(2):
            gradient = jax.vmap(gradient, (0, None))
        return jax.jit(gradient)(xs, w)

    def inside(wrap):
        return jax.jit(jax.grad(lambda xs, w: square(
            jax.vmap(wrap(small), (1, None), 1)(xs, w)), (0, 1)))(xs[0], w)

    # A batch is one value.
    compare(outside, policy=NAMES, offload_argnums=0, puts=3)
    compare(inside, policy=NAMES, offload_argnums=0, puts=3)
    compare(lambda wrap: jax.vmap(jax.grad(
        lambda x: square(wrap(small)(x, w))))(xs[0]), policy=NAMES, puts=2)


def test_vmap_outside_of_jit_is_compiled_once():
    """Though each of its calls is another one, of which takes may be announced."""
    x, w = inputs()
    gradient = jax.vmap(jax.grad(lambda x, w: square(
        actmem.jax.checkpoint(small, policy=NAMES)(x, w))), (0, None))
    compiled = []
    for _ in range(3):
        gradient(jnp.stack([x, 2 * x]), w)
        compiled.append(_take_now._cache_size())
    assert compiled[0] == compiled[-1]


@pytest.mark.without_remat3("the outer checkpoint's policy holds alone")
@pytest.mark.parametrize("outer", [None, policies.dots_saveable])
def test_inside_checkpoint(outer):
    x, w = inputs()

    def run(wrap):
        f = wrap(small)
        twice = jax.checkpoint(lambda x: f(f(x, w), w), policy=outer)
        return jax.jit(jax.grad(lambda x: square(twice(x))))(x)
    compare(run, policy=NAMES, offload_argnums=0)


@pytest.mark.parametrize("policy", [NAMES, policies.everything_saveable])
@pytest.mark.parametrize("inner", [True, False])
def test_around_checkpoint(inner, policy):
    x, w = inputs()

    def run(wrap):
        f = wrap(small) if inner else jax.checkpoint(small)
        return jax.jit(jax.grad(lambda x: square(wrap(
            lambda x, w: f(f(x, w), w))(x, w))))(x)
    # The inner checkpoint's own backward pass takes one again.
    again = not inner and policy is NAMES
    compare(run, policy=policy, offload_argnums=0, takes=6 if again else None)


def test_closures():
    """Closed-over arrays and tracers are weights: they get gradients and are
    not put."""
    x, w = inputs()
    table = jnp.arange(256.).reshape(16, 16)

    def run(wrap):
        def loss(x, w):
            scaled = jnp.sin(w)
            return square(wrap(lambda x: small(x, scaled) * table + w)(x))
        return jax.jit(jax.grad(loss, (0, 1)))(x, w)
    compare(run, policy=NAMES, offload_argnums=0, puts=3)


def test_static_arguments_and_keywords():
    x, w = inputs()

    def f(x, power, *, w):
        return small(x, w) ** power
    compare(lambda wrap: jax.jit(jax.grad(
        lambda x, w: square(wrap(f)(x, 2, w=w)), (0, 1)))(x, w),
        policy=NAMES, static_argnums=(1,), offload_argnums=-2, puts=3)


def test_decorator():
    x, w = inputs()

    @actmem.jax.checkpoint(policy=NAMES, offload_argnums=(0,))
    def decorated(x, w):
        """Of a layer."""
        return small(x, w)
    assert decorated.__name__ == "decorated"
    assert decorated.__doc__ == "Of a layer."
    gradient = jax.grad(lambda x: square(decorated(x, w)))(x)
    np.testing.assert_allclose(
        gradient, jax.grad(lambda x: square(small(x, w)))(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [
    "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int2", "int4", "uint4",
    "int8", "int32", "bool"])
def test_types_of_saved_values(dtype):
    """Even those whose elements are shorter than a byte."""
    x, w = inputs()

    def f(x, w):
        # What all these types hold exactly: XLA may leave out a rounding.
        y = jnp.clip(jnp.round(x @ w), 0, 1 if dtype == "int2" else 3)
        y = checkpoint_name(y.astype(dtype), "a")
        return jnp.tanh(y.astype(jnp.float32)) * x
    compare(lambda wrap: jax.jit(jax.grad(
        lambda x: square(wrap(f)(x, w))))(x), policy=NAMES, puts=1)


def test_keys_scalars_empty_and_weak():
    x, _ = inputs()
    key, rate, empty = jax.random.key(3), 0.5, jnp.zeros((0, 7))

    def dropout(x, key, rate, empty):
        key = checkpoint_name(jax.random.fold_in(key, 1), "a")
        kept = jax.random.bernoulli(key, rate, x.shape)
        return jnp.where(kept, jnp.sin(x), 0) * jnp.sin(rate) + jnp.sum(empty)

    def loss(wrap):
        return jax.grad(lambda x, rate, empty: square(
            wrap(dropout)(x, key, rate, empty)), (0, 1, 2))
    # Outside of jit arguments are put before it is known that nobody takes them.
    for run, takes in ((loss, 3), (lambda wrap: jax.jit(loss(wrap)), None)):
        puts = compare(lambda wrap: run(wrap)(x, rate, empty), policy=NAMES,
                       offload_argnums=(0, 1, 2, 3), takes=takes)
        assert puts >= 3


def test_weak_type_comes_back():
    """Or x * 2 in the backward pass would be of another type."""
    def f(x):
        return jnp.sin(jnp.sin(x)) * jnp.ones((), jnp.bfloat16)
    def run(wrap):
        return jax.jit(jax.grad(lambda x: wrap(f)(x).astype(jnp.float32)))(0.3)

    compare(run, offload_argnums=0, puts=1)


def test_integer_and_unused_results():
    x, w = inputs()

    def f(x, w):
        return small(x, w), jnp.argmax(x), jnp.sum(x), jnp.ones((16, 16))
    compare(lambda wrap: jax.jit(jax.grad(
        lambda x, w: square(wrap(f)(x, w)[0]), (0, 1)))(x, w),
        policy=NAMES, offload_argnums=0, puts=3)


def test_scan_over_a_value_that_does_not_change():
    """A saved value that only other arguments make depend on the loop."""
    weights, x = data()

    def run(wrap):
        f = wrap(layer)
        return jax.jit(jax.grad(lambda weights: square(jax.lax.scan(
            lambda sum, w: (sum + f(x, w), None), x, weights)[0])))(weights)
    # What names of it do not depend on is put before the loop, and taken in each turn.
    compare(run, offload_argnums=0, puts=3 * LAYERS + 1, takes=4 * LAYERS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wanted", [0, 1, None])
def test_gradients_that_are_dropped(form, wanted):
    """JAX drops a take together with its put, or both stay."""
    weights, x = data()

    def run(wrap):
        def some(weights, x):
            value, gradients = jax.value_and_grad(
                FORMS[form](wrap(layer)), (0, 1))(weights, x)
            return value if wanted is None else gradients[wanted]
        return jax.jit(some)(weights, x)
    if wanted is not None:
        compare(run, offload_argnums=0)
        return
    count = Count()
    run(lambda f: actmem.jax.checkpoint(f, offload_argnums=0, min_bytes=0))
    assert count("puts_total") == 0


def test_evaluation_touches_no_actmem():
    weights, x = data()
    f = actmem.jax.checkpoint(layer, offload_argnums=0)
    assert "actmem" not in jax.jit(scanned(f)).lower(weights, x).as_text()
    assert "actmem" in jax.jit(jax.grad(scanned(f))).lower(weights, x).as_text()


def test_a_name_that_no_gradient_needs():
    """Nothing of actmem is in the program, as a call in a loop keeps XLA from unrolling it."""
    weights, x = data()

    def layer(x, w):
        return checkpoint_name(x + jnp.tanh(w["q"]).sum(), "sum")
    f = actmem.jax.checkpoint(layer, policy=policies.save_only_these_names("sum"), min_bytes=0)
    step = jax.jit(jax.grad(lambda w: square(jax.lax.scan(
        lambda x, w: (f(x, w), None), x, w)[0])))
    assert "actmem_" not in step.lower(weights).as_text()


def test_without_jit():
    x, w = inputs()
    with jax.disable_jit():
        compare(lambda wrap: jax.grad(
            lambda x: square(wrap(small)(x, w)))(x), policy=NAMES, puts=2)


def test_export():
    weights, x = data()
    step = jax.jit(jax.grad(unrolled(actmem.jax.checkpoint(
        layer, offload_argnums=0))))
    exported = jax.export.export(step, disabled_checks=CALLS)(weights, x)
    count = Count()
    jax.tree.map(np.testing.assert_array_equal, exported.call(weights, x),
                 step(weights, x))
    assert count("takes_total") == 2 * LAYERS
