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


def wraps():
    return {"plain": lambda f: f,
            "stock": lambda f: jax.checkpoint(f, policy=POLICY),
            "actmem": lambda f: actmem.jax.checkpoint(
                f, policy=POLICY, offload_argnums=0, min_bytes=0)}


def compare(form, weights, x, context, spec):
    gradients = {}
    for name, wrap in wraps().items():
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
        results[name], text, put = train(loss, jnp.float32(2), x, jax.set_mesh(mesh))
        assert "all-gather" not in text, name
    own = x.sharding.shard_shape(x.shape)
    assert put == [4 * own[0] * own[1] * own[2]] * 4
    close(results["actmem"], results["stock"], 16)


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
        with jax.set_mesh(mesh):
            compiled = jax.jit(loss_of_all).lower(weights, examples).compile()
            before = per_device("put_bytes_total")
            results[name] = jax.block_until_ready(compiled(weights, examples))
        put = [after - was for after, was in
               zip(per_device("put_bytes_total"), before)]
        assert "all-gather" not in compiled.as_text(), name
    assert put == [LAYERS * 4 * examples.nbytes // DEVICES] * DEVICES
    close(results["actmem"], results["stock"], 16)
    # As far as stock JAX is, too.
    close(results["actmem"], results["plain"], 1024)


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


def test_devices_that_tracing_does_not_see():
    """Shardings given to jit are known only when it compiles."""
    weights, x = data()
    mesh = mesh_of(AxisType.Auto)
    before = per_device("put_bytes_total")
    gradients = {name: jax.jit(jax.grad(scanned(wrap(layer)), 1), in_shardings=(
        NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))))(weights, x)
        for name, wrap in wraps().items()}
    close(gradients["actmem"], gradients["stock"], 16)
    put = [after - was for after, was in zip(per_device("put_bytes_total"), before)]
    assert put == [LAYERS * 4 * x.nbytes // DEVICES] * DEVICES
