# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the tests of libraries share: the policy, and the comparison of a
training under patch() with the same one without it, bit by bit."""
import jax
import numpy as np

import actmem.jax
from models import Count, close

OFFLOAD = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["out"], names_which_can_be_offloaded=["hidden"],
    offload_src="device", offload_dst="pinned_host")

LAYERS, STEPS = 2, 3
BATCH, TOKENS, WIDTH, HIDDEN = 4, 8, 16, 64
RATE = 0.2

# What OFFLOAD sends to the host in a training of STEPS steps.
BYTES = STEPS * LAYERS * BATCH * TOKENS * HIDDEN * 4

X = np.random.default_rng(1).standard_normal((BATCH, TOKENS, WIDTH), np.float32)
Y = np.random.default_rng(2).standard_normal((BATCH, TOKENS, WIDTH), np.float32)


def on_host(tree):
    """The leaves as NumPy's arrays, keys as their data."""
    def array(leaf):
        if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf)
    return jax.tree.map(array, tree)


def same_bits(got, wanted):
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(wanted)):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert a.tobytes() == b.tobytes(), (path, np.abs(a - b).max())


def trained(train, *args, **kwargs):
    """What a training ends with: nothing is taken from traces of another."""
    jax.clear_caches()
    return on_host(train(*args, **kwargs))


def compare(train):
    """`train(policy)` trains from the start, and gives back the losses and all
    else that it ends with; without remat if the policy is None."""
    wanted = trained(train, OFFLOAD)
    with actmem.jax.patch():
        count = Count()
        got = trained(train, OFFLOAD)
    same_bits(got, wanted)
    assert count("put_bytes_total") == count("take_bytes_total") == BYTES
    assert actmem.jax.stats()["live_blocks"] == 0
    close(got[0], trained(train, None)[0], 16)
