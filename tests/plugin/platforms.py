# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Blocks of a GPU and of a CPU in one process, whose devices have the same numbers: what
one has put the other cannot take. Prints TAP."""
import jax
import numpy as np

import actmem.jax
from actmem.jax._calls import put_here, take_here
from stock import check, finish

BLOCKS = 4
SHAPE = (256, 256)


def main():
    gpu, cpu = jax.devices("cuda")[0], jax.devices("cpu")[0]
    original = np.random.default_rng(3).random(SHAPE, np.float32)
    put = jax.jit(lambda blocks: [put_here(block, "layer #1", bounded=True, many=False)
                                  for block in blocks])
    take = jax.jit(lambda token: take_here(token, SHAPE, original.dtype, "layer #1",
                                           ends=True))

    def refusal(token, device):
        try:
            jax.block_until_ready(take(jax.device_put(token, device)))
            return ""
        except jax.errors.JaxRuntimeError as error:
            return str(error)

    tokens = {device: put([jax.device_put(original, device)] * BLOCKS) for device in (gpu, cpu)}
    # With it the others are on their way to the GPU.
    check(np.array_equal(take(tokens[gpu][-1]), original), "a value of the GPU's")
    words = refusal(tokens[gpu][0], cpu)
    check("on GPU device 0" in words and "needs it on CPU device 0" in words,
          f"a CPU is refused it: {words[:150]}")
    words = refusal(tokens[cpu][0], gpu)
    check("on CPU device 0" in words and "needs it on GPU device 0" in words,
          f"a GPU is refused a CPU's: {words[:150]}")
    check(all(np.array_equal(take(token), original)
              for token in tokens[gpu][:-1] + tokens[cpu]), "each has its own")
    check(not actmem.jax.stats()["live_blocks"], "nothing is left")
    finish()


if __name__ == "__main__":
    main()
