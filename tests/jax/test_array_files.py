# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""save and load: arrays in regions with names, which processes share."""
import errno
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

import actmem
import actmem.jax
from conftest import TREE
from test_arrays import arrays, no_array_is_left  # noqa: F401

DTYPES = ("bool", "int8", "float16", "float32", "complex64", "bfloat16",
          "float8_e4m3fn")
NAMELESS = ("bfloat16", "float8_e4m3fn")


@pytest.fixture(name="path")
def fixture_path():
    path = f"/dev/shm/actmem-arrays-{os.getpid()}"
    yield path
    if os.path.exists(path):
        os.unlink(path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_was_saved_is_loaded(path, dtype):
    for shape in ((), (0, 3), (300, 7), (2, 1 << 20)):
        values = np.ones(shape, jnp.dtype(dtype))
        actmem.jax.save(path, values)
        assert os.path.getsize(path) % (2 << 20) == 0
        loaded = actmem.jax.load(path, dtype if dtype in NAMELESS else None)
        os.unlink(path)
        assert loaded.dtype == values.dtype and loaded.shape == shape
        np.testing.assert_array_equal(loaded, values)
        if dtype in NAMELESS:
            continue
        assert jnp.sum(jnp.abs(loaded)) == values.size
    assert arrays("region_bytes") >= 2 << 20


def test_it_is_a_file_of_numpys(path):
    values = np.arange(3000.0, dtype=np.float32).reshape(30, 100)
    actmem.jax.save(path, values.T)
    np.testing.assert_array_equal(np.load(path), values.T)
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), values.T)


READER = """
import json, sys, jax, actmem, actmem.jax, numpy as np
table = actmem.jax.load(sys.argv[1])
pointer = table.unsafe_buffer_pointer()
for line in open("/proc/self/maps"):
    start, end = (int(part, 16) for part in line.split()[0].split("-"))
    if start <= pointer < end:
        print(json.dumps([float(jax.jit(lambda t: t[7].sum())(table)),
                          line.split()[1], line.split()[5]]), flush=True)
sys.stdin.readline()
print(float(table[0, 0]))
"""


def test_processes_share_it(path):
    values = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    actmem.jax.save(path, values)
    os.chmod(path, 0o400)
    blocks = os.stat(path).st_blocks
    readers = [subprocess.Popen(
        [sys.executable, "-c", READER, path], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.path.join(TREE, "lib", "python")})
        for _ in range(2)]
    for reader in readers:
        total, rights, where = json.loads(reader.stdout.readline())
        assert total == values[7].sum() and rights == "r--s" and where == path
    assert os.stat(path).st_blocks == blocks
    # They have one memory: what is written to the file, all see.
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(128)      # behind the header
        file.write(np.float32(-1).tobytes())
    os.unlink(path)
    for reader in readers:
        assert reader.communicate("\n")[0] == "-1.0\n" and reader.returncode == 0


def test_shards_and_devices(path):
    values = np.arange(4096, dtype=np.float32).reshape(16, 256)
    actmem.jax.save(path, values)
    mesh = jax.make_mesh((4,), ("x",))
    whole = actmem.jax.load(path, device=jax.devices()[3])
    assert whole.devices() == {jax.devices()[3]}
    loaded = actmem.jax.load(path, device=NamedSharding(mesh, P("x")))
    np.testing.assert_array_equal(loaded, values)
    first = loaded.addressable_shards[0].data.unsafe_buffer_pointer()
    assert [shard.data.unsafe_buffer_pointer() - first
            for shard in loaded.addressable_shards] == [0, 4096, 8192, 12288]
    with pytest.raises(ValueError, match="the part has to be copied"):
        actmem.jax.load(path, device=NamedSharding(mesh, P(None, "x")))


def test_nobody_writes_to_it(path):
    """XLA does not write to what it is given to read, where that would be
    SIGSEGV: neither if it is donated."""
    actmem.jax.save(path, np.ones((64, 64), np.float32))
    loaded = actmem.jax.load(path)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(loaded)[0] = 1
    result = jax.jit(lambda x: x.at[0].set(5), donate_argnums=0)(loaded)
    assert result[0, 0] == 5 and np.load(path)[0, 0] == 1


def overwrite(path, start):
    with open(path, "r+b") as file:
        file.write(start)


def test_refusals(path):
    with pytest.raises(actmem.Error) as error:
        actmem.jax.load(path)
    assert error.value.errno == errno.ENOENT and path in str(error.value)
    with pytest.raises(TypeError, match="object: JAX and NumPy cannot share"):
        actmem.jax.save(path, [None])
    assert not os.path.exists(path)
    actmem.jax.save(path, np.ones(3, jnp.bfloat16))
    with pytest.raises(actmem.Error) as error:
        actmem.jax.save(path, np.ones(3))
    assert error.value.errno == errno.EEXIST and path in str(error.value)
    assert "complete array, |V2(3,): load() it, or remove" in str(error.value)
    with pytest.raises(TypeError, match="2 bytes, but its header.*pass dtype="):
        actmem.jax.load(path)
    with pytest.raises(TypeError, match="dtype=float32, but"):
        actmem.jax.load(path, np.float32)
    os.unlink(path)
    actmem.jax.save(path, np.ones(3, np.float64))
    with pytest.raises(TypeError, match="set jax_enable_x64"):
        actmem.jax.load(path)
    overwrite(path, b"\0" * 8)
    with pytest.raises(actmem.Error, match="still runs or was interrupted"):
        actmem.jax.load(path)
    with pytest.raises(actmem.Error, match="still runs or was interrupted; wait for it to end, "
                                           "or remove") as error:
        actmem.jax.save(path, np.ones(3))
    assert error.value.errno == errno.EEXIST
    overwrite(path, b"\x93NUMPY\x02\x00")
    with pytest.raises(actmem.Error, match="version is not 1.0"):
        actmem.jax.load(path)
    overwrite(path, b"\x93NUMPY\x01\x00")
    with open(path, "rb") as file:
        header = file.read(128).replace(b"(3,)", b"(9999999,)").rstrip()
    overwrite(path, header.ljust(127) + b"\n")
    with pytest.raises(actmem.Error, match="is 2097152 bytes long"):
        actmem.jax.load(path)
    assert arrays() == 0


@pytest.mark.parametrize("call", [
    lambda name: actmem.jax.save(name, np.ones(3)), actmem.jax.load,
    lambda name: actmem.open(name=name)])
def test_names_that_are_none(path, call):
    with pytest.raises(ValueError, match="contains a byte of 0"):
        call(path + "\0x")
    assert not os.path.exists(path)


def test_bytes_in_the_other_order(path):
    values = np.arange(1024, dtype=">f4")
    actmem.jax.save(path, values)       # converts them
    np.testing.assert_array_equal(actmem.jax.load(path), values)
    os.unlink(path)
    np.save(path + ".npy", values)
    os.rename(path + ".npy", path)
    os.truncate(path, 2 << 20)
    with pytest.raises(TypeError, match=f"{path} has the type >f4"):
        actmem.jax.load(path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_save_leaves_no_file(path, error, monkeypatch):
    def copyto(*_, **__):
        assert os.path.exists(path)
        raise error
    with monkeypatch.context() as patch:
        patch.setattr(np, "copyto", copyto)
        with pytest.raises(error):
            actmem.jax.save(path, np.ones(3, np.float32))
    assert not os.path.exists(path)
    actmem.jax.save(path, np.ones(3, np.float32))
    assert actmem.jax.load(path).sum() == 3


def test_a_copy_of_what_was_loaded_is_none(path):
    actmem.jax.save(path, np.ones((4, 64), np.float32))
    assert actmem.jax.asarray(np.ones(3)).shape == (3,)
    before = arrays("copied_bytes_total")
    loaded = actmem.jax.load(path)
    assert arrays("copied_bytes_total") == before
    assert arrays("blocks") == 1 and arrays("views") == 1
    assert loaded.sum() == 256
