# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Bytes, work and memory are those of one device of a mesh, as XLA's partitioner makes them."""
import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name as name
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from actmem.plan import _trace, machine, memory, names, plan, plan_key, work
from programs import (decoder_layer, decoder_weights, language_loss, language_params, scanned,
                      shape, tokens_of, unrolled)
from test_search import MACHINE

HERE = MACHINE.replace(interconnect=1e10, link_out_all=1e10, link_in_all=1e10)


def mesh_of(**sizes):
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes),
                         axis_types=(AxisType.Auto,) * len(sizes))


def divided(tree, mesh, spec_of):
    def one(path, leaf):
        key = path[-1].key if path else ""
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(
            mesh, spec_of(key, leaf)))
    return jax.tree_util.tree_map_with_path(one, tree)


def tensor_parallel(key, leaf):
    if key in ("q", "k", "v", "gate", "up"):
        return P(None, None, "model")
    if key in ("o", "down"):
        return P(None, "model")
    return P()


def fully_sharded(key, leaf):
    return P(None, "data") if leaf.ndim == 3 else P("data") if key == "table" else P()


def decoder_on(mesh, spec_of, stack=scanned):
    params = language_params(decoder_weights(2, 128, 352), 128)
    return (language_loss(stack, decoder_layer, None), divided(params, mesh, spec_of),
            divided(tokens_of(4, 128), mesh, lambda key, leaf: P("data")))


CASES = {"data": (dict(data=4), lambda key, leaf: P()),
         "data and model": (dict(data=2, model=2), tensor_parallel),
         "fully sharded": (dict(data=4), fully_sharded)}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_that_of_a_device(case):
    sizes, spec_of = CASES[case]
    loss, *args = decoder_on(mesh_of(**sizes), spec_of)
    program = _trace.Program(loss, tuple(args))
    policy = jax.checkpoint_policies.save_only_these_names("mlpwi_0", "query_proj")
    foreseen = memory.foresee(program.graph(policy), 0, memory.CPU)
    real = program.compiled(policy, jax.tree.leaves(args)).memory_analysis()
    assert foreseen.arguments == real.argument_size_in_bytes
    if case == "fully sharded":
        # XLA gathers the weights of all layers at once on CPUs, and of one elsewhere.
        gathered = sum(leaf.size * 4 for leaf in jax.tree.leaves(args[0]) if leaf.ndim == 3)
        assert foreseen.temporary < real.temp_size_in_bytes < foreseen.temporary + 1.1 * gathered
        return
    total = real.argument_size_in_bytes + real.output_size_in_bytes + real.temp_size_in_bytes
    assert foreseen.peak == pytest.approx(total, rel=0.2)


@pytest.mark.parametrize("stack", [scanned, unrolled])
def test_names_are_divided(stack):
    loss, *args = decoder_on(mesh_of(data=2, model=2), tensor_parallel, stack)
    program = _trace.Program(loss, tuple(args))
    found = {each.name: each.bytes for each in names.find(program.written(), program.batch)}
    rows = 2 * 2 * 128 * 4          # layers, sequences and tokens of a device, bytes
    assert found["layer_input"] == rows * 128 and found["out_proj"] == rows * 128
    assert found["mlpwi_0"] == found["mlpwi_1"] == rows * 352 // 2
    assert found["query_proj"] == found["context"] == rows * 128 // 2
    assert found["key_proj"] == rows * 64 // 2


def test_the_work_is_divided_and_devices_send_sums():
    loss, *args = decoder_on(mesh_of(data=1), lambda key, leaf: P())
    whole = _trace.Program(loss, tuple(args))
    nothing = jax.checkpoint_policies.nothing_saveable
    flops = work.Counted(whole.graph(nothing)).total().flops["float32"]
    for sizes, spec_of in CASES.values():
        loss, *args = decoder_on(mesh_of(**sizes), spec_of)
        found = work.Counted(_trace.Program(loss, tuple(args)).graph(nothing)).total()
        # Each device makes all of its tokens' logits.
        assert flops / 4 <= found.flops["float32"] <= 1.2 * flops / 4
        assert set(found.collectives) == set(sizes)


def product(w, x):
    return jnp.sum(jnp.sin(name(x @ w, "y")) @ w)


def collectives(w_spec, x_spec, **sizes):
    mesh = mesh_of(**sizes)
    args = (jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, w_spec)),
            jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, x_spec)))
    graph = _trace.Program(lambda w, x: jnp.sum(jnp.sin(x @ w)), args).written()
    return work.Counted(graph).total().collectives


def test_collectives_of_a_product():
    # Sums over what is divided are added up, of each row of the result.
    assert collectives(P("a"), P(None, "a"), a=4) == {"a": 2 * 32 * 64 * 4 * 3 // 4}
    # Weights that are divided as the rows are, are gathered.
    assert collectives(P("a"), P("a"), a=4) == {"a": 64 * 64 * 4 * 3 // 4}
    assert not collectives(P(), P("a"), a=4)
    assert not collectives(P(None, "a"), P(), a=4)


def test_constraints_and_what_is_said_of_names():
    mesh = mesh_of(data=4)

    def constrained(w, x):
        return product(w, jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))))
    args = shape(64, 64), shape(32, 64)
    for function, options in ((constrained, {}), (product, {
            "mesh": mesh, "specs": {"y": P("data")}})):
        row, = plan(function, *args, machine=HERE, **options).names
        assert row.bytes == 32 * 64 * 4 // 4
    row, = plan(product, *args, machine=HERE, mesh=mesh).names
    assert row.bytes == 32 * 64 * 4


def test_a_plan_is_of_a_mesh():
    args = shape(64, 64), shape(32, 64)
    keys = [plan_key(product, *args, machine=HERE)["jaxpr"]]
    for count in (1, 2, 4):
        mesh = jax.make_mesh((count,), ("data",), axis_types=(AxisType.Auto,),
                             devices=jax.devices()[:count])
        keys.append(plan_key(product, *args, machine=HERE, mesh=mesh)["jaxpr"])
        specs = {"y": P("data")}
        keys.append(plan_key(product, *args, machine=HERE, mesh=mesh, specs=specs)["jaxpr"])
        assert plan(product, *args, machine=HERE, mesh=mesh, specs=specs).key["jaxpr"] == keys[-1]
        divided_x = jax.ShapeDtypeStruct(
            (32, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
        if count > 1:
            keys.append(plan_key(product, args[0], divided_x, machine=HERE)["jaxpr"])
    assert len(set(keys)) == len(keys)


def test_a_mesh_is_set_outside_of_the_function():
    w, x = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 64), (32, 64)))
    mesh = mesh_of(data=4)

    def loss(w, x):
        with jax.set_mesh(mesh):
            return product(w, x)
    with pytest.raises(ValueError, match="loss calls jax.set_mesh, .* before actmem.jax.plan"):
        plan(loss, w, x, machine=HERE)
    with jax.set_mesh(mesh):
        row, = plan(product, w, x, machine=HERE).names
    assert row.bytes == 32 * 64 * 4


def test_the_devices_of_a_mesh_share_the_host():
    mesh = mesh_of(data=4)
    options = {"mesh": mesh, "specs": {"y": P("data")}}
    args = shape(64, 64), shape(32, 64)
    assert plan(product, *args, machine=HERE, **options).devices == 4
    assert plan(product, *args, machine=HERE.replace(devices=2), **options).devices == 2
    assert plan(product, *args, machine=HERE, devices=1, **options).devices == 1
    assert plan(product, *args, machine=HERE).devices == 1


def test_a_mesh_that_does_not_divide():
    mesh = mesh_of(data=4)
    args = shape(64, 64), shape(30, 64)
    with pytest.raises(ValueError, match="the mesh does not divide 'y': its dimension 0 is 30, "
                                         "but data is 4"):
        plan(product, *args, machine=HERE, mesh=mesh, specs={"y": P("data")})
    with pytest.raises(ValueError, match="the sharding of 'y' names the axis 'model', but the mesh "
                                         "has only data"):
        plan(product, *args, machine=HERE, mesh=mesh, specs={"y": P("model")})
    with pytest.raises(ValueError, match="pass mesh="):
        plan(product, *args, machine=HERE, specs={"y": P("data")})
    odd = jax.ShapeDtypeStruct((30, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    with pytest.raises(ValueError, match=r"the mesh does not divide argument \[1\]: its "
                                         "dimension 0 is 30, but data is 4"):
        plan(product, shape(64, 64), odd, machine=HERE)
    with pytest.raises(machine.MachineError, match="'test' has no figure 'interconnect'"):
        plan(*decoder_on(mesh, fully_sharded), machine=MACHINE.replace(
            link_out_all=1e10, link_in_all=1e10))
