# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The whole line: a JAX training whose activations live in regions of the
driver. Runs in a booted kernel of two nodes, under

    actmem run --backend driver --nodes 1 -- python on_driver.py

and prints TAP.
"""
import jax
import jax.numpy as jnp
import numpy as np

import actmem.jax
from models import LAYERS, data, layer, scanned, wrappers

MIB = 1 << 20
STEPS = 3
RATE = 0.5
TOTALS = "/sys/class/misc/actmem/node1/region_bytes"
results = 0


def check(good, name):
    global results
    results += 1
    print(f"{'ok' if good else 'not ok'} {results} - {name}", flush=True)
    return good


def train(loss, weights, x):
    """Losses and last gradients of a few steps of gradient descent."""
    step = jax.jit(jax.value_and_grad(loss))
    losses = []
    for _ in range(STEPS):
        value, gradients = step(weights, x)
        losses.append(float(value))
        weights = jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)
    return losses, gradients


def node_bytes():
    with open(TOTALS, encoding="ascii") as file:
        return int(file.read())


def main():
    weights, x = data()
    wrap = wrappers(offload_argnums=(0,))
    trained = {name: train(scanned(wrap[name](layer)), weights, x)
               for name in ("stock", "actmem")}
    stats = actmem.jax.stats()
    bytes_per_step = LAYERS * 4 * x.size * x.dtype.itemsize

    check(actmem.default().backend == "driver", f"backend: {actmem.describe()}")
    losses, gradients = trained["actmem"]
    check(losses[-1] < losses[0], f"the loss falls: {losses}")
    check(losses == trained["stock"][0], "losses are those without actmem")
    check(all(np.array_equal(a, b) for a, b in zip(
        jax.tree.leaves(gradients), jax.tree.leaves(trained["stock"][1]))),
        "gradients are those without actmem, bit by bit")
    check(stats["put_bytes_total"] == stats["take_bytes_total"] ==
          STEPS * bytes_per_step,
          f"{STEPS} times {bytes_per_step} bytes went in and out")
    check(stats["live_bytes"] == 0, "nothing is left in actmem")

    regions = actmem.regions()
    check(len(regions) >= 1 and all(
        r["backend"] == "driver" and r["page_bytes"] == 2 * MIB and
        r["nodes"] == {1: r["length"]}
        for r in regions), f"regions of 2 MiB pages on node 1: {regions}")
    held = sum(r["length"] for r in regions)
    check(held > 0 and node_bytes() == held,
          f"the driver counts the same {held} bytes on node 1")
    actmem.jax.reset()
    check(node_bytes() == 0, "the driver has them back")
    print(f"1..{results}")


if __name__ == "__main__":
    main()
