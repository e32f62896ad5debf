# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Test actmem.jax.asarray on a GPU: arrays of pinned_host in regions that CUDA has
registered, without a copy. Prints TAP. Without a GPU it skips what needs one.
"""
import gc
import sys
import time

import actmem
import actmem.jax
import host_memory
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from telling import check, end, fact

ON_GPU = jax.default_backend() == "gpu"
KIND = "pinned_host" if ON_GPU else "device"
DTYPES = ("bool", "int8", "int32", "float16", "bfloat16", "float32", "complex64",
          "float8_e4m3fn", "float8_e5m2")


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


def one_array():
    array, values = filled((256, 1024))
    taken = actmem.jax.asarray(array, copy=False)
    check(taken.sharding.memory_kind == KIND, f"it is in {KIND}: {taken.sharding}")
    check(taken.unsafe_buffer_pointer() == array.ctypes.data, "it is where NumPy filled it")
    region, = actmem.regions()
    check(region["name"] == "arrays", f"which is a region: {region['length']} bytes of "
          f"{region['pages']} pages on nodes {region['nodes']}")
    if ON_GPU:
        check(host_memory.is_pinned(array.ctypes.data) and arrays("cuda"),
              "CUDA has it registered")
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


def donated():
    """XLA owns what is donated. For a GPU it lets the result alias the array, and so may
    write it there; the CPU gives the result other memory. Nothing else may change."""
    array, values = filled((256, 256))
    other, others = filled((256, 256))
    kept = actmem.jax.asarray(other, copy=False)
    step = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1, donate_argnums=0)
    result = step(actmem.jax.asarray(array, copy=False))
    check(np.array_equal(np.asarray(result), values + 1), "a donated array is read")
    check(np.array_equal(np.asarray(kept), others), "the array next to it stays as it was")
    fact("a donated array afterwards", "as it was" if np.array_equal(array, values) else
         "the result" if np.array_equal(array, values + 1) else "neither")


def main():
    for test in (one_array, types, donated):
        test()
        check(none_left(), f"nothing is left of {test.__name__}")
    actmem.jax.reset()
    check(not actmem.regions() and not actmem.counters()["blocks"], "regions go back")
    return end()


if __name__ == "__main__":
    sys.exit(main())
