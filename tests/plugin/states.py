# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""States of an optimizer in programs that compute nothing on the device. The programs return no
ghosts, which would be constants: the stand-in for CUDA loads no program that has constants."""
import jax
import numpy as np

import actmem.jax
from actmem.jax import Stored
from actmem.jax._handlers import library
from actmem.jax._kept import GhostType, Kept
from actmem.jax._primitives import label_of
from actmem.jax._state import store_all
from stock import check


def labels(leaves):
    return tuple(label_of(f"[{i}] of the optimizer state", "state.py") for i in range(leaves))


def tokens_of(state):
    return [leaf.token for leaf in state]


def with_ghosts(tokens, like):
    """Returns stored arrays of the shape and dtype of `like`."""
    ghost = jax.device_put(np.zeros((*like.shape, 0), np.uint8), jax.devices()[0])
    return [Stored(token, Kept(GhostType(like.dtype), ghost), label)
            for token, label in zip(tokens, labels(len(tokens)))]


def stored(values):
    """Returns the arrays as a state."""
    put = jax.jit(lambda values: tokens_of(store_all(
        values, labels(len(values)), (False,) * len(values))))
    return with_ghosts(put([jax.device_put(value, jax.devices()[0]) for value in values]), values[0])


def check_reset(leaves):
    # Python's own drop computes, so it does not run here.
    check(library.actmem_xla_reset(None, 0) == leaves, "reset() finds the state, and nothing else")
    actmem.jax.reset()
    check(not actmem.counters()["region_bytes"], "reset() gives the regions back")
