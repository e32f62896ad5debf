# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""On several devices each keeps its own shard, and nothing is gathered."""
import contextlib

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import actmem.jax
from models import FORMS, LAYERS, POLICY, close, data, layer, scanned, unrolled

DEVICES = 4


def mesh_of(kind, shape=(DEVICES,), names=("data",)):
    return jax.make_mesh(shape, names, axis_types=(kind,) * len(shape))


def per_device(name):
    return [device[name] for device in actmem.jax.stats()["devices"].values()]


def train(loss, weights, x, context):
    """The gradients, the compiled text and what each device put."""
    with context:
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(weights, x).compile()
        before = per_device("put_bytes_total")
        gradients = jax.block_until_ready(compiled(weights, x))
    put = [after - was for after, was in
           zip(per_device("put_bytes_total"), before)]
    return gradients, compiled.as_text(), put


def wraps(**options):
    return {"plain": lambda f: f,
            "stock": lambda f: jax.checkpoint(f, policy=POLICY),
            "actmem": lambda f: actmem.jax.checkpoint(
                f, policy=POLICY, offload_argnums=0, min_bytes=0, **options)}


def compare(form, weights, x, context, spec, **options):
    gradients = {}
    for name, wrap in wraps(**options).items():
        gradients[name], text, put = train(form(wrap(layer)), weights, x,
                                           context())
        assert "all-gather" not in text, name
        assert gradients[name][1].sharding.is_equivalent_to(
            NamedSharding(x.sharding.mesh, spec), x.ndim)
    assert put == [LAYERS * 4 * x.nbytes // DEVICES] * DEVICES
    assert "actmem_put" in text
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
@pytest.mark.parametrize("context", [jax.set_mesh, None])
def test_auto_mesh_with_sharding(form, context):
    mesh = mesh_of(AxisType.Auto)
    compare(FORMS[form], *spread(mesh),
            lambda: context(mesh) if context else contextlib.nullcontext(),
            P("data"), sharding=NamedSharding(mesh, P("data")))


def test_sharding_by_function():
    mesh = mesh_of(AxisType.Auto)
    seen = []

    def sharding(aval):
        seen.append(aval.shape)
        return NamedSharding(mesh, P("data", None, None))
    weights, x = spread(mesh)
    compare(unrolled, weights, x, contextlib.nullcontext, P("data"),
            sharding=sharding)
    assert set(seen) == {x.shape}


def test_two_axes():
    """Batch and width are split; each device has a quarter all the same."""
    mesh = mesh_of(AxisType.Explicit, (2, 2), ("data", "model"))
    x = jax.device_put(jnp.ones((4, 16, 32)) * jnp.arange(32.),
                       NamedSharding(mesh, P("data", None, "model")))
    gradients = {}
    for name, wrap in wraps().items():
        f = wrap(lambda x: jnp.sin(jnp.sin(x)))
        with jax.set_mesh(mesh):
            before = per_device("put_bytes_total")
            gradients[name] = jax.block_until_ready(
                jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(x))
        put = [after - was for after, was in
               zip(per_device("put_bytes_total"), before)]
    assert put == [x.nbytes // 4] * 4
    close(gradients["actmem"], gradients["stock"], 16)


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
    options = {}
    if kind == AxisType.Auto:
        over["spmd_axis_name"] = "data"
        options["sharding"] = NamedSharding(mesh, P())
    results = {}
    for name, wrap in wraps(**options).items():
        loss = FORMS[form](wrap(layer))
        if order == "grad of vmap":
            each = jax.vmap(loss, **over)
            loss_of_all = jax.grad(lambda w, x: jnp.sum(each(w, x)), (0, 1))
        else:
            loss_of_all = jax.vmap(jax.grad(loss, (0, 1)), **over)
        with jax.set_mesh(mesh):
            compiled = jax.jit(loss_of_all).lower(weights, examples).compile()
            before = per_device("put_bytes_total")
            results[name] = jax.block_until_ready(compiled(weights, examples))
        put = [after - was for after, was in
               zip(per_device("put_bytes_total"), before)]
        assert "all-gather" not in compiled.as_text(), name
    assert put == [LAYERS * 4 * examples.nbytes // DEVICES] * DEVICES
    close(results["actmem"], results["stock"], 16)
    close(results["actmem"], results["plain"], 256)


def test_devices_that_only_sharding_names():
    """The arguments are anywhere: sharding= tells what devices it runs on."""
    mesh = mesh_of(AxisType.Auto)
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), min_bytes=0,
                              offload_argnums=0,
                              sharding=NamedSharding(mesh, P("data")))
    before = per_device("put_bytes_total")
    got = jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(jnp.arange(32.))
    jax.block_until_ready(got)
    put = [after - was for after, was in
           zip(per_device("put_bytes_total"), before)]
    assert put == [32 * 4 // DEVICES] * DEVICES
    wanted = jax.grad(lambda x: jnp.sum(jnp.sin(jnp.sin(x))))(jnp.arange(32.))
    close(got, wanted, 16)


@pytest.mark.parametrize("batched", [False, True])
def test_eager_steps_compile_once(batched):
    _, x = spread(mesh_of(AxisType.Auto))
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), min_bytes=0,
                              offload_argnums=0,
                              sharding=NamedSharding(x.sharding.mesh, P("data")))
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


def test_inside_shard_map():
    mesh = mesh_of(AxisType.Auto)
    weights, x = spread(mesh)

    def run(wrap):
        def local(weights, x):
            return scanned(wrap(layer))(weights, x)[None]
        return jax.jit(jax.grad(lambda weights, x: jnp.mean(jax.shard_map(
            local, mesh=mesh, in_specs=(P(), P("data")),
            out_specs=P("data"))(weights, x))))(weights, x)
    gradients = {name: run(wrap) for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 16)


def test_forward_and_backward_in_two_programs():
    mesh = mesh_of(AxisType.Explicit)
    weights, x = spread(mesh)

    def run(wrap):
        with jax.set_mesh(mesh):
            loss, pullback = jax.jit(lambda weights, x: jax.vjp(
                scanned(wrap(layer)), weights, x))(weights, x)
            return jax.jit(lambda pullback, ct: pullback(ct))(
                pullback, jnp.ones_like(loss))
    gradients = {name: run(wrap) for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 16)


def test_auto_mesh_without_sharding_is_refused():
    mesh = mesh_of(AxisType.Auto)
    weights, x = spread(mesh)
    f = wraps()["actmem"](layer)
    with pytest.raises(ValueError, match=r"layer \(models.py:\d+\).* 4 devices "
                                         r"has axes of type Auto.*sharding="):
        jax.jit(jax.grad(scanned(f)))(weights, x)


def test_devices_that_tracing_does_not_see_are_refused():
    """Shardings given to jit are known only when it compiles."""
    weights, x = data()
    mesh = mesh_of(AxisType.Auto)
    f = wraps()["actmem"](layer)
    jitted = jax.jit(jax.grad(scanned(f), 1), in_shardings=(
        NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))))
    with pytest.raises(ValueError, match="4 devices.*sharding="):
        jitted(weights, x)


def test_a_sharding_that_does_not_fit_is_refused():
    mesh = mesh_of(AxisType.Auto)
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), min_bytes=0,
                              offload_argnums=0,
                              sharding=NamedSharding(mesh, P("data")))
    with pytest.raises(ValueError, match=r"shape \(6,\) cannot be spread as"):
        jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(jnp.ones(6))
    f = actmem.jax.checkpoint(jnp.sin, min_bytes=0, offload_argnums=0,
                              sharding=P("data"))
    with pytest.raises(ValueError, match="no jax.sharding.NamedSharding"):
        jax.jit(jax.grad(lambda x: jnp.sum(f(x))))(jnp.ones(8))
