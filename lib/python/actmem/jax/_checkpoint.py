# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""checkpoint: jax.checkpoint whose saved values live in actmem memory; and patch, which
has jax.checkpoint itself keep there what a policy offloads to pinned_host.

Both leave the work to JAX: they only say, by a policy, what goes to actmem; _remat.py has
the rules of how.
"""
import functools
import os
from contextlib import contextmanager

import jax
from jax.ad_checkpoint import checkpoint_name

from actmem.jax import _private, _remat

MIN_BYTES = 1024


def _label(f):
    while isinstance(f, functools.partial):
        f = f.func
    f = getattr(f, "__wrapped__", f)
    name = getattr(f, "__qualname__", None) or type(f).__qualname__
    code = getattr(f, "__code__", None)
    if code is None:
        return name
    return f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _argnums(kind, argnums, count):
    """As a set of positions, whatever way the caller counted."""
    try:
        argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    except TypeError:
        raise TypeError(f"{kind}={argnums!r} is neither a position nor a "
                        "sequence of them") from None
    for number in argnums:
        if not isinstance(number, int) or not -count <= number < count:
            raise ValueError(f"{kind} names argument {number!r}, but there "
                             f"are {count} positional arguments")
    return {number % count for number in argnums}


# Of jax.checkpoint_policies, those that are no policies themselves.
_FACTORIES = {getattr(jax.checkpoint_policies, name, None) for name in (
    "save_only_these_names", "save_any_names_but_these", "save_anything_except_these_names",
    "save_and_offload_only_these_names", "save_from_both_policies",
    "offload_dot_with_no_batch_dims")} - {None}


def _check_options(policy, min_bytes):
    if isinstance(policy, type(_label)) and policy in _FACTORIES:
        raise TypeError(f"policy=jax.checkpoint_policies.{policy.__name__} makes a policy: "
                        "call it, for instance with the names to save")
    if policy is not None and not callable(policy):
        raise TypeError(f"policy={policy!r} is no policy of jax.checkpoint's")
    if not isinstance(min_bytes, int) or min_bytes < 0:
        raise ValueError(f"min_bytes={min_bytes!r} is no number of bytes")


class _Policy:
    """What is saved goes to actmem, if it is not too small; of a policy that tells
    Saveable from Offloadable, what it offloads."""

    def __init__(self, policy, min_bytes):
        self.policy = policy
        self.min_bytes = min_bytes

    def __call__(self, primitive, *avals, **params):
        name = params.get("name")
        if primitive is _private.name_p and isinstance(name, _Argument):
            return _remat.Kept(self.min_bytes, str(name))
        if self.policy is None:
            return False
        verdict = self.policy(primitive, *avals, **params)
        if verdict is True or isinstance(verdict, _private.Offloadable):
            return _remat.Kept(self.min_bytes)
        return verdict

    def __eq__(self, other):
        return type(other) is _Policy and \
            (self.policy, self.min_bytes) == (other.policy, other.min_bytes)

    def __hash__(self):
        return hash((_Policy, self.policy, self.min_bytes))


class _Argument(str):
    """The name of an argument of offload_argnums, which no policy means."""


def checkpoint(fun=None, *, policy=None, offload_argnums=(), min_bytes=MIN_BYTES, **options):
    """jax.checkpoint, but what is saved lives in actmem memory between the forward and the
    backward pass.

    fun              the function, of arrays and pytrees of them
    policy           as for jax.checkpoint. All it saves (True) goes to actmem. Of a policy
                     that tells jax.ad_checkpoint.Saveable from Offloadable, as
                     save_and_offload_only_these_names does, what it offloads goes there,
                     and what it saves stays on the device. None: nothing is saved, all is
                     recomputed
    offload_argnums  a position, or several, of arguments that are activations, such as a
                     layer's input: where the backward pass needs them, it gets them from
                     actmem. All other arguments, and what fun closes over, are taken for
                     weights, which neither move nor are copied
    min_bytes        smaller values stay on the device
    options          prevent_cse, static_argnums and whatever else the installed
                     jax.checkpoint takes, as there

    Without fun it is a decorator: @actmem.jax.checkpoint(policy=...).

    What jax.checkpoint differentiates, this does: forward modes, second derivatives, a vjp
    function that is called again. On several devices each keeps its own shard, on meshes
    of any kind. It runs on CPUs and on NVIDIA GPUs; elsewhere NotImplementedError says so
    when a program is compiled. TypeError and ValueError tell of wrong options, and the
    step fails in words where there is no memory.
    """
    if fun is None:
        return functools.partial(checkpoint, policy=policy, offload_argnums=offload_argnums,
                                 min_bytes=min_bytes, **options)
    if not callable(fun):
        raise TypeError(f"checkpoint wants a function, not {fun!r}")
    _check_options(policy, min_bytes)
    if offload_argnums != ():
        fun = _with_named_arguments(fun, offload_argnums, options.get("static_argnums", ()))
    return _private.checkpoint(fun, policy=_Policy(policy, min_bytes), **options)


def _with_named_arguments(fun, offload_argnums, static_argnums):
    label = _label(fun)

    @functools.wraps(fun)
    def named(*args, **kwargs):
        offloaded = _argnums("offload_argnums", offload_argnums, len(args))
        static = _argnums("static_argnums", static_argnums, len(args))
        if static & offloaded:
            raise ValueError("offload_argnums and static_argnums both name argument "
                             f"{min(static & offloaded)}")
        args = [checkpoint_name(arg, _Argument(f"argument {i} of {label}"))
                if i in offloaded else arg for i, arg in enumerate(args)]
        return fun(*args, **kwargs)
    return named


@contextmanager
def _undone():
    try:
        yield
    finally:
        _remat.give_back("pinned_host")
        jax.clear_caches()


def patch():
    """From now on jax.checkpoint and jax.remat, as libraries call them, keep in actmem what
    their policy offloads to pinned_host (save_and_offload_only_these_names,
    offload_dot_with_no_batch_dims, or one that returns Offloadable); all else stays as it
    was. It does not matter which functions were wrapped, or libraries imported, before.

    As a context manager it is undone at the end of the block. When it begins and ends JAX
    forgets what it has compiled, for all of the process, as that would not change else.

    A policy whose offload_dst is "actmem" needs no patch.
    """
    _remat.take_over("pinned_host")
    jax.clear_caches()
    return _undone()
