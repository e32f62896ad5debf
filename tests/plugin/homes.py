# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Values that a program saves on two GPUs at two memory nodes, each on its GPU's node:

    python homes.py NODE NODE

Prints TAP."""
import sys

import jax
import numpy as np

import actmem.jax
from actmem.jax._calls import put_here, take_here
from nodes import mappings, pages_of
from stock import check, finish

BLOCKS = 6
SHAPE = (1024, 1024)


def bytes_by_node():
    """Of the regions that values are in: bytes by node, of lines of numa_maps."""
    sums = {}
    for _, _, words in mappings():
        if "actmem:activations" not in words and "activations" not in words:
            continue
        size = int(words.partition("kernelpagesize_kB=")[2].split()[0]) << 10
        for node, pages in pages_of(words).items():
            sums[node] = sums.get(node, 0) + pages * size
    return sums


def main():
    homes = [int(node) for node in sys.argv[1:3]]
    original = np.random.default_rng(5).random(SHAPE, np.float32)
    put = jax.jit(lambda blocks: [put_here(block, "layer #1", bounded=True, many=False)
                                  for block in blocks])
    take = jax.jit(lambda token: take_here(token, SHAPE, original.dtype, "layer #1",
                                           ends=True))
    least = BLOCKS * original.nbytes
    tokens = []
    for device, home in zip(jax.devices(), homes):
        before = bytes_by_node()
        tokens.append(jax.block_until_ready(put([jax.device_put(original, device)] * BLOCKS)))
        after = bytes_by_node()
        check(after.get(home, 0) - before.get(home, 0) >= least,
              f"values of {device} are on node {home}: {after}, before {before}")
        check(all(after[node] == before.get(node, 0) for node in after if node != home),
              "and on no other one")
    check(all(np.array_equal(take(token), original) for its in tokens for token in its),
          "each comes back as it was")
    store = actmem.jax.stats()["store"]
    check(store["puts_total"] == len(homes) * BLOCKS, "the statistics are those of both")
    actmem.jax.reset()
    check(not bytes_by_node() and not actmem.jax.stats()["store"]["memory_bytes"],
          f"reset() ends both stores: {bytes_by_node()}")
    finish()


if __name__ == "__main__":
    main()
