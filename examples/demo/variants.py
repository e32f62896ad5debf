# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Wraps a layer to choose where its activations stay from the forward to the backward pass.

prevent_cse=False is safe: inside lax.scan, XLA cannot merge the recomputation with the
forward pass.
"""
import jax

NAMES = ("q", "k", "v")


def kept(layer):
    """JAX keeps all values that the backward pass needs."""
    return layer


def recomputed(layer):
    """JAX keeps only each layer's input; the backward pass recomputes the rest."""
    return jax.checkpoint(layer, prevent_cse=False)


def same_policy(layer):
    """Keeps the same values as `actmem`, but in XLA's memory."""
    policy = jax.checkpoint_policies.save_only_these_names(*NAMES)
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)


def actmem(layer):
    """Keeps Q, K, V and each layer's input in actmem regions."""
    import actmem.jax
    policy = jax.checkpoint_policies.save_only_these_names(*NAMES)
    return actmem.jax.checkpoint(layer, policy=policy, offload_argnums=(1,),
                                 prevent_cse=False)


# "spilled" differs from "actmem" only in the store's budget, which makes values go to a file.
WRAPPERS = {"kept": kept, "recomputed": recomputed,
            "same policy": same_policy, "actmem": actmem, "spilled": actmem}
IN_ACTMEM = ("actmem", "spilled")
