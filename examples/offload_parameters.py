# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Weights on the host: each layer fetches its weights when the layer is computed.

The program compares three ways to provide the weights to the layers. In the first, all weights are
on the device. In the second, they are on the host, and JAX keeps each layer's fetched weights until
the layer's backward pass. In the third, each layer fetches its weights again in the backward pass,
so that only one layer's weights are on the device at a time.
"""
import sys
from functools import partial

import jax
from jax.sharding import SingleDeviceSharding

from offloading import report, stack

ON_DEVICE, ON_HOST = (SingleDeviceSharding(jax.devices()[0], memory_kind=kind)
                      for kind in ("device", "pinned_host"))


def layer(x, weights):
    return x @ weights[0] @ weights[1]


def fetching(layer):
    """Returns a version of `layer` that gets weights on the host and copies them to the device."""
    return lambda x, weights: layer(x, jax.device_put(weights, ON_DEVICE))


def taking(layer):
    """Returns a version of `layer` that gets weights stored by actmem and takes their values."""
    import actmem.jax
    return lambda x, weights: layer(x, actmem.jax.value(weights))


def stored_gradient(layer):
    """Returns stack.gradient() for weights that actmem stores. The gradients are on the device,
    so that they can be compared."""
    import actmem.jax
    return stack.gradient(layer, partial(actmem.jax.value_and_grad, gradients="device"))


def main():
    options = report.options(__doc__)
    sizes = stack.SMALL if options.small else stack.TUTORIAL
    weights, x = stack.weights_and_input(sizes)
    rows = report.Report("offload_parameters", options, sizes)

    rows.run("kept", stack.gradient(layer), weights, x)
    on_host = jax.device_put(weights, ON_HOST)
    rows.run("fetched once", stack.gradient(fetching(layer)), on_host, x)
    # Without a policy, jax.checkpoint keeps only a layer's arguments: x, and the weights, which are
    # on the host.
    fetched_again = jax.checkpoint(fetching(layer), prevent_cse=False)
    rows.run("fetched again", stack.gradient(fetched_again), on_host, x)
    if options.way == "actmem":
        import actmem.jax
        taken_again = jax.checkpoint(taking(layer), prevent_cse=False)
        rows.run("actmem", stored_gradient(taken_again), actmem.jax.offload_params(weights), x,
                 in_actmem=True)
    return rows.finish()


if __name__ == "__main__":
    sys.exit(main())
