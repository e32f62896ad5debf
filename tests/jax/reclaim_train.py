# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A training for test_reclaim.py: prints a line of JSON after each step, and ends after COUNT
steps, or after the next step once its standard input is closed.

    python reclaim_train.py MIB COUNT
"""
import json
import os
import select
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib", "python")]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax.numpy as jnp  # noqa: E402

import actmem.jax  # noqa: E402
from models import normal, trained  # noqa: E402

BATCH, WIDTH = 1024, 512        # 2 MiB of each layer


def layer(x, w):
    return x + jnp.tanh(x * w) * 0.1


def main():
    layers, count = int(sys.argv[1]) // 2, int(sys.argv[2])
    weights, x = normal(0, layers, WIDTH), normal(1, BATCH, WIDTH)
    step = trained(actmem.jax.checkpoint(layer, offload_argnums=0))
    for number in range(count):
        value, _, weights = step(weights, x)
        store = actmem.jax.stats()["store"]
        print(json.dumps({"step": number, "loss": float(value), "time": time.monotonic(),
                          "bytes": actmem.counters()["region_bytes"],
                          "spilled": store["spilled_bytes_total"]}), flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    actmem.jax.reset()
    assert actmem.counters()["region_bytes"] == 0


if __name__ == "__main__":
    main()
