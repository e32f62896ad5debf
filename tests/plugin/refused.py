# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The handlers where CUDA registers no memory: a step is right, in memory of the driver's
own, which is told once and counted; with ACTMEM_STRICT=1 it fails in words. Prints TAP."""
import os
import tempfile

import jax
import numpy as np

import actmem.jax
from saved import BLOCKS, SHAPE, backward, forward
from stock import check, finish

TOLD = b"are the CUDA driver's own memory"


def told_by(function):
    """What the function returned, and what was written to stderr meanwhile."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            result = function()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return result, file.read()


def run(step, blocks):
    try:
        return jax.block_until_ready(step(blocks)), ""
    except jax.errors.JaxRuntimeError as error:
        return [], str(error)


def main():
    random = np.random.default_rng(3)
    originals = [random.random(SHAPE, np.float32) for _ in range(BLOCKS)]
    blocks = [jax.device_put(original, jax.devices()[0]) for original in originals]
    step = jax.jit(lambda blocks: backward(forward(blocks), blocks))

    (taken, words), told = told_by(lambda: run(step, blocks))
    if os.environ.get("ACTMEM_STRICT") == "1":
        check("CUDA_ERROR_OPERATING_SYSTEM" in words and "ACTMEM_STRICT=1" in words,
              f"the step fails: {words[:400]!r}")
        check(not actmem.jax.stats()["own_bytes_total"] and TOLD not in told,
              "no memory is the driver's own")
    else:
        check(len(taken) == BLOCKS and all(map(np.array_equal, taken, originals)),
              f"the step is right {words}")
        check(told.count(TOLD) == 1 and b"CUDA_ERROR_OPERATING_SYSTEM" in told
              and b"ACTMEM_STRICT" in told, f"one line tells it: {told[:500]!r}")
        stats = actmem.jax.stats()
        check(stats["own_bytes"] == stats["store"]["memory_bytes"] > 0,
              f"{stats['own_bytes']} bytes are counted, all of the store's")
        (taken, words), told = told_by(lambda: run(step, blocks))
        check(all(map(np.array_equal, taken, originals)) and TOLD not in told,
              "the next step is right, without a word")
    actmem.jax.reset()
    check(not actmem.jax.stats()["own_bytes"] and not actmem.counters()["region_bytes"],
          "reset() gives all of it back")
    finish()


if __name__ == "__main__":
    main()
