# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""An update on the host in programs that XLA compiled for a GPU: the gradients leave, and the host
computes the state from them. As in state.py, the programs move arrays but compute nothing on the
device. Prints TAP."""
import jax
import numpy as np
import optax

import actmem.jax
import actmem.optax
from actmem.jax._state import values_of
from states import check_reset, stored, tokens_of, with_ghosts
from stock import check, finish

LEAVES, SHAPE, STEPS = 4, (512, 512), 5


def momentum(updates, state, params=None):
    return updates, [new + 0.5 * old for new, old in zip(updates, state)]


def main():
    device = jax.devices()[0]
    random = np.random.default_rng(3)
    # Small integers: all sums are exact.
    wanted = [random.integers(0, 9, SHAPE).astype(np.float32) * 64 for _ in range(LEAVES)]
    tx = actmem.optax.offload(optax.GradientTransformation(lambda params: params, momentum),
                              on="host")
    state = stored(wanted)
    step = jax.jit(lambda updates, state: tokens_of(tx.update(updates, state)[1]),
                   donate_argnums=1)
    for _ in range(STEPS):
        gradients = [random.integers(0, 9, SHAPE).astype(np.float32) for _ in range(LEAVES)]
        wanted = [new + np.float32(0.5) * old for new, old in zip(gradients, wanted)]
        state = with_ghosts(step([jax.device_put(value, device) for value in gradients], state),
                            wanted[0])
    jax.block_until_ready(tokens_of(state))
    stats = actmem.jax.stats()
    transfers = stats["transfers"][0]
    moved = (STEPS + 1) * LEAVES * wanted[0].nbytes
    check(transfers["to_host_bytes_total"] == moved and not transfers["to_device_bytes_total"],
          f"{moved >> 20} MiB of gradients and first values went to the host, and nothing came back")
    check(stats["live_blocks"] == LEAVES, f"{stats['live_blocks']} blocks hold the state")
    check(all(np.array_equal(value, exact) for value, exact in zip(values_of(state), wanted)),
          f"the state after {STEPS} steps is that of NumPy")
    check_reset(LEAVES)
    finish()


if __name__ == "__main__":
    main()
