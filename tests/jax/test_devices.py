# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""On several devices each keeps its own shard, and nothing is gathered."""
import contextlib
import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import actmem.jax
from models import FORMS, LAYERS, POLICY, close, data, layer, normal, scanned, unrolled

DEVICES = 4


def mesh_of(kind, shape=(DEVICES,), names=("data",)):
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


def puts():
    """The bytes that each device has put."""
    return np.array([device["put_bytes_total"]
                     for device in actmem.jax.stats()["devices"].values()])


def run(f, *inputs, context):
    """What `f` computes, and what each device put for it; nothing is gathered."""
    with context:
        compiled = jax.jit(f).lower(*inputs).compile()
        before = puts()
        result = jax.block_until_ready(compiled(*inputs))
    text = compiled.as_text()
    assert "all-gather" not in text
    put = list(puts() - before)
    assert ("actmem_put" in text) == any(put)
    return result, put


def wraps():
    return {"plain": lambda f: f,
            "stock": lambda f: jax.checkpoint(f, policy=POLICY),
            "actmem": lambda f: actmem.jax.checkpoint(
                f, policy=POLICY, offload_argnums=0, min_bytes=0)}


def compare(form, weights, x, context, spec):
    gradients = {}
    for name, wrap in wraps().items():
        gradients[name], put = run(jax.grad(form(wrap(layer)), (0, 1)), weights, x,
                                   context=context())
        assert gradients[name][1].sharding.is_equivalent_to(
            NamedSharding(x.sharding.mesh, spec), x.ndim)
    assert put == [LAYERS * 4 * x.nbytes // DEVICES] * DEVICES
    close(gradients["actmem"], gradients["stock"], 16)
    close(gradients["actmem"], gradients["plain"], 256)


def spread(mesh, spec=P("data")):
    weights, x = data()
    return (jax.device_put(weights, NamedSharding(mesh, P())),
            jax.device_put(x, NamedSharding(mesh, spec)))


@pytest.mark.parametrize("form", FORMS)
def test_explicit_mesh(form):
    mesh = mesh_of(AxisType.Explicit)
    compare(FORMS[form], *spread(mesh), lambda: jax.set_mesh(mesh), P("data"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("context", [jax.set_mesh, lambda mesh: mesh, None],
                         ids=["set_mesh", "with", "none"])
@pytest.mark.filterwarnings("ignore:.with mesh. context manager:DeprecationWarning")
def test_auto_mesh(form, context):
    """How a value is spread is known to XLA's partitioner alone."""
    mesh = mesh_of(AxisType.Auto)
    compare(FORMS[form], *spread(mesh),
            lambda: context(mesh) if context else contextlib.nullcontext(), P("data"))


@pytest.mark.parametrize("spec", [P("data", "model"), P("data", None, "model"),
                                  P(None, "model")])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_mesh_of_two_axes(kind, spec):
    """A value may be spread over both, or over one and be on all devices of the other."""
    mesh = mesh_of(kind, (2, 2), ("data", "model"))
    x = jax.device_put(jnp.arange(4 * 8 * 16.).reshape(4, 8, 16), NamedSharding(mesh, spec))
    results = {}
    for name, wrap in wraps().items():
        f = wrap(lambda x: jnp.sin(jnp.sin(x)))

        def loss(weights, x):
            if kind == AxisType.Auto:
                x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))
            return weights * jnp.sum(f(x))
        results[name], put = run(jax.grad(loss, (0, 1)), jnp.float32(2), x,
                                 context=jax.set_mesh(mesh))
    own = x.sharding.shard_shape(x.shape)
    assert put == [4 * own[0] * own[1] * own[2]] * 4
    close(results["actmem"], results["stock"], 16)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_scalar(kind):
    """A value without dimensions is on all devices."""
    mesh = mesh_of(kind)
    x = jax.device_put(jnp.arange(32.).reshape(8, 4) / 8, NamedSharding(mesh, P("data")))
    results = {}
    for name, wrap in (("stock", jax.checkpoint), ("actmem", functools.partial(
            actmem.jax.checkpoint, min_bytes=0))):
        f = wrap(lambda x: x * checkpoint_name(jnp.sin(jnp.sum(x)), "sum"),
                 policy=jax.checkpoint_policies.save_only_these_names("sum"))
        with jax.set_mesh(mesh):
            results[name] = jax.block_until_ready(
                jax.jit(jax.grad(lambda x: jnp.sum(f(x) ** 2)))(x))
    assert (puts() > 0).all()
    close(results["actmem"], results["stock"], 16)


def test_eager():
    mesh = mesh_of(AxisType.Auto)
    weights, x = spread(mesh)
    gradients = {name: jax.grad(unrolled(wrap(layer)))(weights, x)
                 for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 64)


@pytest.mark.parametrize("form, order, kind", [
    (form, order, kind) for form in FORMS
    for order in ("grad of vmap", "vmap of grad")
    for kind in (AxisType.Explicit, AxisType.Auto)
    # JAX has the loop's tokens split twice over the same axis.
    if (form, order, kind) != ("scanned", "vmap of grad", AxisType.Explicit)])
def test_vmap_over_what_is_spread(form, order, kind):
    """A batch whose examples are on several devices: each puts its own."""
    mesh = mesh_of(kind)
    weights, x = data()
    weights = jax.device_put(weights, NamedSharding(mesh, P()))
    examples = jax.device_put(jnp.stack([x + i for i in range(DEVICES * 2)]),
                              NamedSharding(mesh, P("data")))
    over = {"in_axes": (None, 0)}
    if kind == AxisType.Auto:
        over["spmd_axis_name"] = "data"
    results = {}
    for name, wrap in wraps().items():
        loss = FORMS[form](wrap(layer))
        if order == "grad of vmap":
            each = jax.vmap(loss, **over)
            loss_of_all = jax.grad(lambda w, x: jnp.sum(each(w, x)), (0, 1))
        else:
            loss_of_all = jax.vmap(jax.grad(loss, (0, 1)), **over)
        results[name], put = run(loss_of_all, weights, examples,
                                 context=jax.set_mesh(mesh))
    assert put == [LAYERS * 4 * examples.nbytes // DEVICES] * DEVICES
    close(results["actmem"], results["stock"], 16)
    # As far as stock JAX is, too.
    close(results["actmem"], results["plain"], 1024)


@pytest.mark.parametrize("shape", [(DEVICES,), (2, 2)])
@pytest.mark.parametrize("chosen", [(0, 0, 0, 0), (1, 0, 1, 0), (1, 1, 1, 1)])
def test_a_batch_and_rows_over_the_same_devices(shape, chosen):
    """XLA may divide a value by its rows, and its tokens by the batch."""
    mesh = mesh_of(AxisType.Auto, shape, ("data", "model")[:len(shape)])
    x = jnp.arange(32.).reshape(8, 4) / 32
    w = jax.device_put(normal(0, 4, DEVICES, 4),
                       NamedSharding(mesh, P(None, "data")))
    n = jnp.array(chosen)

    def gradients_of(wrap):
        def constrained(x, w):
            return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))) * w[0]

        def loss(x, w, n):
            f = wrap(lambda x: jnp.sin(jnp.sin(x)))
            return jnp.sum(jax.lax.switch(
                n, [constrained, lambda x, w: f(jnp.sin(x @ w))], x, w) ** 2)
        return jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (None, 1, 0), 1))(x, w, n)
    with jax.set_mesh(mesh):
        close(gradients_of(lambda f: actmem.jax.checkpoint(
            f, policy=POLICY, offload_argnums=0, min_bytes=0)),
              gradients_of(lambda f: jax.checkpoint(f, policy=POLICY)), 16)


@pytest.mark.parametrize("batched", [False, True])
def test_eager_steps_compile_once(batched):
    _, x = spread(mesh_of(AxisType.Auto))
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), min_bytes=0,
                              offload_argnums=0)
    if batched:
        f = jax.vmap(f, in_axes=1)
    compiled = []

    def listen(name, _, **__):
        if name.endswith("backend_compile_duration"):
            compiled.append(name)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        counts = []
        for _ in range(3):
            jax.block_until_ready(jax.grad(lambda x: jnp.sum(f(x)))(x))
            counts.append(len(compiled))
        assert 0 < counts[0] and counts[1] == counts[2]
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_forward_and_backward_in_two_programs():
    mesh = mesh_of(AxisType.Explicit)
    weights, x = spread(mesh)

    def gradients_of(wrap):
        with jax.set_mesh(mesh):
            loss, pullback = jax.jit(lambda weights, x: jax.vjp(
                scanned(wrap(layer)), weights, x))(weights, x)
            return jax.jit(lambda pullback, ct: pullback(ct))(
                pullback, jnp.ones_like(loss))
    gradients = {name: gradients_of(wrap) for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 16)


def test_devices_that_tracing_does_not_see():
    """Shardings given to jit are known only when it compiles."""
    weights, x = data()
    mesh = mesh_of(AxisType.Auto)
    before = puts()
    gradients = {name: jax.jit(jax.grad(scanned(wrap(layer)), 1), in_shardings=(
        NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))))(weights, x)
        for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 16)
    assert list(puts() - before) == [LAYERS * 4 * x.nbytes // DEVICES] * DEVICES


@pytest.mark.parametrize("times", [1, 2])
def test_shard_map_of_one_axis_of_two(times):
    """XLA spreads values over the other one."""
    mesh = mesh_of(AxisType.Auto, (2, 2), ("data", "model"))
    x = jax.device_put(jnp.arange(64.).reshape(8, 8), NamedSharding(mesh, P("data", "model")))
    results = {}
    for name, wrap in wraps().items():
        f = jax.shard_map(wrap(lambda x: jnp.sin(jnp.sin(x))), mesh=mesh, in_specs=P("data"),
                          out_specs=P("data"), axis_names={"data"})

        def pulled(x):
            y, vjp = jax.vjp(f, x)
            return [vjp(y * i) for i in range(1, times + 1)]
        results[name], put = run(pulled, x, context=jax.set_mesh(mesh))
    assert put == [x.nbytes // 4] * 4
    close(results["actmem"], results["stock"], 16)


AN_ERROR_ON_ONE = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import actmem.jax
mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
f = actmem.jax.checkpoint(jnp.sin, offload_argnums=0, min_bytes=0)

@jax.jit
def step(x):
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("d")))
    y, pull = jax.vmap(lambda row: jax.vjp(f, row))(x)
    return jax.vmap(lambda pull, y: pull(y))(jax.tree.map(lambda kept: kept[::-1], pull), y)
step(jnp.ones((6, 8)))
"""


@pytest.mark.without_remat3("its vjp functions have no tokens")
def test_an_error_on_one_device_is_told():
    """XLA lets the other devices wait for it, and ends the process."""
    flags = "--xla_force_host_platform_device_count=4 " \
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=1 " \
        "--xla_cpu_collective_call_terminate_timeout_seconds=2"
    ended = subprocess.run([sys.executable, "-c", AN_ERROR_ON_ONE], capture_output=True,
                           check=False, text=True, timeout=300,
                           env={**os.environ, "XLA_FLAGS": flags,
                                "PYTHONPATH": ":".join(sys.path)})
    assert ended.returncode
    assert "needs it on CPU device" in ended.stderr and "one of several devices" in ended.stderr
