# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Activations and weights on the host: this program combines two of the examples.

One checkpoint handles both. Its policy keeps the layer's input on the host. The policy does not
save the fetched weights, so the backward pass fetches them again.
"""
import sys

import jax

from offload_activations import OFFLOAD, checkpointed, layer
from offload_parameters import ON_HOST, fetching, stored_gradient, taking
from offloading import report, stack, tutorial


def main():
    options = report.options(__doc__)
    sizes = stack.SMALL if options.small else stack.TUTORIAL
    weights, x = stack.weights_and_input(sizes)
    on_host = jax.device_put(weights, ON_HOST)
    rows = report.Report("offload_both", options, sizes)

    rows.run("kept", stack.gradient(layer), weights, x, tutorial=tutorial.KEPT)
    rows.run("activations", stack.gradient(checkpointed(layer, OFFLOAD)), weights, x,
             tutorial=tutorial.ACTIVATIONS)
    both = checkpointed(fetching(layer), OFFLOAD)
    rows.run("both", stack.gradient(both), on_host, x, tutorial=tutorial.BOTH)
    if options.way == "actmem":
        import actmem.jax
        both = checkpointed(taking(layer), OFFLOAD, actmem.jax.checkpoint)
        rows.run("actmem", stored_gradient(both), actmem.jax.offload_params(weights), x,
                 in_actmem=True)
    return rows.finish()


if __name__ == "__main__":
    sys.exit(main())
