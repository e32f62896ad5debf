#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Test actmem.jax.checkpoint on a GPU: gradients beside those of the same model with nothing
offloaded, scanned and unrolled, in memory and mostly in a spill file, with a ring for whole
blocks and one that is shorter than a block, and with steps that overlap. Prints TAP.

--cpu runs the same on a CPU, to try the test itself. Each kind of memory is a process of its
own, because a process opens its memory once; at the end two of them share the card.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import machine
from machine import TREE
from telling import check, end

LAYERS, BATCH, TOKENS, WIDTH, STEPS = 6, 2, 512, 512, 3
BLOCK = BATCH * TOKENS * WIDTH * 4
TOLERANCE = 1e-4        # for sums in another order; a wrong block differs far more
MEMORIES = {
    "memory": {},
    "memory, ring shorter than a block": {"device_ring": BLOCK // 2},
    "files": {"budget": 12 << 20},
    "files, ring shorter than a block": {"budget": 12 << 20, "device_ring": BLOCK // 2},
}


def results(name, spill):
    """Yield (passed, what) for one kind of memory."""
    import actmem
    import actmem.jax
    import jax
    import models
    import numpy as np

    # A GPU would round the operands of its products to 10 bits.
    jax.config.update("jax_default_matmul_precision", "highest")
    options = dict(MEMORIES[name])
    if "budget" in options:
        options["spill"] = spill
    actmem.open(allow="any", heap_grow=4 << 20, **options)
    on_gpu = jax.default_backend() != "cpu"

    weights, x = models.data(layers=LAYERS, batch=BATCH, tokens=TOKENS, width=WIDTH)
    inputs = [jax.random.normal(jax.random.key(i), x.shape) for i in range(STEPS)]

    def close(a, b):
        return all(np.linalg.norm(p - q) <= TOLERANCE * np.linalg.norm(q)
                   for of_a, of_b in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
                   for p, q in zip(of_a, of_b, strict=True))

    def transfers():
        """Those of the first GPU: there are none before its first copy, nor after reset()."""
        return actmem.jax.stats()["transfers"].get(0, {})

    for form in models.scanned, models.unrolled:
        offloaded = actmem.jax.checkpoint(models.layer, policy=models.POLICY, offload_argnums=0,
                                          prevent_cse=form is models.unrolled)
        step = jax.jit(jax.grad(form(offloaded)))
        plain = jax.jit(jax.grad(form(models.layer)))
        want = [jax.device_get(plain(weights, x)) for x in inputs]
        got = [jax.device_get(step(weights, x)) for x in inputs]
        yield (all(map(close, got, want)),
               f"{form.__name__}: gradients are those of nothing offloaded")
        again = [jax.device_get(step(weights, x)) for x in inputs]
        same = all(np.array_equal(a, b) for a, b in
                   zip(jax.tree.leaves(again), jax.tree.leaves(got)))
        yield same or on_gpu, f"{form.__name__}: the same bits again ({same})"
        # All steps are enqueued before the first is waited for.
        overlapped = jax.device_get([step(weights, x) for x in inputs])
        yield (all(map(close, overlapped, want)),
               f"{form.__name__}: {STEPS} steps that overlap")
        saved = actmem.jax.stats()["last_run_put_bytes"]
        yield saved == 4 * LAYERS * BLOCK, f"{form.__name__}: {saved} bytes a step went out"
    stats = actmem.jax.stats()
    yield stats["live_blocks"] == 0, f"{stats['live_blocks']} blocks are left"
    spilled = stats["store"]["spilled_bytes_total"]
    yield bool(spilled) == ("budget" in options), f"{spilled} bytes went through a file"
    if on_gpu:
        copied = transfers()
        print("#", copied)
        yield copied["unfinished"] == 0, "no copy is under way"
        total = stats["put_bytes_total"]
        yield (copied["to_host_bytes_total"] == total ==
               copied["to_device_bytes_total"] - copied["wasted_bytes_total"],
               f"{total} bytes went to the host, and as many back")
        yield (bool(copied["ahead_total"]) == ("device_ring" not in options),
               f"{copied['ahead_total']} takes found their block on the device, "
               f"{copied['late_total']} did not")
    actmem.jax.reset()
    if on_gpu:
        yield transfers().get("ring_bytes", 0) == 0, "the ring is given back"


def child(name, spill):
    sys.path[:0] = [os.path.join(TREE, *folder) for folder in (("lib", "python"),
                                                                ("tests", "jax"))]
    for passed, what in results(name, spill):
        check(passed, f"{name}: {what}")
    return end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--spill", metavar="DIRECTORY", default=machine.spill_folder(),
                        help="on a file system with direct I/O")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--case", choices=MEMORIES)
    given = parser.parse_args()
    if given.case:
        return child(given.case, given.spill)
    # XLA's search for the fastest kernels takes longer than this test may. Two processes
    # share the card's memory.
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS":
                   f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0",
                   **({"JAX_PLATFORMS": "cpu"} if given.cpu else {})}
    if not given.cpu and not machine.has_gpu():
        print("1..0 # SKIP no GPU here")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(dir=given.spill) as folder:
        for names in (*([name] for name in MEMORIES), ["memory", "files"]):
            print(f"# {', '.join(names)}", flush=True)
            running = [subprocess.Popen([sys.executable, __file__, "--case", name, "--spill",
                                         folder], env=environment) for name in names]
            failed += sum(process.wait() != 0 for process in running)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
