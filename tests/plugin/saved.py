# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The handlers of actmem.jax.checkpoint in programs that XLA compiled for a GPU: blocks
that are put by some of its operations and taken, in reverse order, by others, with a
budget and files for what is over it. Prints TAP."""
import jax
import numpy as np

import actmem.jax
from actmem.jax._calls import put_here, take_here, tie_here
from stock import check, finish

MIB = 1 << 20
BLOCKS = 16
SHAPE = (1024, 512)
STEPS = 6
OF_LAYER = 4


def forward(blocks):
    return [put_here(block, "layer #1", bounded=True, many=False) for block in blocks]


def take(token, site, announced=None):
    return take_here(token, SHAPE, np.dtype(np.float32), site, ends=True,
                     announced=announced)


def backward(tokens, blocks):
    """Each is tied to the one taken before it, as to a cotangent."""
    taken = []
    for token in reversed(tokens):
        if taken:
            token, = tie_here(token, taken[-1], numbers=(-1,))
        taken.append(take(token, "layer #1"))
    return taken[::-1]


def by_layers(blocks):
    """A step whose backward pass takes all values of a layer at a time; each layer is a
    site, as each call of a checkpointed function is."""
    kept = []
    for first in range(0, BLOCKS, OF_LAYER):
        site = f"layer #{2 + first}"
        kept.append((site, [put_here(block, site, bounded=True, many=False)
                            for block in blocks[first:first + OF_LAYER]]))
    taken = []
    for site, tokens in reversed(kept):
        tokens = tie_here(*tokens, (taken or blocks)[0], numbers=range(OF_LAYER))
        taken = [take(token, site, i) for i, token in enumerate(tokens)] + taken
    return taken


def waits(call, *operands):
    """How often the handlers waited for the device in it, and what it returned."""
    before = actmem.jax.stats()["transfers"][0]["token_waits_total"]
    result = jax.block_until_ready(call(*operands))
    return actmem.jax.stats()["transfers"][0]["token_waits_total"] - before, result


def main():
    device = jax.devices()[0]
    random = np.random.default_rng(2)
    originals = [random.random(SHAPE, np.float32) for _ in range(BLOCKS)]
    blocks = [jax.device_put(original, device) for original in originals]
    put, take_all = jax.jit(forward), jax.jit(backward)
    step = jax.jit(lambda blocks: backward(forward(blocks), blocks))

    def is_same(taken):
        return all(np.array_equal(a, b) for a, b in zip(taken, originals))

    check(all(is_same(step(blocks)) for _ in range(STEPS)),
          f"{BLOCKS} blocks are put and taken in one program, {STEPS} times")
    check(all(is_same(take_all(put(blocks), blocks)) for _ in range(STEPS)),
          "and put by one program, taken by another one")
    # The next step's puts come while the takes of the one before are under way.
    under_way = [step(blocks) for _ in range(STEPS)]
    check(all(map(is_same, under_way)), "steps that overlap do not disturb each other")

    alone, taken = waits(step, blocks)
    check(alone == BLOCKS and is_same(taken), f"{alone} waits for {BLOCKS} takes alone")
    together, taken = waits(jax.jit(by_layers), blocks)
    check(together == BLOCKS / OF_LAYER and is_same(taken),
          f"{together} for those of {BLOCKS // OF_LAYER} layers")

    stats = actmem.jax.stats()
    transfers, store = stats["transfers"][0], stats["store"]
    moved = (3 * STEPS + 2) * BLOCKS * originals[0].nbytes
    check(transfers["to_host_bytes_total"] == moved, f"{moved / MIB:.0f} MiB went to the host")
    check(transfers["to_device_bytes_total"] == moved, "and as many came back")
    check(store["spilled_bytes_total"] > 0 and
          store["memory_bytes_peak"] <= store["budget_bytes"],
          f"what was over {store['budget_bytes'] / MIB:.0f} MiB was in files: "
          f"{store['spilled_bytes_total'] / MIB:.0f} MiB were written")
    check(not any((stats["live_blocks"], store["blocks"], store["spilled_bytes"],
                   transfers["unfinished"], transfers["staged_bytes"])),
          "nothing is left")
    tokens = put(blocks)
    take_all(tokens, blocks)
    try:
        jax.block_until_ready(take_all(tokens, blocks))
        words = ""
    except jax.errors.JaxRuntimeError as error:
        words = str(error)
    check("requested after its last use" in words, f"a second take is refused: {words[:150]}")
    actmem.jax.reset()
    check(not actmem.counters()["region_bytes"], "reset() gives the regions back")
    finish()


if __name__ == "__main__":
    main()
