# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The JAX primitives that put values into actmem memory and take them out, and their rules for
JAX's transformations.

    value, token, ghost = put_p.bind(value, label=, batch=, ...)
    value = take_p.bind(token, ghost, label=, weak_type=, ...)
    tokens = tie_p.bind(*tokens, *ties, numbers=)
    tokens = update_p.bind(*tokens, *scalars, program=, labels=, avals=, ...)
    token = hold_p.bind(token)
    token = mark_p.bind(token, is_changed)
    drop_p.bind(token, *ties)

put_p also returns its value, so that the forward pass uses the value only after put_p has run. The
token identifies the value in actmem; the ghost is an array without bytes that has the value's shape
(_kept.py). If the program uses neither the token nor the ghost of put_p, the equation stores
nothing. The result of take_p has the ghost's shape, and the result's tangent is the ghost's
tangent. So for second derivatives, put_p and take_p together are the identity.

vmap always adds its dimension to the tokens as their first dimension. `batch` lists the dimensions
of the value or ghost that correspond to the tokens' dimensions. vmap leaves the axes of a value in
place, because with jax_remat3, JAX compares the axes of a saved value with those of the recomputed
value. Only the custom calls move the batch's dimensions to the front. A program can select or
reorder tokens between put_p and take_p. take_p returns the value of each token that it gets.

These primitives have no JAX effect, so that JAX can drop them, batch them, and split them between
the forward and the backward pass. For XLA, their custom calls have a side effect, so XLA neither
merges two calls of actmem_put nor moves such a call out of a loop.

When a program is complete, _finish.py counts the uses of each token, and sets the parameters in
PUT, TAKE and UPDATE, which until then have the defaults below.
"""
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import Sharding

from actmem.jax import _calls, _private
from actmem.jax._kept import (ANY_TOKEN, GRADIENT, STEP, TOKEN_WORDS, GhostType, TokenType, is_state,
                              wrap_p)
from actmem.jax._private import Aval, Context, Eqn, Rule
from actmem.jax._tokens import drain

put_p = Primitive("actmem_put")
put_p.multiple_results = True
take_p = Primitive("actmem_take")
# Returns its tokens only after the values `ties` have been computed.
tie_p = Primitive("actmem_tie")
tie_p.multiple_results = True
# Makes new references to the blocks of tokens (_finish.py).
hold_p = Primitive("actmem_hold")
# Computes new values on the host from the values of tokens. `avals`: types of the new values.
update_p = Primitive("actmem_update")
update_p.multiple_results = True
# Marks each token whose bool in the second operand is true. A program that takes the value of a
# marked token fails.
mark_p = Primitive("actmem_mark")
# _finish.py adds ghost_p and result_ghost_p to complete programs. Each of them makes a new ghost,
# an array without bytes: ghost_p makes a ghost that the program uses, and result_ghost_p makes a
# ghost that the program returns.
ghost_p = Primitive("actmem_ghost")
result_ghost_p = Primitive("actmem_result_ghost")
drop_p = Primitive("actmem_drop")

PUT: dict[str, Any] = dict(batch=(), number=None, bounded=False, many=True, wanted=True,
                           use=STEP, received=False)
TAKE: dict[str, Any] = dict(batch=(), number=None, ends=False, announced=None, received=False)

UPDATE: dict[str, Any] = dict(numbers=None, bounded=None, many=None, ends=None)


def label_of(name: str, line: str) -> str:
    """Returns a value's label. The put_p and the take_p of the value have this label, and error
    messages show it."""
    return f"{name} ({line})"


# The folders of JAX and of this package. Lines of files in them are not lines of a user's program.
_LIBRARIES = tuple(os.path.dirname(os.path.abspath(path)) + os.sep
                   for path in (jax.__file__, os.path.dirname(__file__)))


def line_of_caller() -> str:
    """Returns the line of the user's program that called this package, such as "file.py:12"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def name_and_line(label: str) -> tuple[str, str]:
    """Splits a label such as "q in Attention.__call__ (model.py:31)" into "q" and the line."""
    name, line = label[:-1].rsplit(" (", 1)
    return name.rsplit(" in ", 1)[0], line


def put(value: Any, label: str, use: str = STEP) -> Any:
    return put_p.bind(value, label=label, **PUT | {"use": use})


def take(token: Any, ghost: Any, label: str, weak_type: bool,
         batch: Sequence[int] = ()) -> Any:
    return take_p.bind(token, ghost, label=label, weak_type=weak_type,
                       **TAKE | {"batch": batch})


def _order(batch: Sequence[int], rank: int) -> list[int]:
    """Returns the order of the dimensions in a custom call: the dimensions of the batch first."""
    return [*batch, *(i for i in range(rank) if i not in batch)]


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def batch_first(aval: Aval, batch: Sequence[int]) -> Aval:
    """Returns the type of a value in a custom call, with the dimensions of the batch first."""
    order = _order(batch, aval.ndim)
    spec = jax.sharding.PartitionSpec(*(aval.sharding.spec[i] for i in order))
    return aval.update(shape=tuple(aval.shape[i] for i in order),
                       sharding=aval.sharding.update(spec=spec))


def token_of(aval: Aval, label: str, batch: Sequence[int] = (), use: str = STEP) -> Aval:
    """Returns the type of a value's tokens. `batch`: the dimensions that belong to the batch."""
    aval, rank = batch_first(aval, batch), len(batch)
    spec = jax.sharding.PartitionSpec(*aval.sharding.spec[:rank])
    return aval.update(shape=aval.shape[:rank],
                       dtype=TokenType(aval.shape[rank:], aval.dtype, label, use),
                       weak_type=False, sharding=aval.sharding.update(spec=spec))


def ghost_of(aval: Aval, token: Aval | None = None) -> Aval:
    """Returns the type of the ghost, an array without bytes, of a value of type `aval`. `token`:
    the type of the value's tokens, required if the value can outlive the step."""
    block = token.dtype if token is not None and is_state(token) else None
    return aval.update(dtype=GhostType(aval.dtype, block), weak_type=False)


@put_p.def_abstract_eval
def _put_abstract(value: Aval, *, label: str, batch: Sequence[int], use: str,
                  **params: Any) -> tuple[Aval, Aval, Aval]:
    token = token_of(value, label, batch, use)
    return value, token, ghost_of(value, token)


@take_p.def_abstract_eval
def _take_abstract(token: Aval, ghost: Aval, *, label: str, weak_type: bool,
                   batch: Sequence[int], **params: Any) -> Aval:
    put, shape = token.dtype.of, batch_first(ghost, batch).shape
    if (*token.shape, *put[0]) != shape or put[1:3] != (ghost.dtype.of_values, label):
        raise TypeError(
            f"a value was put at {put[2]} as {put[1]}{list(put[0])} for each of "
            f"{token.shape} tokens, so it cannot be taken at {label} as "
            f"{ghost.dtype.of_values}{list(shape)}")
    return ghost.update(dtype=ghost.dtype.of_values, weak_type=weak_type)


tie_p.def_impl(lambda *operands, numbers: list(operands[:len(numbers)]))


@tie_p.def_abstract_eval
def _tie_abstract(*operands: Aval, numbers: Sequence[int]) -> Sequence[Aval]:
    return operands[:len(numbers)]


@update_p.def_abstract_eval
def _update_abstract(*operands: Aval, labels: Sequence[str], avals: Sequence[Aval],
                     uses: Sequence[str], **params: Any) -> list[Aval]:
    return [token_of(aval, label, (), use) for aval, label, use in zip(avals, labels, uses)]


hold_p.def_abstract_eval(lambda token: token)
mark_p.def_abstract_eval(lambda token, is_changed: token)
ghost_p.def_abstract_eval(lambda *, aval: aval)
result_ghost_p.def_abstract_eval(lambda token, *, aval: aval)


@drop_p.def_abstract_eval
def dropped_of(token: Aval, *ties: Aval) -> Aval:
    spec = jax.sharding.PartitionSpec()
    return token.update(shape=(1,), dtype=np.dtype(np.uint32), weak_type=False,
                        sharding=token.sharding.update(spec=spec))


# Outside of jit, each call of put_p or take_p runs as a separate program.

@partial(jax.jit, static_argnames=("label", "batch", "use"))
def _put_now(value: Any, *, label: str, batch: Sequence[int], use: str) -> Any:
    return put_p.bind(value, label=label, **PUT | {"batch": batch, "use": use})[1:]


@partial(jax.jit, static_argnames=("label", "weak_type", "batch", "spread"))
def _take_now(token: Any, ghost: Any, *, label: str, weak_type: bool, batch: Sequence[int],
              spread: Sharding | None) -> Any:
    value = take(token, ghost, label, weak_type, batch)
    return value if spread is None else jax.lax.with_sharding_constraint(value, spread)


@put_p.def_impl
def _put_impl(value: Any, *, label: str, batch: Sequence[int], use: str,
              **params: Any) -> tuple[Any, Any, Any]:
    drain()
    with jax.disable_jit(False):
        token, ghost = _put_now(value, label=label, batch=batch, use=use)
    sharding = getattr(value, "sharding", None)
    if sharding is not None and sharding.num_devices > 1:
        ghost.spread = sharding
    return value, token, ghost


@take_p.def_impl
def _take_impl(token: Any, ghost: Any, *, label: str, weak_type: bool, batch: Sequence[int],
               **params: Any) -> Any:
    drain()
    with jax.disable_jit(False):
        return _take_now(token, ghost, label=label, weak_type=weak_type, batch=batch,
                         spread=ghost.spread)


@update_p.def_impl
def _update_impl(*operands: Any, **params: Any) -> Any:
    drain()
    with jax.disable_jit(False):
        return jax.jit(partial(update_p.bind, **params))(*operands)


@jax.jit
def _mark_now(token: Any, is_changed: Any) -> Any:
    return mark_p.bind(token, is_changed)


@mark_p.def_impl
def _mark_impl(token: Any, is_changed: Any) -> Any:
    drain()
    with jax.disable_jit(False):
        return _mark_now(token, is_changed)


@partial(jax.jit, donate_argnums=0)
def drop_now(words: jax.Array) -> jax.Array:
    """Drops the values of the tokens in `words`. The result reuses the memory of `words`."""
    dropped: jax.Array = drop_p.bind(wrap_p.bind(words, dtype=ANY_TOKEN))
    return words + jnp.broadcast_to(dropped, words.shape)


# Derivatives.

def _put_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (value,), (tangent,) = primals, tangents
    if params["use"] == GRADIENT:
        raise NotImplementedError(f"{params['label']} is stored, so it has no derivative: pass "
                                  'gradients="device" to actmem.jax.value_and_grad()')
    value, token, ghost = put_p.bind(value, **params)
    return (value, token, ghost), (tangent, _private.zero_tangent(token), tangent)


def _take_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    return take_p.bind(*primals, **params), tangents[1]


ad.primitive_jvps[put_p] = _put_jvp
ad.primitive_jvps[take_p] = _take_jvp


def _without_tangent(primitive: Primitive) -> None:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        result = primitive.bind(*primals, **params)
        return result, _private.zero_tangent(result)
    ad.primitive_jvps[primitive] = jvp


# vmap.

def _with_dim(batch: Sequence[int], dim: int) -> tuple[int, ...]:
    """Returns `batch` for a value to which vmap has added the dimension `dim`."""
    return dim, *(i + (i >= dim) for i in batch)


def _put_batched(values: Sequence[Any], dims: Sequence[int], *, batch: Sequence[int],
                 **params: Any) -> Any:
    results = put_p.bind(values[0], batch=_with_dim(batch, dims[0]), **params)
    return results, (dims[0], 0, dims[0])


def _all_batched(values: Sequence[Any], dims: Sequence[int | None]) -> tuple[list[Any], list[int]]:
    """Adds a batch dimension to each value without one. Returns the values and their batch axes."""
    size, = {value.shape[dim] for value, dim in zip(values, dims) if dim is not None}
    return [jax.lax.broadcast(value, (size,)) if dim is None else value
            for value, dim in zip(values, dims)], [dim or 0 for dim in dims]


def _with_dim_first(value: Any, dim: int) -> Any:
    return jax.lax.transpose(value, _order([dim], value.ndim)) if dim else value


def _take_batched(values: Sequence[Any], dims: Sequence[int | None], *, batch: Sequence[int],
                  **params: Any) -> Any:
    (token, ghost), (token_dim, dim) = _all_batched(values, dims)
    token = _with_dim_first(token, token_dim)
    return take_p.bind(token, ghost, batch=_with_dim(batch, dim), **params), dim


def _mark_batched(values: Sequence[Any], dims: Sequence[int | None]) -> Any:
    return mark_p.bind(*map(_with_dim_first, *_all_batched(values, dims))), 0


batching.primitive_batchers[put_p] = _put_batched
batching.primitive_batchers[take_p] = _take_batched
batching.primitive_batchers[mark_p] = _mark_batched
_without_tangent(wrap_p)
_without_tangent(mark_p)


def _refuse(*args: Any, **params: Any) -> Any:
    raise NotImplementedError("an update of a state that actmem.optax.offload() stores has no "
                              "derivative, and cannot be under jax.vmap")


# Refuse tie_p, too: while JAX transforms a program, only updates in it use tie_p. _finish.py adds
# all other equations of tie_p later.
for primitive in tie_p, update_p:
    batching.primitive_batchers[primitive] = _refuse
    ad.primitive_jvps[primitive] = _refuse


@jax.custom_jvp
def without_derivative(value: Any) -> Any:
    """Returns `value`, an operand of an update. Raises an error if JAX differentiates the update.
    update_p cannot raise this error, because the token of the operand has no tangent."""
    return value


without_derivative.defjvp(_refuse)


def _put_wanted(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Eqn | None]:
    """Returns whether put_p needs its operand, and the equation to use in place of put_p, if any.
    If the program uses the value, but neither the token nor the ghost, the new equation stores
    nothing."""
    eqn = rest[-1]
    if not any(used):
        return [False], None
    if any(used[1:]):
        return [True], eqn
    return [True], eqn.replace(params={**eqn.params, "wanted": False})


_private.set_dce_rule(put_p, _put_wanted)


# Lowering for XLA.

def _on_memory(function: Rule) -> Rule:
    """Returns a lowering rule that calls `function` with the physical types of operands and
    results, such as integers for tokens."""
    def lower(ctx: Context, *operands: Any, **params: Any) -> Any:
        physical = ctx.replace(
            avals_in=[_private.physical_aval(aval) for aval in ctx.avals_in],
            avals_out=[_private.physical_aval(aval) for aval in ctx.avals_out])
        result = mlir.lower_fun(partial(function, ctx, **params), multiple_results=True)(
            physical, *operands)
        return result
    return lower


def _rounded(value: Any) -> Any:
    """Rounds `value` to its dtype, because XLA may compute it with more precision."""
    if not jnp.issubdtype(value.dtype, jnp.floating) or _private.bits_of(value.dtype) <= 8:
        return value        # reduce_precision would lose subnormals, and needs a type with infinity
    info = jnp.finfo(value.dtype)
    return jax.lax.reduce_precision(value, info.nexp, info.nmant)


def _put_lowered(ctx: Context, value: Any, *, label: str, batch: Sequence[int],
                 number: int | None, bounded: bool, many: bool, wanted: bool,
                 use: str, received: bool) -> tuple[Any, Any, Any]:
    shape = ctx.avals_in[0].shape       # in memory, random keys have one more axis
    if not wanted:
        return (value, jnp.zeros((*(shape[i] for i in batch), TOKEN_WORDS), jnp.uint32),
                jnp.zeros((*shape, 0), jnp.uint8))
    if use == STEP:     # states and gradients leave the program, so XLA rounds them
        value = _rounded(value)
    token, ghost = _calls.put(ctx, jnp.transpose(value, _order(batch, value.ndim)),
                              label=label, batch=len(batch), number=number, bounded=bounded,
                              many=many, received=received)
    order = _order(batch, len(shape))
    ghost = jnp.transpose(ghost.reshape(*(shape[i] for i in order), 0),
                          (*_inverse(order), len(order)))
    if "cuda" in ctx.module_context.platforms:
        # Without this barrier, no operation of an unrolled forward pass waits until a value is
        # stored. XLA may then delay the copy of the value, and keep the value on the device
        # meanwhile.
        value, token = jax.lax.optimization_barrier((value, token))
    return value, token, ghost


def _take_lowered(ctx: Context, token: Any, ghost: Any, *, label: str, weak_type: bool,
                  batch: Sequence[int], number: int | None, ends: bool,
                  announced: int | None, received: bool) -> list[Any]:
    ghost = jnp.transpose(ghost, (*_order(batch, ghost.ndim - 1), ghost.ndim - 1))
    aval = _private.physical_aval(batch_first(ctx.avals_out[0], batch))
    value = _calls.take(ctx, token, ghost, aval, label=label, number=number, ends=ends,
                        announced=announced, received=received)
    return [jnp.transpose(value, _inverse(_order(batch, value.ndim)))]


def _tie_lowered(ctx: Context, *operands: Any, numbers: Sequence[int]) -> Any:
    return _calls.tie(ctx, operands[:len(numbers)], operands[len(numbers):], numbers)


def _update_lowered(ctx: Context, *operands: Any, program: _calls.Program, labels: Sequence[str],
                    avals: Sequence[Aval], uses: Sequence[str], numbers: Sequence[int],
                    bounded: Sequence[bool], many: Sequence[bool], ends: Sequence[bool]) -> Any:
    return _calls.update(ctx, operands[:len(ends)], operands[len(ends):], program, labels, numbers,
                         ends, bounded, many)


def _hold_lowered(ctx: Context, token: Any) -> list[Any]:
    return [_calls.hold(ctx, token)]


def _mark_lowered(ctx: Context, token: Any, is_changed: Any) -> list[Any]:
    last = token[..., TOKEN_WORDS - 1] | is_changed.astype(token.dtype)
    return [jnp.concatenate([token[..., :TOKEN_WORDS - 1], last[..., None]], -1)]


def _ghost_lowered(ctx: Context, *, aval: Aval) -> list[Any]:
    return [jnp.zeros((*aval.shape, 0), jnp.uint8)]


def _result_ghost_lowered(ctx: Context, token: Any, *, aval: Aval) -> list[Any]:
    return [_calls.ghost(ctx, token, aval.shape)]


def _drop_lowered(ctx: Context, token: Any, *ties: Any) -> list[Any]:
    return [_calls.drop(ctx, token, ties)]


for primitive, lowered in ((put_p, _put_lowered), (take_p, _take_lowered),
                           (tie_p, _tie_lowered), (hold_p, _hold_lowered),
                           (update_p, _update_lowered), (mark_p, _mark_lowered),
                           (ghost_p, _ghost_lowered), (drop_p, _drop_lowered),
                           (result_ghost_p, _result_ghost_lowered)):
    mlir.register_lowering(primitive, _on_memory(lowered))
    _private.wants_devices(primitive)
