# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""patch(): libraries that call jax.checkpoint themselves."""
import threading

import jax
import jax.numpy as jnp
import numpy as np
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
        for policy, puts in ((offload, 1), (save, 0), (None, 0)):
            count = Count()
            close(gradient(stock, policy, x), wanted, 16)
            assert count("puts_total") == count("takes_total") == puts
        # Both ways at once.
        count = Count()
        close(gradient(actmem.jax.checkpoint, save, x), wanted, 16)
        assert count("puts_total") == 2
    count = Count()
    close(gradient(stock, offload, x), wanted, 16)
    assert count("puts_total") == 0


def test_a_policy_that_names_actmem():
    """Needs no patch."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["b"],
        offload_src="device", offload_dst="actmem")
    x = jnp.linspace(0., 1., 512)
    count = Count()
    close(gradient(jax.checkpoint, policy, x), gradient(jax.checkpoint, save, x), 16)
    assert count("puts_total") == count("takes_total") == 1


def test_programs_that_were_compiled_before():
    x = jnp.linspace(0., 1., 512)
    wrapped = jax.checkpoint(f, policy=offload, static_argnums=(1,))
    step = jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x, 2))))
    wanted, count = step(x), Count()
    with actmem.jax.patch():
        close(step(x), wanted, 16)
        assert count("puts_total") == 1
    close(step(x), wanted, 16)
    assert count("puts_total") == 1


@pytest.mark.parametrize("taken", [True, False])
def test_a_name_in_a_branch(taken):
    """Of a condition both of whose branches have results of the same types."""
    x = jnp.linspace(0., 1., 512)

    def gradient(policy):
        wrapped = jax.checkpoint(lambda x, taken: jax.lax.cond(
            taken, lambda x: f(x, 2), lambda x: jnp.sin(jnp.tanh(x)), x), policy=policy)
        return jax.jit(jax.grad(lambda x, taken: jnp.sum(wrapped(x, taken))))(x, taken)
    # Stock JAX 0.10 cannot offload from a branch.
    wanted, count = gradient(save), Count()
    with actmem.jax.patch():
        close(gradient(offload), wanted, 16)
    assert count("puts_total") == count("takes_total") == taken


def test_what_is_only_evaluated_is_not_differentiated():
    wrapped = jax.checkpoint(lambda x: jax.pure_callback(np.sin, x, x), policy=offload)
    x = jnp.linspace(0., 1., 512)
    with actmem.jax.patch():
        np.testing.assert_allclose(jax.jit(wrapped)(x), np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("prevent_cse", [False, (True, False), (False, True)])
def test_prevent_cse_of_each_argument(prevent_cse):
    def gradient(wrap):
        wrapped = wrap(lambda x, y: f(x * y, 2), policy=offload, prevent_cse=prevent_cse)
        return jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x, x + 1))))(x)
    x = jnp.linspace(0., 1., 512)
    wanted, count = gradient(jax.checkpoint), Count()
    with actmem.jax.patch():
        close(gradient(jax.checkpoint), wanted, 16)
        assert count("puts_total") == 1
    close(gradient(actmem.jax.checkpoint), wanted, 16)
    assert count("puts_total") == 2


@pytest.mark.parametrize("memory,puts", [("pinned_host", 2), ("unpinned_host", 0)])
def test_dots_that_are_offloaded(memory, puts):
    """To any memory but the pinned one stays stock."""
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", memory)
    x = jnp.linspace(0., 1., 256).reshape(16, 16)

    def gradient():
        return jax.jit(jax.grad(lambda x: jnp.sum(jax.checkpoint(
            lambda x: jnp.sin(jnp.sin(x @ x) @ x), policy=policy)(x))))(x)
    wanted, count = gradient(), Count()
    with actmem.jax.patch():
        close(gradient(), wanted, 16)
    assert count("puts_total") == count("takes_total") == puts


def puts():
    """How many of three values of 2048, 1024 and 1020 bytes a step puts."""
    def f(x):
        for power, size in enumerate((512, 256, 255)):
            x = jnp.sin(checkpoint_name(x[:size] ** (power + 1), "b"))
        return jnp.sum(x)
    count = Count()
    jax.block_until_ready(jax.jit(jax.grad(jax.checkpoint(f, policy=offload)))(
        jnp.linspace(0., 1., 512)))
    assert count("takes_total") == count("puts_total")
    return count("puts_total")


def test_small_values_stay():
    with actmem.jax.patch():
        assert puts() == 2
    with actmem.jax.patch(min_bytes=1025):
        assert puts() == 1
    with actmem.jax.patch(min_bytes=0):
        assert puts() == 3
    with pytest.raises(ValueError, match="min_bytes='1K' is not a number of bytes"):
        actmem.jax.patch(min_bytes="1K")
    assert puts() == 0


def test_patches_nest():
    with actmem.jax.patch():
        with actmem.jax.patch(min_bytes=0):
            assert puts() == 3
        assert puts() == 2
        with pytest.raises(KeyError), actmem.jax.patch():
            raise KeyError
        assert puts() == 2
    assert puts() == 0


def test_patches_end_in_any_order():
    first, second, third = (actmem.jax.patch(min_bytes=size) for size in (0, 1024, 1025))
    assert puts() == 1
    with second:
        assert puts() == 1
    assert puts() == 1
    with third:
        assert puts() == 1
    assert puts() == 3, "the second has ended, too"
    with first:
        assert puts() == 3
    assert puts() == 0


def test_a_patch_of_no_block_stays():
    """As where a program calls patch() and a library in it uses `with patch()`."""
    script = actmem.jax.patch()
    with actmem.jax.patch():
        assert puts() == 2
    assert puts() == 2
    with script:
        pass
    assert puts() == 0


def test_patches_of_threads():
    """Many begin and end at once; the one around them all stays."""
    def use():
        for _ in range(50):
            with actmem.jax.patch():
                pass
    with actmem.jax.patch(min_bytes=0):
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert puts() == 3
    assert puts() == 0


def test_a_patch_in_force_compiles_nothing_again():
    """A second one that changes nothing."""
    traced = 0

    @jax.jit
    def f(x):
        nonlocal traced
        traced += 1
        return x
    with actmem.jax.patch():
        f(1.)
        with actmem.jax.patch():
            f(1.)
        f(1.)
    assert traced == 1
    f(1.)
    assert traced == 2
