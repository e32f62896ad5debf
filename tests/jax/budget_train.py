# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A training whose activations are most of what it needs, for test_budget.py
and budget_on_driver.py: prints what it came to, as JSON.

    python budget_train.py actmem|stock MIB [CGROUP]

Its layers' inputs have so many MiB. It enters the memory cgroup before its first
step, so that the limit is one of the training and not of what it takes to
import and compile it.
"""
import ctypes
import hashlib
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "lib", "python")]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import actmem.jax  # noqa: E402
from models import normal, trained  # noqa: E402

BATCH, WIDTH, STEPS = 1024, 512, 2      # 2 MiB of each layer
PR_SET_THP_DISABLE = 41


def layer(x, w):
    return x + jnp.tanh(x * w) * 0.1


WRAPPERS = {"actmem": lambda f: actmem.jax.checkpoint(f, offload_argnums=0),
            "stock": jax.checkpoint}


def without_huge_heap():
    """Has the kernel make no huge pages of malloc's memory, now or later: they count in
    full, and how many it makes of what was once in use is a matter of chance."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")


def main():
    without_huge_heap()
    wrap, layers = WRAPPERS[sys.argv[1]], int(sys.argv[2]) // 2
    weights, x = normal(0, layers, WIDTH), normal(1, BATCH, WIDTH)
    step = trained(wrap(layer)).lower(weights, x).compile()
    jax.block_until_ready((weights, x))
    if len(sys.argv) > 3:
        with open(os.path.join(sys.argv[3], "cgroup.procs"), "w",
                  encoding="ascii") as procs:
            procs.write(str(os.getpid()))

    losses = []
    for _ in range(STEPS):
        value, gradients, weights = step(weights, x)
        losses.append(float(value))
    result = {"losses": losses,
              "gradients": hashlib.sha256(bytes(jnp.asarray(gradients))).hexdigest(),
              "stats": actmem.jax.stats(),
              "region_bytes_peak": actmem.counters()["region_bytes_peak"]}
    actmem.jax.reset()
    print(json.dumps(result | {"left": actmem.jax.stats()["store"]["blocks"],
                               "region_bytes": actmem.counters()["region_bytes"]}))


if __name__ == "__main__":
    main()
