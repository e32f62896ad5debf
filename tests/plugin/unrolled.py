# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The order in which XLA's compiler for GPUs has a step whose layers are unrolled: the puts
of each layer are in the forward pass, before those of the next layer, and not where their
takes are. Nothing is run. Prints TAP."""
import argparse
import os
import sys

import jax

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../gpu"))

import stack  # noqa: E402
import training  # noqa: E402
from stock import check, finish  # noqa: E402

LAYERS = 6


def compiled():
    sizes = stack.MODELS["small"]._replace(layers=LAYERS)
    options = argparse.Namespace(method="actmem", form="unrolled", attention="xla")
    step = jax.jit(training.make_step(sizes, options))
    return step.lower(*training.shapes(sizes, options)).compile().as_text()


def main():
    text = compiled()
    check("is_scheduled=true" in text, "XLA tells the order")
    calls = training.calls(text)
    puts = [i for i, name in calls if name == "put"]
    tie = next(i for i, name in calls if name == "tie")
    check(len(puts) == 3 * LAYERS and puts[-1] < tie,
          f"{len(puts)} puts come before the first layer's takes are tied, at {tie}: {puts}")
    gaps = [puts[i] - puts[i - 1] for i in range(3, len(puts), 3)]
    within = [puts[i + 2] - puts[i] for i in range(0, len(puts), 3)]
    check(min(gaps) > max(within),
          f"what a layer computes after its puts is before the next layer's: {gaps}")
    late = training.late_share(text)
    check(0 < late < 0.5, f"{late:.2f} of the puts are in the last quarter of the forward pass")
    finish()


if __name__ == "__main__":
    main()
