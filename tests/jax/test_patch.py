# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""patch(): libraries that call jax.checkpoint themselves."""
import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import actmem.jax
from models import Count, close

offload = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["a"], names_which_can_be_offloaded=["b"],
    offload_src="device", offload_dst="pinned_host")
save = jax.checkpoint_policies.save_only_these_names("a", "b")


def f(x, power):
    a = checkpoint_name(jnp.sin(x), "a")
    b = checkpoint_name(jnp.cos(a) * x, "b")
    return jnp.sin(b) ** power


def gradient(wrap, policy, x):
    wrapped = wrap(f, policy=policy, static_argnums=(1,))
    return jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x, 2))))(x)


@pytest.mark.parametrize("name", ["checkpoint", "remat"])
def test_only_what_a_policy_offloads(name):
    x = jnp.linspace(0., 1., 512)
    stock = getattr(jax, name)
    wanted = gradient(stock, save, x)
    with actmem.jax.patch():
        patched = getattr(jax, name)
        assert patched is not stock
        for policy, puts in ((offload, 1), (save, 0), (None, 0)):
            count = Count()
            close(gradient(patched, policy, x), wanted, 16)
            assert count("puts_total") == count("takes_total") == puts
        # Both ways at once.
        count = Count()
        close(gradient(actmem.jax.checkpoint, save, x), wanted, 16)
        assert count("puts_total") == 2
    assert getattr(jax, name) is stock


def test_what_it_cannot_do_is_said():
    x = jnp.ones(512)
    with actmem.jax.patch():
        wrapped = jax.checkpoint(f, policy=offload, static_argnums=(1,),
                                 prevent_cse=(True,))
        with pytest.raises(NotImplementedError, match="prevent_cse"):
            jax.grad(lambda x: jnp.sum(wrapped(x, 2)))(x)
