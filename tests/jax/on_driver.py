# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The whole line: a JAX training whose activations live in regions of the
driver, and arrays that do. Runs in a booted kernel of two nodes, under

    actmem run --backend driver --nodes 1 -- python on_driver.py

and prints TAP.
"""
import os
import subprocess
import sys
import tempfile
import time

# In an emulated machine, it takes longer to optimize these small programs than to run them.
os.environ["XLA_FLAGS"] = ("--xla_backend_optimization_level=0 "
                           "--xla_llvm_disable_expensive_passes=true")

import jax  # noqa: E402
import numpy as np  # noqa: E402

import actmem.jax  # noqa: E402
from models import LAYERS, data, layer, scanned, wrappers  # noqa: E402
from pair import check, finish  # noqa: E402

MIB = 1 << 20
STEPS = 3
RATE = 0.1
TOTALS = "/sys/class/misc/actmem/node1/region_bytes"


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


def arrays_are_on_the_driver():
    array = actmem.jax.empty((512, 1024))
    array[...] = 3
    taken = actmem.jax.asarray(array, copy=False)
    region, = [r for r in actmem.regions() if r["name"] == "arrays"]
    check(taken.unsafe_buffer_pointer() == array.ctypes.data and
          float(taken.sum()) == 3 * array.size and
          region["backend"] == "driver" and
          region["nodes"] == {1: region["length"]} and
          node_bytes() == region["length"],
          f"an array is in a region of the driver: {region}")
    del array, taken
    # A thread of XLA may refer to the array a little longer.
    for _ in range(100):
        actmem.jax.reset()
        if not node_bytes():
            break
        time.sleep(0.1)
    check(node_bytes() == 0, f"which it gets back, except {node_bytes()} bytes")


# What another process has of the file's array, and where.
READER = """
import sys, actmem, actmem.jax
table = actmem.jax.load(sys.argv[1])
region, = [r for r in actmem.list() if r["named"]]
assert region["backend"] == "driver", region
with open("%s", encoding="ascii") as file:
    assert int(file.read()) == region["length"], region
print(float(table[1, 1]))
""" % TOTALS


def files_are_on_the_driver():
    folder = tempfile.mkdtemp()
    subprocess.run(["/bin/mount", "-t", "actmem", "none", folder], check=True)
    path = os.path.join(folder, "table")
    values = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    actmem.jax.save(path, values)
    actmem.jax.reset()
    check(node_bytes() == 6 * MIB and
          np.array_equal(np.load(path), values),
          "an array is in a file of the driver's, which NumPy reads")
    told = subprocess.run([sys.executable, "-c", READER, path], text=True,
                          capture_output=True, check=False)
    check(told.stdout == "1025.0\n", f"another process has it: {told}")
    os.unlink(path)
    check(node_bytes() == 0, "its memory goes back with the file")

    def copyto(*_, **__):
        raise KeyboardInterrupt
    was, np.copyto = np.copyto, copyto
    try:
        actmem.jax.save("table", values)
    except KeyboardInterrupt:
        check(os.listdir(folder) == [], "an interrupted save leaves no file")
    np.copyto = was
    actmem.jax.reset()
    check(node_bytes() == 0, "and no memory")
    subprocess.run(["/bin/umount", folder], check=True)


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
    arrays_are_on_the_driver()
    files_are_on_the_driver()
    finish()


if __name__ == "__main__":
    main()
