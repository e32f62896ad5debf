# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What cannot work is refused in words that say what, where and what to do."""
import jax
import jax.numpy as jnp
import pytest

import actmem.jax


def saved(x):
    return jnp.sin(jnp.sin(x))


F = actmem.jax.checkpoint(saved, offload_argnums=0, min_bytes=0)
X = jnp.ones((4, 4))


def loss(x):
    return jnp.sum(F(x))


@pytest.mark.parametrize("derive", [
    jax.hessian,
    lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x))),
    lambda f: lambda x: jax.jvp(jax.grad(f), (x,), (x,)),
    lambda f: jax.jit(jax.hessian(f))])
def test_second_derivatives(derive):
    with pytest.raises(NotImplementedError,
                       match=r"saved \(test_refusals.py:\d+\).*hessian.*"
                             r"use jax.checkpoint there"):
        derive(loss)(X)


def test_forward_mode():
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda x: jax.jvp(loss, (x,), (x,)))(X)


@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_platforms_without_handlers(platform):
    with pytest.raises(NotImplementedError,
                       match=f"does not run on {platform}, only on cpu, "
                             "cuda"):
        jax.jit(jax.grad(loss)).trace(X).lower(lowering_platforms=(platform,))


@pytest.mark.parametrize("options,error,words", [
    ({"offload_argnums": 1}, ValueError,
     "offload_argnums names argument 1, but there are 1"),
    ({"offload_argnums": (-2,)}, ValueError, "argument -2"),
    ({"offload_argnums": ("x",)}, ValueError, "argument 'x'"),
    ({"offload_argnums": None}, TypeError, "offload_argnums=None"),
    ({"offload_argnums": 0, "static_argnums": 0}, ValueError,
     "both name argument 0"),
    ({"static_argnums": 3}, ValueError, "static_argnums names argument 3"),
    ({"min_bytes": -1}, ValueError, "min_bytes=-1"),
    ({"min_bytes": "4K"}, ValueError, "min_bytes='4K'"),
    ({"prevent_cse": (True,)}, TypeError, "prevent_cse"),
    ({"policy": lambda *_, **__: "save"}, TypeError, "policy"),
    ({"no_such": 1}, TypeError, "no_such"),
])
def test_wrong_options(options, error, words):
    with pytest.raises(error, match=words):
        jax.grad(lambda x: jnp.sum(
            actmem.jax.checkpoint(saved, **options)(x)))(X)


@pytest.mark.parametrize("call", [lambda f: f(X, "mean"),
                                  lambda f: f(X, how={"kind": "mean"})])
def test_arguments_that_are_no_arrays(call):
    f = actmem.jax.checkpoint(lambda x, how: x, offload_argnums=0)
    with pytest.raises(TypeError, match=r"<lambda> \(test_refusals.py:\d+\): "
                                        r"argument (1|'how') is or holds "
                                        r"'mean'.*static_argnums"):
        call(f)


def test_no_function():
    with pytest.raises(TypeError, match="wants a function, not 3"):
        actmem.jax.checkpoint(3)


def put(value, token_dtype=jnp.uint32, **attributes):
    return jax.ffi.ffi_call("actmem_put",
                            jax.ShapeDtypeStruct((2,), token_dtype),
                            has_side_effect=True)(value, **attributes)


def take(token, like=X):
    return jax.ffi.ffi_call("actmem_take",
                            jax.ShapeDtypeStruct(like.shape, like.dtype),
                            has_side_effect=True)(token)


@pytest.mark.parametrize("call", [
    lambda: put(X),
    lambda: put(X, site="here"),
    lambda: put(X, site=3, bounded=True),
    lambda: put(X, site="here", bounded=1),
    lambda: put(X, jnp.float32, site="here", bounded=True),
    lambda: take(X[0]),
    lambda: take(jnp.zeros(3, jnp.uint32))])
def test_handlers_called_wrongly(call):
    with pytest.raises(Exception, match="actmem_(put|take) wants"):
        jax.block_until_ready(jax.jit(call)())


@pytest.mark.parametrize("token", [(0, 0), (7, 0xffffffff), (0xffffffff, 255)])
def test_tokens_never_given(token):
    with pytest.raises(Exception, match="was not made by this process"):
        jax.block_until_ready(
            jax.jit(take)(jnp.array(token, jnp.uint32)))


def test_a_token_of_another_size_or_device():
    token = jax.jit(lambda: put(X, site="here", bounded=True))()
    with pytest.raises(Exception, match="saved at here has 64 bytes on CPU "
                                        "device 0, but 32 bytes are wanted on "
                                        "CPU device 0"):
        jax.block_until_ready(jax.jit(lambda token: take(token, X[:2]))(token))
    with pytest.raises(Exception, match="on CPU device 0, but 64 bytes are "
                                        "wanted on CPU device 1"):
        jax.block_until_ready(jax.jit(take)(
            jax.device_put(token, jax.devices()[1])))
    # Nothing is lost by it.
    assert (jax.jit(take)(token) == X).all()
