# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Values that are spread over two GPUs, each of which puts and takes its own part, inside
jit and outside of it. Prints TAP."""
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import actmem.jax
from actmem.jax._primitives import Site
from actmem.jax._transfer import put, take, take_all
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

    def step(blocks):
        kept = [put(block, Site("layer", 1), spread) for block in blocks]
        taken = []
        for token, form in reversed(kept):
            taken.append(take(token, taken[-1:], form))
        return taken[::-1]

    @jax.jit
    def together(blocks):
        site = Site("together", 1)
        tokens, forms = zip(*[put(block, site, spread) for block in blocks])
        return take_all(tokens, [], forms, site)

    compiled = jax.jit(step)

    def is_same(taken):
        return all(np.array_equal(a, b) for a, b in zip(taken, originals))

    check(all(is_same(compiled(blocks)) for _ in range(STEPS)),
          f"{BLOCKS} values on {DEVICES} devices are put and taken in one program")
    check(all(is_same(step(blocks)) for _ in range(STEPS)), "and outside of any")
    check(all(is_same(together(blocks)) for _ in range(STEPS)), "and all of them announced")
    stats = actmem.jax.stats()
    part = 3 * STEPS * BLOCKS * originals[0].nbytes // DEVICES
    check(all(stats["transfers"][device]["to_host_bytes_total"] == part and
              stats["transfers"][device]["to_device_bytes_total"] == part
              for device in range(DEVICES)), f"{part} bytes went to and fro by each")
    actmem.jax.reset()
    stats = actmem.jax.stats()
    check(not stats["live_blocks"] and
          not any(stats["transfers"][device]["ring_bytes"] for device in range(DEVICES)),
          "reset() gives the rings of both back")
    finish()


if __name__ == "__main__":
    main()
