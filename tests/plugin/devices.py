# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Values that are spread over two GPUs, each of which puts and takes its own part, once or
several times. Prints TAP."""
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import actmem.jax
from actmem.jax._calls import drop_here, put_here, take_here, tie_here
from stock import check, finish

DEVICES = 2
BLOCKS = 6
SHAPE = (64, 1024)
STEPS = 5


def main():
    mesh = jax.make_mesh((DEVICES,), ("part",))
    spread = NamedSharding(mesh, PartitionSpec("part"))
    random = np.random.default_rng(4)
    originals = [random.random(SHAPE, np.float32) for _ in range(BLOCKS)]
    blocks = [jax.device_put(original, spread) for original in originals]

    def on_each(function):
        part = PartitionSpec("part")
        return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=part, out_specs=part,
                                     check_vma=False))

    def take(token, block, site, ends=True, announced=None):
        return take_here(token, block.shape, block.dtype, site, ends, announced)

    @on_each
    def step(blocks):
        tokens = [put_here(block, "layer #1", bounded=True, many=False) for block in blocks]
        taken = []
        for token, block in zip(reversed(tokens), reversed(blocks)):
            if taken:
                token, = tie_here(token, taken[-1], numbers=(-1,))
            taken.append(take(token, block, "layer #1"))
        return taken[::-1]

    @on_each
    def again(blocks):
        """Each is taken twice, and then dropped."""
        tokens = [put_here(block, "again #1", bounded=False, many=True) for block in blocks]
        taken, dropped = [], []
        for token, block in zip(tokens, blocks):
            first = take(token, block, "again #1", ends=False)
            tied, = tie_here(token, first, numbers=(-1,))
            taken.append(take(tied, block, "again #1", ends=False))
            dropped.append(drop_here(token, taken[-1]))
        return taken, dropped

    @on_each
    def together(blocks):
        tokens = [put_here(block, "together #1", bounded=True, many=False)
                  for block in blocks]
        tokens = tie_here(*tokens, blocks[0], numbers=range(BLOCKS))
        return [take(token, block, "together #1", announced=i)
                for i, (token, block) in enumerate(zip(tokens, blocks))]

    def is_same(taken):
        return all(np.array_equal(a, b) for a, b in zip(taken, originals))

    check(all(is_same(step(blocks)) for _ in range(STEPS)),
          f"{BLOCKS} values on {DEVICES} devices are put and taken in one program")
    check(all(is_same(again(blocks)[0]) for _ in range(STEPS)), "and taken twice")
    check(not actmem.jax.stats()["live_blocks"], "and dropped after that")
    check(all(is_same(together(blocks)) for _ in range(STEPS)), "and all of them announced")
    stats = actmem.jax.stats()
    part = STEPS * BLOCKS * originals[0].nbytes // DEVICES
    check(all(stats["transfers"][device]["to_host_bytes_total"] == 3 * part and
              stats["transfers"][device]["to_device_bytes_total"] == 4 * part
              for device in range(DEVICES)), f"{3 * part} bytes went to and fro by each")
    actmem.jax.reset()
    stats = actmem.jax.stats()
    check(not stats["live_blocks"] and
          not any(stats["transfers"][device]["ring_bytes"] for device in range(DEVICES)),
          "reset() gives the rings of both back")
    finish()


if __name__ == "__main__":
    main()
