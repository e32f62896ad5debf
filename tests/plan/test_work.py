# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Names, and the work that a set of kept names leaves, against the jaxpr that JAX itself makes
with the policy that keeps them."""
import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name as name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from actmem.plan import _trace, machine, names, work
from programs import DECODER, PROGRAMS, dense, scanned, shape
from test_peak import sets_of


def step_of(program, kept):
    return program.make(jax.checkpoint_policies.save_only_these_names(*kept))


@pytest.mark.parametrize("which", PROGRAMS)
def test_products_are_counted_as_jax_has_them(which):
    program = PROGRAMS[which]()
    recomputing = work.Counted(_trace.graph_of(step_of(program, ()), *program.args))
    all_flops = set()
    for kept in sets_of(program.names)[:6]:
        real = work.Counted(_trace.graph_of(step_of(program, kept), *program.args))
        assert recomputing.total(kept).flops == real.total().flops, kept
        all_flops.add(real.total().flops["float32"])
    assert len(all_flops) > 1


def test_a_named_value_whose_derivative_needs_what_was_named():
    """tanh's derivative is of its result before it had the name, so that JAX computes the
    product again whether the name is kept or not."""
    def step(policy):
        def layer(x, w):
            return jnp.sin(name(jnp.tanh(x @ w), "hidden") @ w)
        return jax.value_and_grad(
            lambda w, x: jnp.sum(jax.checkpoint(layer, policy=policy)(x, w)))
    args = shape(8, 8), shape(4, 8)
    totals = []
    for kept in ((), ("hidden",)):
        policy = jax.checkpoint_policies.save_only_these_names(*kept)
        real = work.Counted(_trace.graph_of(step(policy), *args)).total()
        nothing = work.Counted(_trace.graph_of(step(
            jax.checkpoint_policies.save_only_these_names()), *args)).total(kept)
        assert nothing.flops == real.flops
        totals.append(real.flops["float32"])
    assert totals[0] == totals[1]


def test_flops_of_a_product_and_a_convolution():
    a, b = shape(3, 4, 5), shape(3, 5, 6)
    counted = work.Counted(_trace.graph_of(lambda a, b: a @ b, a, b))
    assert counted.total().flops == {"float32": 2 * 3 * 4 * 5 * 6}
    images, window = shape(2, 8, 8, 3), shape(3, 3, 3, 7)
    counted = work.Counted(_trace.graph_of(lambda x, w: jax.lax.conv_general_dilated(
        x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")), images, window))
    assert counted.total().flops == {"float32": 2 * (2 * 6 * 6 * 7) * 3 * 3 * 3}


def test_elements_that_cost_more_than_their_bytes():
    x = shape(8, 16, 32)

    def counted(function):
        found = work.Counted(_trace.graph_of(function, x)).total()
        return found.costly, found.strided
    size = 8 * 16 * 32
    assert counted(lambda x: x * 2 + x) == (0, 0)
    assert counted(lambda x: jnp.exp(x) * jnp.tanh(x)) == (2 * size, 0)
    # A copy goes by blocks; in a computation it is read element by element, unless
    # neighbours stay neighbours.
    assert counted(lambda x: jnp.transpose(x, (0, 2, 1))) == (0, 0)
    assert counted(lambda x: jnp.transpose(x, (0, 2, 1)) * 2) == (0, size)
    assert counted(lambda x: jnp.transpose(x, (1, 0, 2)) * 2) == (0, 0)
    rates = machine.of("test", hbm_bandwidth=1e12, memory_efficiency=1, transcendentals=1e9,
                       strided=1e8)
    assert rates.seconds(work.Work(moved=1e3, costly=100, strided=1)) == 1e-7
    assert rates.seconds(work.Work(moved=1e3, costly=100, strided=100)) == 1e-6


def test_names_of_scanned_layers():
    program = dense(scanned, 5)
    loss = program.make(None).__wrapped__
    inputs = len(jax.tree.leaves(program.args))
    found = names.find(_trace.graph_of(loss, *program.args), [inputs - 1])
    assert [each.name for each in found] == list(DECODER)
    sizes = {each.name: (each.bytes, each.count, each.shape) for each in found}
    assert sizes["mlpwi_0"] == (5 * 4 * 128 * 352 * 4, 5, (4, 128, 352))
    assert sizes["key_proj"][:2] == (5 * 4 * 128 * 64 * 4, 5)


def test_bytes_and_work_are_those_of_a_device():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.sharding.set_mesh(mesh):
        split = _trace.graph_of(lambda w, x: name(jnp.sin(x) @ w, "y"), shape(8, 16),
                                jax.ShapeDtypeStruct((32, 8), jnp.float32,
                                                     sharding=NamedSharding(mesh, P("data"))))
    found, = names.find(split, [1])
    assert (found.bytes, found.shape) == (8 * 16 * 4, (8, 16))
    assert work.Counted(split).total().flops == {"float32": 2 * 8 * 16 * 8}


def test_weights_are_no_candidates():
    def loss(w, x):
        return jnp.sum(name(x @ name(w * 2, "weight"), "product"))
    found = names.find(_trace.graph_of(loss, shape(8, 8), shape(4, 8)), [1])
    assert [each.name for each in found] == ["product"]


def test_products_are_proposed():
    def loss(w, x):
        return jnp.sum(jnp.sin(x @ w) @ w)
    graph = _trace.graph_of(loss, shape(256, 256), shape(256, 256))
    assert names.find(graph, [1]) == []
    first, = names.propose(graph, [1])
    assert first.place.startswith("test_work.py:") and first.bytes == 2 * 256 * 256 * 4


def test_collectives_by_bytes_and_axis():
    mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
    f = jax.shard_map(lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"),
                      out_specs=P())
    total = work.Counted(_trace.graph_of(f, shape(8, 16))).total()
    assert sum(total.collectives.values()) == 2 * 16 * 4
    assert "data" in str(total.collectives)
