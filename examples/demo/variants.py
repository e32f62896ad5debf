# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Where a layer's activations go between forward and backward.

prevent_cse=False: inside lax.scan nothing can be merged with the forward pass.
"""
import jax

NAMES = ("q", "k", "v")


def kept(layer):
    """JAX keeps whatever the backward pass needs."""
    return layer


def recomputed(layer):
    """Only each layer's input is kept; the backward pass recomputes the rest."""
    return jax.checkpoint(layer, prevent_cse=False)


def same_policy(layer):
    """As `actmem`, but what is kept stays in XLA's memory."""
    policy = jax.checkpoint_policies.save_only_these_names(*NAMES)
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)


def actmem(layer):
    """Q, K, V and each layer's input wait in actmem regions."""
    import actmem.jax
    policy = jax.checkpoint_policies.save_only_these_names(*NAMES)
    return actmem.jax.checkpoint(layer, policy=policy, offload_argnums=(1,),
                                 prevent_cse=False)


# The store's budget decides whether they stay there or go through a file.
WRAPPERS = {"kept": kept, "recomputed": recomputed,
            "same policy": same_policy, "actmem": actmem, "spilled": actmem}
IN_ACTMEM = ("actmem", "spilled")


def offloaded_bytes_per_step(shape):
    """Of what `actmem` puts into regions: Q, K, V and the input of each layer."""
    return (len(NAMES) + 1) * shape.layers * shape.activation_bytes
