# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program of JAX alone that moves arrays to pinned_host and back, by device_put() and
inside jit. With --in-regions their memory there has to be actmem's. Prints TAP."""
import os
import sys

import jax
import numpy as np

MIB = 1 << 20
SIZES = (4 * MIB, 12 * MIB, 1 * MIB, 40 * MIB)		# bytes
STEPS = 5
results = 0


def check(good, name):
    global results
    results += 1
    print(f"{'ok' if good else 'not ok'} {results} - {name}", flush=True)


def finish():
    print(f"1..{results}")


def mapping_of(address):
    """The line of /proc/self/maps that has the address."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= address < last:
                return line.rstrip()
    return "nothing"


def lies_in_region(array):
    label = os.environ.get("ACTMEM_NAME", "memfd:actmem")
    return label in mapping_of(array.unsafe_buffer_pointer())


def main():
    in_regions = "--in-regions" in sys.argv
    device = jax.devices()[0]
    check(device.platform == "gpu" and "pinned_host" in
          [memory.kind for memory in device.addressable_memories()],
          f"JAX's plugin has a device with pinned_host: {device.device_kind}")
    on_device = jax.sharding.SingleDeviceSharding(device)
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    leave = jax.jit(lambda x: jax.device_put(x, on_host), out_shardings=on_host)
    come_back = jax.jit(lambda x: jax.device_put(x, on_device), out_shardings=on_device)

    random = np.random.default_rng(1)
    originals = [random.integers(0, 1 << 32, bytes // 4, np.uint32) for bytes in SIZES]
    arrays = [jax.device_put(original, on_device) for original in originals]
    same = True
    mappings = set()
    for step in range(STEPS):
        # Forward they leave, backward they come back in reverse order.
        there = [leave(x) if step % 2 else jax.device_put(x, on_host) for x in arrays]
        for x in there:
            x.block_until_ready()
            same = same and x.sharding.memory_kind == "pinned_host"
            mappings.add((lies_in_region(x), mapping_of(x.unsafe_buffer_pointer())))
        arrays = [come_back(x) if step % 2 else jax.device_put(x, on_device)
                  for x in reversed(there)][::-1]
        for x in arrays:
            x.block_until_ready()
    check(same, "arrays are in pinned_host")
    check(all(np.array_equal(x, original) for x, original in zip(arrays, originals)),
          f"after {STEPS} steps they are what they were")
    for in_region, line in sorted(mappings):
        check(in_region == in_regions, f"their memory: {line}")
    del there, arrays
    finish()


if __name__ == "__main__":
    main()
