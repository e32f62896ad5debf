# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The graphs that _saving.py makes, compared with those of traces by JAX: the memory must be the
same. The sets of saved names are random, with a fixed seed."""
import random

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name as name

import programs
from actmem.plan import _saving, _trace, decoder, memory, models, names
from test_mesh import CASES, decoder_on, mesh_of

COMPILERS = {"GPU": memory.GPU, "TPU": memory.TPU, "CPU": memory.CPU, "plain": memory.PLAIN}


def trace(program, saved):
    return program.graph(jax.checkpoint_policies.save_only_these_names(*saved))


def compare(program, saved, made):
    traced = trace(program, saved)
    for which, compiler in COMPILERS.items():
        assert memory.foresee(made, compiler=compiler) == \
            memory.foresee(traced, compiler=compiler), (which, saved)


def random_sets(found, count, seed):
    rng = random.Random(seed)
    return [sorted(rng.sample(found, rng.randint(1, len(found)))) for _ in range(count)]


@pytest.mark.parametrize("which", programs.PROGRAMS)
def test_programs(which):
    made = programs.PROGRAMS[which]()
    program = _trace.Program(made.make(None), made.args)
    recomputing = program.graph_saving()
    before = memory.foresee(recomputing)
    for saved in random_sets(list(made.names), 4, which):
        compare(program, saved, _saving.saving(recomputing, saved))
    # The graph itself did not change.
    assert memory.foresee(recomputing) == before


@pytest.mark.parametrize("stack", [programs.scanned, programs.unrolled])
@pytest.mark.parametrize("case", CASES)
def test_on_a_mesh(case, stack):
    sizes, spec_of = CASES[case]
    loss, *args = decoder_on(mesh_of(**sizes), spec_of, stack)
    program = _trace.Program(loss, tuple(args))
    for saved in random_sets(programs.DECODER, 3, case):
        compare(program, saved, _saving.saving(program.graph_saving(), saved))


# Layers of one kind and of several; a value with two names; experts, whose names occur twice in a
# layer; low-rank projections; a vision tower.
@pytest.mark.parametrize("which", ["gemma-4-31b", "deepseek-v3", "paligemma2-3b"])
def test_models(which):
    step = decoder.step(models.find(which), batch=1, tokens=256)
    program = _trace.Program(step.loss, (step.trained, step.frozen, step.batch), frozen=1)
    found = [each.name for each in names.find(program.written(), program.batch)]
    for saved in random_sets(found, 3, which):
        compare(program, saved, _saving.saving(program.graph_saving(), saved))


def test_a_name_inside_of_an_inner_loop_is_traced():
    def layer(x, w):
        def inner(y, _):
            return name(jnp.sin(y @ w), "inner"), None
        y = name(x @ w, "outer")
        return jax.lax.scan(inner, y, length=3)[0]

    def loss(weights, x):
        return jnp.sum(programs.scanned(layer, None, x, weights))
    program = _trace.Program(loss, (programs.shape(4, 64, 64), programs.shape(8, 64)))
    with pytest.raises(_saving.Unmatched):
        _saving.saving(program.graph_saving(), ["inner"])
    for saved in (["inner"], ["outer"], ["inner", "outer"]):
        compare(program, saved, program.graph_saving(saved))


def test_a_recomputation_that_is_merged_is_traced():
    """Without prevent_cse, XLA merges the recomputation of unrolled layers with the forward pass."""
    def loss(weights, x):
        layer = jax.checkpoint(lambda x, w: jnp.sin(name(x @ w, "made")), prevent_cse=False)
        for w in weights:
            x = layer(x, w)
        return jnp.sum(x)
    program = _trace.Program(loss, ([programs.shape(64, 64)] * 3, programs.shape(8, 64)))
    with pytest.raises(_saving.Unmatched):
        _saving.saving(program.graph_saving(), ["made"])
    compare(program, ["made"], program.graph_saving(["made"]))


def test_nested_checkpoints_are_traced():
    def layer(x, w):
        y = jax.checkpoint(lambda x, w: name(jnp.tanh(x), "made"))(x, w)
        return name(jax.checkpoint(lambda x, w: jnp.sin(x))(y, w), "made")

    def loss(weights, x):
        return jnp.mean(jnp.sin(programs.scanned(layer, None, x, weights[0]) @ weights[1]))
    program = _trace.Program(loss, ((programs.shape(3, 32, 32), programs.shape(32, 32)),
                                    programs.shape(16, 32)))
    compare(program, ["made"], program.graph_saving(["made"]))


def test_a_name_in_a_custom_jvp_function_saves_nothing():
    @jax.custom_jvp
    def act(x):
        return name(jnp.tanh(x), "act")

    @act.defjvp
    def _(primals, tangents):
        y = act(*primals)
        return y, (1 - y * y) * tangents[0]

    def loss(weights, x):
        return jnp.mean(programs.scanned(lambda x, w: act(x @ w), None, x, weights))
    program = _trace.Program(loss, (programs.shape(6, 64, 64), programs.shape(256, 64)))
    compare(program, ["act"], program.graph_saving(["act"]))


def in_layers(layer):
    def loss(weights, x):
        return jnp.mean(jnp.sin(programs.scanned(layer, None, x, weights)))
    return loss, (programs.shape(3, 32, 32), programs.shape(16, 32))


def checkpointed(body):
    return jax.checkpoint(body, prevent_cse=False)


def returned_by_the_scan():
    """A scan that returns a named value, as a program does to record activations."""
    def loss(weights, x):
        def layer(x, w):
            y = name(jnp.tanh(x @ w), "made")
            return jnp.sin(y) @ w, y
        x, recorded = jax.lax.scan(checkpointed(layer), x, weights)
        return jnp.mean(x * x) + jnp.mean(recorded)
    return loss, (programs.shape(3, 32, 32), programs.shape(16, 32))


def read_by_other_layers():
    """A U-Net, whose second half gives the results of the first half the same name."""
    def loss(weights, x):
        def down(x, w):
            y = name(jnp.tanh(x @ w), "made")
            return jnp.sin(y), jnp.cos(y)

        def up(x, given):
            w, y = given
            return x + jnp.sin(name(jnp.tanh(y @ w), "made")), None
        x, skipped = jax.lax.scan(checkpointed(down), x, weights[0])
        x, _ = jax.lax.scan(checkpointed(up), x, (weights[1], skipped), reverse=True)
        return jnp.mean(x * x)
    return loss, ((programs.shape(3, 32, 32), programs.shape(3, 32, 32)), programs.shape(16, 32))


def one_result_of_a_cond():
    def layer(x, w):
        def branch(x):
            return jnp.sin(x @ w), jnp.tanh(x @ w.T)
        y, z = jax.lax.cond(jnp.sum(x) > 0, branch, lambda x: (x, x * 2), x)
        return jnp.sin(name(y, "made") * jnp.cos(z)) @ w
    return in_layers(layer)


def one_result_of_an_inner_loop():
    def layer(x, w):
        def inner(carried, _):
            y, z = carried
            return (jnp.sin(y @ w), jnp.tanh(z @ w.T)), None
        (y, z), _ = jax.lax.scan(inner, (x, x), length=3)
        return jnp.sin(name(y, "made") * jnp.cos(z)) @ w
    return in_layers(layer)


def named_twice():
    def loss(weights, x):
        for w in weights:
            def layer(x, w=w):
                y = jnp.tanh(x @ w)
                return (name(y, "made") + jnp.sin(name(y, "made"))) @ w
            x = jax.checkpoint(layer)(x)
        return jnp.mean(x * x)
    return loss, ([programs.shape(32, 32)] * 3, programs.shape(16, 32))


@pytest.mark.parametrize("make", [returned_by_the_scan, read_by_other_layers, one_result_of_a_cond,
                                  one_result_of_an_inner_loop, named_twice])
def test_what_jax_saves_or_removes_in_other_ways_is_traced(make):
    program = _trace.Program(*make())
    with pytest.raises(_saving.Unmatched):
        _saving.saving(program.graph_saving(), ["made"])
    compare(program, ["made"], program.graph_saving(["made"]))
