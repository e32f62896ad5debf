# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""save_state and restore_state: optimizer states and other arrays in files."""
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

import actmem.jax
import actmem.optax
from conftest import TREE
from test_optax import arrays_of, batch, loss, on_mesh, parameters, same, step_of, stored_in, train


def adam(**options):
    return actmem.optax.offload(optax.adam(1e-2), **options)


def test_the_next_step_after_a_restore_has_the_same_bits(tmp_path):
    path = tmp_path / "state"
    params, state = train(adam())
    actmem.jax.save_state(path, {"params": params, "state": state})
    params, state = step_of(adam(), donate=())(params, state, batch(99))
    wanted = arrays_of((params, state)), float(loss(params, batch(99)))
    del state

    like = {"params": params, "state": jax.eval_shape(adam().init, params)}
    restored = actmem.jax.restore_state(path, like)
    assert len(stored_in(restored["state"])) == 6
    assert actmem.jax.stats()["live_blocks"] == 6
    params, state = step_of(adam())(restored["params"], restored["state"], batch(99))
    same((params, state), wanted[0])
    assert float(loss(params, batch(99))) == wanted[1]
    assert os.listdir(tmp_path) == ["state"]


def test_a_state_may_be_saved_stored_and_restored_not_stored(tmp_path):
    path = tmp_path / "state"
    _, state = train(adam())
    actmem.jax.save_state(path, state)
    plain = actmem.jax.restore_state(path, jax.eval_shape(optax.adam(1e-2).init, parameters()))
    same(plain, state)
    assert not stored_in(plain)
    actmem.jax.save_state(path, plain)
    same(actmem.jax.restore_state(path, state), state)


def test_what_else_a_tree_may_have(tmp_path):
    path = tmp_path / "state"
    device = jax.devices()[1]
    tree = {"bf16": jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3), "scalar": jnp.float32(3),
            "empty": jnp.zeros((0, 4)), "numpy": np.arange(5), "number": 7, "bool": True,
            "elsewhere": jax.device_put(jnp.ones(3), device),
            "host": jax.device_put(jnp.ones(4), jax.sharding.SingleDeviceSharding(
                jax.devices()[0], memory_kind="pinned_host"))}
    actmem.jax.save_state(path, tree)
    restored = actmem.jax.restore_state(path, tree)
    same(restored, tree)
    assert restored["bf16"].dtype == jnp.bfloat16 and isinstance(restored["numpy"], np.ndarray)
    assert restored["elsewhere"].devices() == {device}
    assert restored["host"].sharding.memory_kind == "pinned_host"
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.asarray(leaf).dtype),
                          tree)
    assert actmem.jax.restore_state(path, shapes)["host"].sharding.memory_kind == "pinned_host"


def test_shardings_return(tmp_path):
    path = tmp_path / "state"
    params, state = on_mesh(adam())
    actmem.jax.save_state(path, (params, state))
    shapes = jax.eval_shape(lambda: (params, optax.adam(1e-2).init(params)))
    for like in ((params, state), shapes):
        restored = actmem.jax.restore_state(path, like)
        same(restored, (params, state))
    for got, leaf in zip(jax.tree.leaves(restored), arrays_of_sharding((params, state)),
                         strict=True):
        assert got.sharding.is_equivalent_to(leaf, got.ndim)

    fewer = jax.make_mesh((2,), ("fsdp",), devices=jax.devices()[:2],
                          axis_types=(jax.sharding.AxisType.Auto,))
    halves = jax.tree.map(lambda leaf: jax.device_put(leaf, NamedSharding(
        fewer, P("fsdp") if leaf.ndim == 2 else P())), parameters())
    _, restored = actmem.jax.restore_state(path, (halves, adam().init(halves)))
    same(restored, state)
    assert all(leaf.sharding.num_devices == 2 for leaf in stored_in(restored))


def arrays_of_sharding(tree):
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, actmem.jax.Stored))
    return [leaf.sharding for leaf in leaves]


def test_saved_from_more_devices_than_there_are(tmp_path):
    path = tmp_path / "state"
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    actmem.jax.save_state(path, {"w": jax.device_put(jnp.ones(8), NamedSharding(mesh, P("x")))})
    with zipfile.ZipFile(path) as archive:
        index = json.loads(archive.read("arrays.json"))
        elements = archive.read("0")
    index[0]["placement"]["devices"][3] = 77
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0", elements)
        archive.writestr("arrays.json", json.dumps(index))
    with pytest.raises(ValueError, match=r"\['w'\] was saved from 4 devices, but this process has 4"):
        actmem.jax.restore_state(path, {"w": jax.ShapeDtypeStruct((8,), jnp.float32)})


@pytest.mark.parametrize("like, message", [
    ({"a": jnp.zeros(4)}, r"state, but not `like` has \['b'\]"),
    ({"a": jnp.zeros(4), "b": jnp.zeros((2, 2)), "c": jnp.zeros(1)},
     r"`like`, but not .*state has \['c'\]"),
    ({"a": jnp.zeros(5), "b": jnp.zeros((2, 2))}, r"\['a'\] is float32\[4\] in .*float32\[5\]"),
    ({"a": jnp.zeros(4), "b": jnp.zeros((2, 2), jnp.int32)}, r"\['b'\] is .*int32\[2, 2\]"),
])
def test_another_tree_is_refused(tmp_path, like, message):
    path = tmp_path / "state"
    actmem.jax.save_state(path, {"a": jnp.ones(4), "b": jnp.ones((2, 2))})
    with pytest.raises(ValueError, match=message):
        actmem.jax.restore_state(path, like)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "state"
    tree = {"a": jnp.ones(4096), "b": jnp.full(4096, 2.0)}
    actmem.jax.save_state(path, tree)
    content = bytearray(path.read_bytes())
    at = content.index(np.float32(2).tobytes() * 3)
    content[at + 1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(actmem.Error, match=r"\['b'\] in .*state is damaged: Bad CRC-32"):
        actmem.jax.restore_state(path, tree)
    path.write_bytes(content[:len(content) // 2])
    with pytest.raises(actmem.Error, match="not written by actmem.jax.save_state"):
        actmem.jax.restore_state(path, tree)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"")
    with pytest.raises(actmem.Error, match="not written by actmem.jax.save_state"):
        actmem.jax.restore_state(path, tree)
    with pytest.raises(FileNotFoundError):
        actmem.jax.restore_state(tmp_path / "none", tree)


@pytest.mark.parametrize("impl", ("threefry2x32", "rbg"))
def test_random_keys(tmp_path, impl):
    """Such as those in the state of a transformation that adds noise."""
    path = tmp_path / "state"
    key = jax.random.key(7, impl=impl)
    tree = {"key": key, "keys": jax.random.split(key, (2, 3)), "a": jnp.ones(4)}
    actmem.jax.save_state(path, tree)
    for like in (tree, jax.eval_shape(lambda: tree)):
        restored = actmem.jax.restore_state(path, like)
        for name in ("key", "keys"):
            assert restored[name].dtype == tree[name].dtype
            assert jnp.array_equal(jax.random.key_data(restored[name]),
                                   jax.random.key_data(tree[name]))
    other = tree | {"key": jax.random.key(7, impl="unsafe_rbg")}
    with pytest.raises(ValueError, match=r"\['key'\] is key<.*, but key<urbg>"):
        actmem.jax.restore_state(path, other)
    offloaded = actmem.optax.offload(optax.noisy_sgd(0.1, key=3))
    state = offloaded.init({"w": jnp.ones((64, 64))})
    actmem.jax.save_state(path, state)
    again = actmem.jax.restore_state(path, jax.eval_shape(lambda: state))
    assert jax.tree.structure(again) == jax.tree.structure(state)


def test_a_save_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "state"
    actmem.jax.save_state(path, {"a": jnp.ones(4)})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        actmem.jax.save_state(path, {"a": jnp.ones(4), "four": jnp.ones(4, jnp.int4)})
    with pytest.raises(TypeError, match=r"\['a'\] is traced"):
        jax.jit(lambda a: actmem.jax.save_state(path, {"a": a}))(jnp.ones(4))
    with pytest.raises(FileNotFoundError):
        actmem.jax.save_state(tmp_path / "none" / "state", {"a": jnp.ones(4)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state"]


PROGRAM = """
    import os, sys, time
    import jax, jax.numpy as jnp, numpy as np, optax
    import actmem.jax, actmem.optax
    path = sys.argv[1]
    def peak():
        return next(int(line.split()[1]) << 10 for line in open("/proc/self/status")
                    if line.startswith("VmHWM"))
"""


def started(script, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(script), *arguments],
        env={**environment, "PYTHONPATH": os.path.join(TREE, "lib", "python"),
             "PYTHONDONTWRITEBYTECODE": "1", "ACTMEM_ALLOW": "any", "ACTMEM_QUIET": "1"},
        stdout=subprocess.PIPE, text=True)


# ACTMEM_KILLS: how often; the default suits `make check`.
KILLS = int(os.environ.get("ACTMEM_KILLS", "20"))


def test_killed_at_any_point(tmp_path):
    """Whatever the process was doing, the file has a whole tree, and the next save succeeds."""
    path = tmp_path / "state"
    tree = {"a": jnp.zeros(50_000, jnp.int32), "b": jnp.zeros(50_000, jnp.int32)}
    actmem.jax.save_state(path, tree)
    chance, seen = random.Random(1), set()
    while len(seen) < KILLS:
        saving = started("""
            number = int(sys.argv[2])
            print("begins", flush=True)
            while True:
                number += 1
                actmem.jax.save_state(path, {name: np.full(50_000, number, np.int32)
                                             for name in "ab"})
        """, str(path), str(max(seen, default=0)))
        assert saving.stdout.readline() == "begins\n"
        for _ in range(10):
            time.sleep(chance.random() / 20)
            saving.send_signal(signal.SIGSTOP)
            restored = actmem.jax.restore_state(path, tree)
            numbers = {int(number) for array in restored.values() for number in np.unique(array)}
            assert len(numbers) == 1, numbers
            saving.send_signal(signal.SIGCONT)
        saving.kill()
        saving.wait()
        saving.stdout.close()
        restored = actmem.jax.restore_state(path, tree)
        numbers = {int(number) for array in restored.values() for number in np.unique(array)}
        assert len(numbers) == 1, numbers
        seen |= numbers
        assert set(os.listdir(tmp_path)) <= {"state", "state.partial"}
    actmem.jax.save_state(path, tree)
    assert os.listdir(tmp_path) == ["state"]


def test_two_savers_of_one_file(tmp_path):
    path = tmp_path / "state"
    saving = started("""
        class Waits:
            shape, dtype, ndim = (1,), np.dtype(np.int32), 1
            def __array__(self, dtype=None, copy=None):
                print("begins", flush=True)
                time.sleep(100)
        actmem.jax.save_state(path, [Waits()])
    """, str(path))
    assert saving.stdout.readline() == "begins\n"
    with pytest.raises(OSError, match="another actmem.jax.save_state"):
        actmem.jax.save_state(path, {"a": jnp.ones(4)})
    saving.kill()
    saving.wait()
    saving.stdout.close()
    actmem.jax.save_state(path, {"a": jnp.ones(4)})
    assert os.listdir(tmp_path) == ["state"]


def test_the_memory_that_a_restore_needs(tmp_path):
    """At most a fifth more than the state."""
    script = """
        params = [jax.ShapeDtypeStruct((2048, 2048), jnp.float32)] * 24
        tx = actmem.optax.offload(optax.adam(0.1))
        if sys.argv[2] == "save":
            state = tx.init([jnp.zeros(leaf.shape) for leaf in params])
            actmem.jax.save_state(path, state)
        else:
            like = jax.eval_shape(tx.init, params)
            actmem.jax.restore_state(path + ".small", jax.eval_shape(tx.init, params[:1]))
            before = peak()
            state = actmem.jax.restore_state(path, like)
            print((peak() - before) / (48 * 4 * 2048 * 2048))
    """
    path = str(tmp_path / "state")
    small = script.replace("* 24", "* 1").replace("path, state", "path + '.small', state")
    for program, what in ((script, "save"), (small, "save"), (script, "restore")):
        process = started(program, path, what)
        output = process.communicate(timeout=300)[0]
        assert process.returncode == 0
    assert 0.9 < float(output) < 1.2, output


def test_a_file_without_an_index_is_closed(tmp_path):
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0", b"1234")
    with pytest.raises(actmem.Error, match="was not written by actmem.jax.save_state") as caught:
        actmem.jax.restore_state(path, {})
    assert str(path) not in [os.path.realpath(f"/proc/self/fd/{name}")
                             for name in os.listdir("/proc/self/fd")]
    assert caught.value.__context__ is not None     # its frames refer to the archive
