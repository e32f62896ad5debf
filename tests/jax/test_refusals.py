# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What cannot work is refused in words that say what, where and what to do."""
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import actmem.jax
from actmem.jax import _private
from models import REMAT3, close


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
    lambda f: jax.jit(jax.hessian(f)), jax.jacfwd, jax.jacrev,
    lambda f: lambda x: jax.jvp(f, (x,), (x,)),
    lambda f: lambda x: jax.linearize(f, x)[1](x),
    lambda f: lambda x: jax.jit(lambda x: jax.linearize(f, x)[1](x))(x),
    lambda f: lambda x: [jax.vjp(f, x)[1](1.)] * 2])
def test_derivatives(derive):
    """Of any order and mode, as with jax.checkpoint."""
    wanted = derive(lambda x: jnp.sum(jax.checkpoint(saved)(x)))(X)
    close(derive(loss)(X), wanted, 16)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("platform", ["tpu", "rocm"])
def test_platforms_without_handlers(platform, devices):
    """On a mesh, too, where XLA would otherwise fail with words of its own."""
    mesh = jax.make_mesh((devices,), ("d",))
    spread = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec("d")))
    with pytest.raises(NotImplementedError,
                       match=f"supports cpu, cuda, but not {platform}; on {platform}, use "
                             "jax.checkpoint with .*save_and_offload_only_these_names"):
        jax.jit(jax.grad(loss)).trace(spread).lower(lowering_platforms=(platform,))


@pytest.mark.parametrize("options,error,words", [
    ({"offload_argnums": 1}, ValueError,
     "offload_argnums names argument 1, but there are 1"),
    ({"offload_argnums": (-2,)}, ValueError, "argument -2"),
    ({"offload_argnums": ("x",)}, ValueError, "argument 'x'"),
    ({"offload_argnums": None}, TypeError, "offload_argnums=None"),
    ({"offload_argnums": 0, "static_argnums": 0}, ValueError,
     "both name argument 0"),
    pytest.param({"static_argnums": 3}, ValueError, "static_argnums",
                 marks=pytest.mark.without_remat3("JAX takes it")),
    ({"min_bytes": -1}, ValueError, "min_bytes=-1"),
    ({"min_bytes": "4K"}, ValueError, "min_bytes='4K'"),
    ({"prevent_cse": 3}, TypeError, "prevent_cse"),
    pytest.param({"policy": lambda *_, **__: "save"}, TypeError, "policy",
                 marks=pytest.mark.without_remat3("JAX asks it of nothing here")),
    ({"policy": jax.checkpoint_policies.save_only_these_names}, TypeError,
     "save_only_these_names.* makes a policy: call the"),
    ({"policy": jax.checkpoint_policies.save_and_offload_only_these_names}, TypeError,
     "makes a policy"),
    ({"no_such": 1}, TypeError, "no_such"),
])
def test_wrong_options(options, error, words):
    with pytest.raises(error, match=words):
        jax.grad(lambda x: jnp.sum(
            actmem.jax.checkpoint(saved, **options)(x)))(X)


def test_the_options_have_names():
    names = inspect.signature(actmem.jax.checkpoint).parameters
    assert {"policy", "prevent_cse", "static_argnums"} < names.keys()
    stock = inspect.signature(jax.checkpoint).parameters
    for name in ("policy", "prevent_cse", "static_argnums"):
        assert names[name].default == stock[name].default
    assert actmem.jax.remat is actmem.jax.checkpoint


if REMAT3:
    # Otherwise, JAX ignores static_argnames.
    def test_options_of_the_installed_jax():
        f = actmem.jax.checkpoint(lambda x, *, again: jnp.sin(x) if again else x,
                                  static_argnames="again")
        assert (jax.grad(lambda x: jnp.sum(f(x, again=True)))(X) == jnp.cos(X)).all()

    def test_plans_need_the_default_checkpoint():
        with pytest.raises(ValueError, match="jax_remat3 is set: plan with JAX_REMAT3=0"):
            actmem.jax.plan(loss, X, machine="h200")


@pytest.mark.without_remat3("it has tables of its own")
def test_a_jax_that_does_not_ask(monkeypatch):
    """Its own rules would save on the device what goes to actmem."""
    asked = _private.pe.partial_eval_jaxpr_custom_rules
    monkeypatch.setattr(_private.pe, "partial_eval_jaxpr_custom_rules", asked.data)
    jax.clear_caches()
    with pytest.raises(RuntimeError, match=f"JAX {jax.__version__} split .* use a version"):
        jax.grad(loss)(X)
    monkeypatch.undo()
    jax.clear_caches()
    close(jax.grad(loss)(X), jax.grad(lambda x: jnp.sum(saved(x)))(X), 16)


def test_no_function():
    with pytest.raises(TypeError, match="needs a function, not 3"):
        actmem.jax.checkpoint(3)


def put(value, token_dtype=jnp.uint32, layout=np.uint32(0), batch=np.int32(0),
        **attributes):
    return jax.ffi.ffi_call("actmem_put",
                            jax.ShapeDtypeStruct((4,), token_dtype),
                            has_side_effect=True)(value, many=True, layout=layout,
                                                  batch=batch, **attributes)


def take(token, like=X, layout=np.uint32(0)):
    return jax.ffi.ffi_call("actmem_take",
                            jax.ShapeDtypeStruct(like.shape, like.dtype),
                            has_side_effect=True)(token, ends=True, layout=layout)


def tie(tokens, numbers):
    return jax.ffi.ffi_call("actmem_tie", jax.ShapeDtypeStruct(tokens.shape, tokens.dtype),
                            has_side_effect=True)(tokens, numbers=np.array(numbers, np.int32))


@pytest.mark.parametrize("call", [
    lambda: put(X),
    lambda: put(X, site="here"),
    lambda: put(X, site=3, bounded=True),
    lambda: put(X, site="here", bounded=1),
    lambda: put(X, jnp.float32, site="here", bounded=True),
    lambda: put(X, site="here", bounded=True, layout=0),
    lambda: put(X, site="here", bounded=True, batch=0),
    lambda: put(X, site="here", bounded=True, batch=np.int32(3)),
    lambda: put(X, site="here", bounded=True, batch=np.int32(-1)),
    lambda: take(X[0]),
    lambda: take(jnp.zeros(3, jnp.uint32)),
    lambda: take(jnp.zeros((3, 4), jnp.uint32)),
    lambda: take(jnp.zeros((4, 1, 1, 4), jnp.uint32)),
    lambda: tie(X[:, :3], [0]),
    lambda: tie(jnp.zeros(4, jnp.uint32), [0, 1])])
def test_handlers_called_wrongly(call):
    with pytest.raises(Exception, match="actmem_(put|take|tie) needs"):
        jax.block_until_ready(jax.jit(call)())


@pytest.mark.parametrize("token", [(0, 1), (7, 0xffffffff), (0xffffffff, 255)])
def test_tokens_never_given(token):
    with pytest.raises(Exception, match="was not made by this process"):
        jax.block_until_ready(
            jax.jit(take)(jnp.array((*token, 0, 0), jnp.uint32)))


def test_a_token_of_another_size_or_device():
    token = jax.jit(lambda: put(X, site="here", bounded=True))()
    for like, wanted in ((X[:2], r"1 of f32\[2,4\] \(32 bytes\)"),
                         (X.T.reshape(2, 8), r"1 of f32\[2,8\] \(64 bytes\)"),
                         (X.astype(jnp.int32), r"1 of s32\[4,4\] \(64 bytes\)")):
        with pytest.raises(Exception, match=r"saved at here is 1 of f32\[4,4\] \(64 bytes\), "
                                            f"but the program needs {wanted}, from number 0 on"):
            jax.block_until_ready(jax.jit(lambda token: take(token, like))(token))
    with pytest.raises(Exception, match="on CPU device 0, but the program needs it on CPU device 1"):
        jax.block_until_ready(jax.jit(take)(
            jax.device_put(token, jax.devices()[1])))
    with pytest.raises(Exception, match="saved at here was saved with another sharding"):
        jax.block_until_ready(jax.jit(lambda token: take(token, layout=np.uint32(7)))(token))
    # Nothing is lost by it.
    assert (jax.jit(take)(token) == X).all()


def test_no_token():
    """What a branch that was not taken has put."""
    assert (jax.jit(take)(jnp.zeros(4, jnp.uint32)) == 0).all()
