# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""empty and asarray: nothing is copied that need not be, memory goes back, and
what cannot be is refused in words."""
import gc
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

import actmem
import actmem.jax
from conftest import TREE
from models import mappings

DTYPES = ("bool", "int8", "int32", "uint8", "uint16", "float16", "bfloat16",
          "float32", "complex64", "float8_e4m3fn", "float8_e5m2",
          "float8_e4m3b11fnuz", "float8_e8m0fnu")


def arrays(name="blocks"):
    return actmem.jax.stats()["arrays"][name]


def wait_for_none():
    """XLA lets go of an array a moment after all that used it has ended."""
    gc.collect()
    for _ in range(2000):
        if arrays() == 0:
            return
        time.sleep(0.005)


@pytest.fixture(autouse=True)
def no_array_is_left():
    yield
    wait_for_none()
    left = actmem.jax.stats()["arrays"]
    assert not (left["blocks"] or left["bytes"] or left["views"]), left


def address(array):
    return array.__array_interface__["data"][0]


def is_in_a_region(pointer, size):
    return any(start <= pointer and pointer + size <= end for start, end in mappings("arrays"))


def filled(shape, dtype="float32", seed=0):
    array = actmem.jax.empty(shape, dtype)
    values = np.random.default_rng(seed).integers(1, 3, array.shape) % (
        2 if array.dtype == bool else 3)
    array[...] = values.astype(array.dtype)
    return array, np.asarray(values).astype(array.dtype)


def mesh():
    return jax.make_mesh((4,), ("x",))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_is_taken_as_it_is(dtype):
    for shape in ((), (1,), (0,), (7, 3), (3, 0, 2), (5, 1, 4096)):
        array, values = filled(shape, dtype)
        taken = actmem.jax.asarray(array, copy=False)
        assert taken.dtype == array.dtype == jnp.dtype(dtype)
        assert taken.shape == shape == array.shape and not taken.weak_type
        assert taken.unsafe_buffer_pointer() == address(array)
        assert is_in_a_region(address(array), array.nbytes)
        np.testing.assert_array_equal(np.asarray(taken), values)
        doubled = jax.jit(lambda x: jnp.concatenate([x.ravel()] * 2))(taken)
        np.testing.assert_array_equal(np.asarray(doubled),
                                      np.concatenate([values.ravel()] * 2))


def test_types_of_64_bits_need_x64():
    for dtype in (np.float64, np.dtype(float), "float64", "f8"):
        with pytest.raises(TypeError, match="float64: JAX would use float32 "
                                            "instead; set jax_enable_x64"):
            actmem.jax.empty(3, dtype)
    assert actmem.jax.empty(3).dtype == actmem.jax.empty(3, float).dtype == \
        np.float32
    assert actmem.jax.asarray(np.arange(3)).dtype == np.int32
    with jax.enable_x64(True):
        for dtype in (np.float64, np.int64, np.uint64, np.complex128):
            array = actmem.jax.empty((2, 5), dtype)
            array[...] = 3
            taken = actmem.jax.asarray(array, copy=False)
            assert taken.dtype == dtype and taken.sum() == 30
        assert actmem.jax.empty(3).dtype == np.float64
    with pytest.raises(ValueError, match="of type complex128"):
        actmem.jax.asarray(array, copy=False)
    assert actmem.jax.asarray(array).dtype == np.complex64


def test_memory_is_aligned():
    for size in (1, 63, 4095, 4096, 4097, 100000):
        array = actmem.jax.empty(size, np.uint8)
        assert address(array) % (4096 if size >= 4096 else 256) == 0


def test_it_can_be_read_into_by_direct_io():
    with tempfile.TemporaryDirectory(dir=os.path.join(TREE, "build")) as folder:
        path = os.path.join(folder, "data")
        values = np.arange(1 << 18, dtype=np.int32)
        values.tofile(path)
        file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        array = actmem.jax.empty(1 << 18, np.int32)
        count = os.preadv(file, [array], 0)
        os.close(file)
    assert count == array.nbytes
    np.testing.assert_array_equal(actmem.jax.asarray(array, copy=False), values)


def test_what_was_taken_is_read_only():
    array, _ = filled((8, 64))
    part = array[4:]
    actmem.jax.asarray(part, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        part[0] = 1
    array[:4] = 1       # of which nothing was taken
    actmem.jax.asarray(array)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    # Taken twice it is the same memory.
    assert actmem.jax.asarray(array).unsafe_buffer_pointer() == \
        actmem.jax.asarray(array).unsafe_buffer_pointer() == address(array)
    # What was copied is the program's as before.
    other = np.zeros(3)
    actmem.jax.asarray(other)
    other[0] = 1


def test_memory_stays_as_long_as_anybody_has_it():
    array, values = filled((64, 1024))
    pointer = address(array)
    taken = actmem.jax.asarray(array)
    assert (arrays(), arrays("bytes"), arrays("views")) == (1, 1 << 18, 1)
    del array
    gc.collect()
    assert arrays() == 1
    np.testing.assert_array_equal(np.asarray(taken), values)
    # A view of NumPy's of the middle of it holds all of it.
    array = actmem.jax.empty((64, 1024))
    assert address(array) != pointer
    pointers = pointer, address(array)
    middle = array[10:11, 5:9].T
    taken = actmem.jax.asarray(array)
    del array, taken
    gc.collect()
    assert arrays() == 1
    middle[...] = 3
    del middle
    wait_for_none()
    assert arrays() == 0
    # The next of that size gets the same memory.
    assert address(actmem.jax.empty((64, 1024))) in pointers


def test_memory_stays_until_what_runs_has_ended():
    step = jax.jit(lambda x, w: jnp.tanh(x @ w) @ w)
    w = jnp.eye(256) * 0.5
    results = []
    for i in range(50):
        batch = actmem.jax.empty((64, 256))
        batch[...] = i / 50
        results.append(step(actmem.jax.asarray(batch), w))
        del batch
    for i, result in enumerate(results):
        np.testing.assert_allclose(result[0, 0], np.tanh(i / 100) / 2, 1e-5)
    wait_for_none()
    assert arrays() == 0


def test_donated_arrays_stay_as_they_are():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    array, values = filled((256, 256))
    result = step(actmem.jax.asarray(array))
    np.testing.assert_array_equal(result, values + 1)
    np.testing.assert_array_equal(array, values)
    assert result.unsafe_buffer_pointer() != address(array)
    assert not is_in_a_region(result.unsafe_buffer_pointer(), result.nbytes)


def test_everything_else_is_copied_once():
    base = np.arange(120, dtype=np.float32).reshape(10, 12)
    ours, _ = filled((10, 64))
    cases = (base, base.T, base[::2], base[:, 1:3], base[::-1], ours[:, 1:2],
             ours.T, ours[0, 1:], base.astype(">f4"), base.astype(np.float16),
             np.float32(3), 2.5, [1, 2, 3], [[True, False]], jnp.arange(9.0),
             memoryview(base), np.ma.masked_array(base, base > 3))
    for case in cases:
        before = arrays("copied_bytes_total"), arrays("blocks_total")
        taken = actmem.jax.asarray(case)
        expected = np.asarray(case)
        expected = jnp.asarray(expected.astype(expected.dtype.newbyteorder("=")))
        assert taken.dtype == expected.dtype
        np.testing.assert_array_equal(taken, expected)
        assert is_in_a_region(taken.unsafe_buffer_pointer(), taken.nbytes)
        assert arrays("copied_bytes_total") == before[0] + taken.nbytes
        assert arrays("blocks_total") == before[1] + 1
    taken = actmem.jax.asarray(ours, copy=True)
    assert taken.unsafe_buffer_pointer() != address(ours)
    assert actmem.jax.asarray(ours, np.int32).dtype == np.int32
    ours[0, 0] = 5      # as before


def test_the_same_memory_by_other_ways():
    array, values = filled((16, 64))
    for same in (array.view(np.int32).view(np.float32), memoryview(array),
                 np.frombuffer(array, np.float32), array[2:][1:],
                 array.reshape(4, 4, 64), array.astype(np.float32, copy=False)):
        taken = actmem.jax.asarray(same, copy=False)
        assert taken.unsafe_buffer_pointer() == address(np.asarray(same))
    np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("why, make", [
    ("was not made by actmem.jax.empty", lambda ours: np.zeros(3)),
    ("begins 4 bytes after a multiple of 64", lambda ours: ours[0, 1:]),
    (r"not contiguous: shape \(16, 4\), strides \(256, 4\)",
     lambda ours: ours[:, :4]),
    ("of type >f4", lambda ours: ours.view(">f4")),
])
def test_no_copy_where_none_is_wanted(why, make):
    array, _ = filled((16, 64))
    before = arrays("blocks_total")
    with pytest.raises(ValueError, match="copy=False, but the array has to be "
                                         "copied: .*" + why):
        actmem.jax.asarray(make(array), copy=False)
    assert arrays("blocks_total") == before and array.flags.writeable


@pytest.mark.parametrize("error, why, call", [
    (TypeError, "int4: XLA packs", lambda: actmem.jax.empty(3, jnp.int4)),
    (TypeError, "int4: XLA packs",
     lambda: actmem.jax.asarray(jnp.ones(3, jnp.int4))),
    (TypeError, "object: JAX and NumPy cannot share", lambda: actmem.jax.asarray([None])),
    (TypeError, "<U1: JAX and NumPy cannot share", lambda: actmem.jax.asarray("a")),
    (TypeError, "JAX and NumPy cannot share", lambda: actmem.jax.empty(3, [("a", "f4")])),
    (TypeError, "float128: JAX and NumPy cannot share", lambda: actmem.jax.empty(3, "f16")),
    (TypeError, ">i4, but JAX needs the byte order",
     lambda: actmem.jax.empty(3, ">i4")),
    (OverflowError, "1099511627776 out of bounds for int32",
     lambda: actmem.jax.asarray(1 << 40)),
    (OverflowError, "out of bounds", lambda: actmem.jax.asarray([1, 1 << 31])),
    (OverflowError, "300 out of bounds for uint8",
     lambda: actmem.jax.asarray([[300]], np.uint8)),
    (TypeError, "use jax.random.key_data",
     lambda: actmem.jax.asarray(jax.random.key(0))),
    (TypeError, "a traced value", lambda: jax.jit(actmem.jax.asarray)(1.0)),
    (TypeError, "neither an integer", lambda: actmem.jax.empty(2.5)),
    (ValueError, "negative", lambda: actmem.jax.empty((3, -1))),
    (TypeError, "device='cpu' is neither",
     lambda: actmem.jax.asarray(1, device="cpu")),
    (TypeError, "copy=3", lambda: actmem.jax.asarray(1, copy=3)),
    (ValueError, "copy=False", lambda: actmem.jax.asarray(1, copy=0)),
    (actmem.Error, "the size is 18446744073709551615, but must be",
     lambda: actmem.jax.empty((1 << 40, 1 << 40))),
])
def test_refusals(error, why, call):
    with pytest.raises(error, match=why):
        call()


def test_devices():
    array, values = filled((16, 64))
    for device in jax.devices():
        for to in (device, SingleDeviceSharding(device)):
            taken = actmem.jax.asarray(array, device=to, copy=False)
            assert taken.devices() == {device}
            assert taken.unsafe_buffer_pointer() == address(array)
            np.testing.assert_array_equal(taken, values)
    with jax.default_device(jax.devices()[2]):
        assert actmem.jax.asarray(array).devices() == {jax.devices()[2]}


@pytest.mark.parametrize("kind", [None, "device", "pinned_host",
                                  "unpinned_host"])
def test_shards(kind):
    array, values = filled((16, 64))
    for spec, begin in ((P("x"), [0, 1024, 2048, 3072]), (P(), [0] * 4),
                        (P(None, None), [0] * 4)):
        sharding = NamedSharding(mesh(), spec, memory_kind=kind)
        taken = actmem.jax.asarray(array, device=sharding, copy=False)
        assert taken.sharding == sharding
        assert taken.sharding.memory_kind == (kind or "device")
        assert [shard.data.unsafe_buffer_pointer() - address(array)
                for shard in taken.addressable_shards] == begin
        np.testing.assert_array_equal(taken, values)
        there = jax.device_put(taken, sharding.with_memory_kind("device"))
        np.testing.assert_array_equal(jax.jit(lambda x: x + 1)(there),
                                      values + 1)
    with pytest.raises(ValueError, match="the part has to be copied: it is "
                                         "not contiguous"):
        actmem.jax.asarray(array, device=NamedSharding(mesh(), P(None, "x")),
                           copy=False)
    before = arrays("copied_bytes_total")
    taken = actmem.jax.asarray(array, device=NamedSharding(
        mesh(), P(None, "x"), memory_kind=kind))
    np.testing.assert_array_equal(taken, values)
    assert arrays("copied_bytes_total") == before + array.nbytes


def test_replicas_share_a_copy():
    before = arrays("blocks_total")
    taken = actmem.jax.asarray(np.arange(6.0), device=NamedSharding(mesh(), P()))
    assert arrays("blocks_total") == before + 1
    assert len({shard.data.unsafe_buffer_pointer()
                for shard in taken.addressable_shards}) == 1


def test_arrays_are_listed():
    array = actmem.jax.empty((1 << 20,))
    region, = actmem.regions()
    assert region["name"] == "arrays"
    assert arrays("region_bytes") == region["length"] == 16 << 20
    counters = actmem.counters()
    assert counters["blocks"] == 1
    assert counters["block_bytes"] == array.nbytes == 4 << 20
    del array
    assert actmem.jax.reset() == 0
    assert actmem.regions() == [] and arrays("region_bytes") == 0
    assert arrays("bytes_peak") >= 4 << 20


def test_threads():
    """Threads that make, take and drop arrays, and reset; each finds its own
    values."""
    total = jax.jit(jnp.sum)

    def work(thread):
        for i in range(40):
            array = actmem.jax.empty((1 + i % 7, 512))
            array[...] = thread
            result = total(actmem.jax.asarray(array, device=jax.devices()[thread % 4]))
            if i % 10 == 0:
                actmem.jax.reset()
            assert result == thread * array.size
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
