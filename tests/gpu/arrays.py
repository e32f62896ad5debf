# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem.jax.asarray on a GPU: arrays of pinned_host in regions, without a copy, that
CUDA has registered; what they cost to bring to the device, beside JAX's own. Prints TAP
and figures. Without a GPU what needs one is skipped.
"""
import gc
import json
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

import actmem
import actmem.jax
import host_memory
from telling import check, end, rate

ON_GPU = jax.default_backend() == "gpu"
SIZE = (1 << 30) if ON_GPU else (1 << 24)
KIND = "pinned_host" if ON_GPU else "device"
DTYPES = ("bool", "int8", "int32", "float16", "bfloat16", "float32", "complex64",
          "float8_e4m3fn", "float8_e5m2")


def on_gpu(name, test):
    if ON_GPU:
        check(test(), name)
    else:
        check(True, name, skip="no GPU here")


def arrays(name="blocks"):
    return actmem.jax.stats()["arrays"][name]


def none_left():
    gc.collect()
    end = time.monotonic() + 10
    while arrays() and time.monotonic() < end:
        time.sleep(0.01)
    return not arrays() and not arrays("views")


def filled(shape, dtype=np.float32):
    array = actmem.jax.empty(shape, dtype)
    values = np.random.default_rng(1).integers(0, 2, shape).astype(array.dtype)
    array[...] = values
    return array, values


def to_device(x):
    return jax.device_put(x, SingleDeviceSharding(next(iter(x.devices())), memory_kind="device"))


def address_of(array):
    return array.__array_interface__["data"][0]


def one_array():
    array, values = filled((256, 1024))
    taken = actmem.jax.asarray(array, copy=False)
    check(taken.sharding.memory_kind == KIND, f"it is in {KIND}: {taken.sharding}")
    check(taken.unsafe_buffer_pointer() == address_of(array), "it is where NumPy filled it")
    region, = actmem.regions()
    check(region["name"] == "arrays", f"which is a region: {region['length']} bytes of "
          f"{region['pages']} pages on nodes {region['nodes']}")
    on_gpu("CUDA has it registered", lambda: host_memory.is_pinned(address_of(array)) and
           arrays("cuda"))
    check(np.array_equal(np.asarray(taken), values), "NumPy reads it back")
    check(np.array_equal(np.asarray(to_device(taken)), values), "the device does")
    inside = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1)
    check(np.array_equal(np.asarray(inside(taken)), values + 1), "and so does a program")
    pending = [inside(actmem.jax.asarray(filled((64, 1024))[0])) for _ in range(20)]
    check(all(np.array_equal(np.asarray(x), np.asarray(pending[0])) for x in pending),
          "memory stays until what runs has ended")


def types():
    good = []
    for dtype in DTYPES:
        array, values = filled((33, 7), jnp.dtype(dtype))
        taken = actmem.jax.asarray(array, copy=False)
        if taken.dtype == array.dtype and taken.sharding.memory_kind == KIND and \
                np.array_equal(np.asarray(to_device(taken)), values):
            good.append(dtype)
    check(good == list(DTYPES), f"types without a copy: {', '.join(good)}")
    for shape in ((), (0,), (3, 0)):
        taken = actmem.jax.asarray(np.zeros(shape, np.float32))
        check(taken.shape == shape and taken.sharding.memory_kind == KIND, f"of shape {shape}")


def shardings():
    mesh = jax.make_mesh((jax.local_device_count(),), ("x",))
    array, values = filled((8 * jax.local_device_count(), 1024))
    sharding = NamedSharding(mesh, PartitionSpec("x"), memory_kind="pinned_host")
    taken = actmem.jax.asarray(array, device=sharding, copy=False)
    check(taken.sharding == sharding and np.array_equal(np.asarray(taken), values),
          f"it is spread over {jax.local_device_count()} devices without a copy")

    def refused():
        try:
            actmem.jax.asarray(array, device=sharding.with_memory_kind("device"))
        except ValueError as error:
            return "with_memory_kind" in str(error)
        return False
    on_gpu("a GPU's own memory is refused in words", refused)


def donated():
    array, values = filled((256, 256))
    step = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1, donate_argnums=0)
    result = step(actmem.jax.asarray(array))
    check(np.array_equal(np.asarray(result), values + 1) and np.array_equal(array, values),
          "what is donated stays as it was")


def named():
    what = "the device reads a region with a name"
    if not os.access("/dev/shm", os.W_OK):
        check(True, what, skip="/dev/shm cannot be written")
        return
    values = np.arange(1 << 16, dtype=np.float32)
    path = f"/dev/shm/actmem-gpu-arrays-{os.getpid()}"
    try:
        actmem.jax.save(path, values)
        loaded = actmem.jax.load(path)
        check(loaded.sharding.memory_kind == KIND and
              np.array_equal(np.asarray(to_device(loaded)), values), what)
    except actmem.Error as error:
        # The error that is documented for devices that cannot read what is read-only.
        check("read" in str(error), f"a region with a name is refused in words: {error}")
    finally:
        if os.path.exists(path):
            os.unlink(path)


def rates():
    """To the device: of a region, of JAX's own pinned_host, of NumPy's memory."""
    array = actmem.jax.empty(SIZE, np.uint8)
    array[...] = 1
    ours = actmem.jax.asarray(array, copy=False)
    plain = np.ones(SIZE, np.uint8)
    device = jax.local_devices()[0]
    own = jax.block_until_ready(jax.device_put(
        plain, SingleDeviceSharding(device, memory_kind="pinned_host")))

    def brought(x):
        return rate(lambda: jax.block_until_ready(to_device(x)), SIZE)
    ours = brought(ours)
    from_numpy = rate(lambda: jax.block_until_ready(jax.device_put(plain, device)), SIZE)
    for name, peer in (("JAX's pinned_host", brought(own)), ("NumPy's memory", from_numpy)):
        print(json.dumps({"figure": "to the device, of asarray()", "value": ours / 1e9,
                          "unit": "GB/s", "peer": name, "peer_value": peer / 1e9,
                          "ratio": ours / peer}), flush=True)


def attempt(test):
    """The others are run all the same."""
    try:
        test()
    except Exception as error:  # pylint: disable=broad-exception-caught
        check(False, f"{test.__name__}: {type(error).__name__}: {str(error).splitlines()[0]}")
    check(none_left(), f"nothing is left of {test.__name__}")


def main():
    for test in (one_array, types, shardings, donated, named):
        attempt(test)
    if ON_GPU:
        attempt(rates)
    actmem.jax.reset()
    check(not actmem.regions() and not actmem.counters()["blocks"], "regions go back")
    return end()


if __name__ == "__main__":
    sys.exit(main())
