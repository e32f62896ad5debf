# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""report() and the warnings tell what the policies of a step do, and stats() what the
memory is."""
import contextlib
import os
import re
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import actmem
import actmem.jax
from models import REMAT3

TURNS, BATCH, WIDTH = 3, 4, 256
ONE = BATCH * WIDTH * 4
POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["b", "nobody"], names_which_can_be_offloaded=["a"],
    offload_src="device", offload_dst="actmem")


def layer(w, x):
    a = checkpoint_name(x @ w, "a")
    b = checkpoint_name(jnp.sin(a) @ w, "b")
    c = checkpoint_name(jnp.sin(b) @ w, "c")
    return jnp.sin(c)


def step_of(wrapped):
    def loss(weights, x):
        x, _ = jax.lax.scan(lambda x, w: (wrapped(w, x), None), x, weights)
        return jnp.sum(checkpoint_name(x, "of no checkpoint") ** 2)
    return jax.value_and_grad(loss)


def data():
    return jnp.ones((TURNS, WIDTH, WIDTH)) / WIDTH, jnp.ones((BATCH, WIDTH))


def quietly(step, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return actmem.jax.report(step, *args)


def shown(report):
    return {row.name: (row.goes, row.device_bytes, row.times) for row in report.rows}


EXPECTED = {"a": ("actmem", ONE, TURNS), "b": ("device", ONE, TURNS),
            "c": ("recomputed", ONE, TURNS)}


@pytest.mark.parametrize("is_jitted", [False, True])
def test_where_each_value_goes(is_jitted):
    step = step_of(jax.checkpoint(layer, policy=POLICY))
    step = jax.jit(step) if is_jitted else step
    puts = actmem.jax.stats()["puts_total"]
    for _ in range(2):          # the second time it is traced already
        with pytest.warns(UserWarning, match="names that no value has: 'nobody'"):
            report = actmem.jax.report(step, *data())
        assert shown(report) == EXPECTED
        assert report.unknown == ("nobody",)
    assert actmem.jax.stats()["puts_total"] == puts, "the step has run"
    line = layer.__code__.co_firstlineno + 1
    row = report.rows[[row.name for row in report.rows].index("a")]
    assert row.line.startswith(f"test_report.py:{line}")
    assert (row.shape, row.dtype) == ((BATCH, WIDTH), "float32")
    assert report.device_bytes("actmem") == TURNS * ONE
    assert report.temp_bytes > 0
    words = str(report)
    assert "12.0 KiB  actmem" in words and "that no value has: nobody" in words


def test_what_argnums_and_min_bytes_do():
    policy = jax.checkpoint_policies.save_only_these_names("a", "b")
    for min_bytes, goes in ((ONE, "actmem"), (ONE + 1, "device")):
        wrapped = actmem.jax.checkpoint(layer, policy=policy, offload_argnums=1,
                                        min_bytes=min_bytes)
        told = shown(quietly(step_of(wrapped), *data()))
        assert {name: row[0] for name, row in told.items() if name in "abc"} == \
            {"a": goes, "b": goes, "c": "recomputed"}
        argument, = set(told) - set("abc")
        assert argument.startswith("argument 1 of layer")
        assert told[argument] == (goes, ONE, TURNS)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_bytes_are_of_a_device(kind):
    mesh = jax.make_mesh((4,), ("data",), axis_types=(kind,))
    weights, x = data()
    weights = jax.device_put(weights, NamedSharding(mesh, P()))
    x = jax.device_put(x, NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh):
        told = shown(quietly(step_of(jax.checkpoint(layer, policy=POLICY)), weights, x))
    assert told["a"] == ("actmem", ONE // 4, TURNS)
    known = ONE // 4 if kind is AxisType.Explicit else None
    assert told["b"] == ("device", known, TURNS)


def offload(*names, to):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["b"], names_which_can_be_offloaded=names,
        offload_src="device", offload_dst=to)


def carrying(w, x):
    x = checkpoint_name(x, "input")
    a = checkpoint_name(x @ w, "a")
    b = checkpoint_name(jnp.sin(a) @ w, "b")
    c = checkpoint_name(jnp.sin(b) @ w, "c")
    return checkpoint_name(x + checkpoint_name(jnp.sin(c) + 1, "sum"), "carry")


@pytest.mark.parametrize("is_patched", [False, True])
def test_what_is_not_put_and_what_stock_jax_does(is_patched):
    """A value that is offloaded and not needed has a row, and what a scan keeps is not
    recomputed."""
    policy = offload("a", "sum", to="pinned_host")
    step = step_of(jax.checkpoint(carrying, policy=policy) if is_patched else
                   actmem.jax.checkpoint(carrying, policy=policy, min_bytes=0))
    with actmem.jax.patch() if is_patched else contextlib.nullcontext():
        told = quietly(step, *data())
    goes = {row.name: (row.goes, row.stock, row.times) for row in told.rows}
    assert goes == {"a": ("actmem", "pinned_host", TURNS), "b": ("device", "device", TURNS),
                    "c": ("recomputed", "recomputed", TURNS),
                    "sum": ("unneeded", "unneeded", TURNS),
                    "input": ("carried", "carried", TURNS),
                    "carry": ("carried", "carried", TURNS)}
    words = str(told)
    assert re.search("actmem +pinned_host\n", words) and "unneeded: " not in words
    assert not told.unknown


def test_what_stock_jax_does_with_other_values():
    names = jax.checkpoint_policies.save_only_these_names("a", "b")
    wrapped = actmem.jax.checkpoint(layer, policy=names, offload_argnums=1)
    stock = {row.name: row.stock for row in quietly(step_of(wrapped), *data()).rows}
    assert {stock.pop(name) for name in list(stock) if name.startswith("argument")} == {"device"}
    assert stock == {"a": "device", "b": "device", "c": "recomputed"}
    # No memory of JAX's is called actmem.
    wrapped = jax.checkpoint(layer, policy=POLICY)
    told = quietly(step_of(wrapped), *data())
    assert {row.name: row.stock for row in told.rows} == {
        "a": None, "b": "device", "c": "recomputed"}
    dots = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    told = quietly(step_of(actmem.jax.checkpoint(layer, policy=dots)), *data())
    assert {row.stock for row in told.rows if row.name == "dot_general"} == {"device"}


@pytest.mark.without_remat3     # whose recomputations do not show their inputs
def test_an_input_of_layers_in_a_loop():
    wrapped = jax.checkpoint(carrying, policy=POLICY)

    def loss(weights, x):
        for w in weights:
            x = wrapped(w, x)
        return jnp.sum(x)
    told = quietly(jax.grad(loss), *data())
    carried = {(row.name, row.times) for row in told.rows if row.goes == "carried"}
    assert carried == {("input", TURNS), ("carry", TURNS - 1)}


def test_a_loop_of_unknown_turns():
    wrapped = jax.checkpoint(layer, policy=POLICY)

    def step(weights, x):
        def turn(state):
            i, x = state
            return i + 1, x - jax.grad(lambda x: jnp.sum(wrapped(weights[0], x)))(x)
        return jax.lax.while_loop(lambda state: state[0] < 3, turn, (0, x))[1]
    told = quietly(step, *data())
    assert shown(told)["a"] == ("actmem", ONE, None)
    assert told.device_bytes("actmem") == 0


def test_nothing_to_report():
    report = actmem.jax.report(lambda x: x + 1, jnp.ones(3))
    assert not report.rows and not report.unknown
    assert "asked no policy" in str(report)
    with pytest.raises(TypeError, match="needs a function"):
        actmem.jax.report(3)


def idle(policy, wrap, step=lambda f, *args: jax.jit(step_of(f))(*args)):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.block_until_ready(step(wrap(layer, policy=policy), *data()))
    return [str(each.message) for each in caught if "policy" in str(each.message)]


def test_a_policy_whose_names_nobody_has():
    names = jax.checkpoint_policies.save_only_these_names
    said, = idle(names("query"), actmem.jax.checkpoint)
    assert "'query'" in said and "'a', 'b', 'c'" in said
    assert not idle(names("query"), jax.checkpoint), "it is not actmem's business"
    assert not idle(names("query", "a"), actmem.jax.checkpoint), "some are there"
    assert not idle(None, actmem.jax.checkpoint), "it names nothing"

    def offload(name, there="pinned_host"):
        return jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=[name],
            offload_src="device", offload_dst=there)
    assert not idle(offload("key"), jax.checkpoint), "it goes to JAX's own memory"
    assert idle(offload("key", "actmem"), jax.checkpoint)
    with actmem.jax.patch():
        assert idle(offload("value"), jax.checkpoint)


def test_a_policy_outside_of_jit():
    def eagerly(f, weights, x):
        jax.clear_caches()      # programs of the next values are compiled, and so whole
        return jax.grad(lambda x: jnp.sum(f(weights[0], x)))(x)
    names = jax.checkpoint_policies.save_only_these_names
    assert not idle(names("a", "c"), actmem.jax.checkpoint, eagerly)
    assert bool(idle(names("query", "key"), actmem.jax.checkpoint, eagerly)) != REMAT3


PROGRAM = """
import sys
sys.path[:0] = {path!r}
import conftest, jax, actmem.jax
import test_report as t
step = jax.jit(t.step_of(jax.checkpoint(t.layer, policy=t.POLICY)))
for _ in range(2):
    jax.block_until_ready(step(*t.data()))
"""


@pytest.mark.parametrize("is_wanted", [False, True])
def test_when_the_process_ends(is_wanted):
    program = PROGRAM.format(path=[os.path.dirname(__file__)])
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "ACTMEM_JAX_REPORT": str(int(is_wanted))})
    assert ended.stderr.count("actmem: jit(loss)") == is_wanted
    if is_wanted:
        rows = [line.split() for line in ended.stderr.splitlines()]
        goes = {row[0]: row[-2] for row in rows if row and row[0] in ("a", "b", "c")}
        assert goes == {name: row[0] for name, row in EXPECTED.items()}


def test_what_the_memory_is():
    memory = actmem.jax.stats()["memory"]
    assert memory["backend"] == actmem.default().backend
    assert memory["why"] == actmem.describe()
    assert memory["pages"] == "2M"
    assert memory["fallbacks_total"] == actmem.counters()["fallbacks_total"]
    program = "import actmem, actmem.jax; actmem.open(pages='4K', allow='any'); " \
        "print(actmem.jax.stats()['memory']['pages'])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                           check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert ended.stdout.split() == ["4K"]
