# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Activations on the host between forward and backward pass.

The backward pass of a layer needs the layer's input, and values that the layer computed from it.
The program compares three ways to provide these values. In the first, JAX keeps everything that the
layers compute. In the second, JAX keeps only the inputs, and computes the rest again. In the third,
the inputs are on the host, and only one layer's input at a time is on the device.
"""
import sys

import jax
from jax.ad_checkpoint import checkpoint_name

from offloading import report, stack, tutorial


def layer(x, weights):
    """Names the layer's input, so that policies can choose it."""
    x = checkpoint_name(x, "x")
    return x @ weights[0] @ weights[1]


KEEP = jax.checkpoint_policies.save_only_these_names("x")
OFFLOAD = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["x"],
    offload_src="device", offload_dst="pinned_host")


def checkpointed(layer, policy, checkpoint=jax.checkpoint):
    """Returns `layer`, checkpointed with `policy`. prevent_cse=False is safe: inside lax.scan, XLA
    cannot merge anything with the forward pass."""
    return checkpoint(layer, policy=policy, prevent_cse=False)


def main():
    options = report.options(__doc__)
    sizes = stack.SMALL if options.small else stack.TUTORIAL
    weights, x = stack.weights_and_input(sizes)
    rows = report.Report("offload_activations", options, sizes)

    rows.run("kept", stack.gradient(layer), weights, x, tutorial=tutorial.KEPT)
    rows.run("checkpointed", stack.gradient(checkpointed(layer, KEEP)), weights, x)
    rows.run("offloaded", stack.gradient(checkpointed(layer, OFFLOAD)), weights, x,
             tutorial=tutorial.ACTIVATIONS)
    if options.way == "actmem":
        import actmem.jax
        in_actmem = checkpointed(layer, OFFLOAD, actmem.jax.checkpoint)
        rows.run("actmem", stack.gradient(in_actmem), weights, x, in_actmem=True)
    return rows.finish()


if __name__ == "__main__":
    sys.exit(main())
