# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""checkpoint: jax.checkpoint whose saved values live in actmem memory.

A call traces its function, makes all that it closes over arguments beside
the given ones, and binds a custom_vjp of them whose two halves are the
plan's. The function itself, when it is only evaluated, touches no actmem.
"""
import functools
import os
from contextlib import contextmanager

import jax

from actmem.jax._plan import Plan, Settings
from actmem.jax._primitives import Site

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


def _check_arrays(label, arguments):
    for name, argument in arguments.items():
        for leaf in jax.tree.leaves(argument):
            try:
                jax.typeof(leaf)
            except TypeError:
                raise TypeError(
                    f"actmem.jax.checkpoint of {label}: argument {name!r} is "
                    f"or holds {leaf!r}, which is no array; name the argument "
                    "in static_argnums, or close over it") from None


class _Call:
    """A call's function of its arrays alone, flat, with what it closed over
    first."""

    def __init__(self, f, label, args, kwargs, static_argnums,
                 offload_argnums):
        static = _argnums("static_argnums", static_argnums, len(args))
        offload = _argnums("offload_argnums", offload_argnums, len(args))
        if static & offload:
            raise ValueError("offload_argnums and static_argnums both name "
                             f"argument {min(static & offload)}")
        given = {i: arg for i, arg in enumerate(args) if i not in static}
        _check_arrays(label, {**given, **kwargs})
        leaves, tree = jax.tree.flatten((given, kwargs))
        given_args = tuple(given.values())
        self.given = (given_args, kwargs) if kwargs else given_args

        def flat(*leaves):
            given, kwargs = jax.tree.unflatten(tree, leaves)
            result = f(*[args[i] if i in static else given[i]
                         for i in range(len(args))], **kwargs)
            result, self.result_tree = jax.tree.flatten(result)
            return result

        closed = jax.make_jaxpr(flat)(*leaves)
        self.jaxpr = closed.jaxpr
        self.args = [*closed.consts, *leaves]
        self.closed_over = len(closed.consts)
        self.groups = [None] * self.closed_over
        for i, arg in given.items():
            self.groups += [i] * len(jax.tree.leaves(arg))
        for name in sorted(kwargs):
            self.groups += [name] * len(jax.tree.leaves(kwargs[name]))
        self.activations = {i for i, group in enumerate(self.groups)
                            if group in offload}

    def spread(self, prevent_cse):
        """As jax.checkpoint wants it for `run`."""
        if isinstance(prevent_cse, bool):
            return prevent_cse
        each = jax.tree.broadcast(tuple(prevent_cse), self.given)
        return (False,) * self.closed_over + tuple(jax.tree.leaves(each))

    def results(self, leaves):
        return jax.tree.unflatten(self.result_tree, leaves)

    def run(self, *args):
        return jax.core.eval_jaxpr(self.jaxpr, args[:self.closed_over],
                                   *args[self.closed_over:])


def _bind(call, plan_of):
    """`plan_of(args)` gives the plan, from arguments of the types to come."""
    function = jax.custom_vjp(lambda *args: call.run(*args))

    def forward(*args):
        return plan_of(args).run_forward(args)

    def backward(residuals, cotangents):
        return tuple(residuals.plan.run_backward(residuals, cotangents))

    function.defvjp(forward, backward)
    return call.results(function(*call.args))


def checkpoint(f=None, /, *, policy=None, offload_argnums=(),
               min_bytes=MIN_BYTES, sharding=None, prevent_cse=True,
               static_argnums=()):
    """Like jax.checkpoint, but what is saved lives in actmem memory between
    the forward and the backward pass.

    policy           as for jax.checkpoint. All it saves goes to actmem; of a
                     policy that offloads, what it offloads goes there and
                     what it saves stays on the device. None: nothing is
                     saved, all is recomputed.
    offload_argnums  arguments that are activations, such as a layer's input:
                     where the backward pass needs them, it gets them from
                     actmem. All other arguments, and what f closes over, are
                     taken for weights, which neither move nor are copied.
    min_bytes        smaller values stay on the device
    sharding         needed where values are spread over several devices by
                     a mesh whose axes are not Explicit: a NamedSharding for
                     all of them, or a function that gives one for a value's
                     type (shape, dtype), None for a value on one device
                     Inside vmap it is that of one element: what devices these
                     are on is told to vmap, as spmd_axis_name
    prevent_cse, static_argnums
                     as for jax.checkpoint

    Also a decorator: @actmem.jax.checkpoint(policy=...).

    Gradients are differentiable once: hessian and the like are refused. A
    vjp function of it can be called once. It runs on CPUs and on NVIDIA GPUs.
    """
    if f is None:
        return functools.partial(
            checkpoint, policy=policy, offload_argnums=offload_argnums,
            min_bytes=min_bytes, sharding=sharding, prevent_cse=prevent_cse,
            static_argnums=static_argnums)
    if not callable(f):
        raise TypeError(f"checkpoint wants a function, not {f!r}")
    if not isinstance(min_bytes, int) or min_bytes < 0:
        raise ValueError(f"min_bytes={min_bytes!r} is no number of bytes")
    if not isinstance(prevent_cse, bool):
        raise TypeError(f"prevent_cse={prevent_cse!r} is neither True nor False")
    settings = Settings(policy, prevent_cse, min_bytes, sharding, False)
    label = _label(f)

    @functools.wraps(f)
    def checkpointed(*args, **kwargs):
        call = _Call(f, label, args, kwargs, static_argnums,
                     offload_argnums)
        site = Site.numbered(label)
        plans = []

        def plan_of(args):
            # One for all traces of this call: a loop traces it repeatedly
            # and wants residuals of one structure.
            if not plans:
                plans.append(Plan(call.run, args, call.groups,
                                  call.activations, site, settings))
            return plans[0]

        return _bind(call, plan_of)
    return checkpointed


def _where_offloaded(original):
    """jax.checkpoint, but what a policy offloads goes to actmem."""

    @functools.wraps(original)
    def patched(f, *, prevent_cse=True, policy=None, static_argnums=(),
                **others):
        stock = original(f, prevent_cse=prevent_cse, policy=policy,
                         static_argnums=static_argnums, **others)
        if policy is None:
            return stock
        settings = Settings(policy, prevent_cse, 0, None, True)
        label = _label(f)

        @functools.wraps(f)
        def checkpointed(*args, **kwargs):
            call = _Call(f, label, args, kwargs, static_argnums, ())
            plan = Plan(call.run, call.args, call.groups, call.activations,
                        Site.numbered(label), settings)
            if not any(plan.offloaded):
                # What was traced, and not f once more, of which a second
                # trace need not be the same: Flax draws random keys by a
                # count of them.
                return call.results(original(
                    call.run, prevent_cse=call.spread(prevent_cse),
                    policy=policy, **others)(*call.args))
            if not isinstance(prevent_cse, bool):
                raise NotImplementedError(
                    f"jax.checkpoint of {label} under actmem.jax.patch(): "
                    "prevent_cse for each argument apart")
            return _bind(call, lambda args: plan)
        return checkpointed
    return patched


@contextmanager
def _undone(names):
    try:
        yield
    finally:
        for name, original in names.items():
            setattr(jax, name, original)


def patch():
    """From now on jax.checkpoint and jax.remat, as libraries call them, keep
    in actmem what their policy offloads (save_and_offload_only_these_names,
    offload_dot_with_no_batch_dims, or one that returns Offloadable); all else
    stays as it was.

    Call it before such a library is imported, in case that binds the names.
    As a context manager it is undone at the end of the block.
    """
    names = {name: getattr(jax, name) for name in ("checkpoint", "remat")}
    for name, original in names.items():
        setattr(jax, name, _where_offloaded(original))
    return _undone(names)
