# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Attention in jax.numpy, as a fused kernel and as products: see decoder.py."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from actmem.jax import _private
from actmem.plan._structure import Attention

QUERY_BLOCKS = 8                # blocks of queries: causal attention computes 9/16 of all scores
                                # instead of 1/2
WINDOW_BLOCKS = 4               # a block of queries is 1/WINDOW_BLOCKS of a window


Made = tuple[jax.Array, jax.Array]      # the results of _block()


def _scores(q: jax.Array, k: jax.Array, allowed: jax.Array | None, softcap: float,
            ) -> tuple[jax.Array, jax.Array]:
    """Returns the scores of queries and keys, and the derivative of the soft cap. `q` has the shape
    (tokens, query heads per key head, dim), `k` has (keys, dim)."""
    scores = jnp.einsum("tgd,sd->gts", q, k, preferred_element_type=jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    slope = jnp.ones((), jnp.float32)
    if softcap:
        bent = jnp.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent * bent
    if allowed is not None:
        scores = jnp.where(allowed, scores, -1e30)
    return scores, slope


def _block(q: jax.Array, k: jax.Array, v: jax.Array, allowed: jax.Array | None,
           softcap: float) -> tuple[jax.Array, jax.Array]:
    """Returns the attention's output for each query, and the logarithm of the sum of the
    exponentials of the query's scores. The logarithms have the shape (tokens, query heads per key
    head)."""
    scores, _ = _scores(q, k, allowed, softcap)
    total = jax.nn.logsumexp(scores, -1)
    weights = jnp.exp(scores - total[..., None])
    return jnp.einsum("gts,sd->tgd", weights.astype(v.dtype), v), total.T


def _block_backward(q: jax.Array, k: jax.Array, v: jax.Array, allowed: jax.Array | None,
                    softcap: float, out: jax.Array, total: jax.Array, slope_of_out: jax.Array,
                    ) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the derivatives with respect to q, k and v. `out` and `total` are the results of
    _block(). `slope_of_out` is the derivative with respect to `out`."""
    scores, slope = _scores(q, k, allowed, softcap)
    weights = jnp.exp(scores - total.T[..., None])
    dv = jnp.einsum("gts,tgd->sd", weights.astype(v.dtype), slope_of_out)
    dw = jnp.einsum("tgd,sd->gts", slope_of_out, v, preferred_element_type=jnp.float32)
    mean = jnp.sum(slope_of_out.astype(jnp.float32) * out, -1).T
    ds = weights * (dw - mean[..., None]) * slope
    ds = (ds * q.shape[-1] ** -0.5).astype(q.dtype)
    return jnp.einsum("gts,sd->tgd", ds, k), jnp.einsum("gts,tgd->sd", ds, q), dv


class _Local:
    """Attention within a window. Each block of queries uses the keys of its own block and of
    the preceding blocks within the window."""

    def __init__(self, kind: Attention, tokens: int) -> None:
        self.kind, self.tokens = kind, tokens
        self.size = max(1, kind.window // WINDOW_BLOCKS)
        self.before = -(-(kind.window - 1) // self.size)
        self.blocks = -(-tokens // self.size)

    def queries(self, q: jax.Array) -> jax.Array:
        padding = self.blocks * self.size - self.tokens
        return jnp.pad(q, ((0, padding), *[(0, 0)] * (q.ndim - 1))).reshape(
            self.blocks, self.size, *q.shape[1:])

    def seen(self, x: jax.Array) -> jax.Array:
        """Returns the keys or values that each block uses."""
        padding = self.blocks * self.size - self.tokens
        x = jnp.pad(x, ((self.before * self.size, padding), (0, 0)))
        parts = x.reshape(self.before + self.blocks, self.size, -1)
        return jnp.concatenate([parts[i:i + self.blocks] for i in range(self.before + 1)], 1)

    def unseen(self, x: jax.Array) -> jax.Array:
        """Returns, for each key, the sum of the key's rows of `x` in all blocks: the transpose of
        seen()."""
        total = jnp.zeros((self.before + self.blocks, self.size, x.shape[-1]), x.dtype)
        for i in range(self.before + 1):
            total = total.at[i:i + self.blocks].add(x[:, i * self.size:(i + 1) * self.size])
        return total.reshape(-1, x.shape[-1])[self.before * self.size:][:self.tokens]

    def allowed(self, number: jax.Array) -> jax.Array:
        keys = jnp.arange((self.before + 1) * self.size) - self.before * self.size
        behind = jnp.arange(self.size)[:, None] - keys
        near: jax.Array = (behind >= 0) & (behind < self.kind.window) & (
            number * self.size + keys >= 0)
        return near

    def forward(self, q: jax.Array, k: jax.Array, v: jax.Array) -> Made:
        def block(part: tuple[jax.Array, ...]) -> Made:
            number, q, k, v = part
            return _block(q, k, v, self.allowed(number), self.kind.softcap)
        out, total = jax.lax.map(block, (jnp.arange(self.blocks), self.queries(q),
                                         self.seen(k), self.seen(v)))
        return (out.reshape(-1, *out.shape[2:])[:self.tokens],
                total.reshape(-1, *total.shape[2:])[:self.tokens])

    def backward(self, q: jax.Array, k: jax.Array, v: jax.Array, *made: jax.Array,
                 ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def block(part: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            number, q, k, v, *made = part
            return _block_backward(q, k, v, self.allowed(number), self.kind.softcap, *made)
        dq, dk, dv = jax.lax.map(block, (jnp.arange(self.blocks), self.queries(q),
                                         self.seen(k), self.seen(v), *map(self.queries, made)))
        return dq.reshape(-1, *q.shape[1:])[:self.tokens], self.unseen(dk), self.unseen(dv)


class _Whole:
    """Attention to all keys or, if it is causal, to the preceding keys. For causal attention, each
    block of queries uses the keys up to the end of the block, and the first `prefix` tokens attend
    to each other. If devices divide the sequence, a device has all keys and a part of the queries.
    These queries are then treated as evenly spread over the sequence."""

    def __init__(self, kind: Attention, prefix: int, tokens: int, keys: int) -> None:
        self.kind, self.prefix, self.tokens, self.keys = kind, prefix, tokens, keys

    def parts(self) -> Iterator[tuple[slice, slice, jax.Array | None]]:
        if not self.kind.causal:
            yield slice(None), slice(None), None
            return
        ratio = self.keys // self.tokens
        size = -(-self.tokens // QUERY_BLOCKS)
        for start in range(0, self.tokens, size):
            end = min(self.tokens, start + size)
            last = max(end * ratio, min(self.prefix, self.keys))
            behind = jnp.arange(start, end)[:, None] * ratio - jnp.arange(last)
            allowed = behind >= 0
            if self.prefix:
                allowed = allowed | (jnp.arange(last) < self.prefix)
            if self.kind.window:
                allowed = allowed & (behind < self.kind.window)
            yield slice(start, end), slice(0, last), allowed

    def forward(self, q: jax.Array, k: jax.Array, v: jax.Array) -> Made:
        out, total = zip(*(_block(q[rows], k[keys], v[keys], allowed, self.kind.softcap)
                           for rows, keys, allowed in self.parts()))
        return jnp.concatenate(out), jnp.concatenate(total)

    def backward(self, q: jax.Array, k: jax.Array, v: jax.Array, *made: jax.Array,
                 ) -> tuple[jax.Array, jax.Array, jax.Array]:
        dqs, dk, dv = [], jnp.zeros_like(k), jnp.zeros_like(v)
        for rows, keys, allowed in self.parts():
            dq, own_dk, own_dv = _block_backward(q[rows], k[keys], v[keys], allowed,
                                                 self.kind.softcap, *(x[rows] for x in made))
            dqs.append(dq)
            dk, dv = dk.at[keys].add(own_dk), dv.at[keys].add(own_dv)
        return jnp.concatenate(dqs), dk, dv


def _attention_of(kind: Attention, prefix: int, tokens: int, keys: int) -> _Local | _Whole:
    if kind.window and kind.causal and kind.window < keys and tokens == keys and not prefix:
        return _Local(kind, tokens)
    return _Whole(kind, prefix, tokens, keys)


def _forward(q: jax.Array, k: jax.Array, v: jax.Array, *, kind: Attention, prefix: int) -> Made:
    """Computes attention for one key head at a time. Queries have the shape (key heads of all
    sequences, tokens, query heads per key head, dim). Keys and values have the shape (key heads of
    all sequences, keys, dim)."""
    one = _attention_of(kind, prefix, q.shape[1], k.shape[1])
    made: Made = jax.lax.map(lambda part: one.forward(*part), (q, k, v))
    return made


def _backward(q: jax.Array, k: jax.Array, v: jax.Array, *made: jax.Array, kind: Attention,
              prefix: int) -> tuple[jax.Array, ...]:
    """Returns the derivatives with respect to q, k and v. `made` has the results of _forward(), and
    the derivative with respect to the first result."""
    one = _attention_of(kind, prefix, q.shape[1], k.shape[1])
    grads: tuple[jax.Array, ...] = jax.lax.map(lambda part: one.backward(*part),
                                               (q, k, v, *made))
    return grads


# These functions are primitives. If they were plain functions, JAX would move parts of them out of
# loops. Only the arguments and results of a primitive are in memory, as with a kernel.
MADE_OF: dict[str, Callable[..., tuple[jax.Array, ...]]] = {
    "fused_attention": _forward, "fused_attention_backward": _backward}
_forward_p, _backward_p = (_private.operation(name, function)
                           for name, function in MADE_OF.items())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _fused(kind: Attention, prefix: int, name: str, q: jax.Array, k: jax.Array, v: jax.Array,
           ) -> jax.Array:
    return _fused_forward(kind, prefix, name, q, k, v)[0]


def _fused_forward(kind: Attention, prefix: int, name: str, *qkv: jax.Array,
                   ) -> tuple[jax.Array, Any]:
    # The backward pass reads both results. If only one of them had the name, the kernel would run
    # again to compute the other.
    out, total = (checkpoint_name(x, name) for x in _forward_p.bind(
        *qkv, kind=kind, prefix=prefix))
    return out, (*qkv, out, total)


def _fused_backward(kind: Attention, prefix: int, name: str, residuals: Any,
                    slope_of_out: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(_backward_p.bind(*residuals, slope_of_out, kind=kind, prefix=prefix))


_fused.defvjp(_fused_forward, _fused_backward)


def attend(kind: Attention, prefix: int, sequence: int, name: str, q: jax.Array, k: jax.Array,
           v: jax.Array) -> jax.Array:
    """Computes attention as a kernel does. Arrays have the shape (batch, tokens, heads, dim). A
    policy can save the results under the name `name`."""
    batch, tokens, heads, dim = q.shape
    kv_heads = k.shape[2]
    if sequence > 1:
        k, v = (jnp.tile(x, (1, sequence, 1, 1)) for x in (k, v))
    q = q.reshape(batch, tokens, kv_heads, heads // kv_heads, dim)
    q = q.transpose(0, 2, 1, 3, 4).reshape(batch * kv_heads, tokens, heads // kv_heads, dim)
    k, v = (x.transpose(0, 2, 1, 3).reshape(batch * kv_heads, x.shape[1], x.shape[3])
            for x in (k, v))
    out = _fused(kind, prefix, name, q, k, v)
    out = out.reshape(batch, kv_heads, tokens, heads // kv_heads, -1)
    return out.transpose(0, 2, 1, 3, 4).reshape(batch, tokens, heads, -1)


def attend_by_products(kind: Attention, prefix: int, sequence: int, q: jax.Array, k: jax.Array,
                       v: jax.Array) -> jax.Array:
    """Computes the same result as attend(), but holds all scores in memory."""
    batch, tokens, heads, dim = q.shape
    if sequence > 1:
        k, v = (jnp.tile(x, (1, sequence, 1, 1)) for x in (k, v))
    keys, kv_heads = k.shape[1:3]
    q = q.reshape(batch, tokens, kv_heads, heads // kv_heads, dim)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k, preferred_element_type=jnp.float32)
    scores = scores * dim ** -0.5
    if kind.softcap:
        scores = kind.softcap * jnp.tanh(scores / kind.softcap)
    if kind.causal:
        behind = jnp.arange(tokens)[:, None] * (keys // tokens) - jnp.arange(keys)
        allowed = (behind >= 0) | (jnp.arange(keys) < prefix)
        if kind.window:
            allowed = allowed & (behind < kind.window)
        scores = jnp.where(allowed, scores, -1e30)
    weights = jax.nn.softmax(scores, -1).astype(v.dtype)
    return jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(batch, tokens, heads, -1)
