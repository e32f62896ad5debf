# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program of JAX alone on a machine of two memory nodes, where XLA maps and registers
its pinned_host memory itself, on the node of the GPU:

    python nodes.py NODE [BACKEND]
    python nodes.py NODE refused

All of it has to lie on that node, and with a backend in regions, as the kernel, the
command and, if it is the driver, the driver tell. What is refused has to be an error of
JAX's, with nothing but regions registered. Prints TAP.
"""
import ctypes
import json
import os
import subprocess
import sys

import jax
import numpy as np

from stock import MIB, check, finish

SIZES = (6 * MIB, 1 * MIB, 10 * MIB)		# bytes
STEPS = 3
HUGE = 2 * MIB
ACTMEM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build", "bin",
                      "actmem")
DEVICE = "/sys/class/misc/actmem"


def standin_counts():
    """Of host memory: what CUDA has allocated itself and what was registered, bytes."""
    counts = (ctypes.c_uint64 * 16)()
    ctypes.CDLL("libcuda.so.1").standin_counts(counts)
    return counts[4], counts[2]


def mappings():
    """(first, end, what numa_maps says) of each mapping of this process."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        ends = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    with open("/proc/self/numa_maps", encoding="ascii") as numa_maps:
        words = {int(line.split()[0], 16): line.split(maxsplit=1)[1].rstrip()
                 for line in numa_maps}
    return [(first, end, words[first]) for first, end in ends if first in words]


def places(array):
    """The mappings that the array lies in, with the bytes of it that each has."""
    first = array.unsafe_buffer_pointer()
    end = first + array.nbytes
    return [(min(end, its_end) - max(first, its_first), words)
            for its_first, its_end, words in mappings() if its_first < end and first < its_end]


def pages_of(words):
    """Pages by node, of a line of numa_maps."""
    pairs = [word[1:].split("=") for word in words.split()
             if word.startswith("N") and word[1:2].isdigit()]
    return {int(node): int(pages) for node, pages in pairs}


def listed():
    """All regions, as another process sees them."""
    told = subprocess.run([ACTMEM, "list", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout)["regions"]


def node_bytes(node):
    with open(f"{DEVICE}/node{node}/region_bytes", encoding="ascii") as file:
        return int(file.read())


def check_regions(node, backend, there, registered):
    name = os.environ.get("ACTMEM_NAME")
    label = os.path.basename(name) + ".cuda." if name else "actmem:cuda"
    for array in there:
        inside = sum(size for size, words in places(array) if label in words)
        # All but what does not fill a huge page at the ends of XLA's range.
        check(inside > max(0, array.nbytes - 2 * HUGE),
              f"{inside} of {array.nbytes} bytes are in regions")
    every = listed()
    regions = [region for region in every if region["pid"] == os.getpid() and
               region["name"].startswith(label.rpartition(":")[2])]
    total = sum(region["bytes"] for region in regions)
    check(regions and all(
        region["backend"] == backend and region["page_bytes"] == HUGE and
        region["nodes"] == [{"node": node, "bytes": region["bytes"]}] for region in regions),
        f"actmem list has them on node {node}: {regions}")
    check(total <= registered < total + HUGE * (len(regions) + 2),
          f"what is registered are {total} bytes of regions, and ends: {registered}")
    if backend == "driver":
        sums = [sum(place["bytes"] for region in every for place in region["nodes"]
                    if place["node"] == one) for one in range(2)]
        counted = [node_bytes(one) for one in range(2)]
        check(counted == sums and counted[node] >= total,
              f"the driver counts the same on the nodes: {counted}")


def main_refused(node):
    """Of regions there may be 8 MiB on the node, and those of actmem run --strict alone."""
    device = jax.devices()[0]
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    words = ""
    try:
        jax.block_until_ready(jax.device_put(np.zeros(12 * MIB, np.uint8), on_host))
    except jax.errors.JaxRuntimeError as error:
        words = str(error)
    check("RESOURCE_EXHAUSTED" in words, f"JAX tells that there is no memory: {words[:200]}")
    # XLA has asked for less and less of it meanwhile.
    regions = listed()
    total = sum(region["bytes"] for region in regions)
    allocated, registered = standin_counts()
    check(not allocated and registered < total + HUGE * (len(regions) + 1) and
          total == node_bytes(node) <= 8 * MIB,
          f"nothing else is registered: {registered} bytes, of regions {total}: {regions}")
    finish()


def main():
    if sys.argv[2:] == ["refused"]:
        return main_refused(int(sys.argv[1]))
    node, backend = int(sys.argv[1]), (sys.argv[2:] or [None])[0]
    device = jax.devices()[0]
    on_device = jax.sharding.SingleDeviceSharding(device)
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    random = np.random.default_rng(1)
    originals = [random.integers(0, 1 << 32, size // 4, np.uint32) for size in SIZES]
    arrays = [jax.device_put(original, on_device) for original in originals]
    for _ in range(STEPS):
        there = [jax.device_put(x, on_host) for x in arrays]
        jax.block_until_ready(there)
        arrays = [jax.device_put(x, on_device) for x in there]
    check(all(x.sharding.memory_kind == "pinned_host" for x in there) and
          all(np.array_equal(x, original) for x, original in zip(arrays, originals)),
          f"after {STEPS} steps to pinned_host and back they are what they were")

    allocated, registered = standin_counts()
    check(not allocated and registered,
          f"XLA has registered its memory itself: {registered} bytes, {allocated} of CUDA's own")
    for array in there:
        words = [words for _, words in places(array)]
        check(words and all(set(pages_of(one)) == {node} for one in words),
              f"on node {node}: {words}")
    if backend:
        check_regions(node, backend, there, registered)
    finish()


if __name__ == "__main__":
    main()
