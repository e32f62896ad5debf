# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Steps of a program that XLA compiled for a GPU, in which nothing chooses what is put
and taken: from the third on, the host waits for the device in none of them. Prints TAP."""
import jax
import numpy as np

import actmem.jax
from saved import BLOCKS, OF_LAYER, SHAPE, STEPS, by_layers
from stock import check, finish


def transfers():
    return actmem.jax.stats()["transfers"][0]


def main():
    random = np.random.default_rng(2)
    originals = [random.random(SHAPE, np.float32) for _ in range(BLOCKS)]
    blocks = [jax.device_put(original, jax.devices()[0]) for original in originals]
    step = jax.jit(lambda blocks: by_layers(blocks, fixed=True))

    def is_same(taken):
        return all(np.array_equal(a, b) for a, b in zip(taken, originals))

    def rise(count):
        return now[count] - before[count]

    check(is_same(step(blocks)) and is_same(step(blocks)), "two steps are like each other")
    now = transfers()
    check(now["token_waits_total"] == 2 * BLOCKS // OF_LAYER and not now["foreseen_total"],
          f"{now['token_waits_total']} waits for the tokens of {2 * BLOCKS // OF_LAYER} layers")
    for number in range(STEPS):
        before = transfers()
        same = is_same(step(blocks))
        now = transfers()
        check(same and rise("foreseen_total") == BLOCKS and not rise("mended_total"),
              f"step {3 + number} is foreseen")
        check(not rise("host_waits_total"), f"{rise('host_waits_total')} waits in it")
    before = transfers()
    under_way = [step(blocks) for _ in range(STEPS)]
    check(all(map(is_same, under_way)), "steps that overlap do not disturb each other")
    now = transfers()
    check(rise("foreseen_total") == STEPS * BLOCKS and not rise("token_waits_total"),
          "and are foreseen, too")
    check(not any((actmem.jax.stats()["live_blocks"], now["mended_total"])), "nothing is left")
    actmem.jax.reset()
    check(not actmem.counters()["region_bytes"], "reset() gives the regions back")
    finish()


if __name__ == "__main__":
    main()
