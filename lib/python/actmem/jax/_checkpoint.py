# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""checkpoint() is like jax.checkpoint, but keeps saved values in actmem memory. With patch(),
jax.checkpoint itself keeps in actmem the values that a policy offloads to pinned_host.

JAX still splits the user's function into a forward and a backward pass. checkpoint() and patch()
only determine which values go to actmem; _remat.py has the rules that move these values.
"""
from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

import jax
from jax.ad_checkpoint import checkpoint_name

from actmem.jax import _private, _remat

MIN_BYTES = 1024


_F = TypeVar("_F", bound=Callable[..., Any])


def _function_label(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    f = getattr(f, "__wrapped__", f)
    name: str = getattr(f, "__qualname__", None) or type(f).__qualname__
    code = getattr(f, "__code__", None)
    if code is None:
        return f"{name} (?)"
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _argnums(kind: str, argnums: int | Sequence[int], count: int) -> set[int]:
    """Returns the positions as non-negative indices."""
    try:
        numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    except TypeError:
        raise TypeError(f"{kind}={argnums!r} is neither a position nor a "
                        "sequence of positions") from None
    for number in numbers:
        if not isinstance(number, int) or not -count <= number < count:
            raise ValueError(f"{kind} names argument {number!r}, but there "
                             f"are {count} positional arguments")
    return {number % count for number in numbers}


# Functions of jax.checkpoint_policies that return policies but are not policies themselves.
_FACTORIES = {getattr(jax.checkpoint_policies, name, None) for name in (
    "save_only_these_names", "save_any_names_but_these", "save_anything_except_these_names",
    "save_and_offload_only_these_names", "save_from_both_policies",
    "offload_dot_with_no_batch_dims")} - {None}


def _check_options(policy: _private.Rule | None, min_bytes: int) -> None:
    if getattr(jax.config, "jax_remat3", False) and not _private.has_remat3:
        raise NotImplementedError(f"JAX {jax.__version__}: actmem.jax supports jax_remat3 only "
                                  "with JAX 0.12 or later")
    if isinstance(policy, type(_function_label)) and policy in _FACTORIES:
        raise TypeError(f"policy=jax.checkpoint_policies.{policy.__name__} is a function that "
                        "makes a policy: call the function, for instance with the names to save")
    if policy is not None and not callable(policy):
        raise TypeError(f"policy={policy!r} is not a policy for jax.checkpoint")
    if not isinstance(min_bytes, int) or min_bytes < 0:
        raise ValueError(f"min_bytes={min_bytes!r} is not a number of bytes")


class _Policy:
    """The policy that checkpoint() passes to JAX. `inner` is the user's policy, or None. Values
    that `inner` saves (True) or offloads (Offloadable) go to actmem, unless they are too small. If
    `inner` returns Saveable for a value, the value stays on the device."""

    def __init__(self, policy: _private.Rule | None, min_bytes: int) -> None:
        self.inner = policy
        self.min_bytes = min_bytes

    def __call__(self, primitive: _private.Primitive, *avals: _private.Aval,
                 **params: Any) -> _private.Verdict:
        name = params.get("name")
        if primitive is _private.name_p and isinstance(name, _Argument):
            return _remat.Kept(self.min_bytes, str(name))
        if self.inner is None:
            return False
        verdict = self.inner(primitive, *avals, **params)
        if verdict is True or isinstance(verdict, _private.Offloadable):
            return _remat.Kept(self.min_bytes)
        return verdict

    def __eq__(self, other: object) -> bool:
        return type(other) is _Policy and \
            (self.inner, self.min_bytes) == (other.inner, other.min_bytes)

    def __hash__(self) -> int:
        return hash((_Policy, self.inner, self.min_bytes))


class _Argument(str):
    """The name of an argument in offload_argnums. This class distinguishes such names from the
    names that a policy selects."""


@overload
def checkpoint(fun: _F, *, prevent_cse: bool | Sequence[bool] = True,
               policy: Callable[..., Any] | None = None,
               static_argnums: int | tuple[int, ...] = (),
               offload_argnums: int | Sequence[int] = (), min_bytes: int = MIN_BYTES,
               **options: Any) -> _F: ...


@overload
def checkpoint(fun: None = None, *, prevent_cse: bool | Sequence[bool] = True,
               policy: Callable[..., Any] | None = None,
               static_argnums: int | tuple[int, ...] = (),
               offload_argnums: int | Sequence[int] = (), min_bytes: int = MIN_BYTES,
               **options: Any) -> Callable[[_F], _F]: ...


def checkpoint(fun: Callable[..., Any] | None = None, *,
               prevent_cse: bool | Sequence[bool] = True,
               policy: Callable[..., Any] | None = None,
               static_argnums: int | tuple[int, ...] = (),
               offload_argnums: int | Sequence[int] = (), min_bytes: int = MIN_BYTES,
               **options: Any) -> Callable[..., Any]:
    """Like jax.checkpoint, but saved values stay in actmem memory between the forward and the
    backward pass. `remat` is another name for checkpoint().

    Args:
      fun: The function. Its arguments and results are arrays of any shape and type, and
        pytrees of them. Without `fun`, the result is a decorator:
        `@actmem.jax.checkpoint(policy=...)`.
      prevent_cse: As for jax.checkpoint.
      policy: As for jax.checkpoint. If the policy returns True or Offloadable for a value, the
        value goes to actmem. If the policy returns jax.ad_checkpoint.Saveable, the value stays on
        the device: save_and_offload_only_these_names returns Saveable for names that it saves. If
        `policy` is None, the backward pass recomputes all values that `fun` computes.
      static_argnums: As for jax.checkpoint.
      offload_argnums: The position, or a sequence of positions, of arguments that are
        activations, such as a layer's input. The backward pass gets these arguments from
        actmem. All other arguments, and the values that `fun` closes over, are treated as
        weights: they are neither moved nor copied.
      min_bytes: Values with fewer bytes stay on the device. Under vmap, `min_bytes` applies to one
        element of the batch, because JAX decides what to save before vmap adds the batch's
        dimension.
      **options: Other options of the installed jax.checkpoint, such as static_argnames,
        which JAX 0.12 supports with jax_remat3.

    Returns:
      A function with the arguments, results and gradients of `fun`. Like jax.checkpoint, it
      supports forward mode, second derivatives, and a vjp function that is called several times.

    Raises:
      TypeError, ValueError: An option is wrong. checkpoint() raises this error, or JAX raises it
        when it traces the returned function.
      NotImplementedError: A program that uses the function is compiled for a platform other
        than CPUs and NVIDIA GPUs.
      jax.errors.JaxRuntimeError: A step could not allocate memory. The error message names the
        setting to raise.

    On several devices, each device stores its own shard in actmem and takes it out. Meshes of any
    kind are supported.

    Example:
      >>> import jax, actmem.jax
      >>> from jax.ad_checkpoint import checkpoint_name
      >>> policy = jax.checkpoint_policies.save_only_these_names("hidden")
      >>> @actmem.jax.checkpoint(policy=policy, offload_argnums=1)
      ... def layer(weights, x):
      ...     return jax.nn.relu(checkpoint_name(x @ weights, "hidden"))
      >>> loss = lambda weights, x: layer(weights, x).sum()
      >>> weights, x = jax.numpy.ones((256, 512)), jax.numpy.ones((64, 256))
      >>> gradient = jax.jit(jax.grad(loss))(weights, x).block_until_ready()
      >>> actmem.jax.stats()["last_run_put_bytes"] == 4 * (64 * 512 + x.size)
      True
    """
    if fun is None:
        return functools.partial(
            checkpoint, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums,
            offload_argnums=offload_argnums, min_bytes=min_bytes, **options)
    if not callable(fun):
        raise TypeError(f"checkpoint needs a function, not {fun!r}")
    _check_options(policy, min_bytes)
    if offload_argnums != ():
        fun = _with_named_arguments(fun, offload_argnums, static_argnums)
    return _private.checkpoint(fun, prevent_cse=prevent_cse, static_argnums=static_argnums,
                               policy=_Policy(policy, min_bytes), **options)


remat = checkpoint


def _with_named_arguments(fun: Callable[..., Any], offload_argnums: int | Sequence[int],
                          static_argnums: int | Sequence[int]) -> Callable[..., Any]:
    label = _function_label(fun)

    @functools.wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        offloaded = _argnums("offload_argnums", offload_argnums, len(args))
        static = _argnums("static_argnums", static_argnums, len(args))
        if static & offloaded:
            raise ValueError("offload_argnums and static_argnums both name argument "
                             f"{min(static & offloaded)}")
        return fun(*[checkpoint_name(arg, _Argument(f"argument {i} of {label}"))
                     if i in offloaded else arg for i, arg in enumerate(args)], **kwargs)
    return named


@contextmanager
def _until_left(patch: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        if _remat.end_patch(patch):
            jax.clear_caches()


def patch(*, min_bytes: int = MIN_BYTES) -> AbstractContextManager[None]:
    """Makes jax.checkpoint and jax.remat keep in actmem the values that their policy offloads to
    pinned_host, even if a library calls these functions. Policies that offload are
    save_and_offload_only_these_names, offload_dot_with_no_batch_dims, and any policy that returns
    Offloadable. The patch does not change the treatment of other values. The patch also applies to
    functions that were wrapped by jax.checkpoint before patch() was called, and to libraries that
    were imported before.

    Args:
      min_bytes: Values with fewer bytes stay on the device, as with checkpoint().

    Returns:
      A context manager, which ends the patch at the end of the `with` block. Without `with`, the
      patch lasts until the process ends. Patches can be nested: each patch ends separately, and the
      latest patch that has not ended applies to all threads.

    Raises:
      ValueError: `min_bytes` is not a number of bytes.

    If a patch changes the treatment of values, patch() clears JAX's cache of compiled programs,
    because a cached program would still treat values as before. A policy whose offload_dst is
    "actmem" needs no patch: values that this policy offloads go to actmem, whatever their size.

    Example:
      >>> import jax, actmem.jax
      >>> layer = jax.checkpoint(     # as a library does
      ...     lambda x: jax.numpy.sin(jax.numpy.sin(x) @ x),
      ...     policy=jax.checkpoint_policies.offload_dot_with_no_batch_dims(
      ...         "device", "pinned_host"))
      >>> x = jax.numpy.ones((64, 64))
      >>> with actmem.jax.patch():
      ...     gradient = jax.jit(jax.grad(lambda x: layer(x).sum()))(x).block_until_ready()
      >>> actmem.jax.stats()["last_run_put_bytes"] == x.nbytes
      True
    """
    _check_options(None, min_bytes)
    begun, is_other = _remat.begin_patch(min_bytes)
    if is_other:
        jax.clear_caches()
    return _until_left(begun)
