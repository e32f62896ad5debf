# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""An optimizer's state in programs that XLA compiled for a GPU. The "update" only moves arrays:
each leaf gets the old value of the next one. Prints TAP."""
import jax
import numpy as np
import optax

import actmem.jax
import actmem.optax
from actmem.jax._state import values_of
from states import check_reset, stored, tokens_of, with_ghosts
from stock import check, finish

MIB = 1 << 20
LEAVES = 16
SHAPE = (1024, 512)
STEPS = 7


def rotate(updates, state, params=None):
    return updates, state[1:] + state[:1]


def main():
    device = jax.devices()[0]
    random = np.random.default_rng(3)
    originals = [random.integers(0, 1 << 30, SHAPE, np.int32) for _ in range(LEAVES)]
    tx = actmem.optax.offload(optax.GradientTransformation(lambda params: params, rotate),
                              group_bytes=4 * MIB)
    state = stored(originals)
    updates = jax.device_put(np.ones(4, np.int32), device)
    step = jax.jit(lambda updates, state: tokens_of(tx.update(updates, state)[1]),
                   donate_argnums=1)
    before = None
    for number in range(STEPS):
        if number == 2:
            jax.block_until_ready(state)
            before = actmem.jax.stats()["transfers"][0]
        state = with_ghosts(step(updates, state), originals[0])
    jax.block_until_ready(state)
    stats = actmem.jax.stats()
    transfers, store = stats["transfers"][0], stats["store"]
    waits = transfers["token_waits_total"] - before["token_waits_total"]
    check(waits <= (STEPS - 2) * LEAVES // 2,
          f"the takes of a group are announced together: {waits} waits for "
          f"{(STEPS - 2) * LEAVES} takes")
    moved = (STEPS + 1) * LEAVES * originals[0].nbytes
    check(transfers["to_host_bytes_total"] == moved,
          f"{moved / MIB:.0f} MiB went to the host")
    check(stats["live_blocks"] == LEAVES, f"{stats['live_blocks']} blocks hold the state")
    check(store["spilled_bytes_total"] > 0 and
          store["memory_bytes_peak"] <= store["budget_bytes"],
          f"the rest of {store['budget_bytes'] / MIB:.0f} MiB was in files")
    values = values_of(state)
    wanted = originals[STEPS:] + originals[:STEPS]
    check(all(np.array_equal(value, original) for value, original in zip(values, wanted)),
          f"{STEPS} steps have moved each leaf")
    check_reset(LEAVES)
    finish()


if __name__ == "__main__":
    main()
