# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Attention as a fused kernel does it, in jax.numpy: see decoder.py."""
from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from actmem.plan.models import Attention

QUERY_BLOCKS = 8                # of a causal attention: 9/16 of all scores, 1/2 at best
WINDOW_BLOCKS = 4               # a window's part that one block of queries is


def _weights(q: jax.Array, k: jax.Array, allowed: jax.Array | None, softcap: float,
             ) -> tuple[jax.Array, jax.Array]:
    """The softmax of the scores of queries (tokens, heads of one key, dim) and keys (keys,
    dim), and the derivative of softcap."""
    scores = jnp.einsum("tgd,sd->gts", q, k, preferred_element_type=jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    slope = jnp.ones((), jnp.float32)
    if softcap:
        bent = jnp.tanh(scores / softcap)
        scores, slope = softcap * bent, 1 - bent * bent
    if allowed is not None:
        scores = jnp.where(allowed, scores, -1e30)
    return jax.nn.softmax(scores, -1), slope


def _block(q: jax.Array, k: jax.Array, v: jax.Array, allowed: jax.Array | None,
           softcap: float) -> jax.Array:
    weights, _ = _weights(q, k, allowed, softcap)
    return jnp.einsum("gts,sd->tgd", weights.astype(v.dtype), v)


def _block_backward(q: jax.Array, k: jax.Array, v: jax.Array, allowed: jax.Array | None,
                    softcap: float, out: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The derivatives of q, k and v, from that of what _block() gave."""
    weights, slope = _weights(q, k, allowed, softcap)
    dv = jnp.einsum("gts,tgd->sd", weights.astype(v.dtype), out)
    dw = jnp.einsum("tgd,sd->gts", out, v, preferred_element_type=jnp.float32)
    ds = weights * (dw - jnp.sum(dw * weights, -1, keepdims=True)) * slope
    ds = (ds * q.shape[-1] ** -0.5).astype(q.dtype)
    return jnp.einsum("gts,sd->tgd", ds, k), jnp.einsum("gts,tgd->sd", ds, q), dv


class _Local:
    """An attention within a window: each block of queries has the keys of its own block and
    of those before it that the window reaches."""

    def __init__(self, kind: Attention, tokens: int) -> None:
        self.kind, self.tokens = kind, tokens
        self.size = max(1, kind.window // WINDOW_BLOCKS)
        self.before = -(-(kind.window - 1) // self.size)
        self.blocks = -(-tokens // self.size)

    def queries(self, q: jax.Array) -> jax.Array:
        padding = self.blocks * self.size - self.tokens
        return jnp.pad(q, ((0, padding), (0, 0), (0, 0))).reshape(
            self.blocks, self.size, *q.shape[1:])

    def seen(self, x: jax.Array) -> jax.Array:
        """Of keys or values, those that each block has."""
        padding = self.blocks * self.size - self.tokens
        x = jnp.pad(x, ((self.before * self.size, padding), (0, 0)))
        parts = x.reshape(self.before + self.blocks, self.size, -1)
        return jnp.concatenate([parts[i:i + self.blocks] for i in range(self.before + 1)], 1)

    def unseen(self, x: jax.Array) -> jax.Array:
        """The sum of what each block has for one key: seen() transposed."""
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

    def forward(self, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def block(part: tuple[jax.Array, ...]) -> jax.Array:
            number, q, k, v = part
            return _block(q, k, v, self.allowed(number), self.kind.softcap)
        out: jax.Array = jax.lax.map(block, (jnp.arange(self.blocks), self.queries(q),
                                             self.seen(k), self.seen(v)))
        return out.reshape(-1, *out.shape[2:])[:self.tokens]

    def backward(self, q: jax.Array, k: jax.Array, v: jax.Array, out: jax.Array,
                 ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def block(part: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            number, q, k, v, out = part
            return _block_backward(q, k, v, self.allowed(number), self.kind.softcap, out)
        dq, dk, dv = jax.lax.map(block, (jnp.arange(self.blocks), self.queries(q),
                                         self.seen(k), self.seen(v), self.queries(out)))
        return dq.reshape(-1, *q.shape[1:])[:self.tokens], self.unseen(dk), self.unseen(dv)


class _Whole:
    """An attention to all keys before, or to all there are. Blocks of queries have the keys up
    to their end. The first `prefix` tokens see each other. Of a sequence that is divided, the
    keys are all, and each query stands for as many as there are devices."""

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

    def forward(self, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.concatenate([_block(q[rows], k[keys], v[keys], allowed, self.kind.softcap)
                                for rows, keys, allowed in self.parts()])

    def backward(self, q: jax.Array, k: jax.Array, v: jax.Array, out: jax.Array,
                 ) -> tuple[jax.Array, jax.Array, jax.Array]:
        dqs, dk, dv = [], jnp.zeros_like(k), jnp.zeros_like(v)
        for rows, keys, allowed in self.parts():
            dq, own_dk, own_dv = _block_backward(q[rows], k[keys], v[keys], allowed,
                                                 self.kind.softcap, out[rows])
            dqs.append(dq)
            dk, dv = dk.at[keys].add(own_dk), dv.at[keys].add(own_dv)
        return jnp.concatenate(dqs), dk, dv


def _attention_of(kind: Attention, prefix: int, tokens: int, keys: int) -> _Local | _Whole:
    if kind.window and kind.causal and kind.window < keys and tokens == keys and not prefix:
        return _Local(kind, tokens)
    return _Whole(kind, prefix, tokens, keys)


# Of a kernel nothing but its arguments and results is in memory: these names are to tell.

@functools.partial(jax.jit, static_argnums=(0, 1))
def fused_attention(kind: Attention, prefix: int, q: jax.Array, k: jax.Array, v: jax.Array,
                    ) -> jax.Array:
    """Queries (all heads of keys, tokens, heads of queries for each, dim) of keys and values
    (all heads of keys, keys, dim); one key's head at a time."""
    one = _attention_of(kind, prefix, q.shape[1], k.shape[1])
    out: jax.Array = jax.lax.map(lambda part: one.forward(*part), (q, k, v))
    return out


@functools.partial(jax.jit, static_argnums=(0, 1))
def fused_attention_backward(kind: Attention, prefix: int, q: jax.Array, k: jax.Array,
                             v: jax.Array, out: jax.Array) -> tuple[jax.Array, ...]:
    one = _attention_of(kind, prefix, q.shape[1], k.shape[1])
    grads: tuple[jax.Array, ...] = jax.lax.map(lambda part: one.backward(*part), (q, k, v, out))
    return grads


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _fused(kind: Attention, prefix: int, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    out: jax.Array = fused_attention(kind, prefix, q, k, v)
    return out


def _fused_forward(kind: Attention, prefix: int, *qkv: jax.Array) -> tuple[jax.Array, Any]:
    return fused_attention(kind, prefix, *qkv), qkv


def _fused_backward(kind: Attention, prefix: int, qkv: Any, out: jax.Array,
                    ) -> tuple[jax.Array, ...]:
    grads: tuple[jax.Array, ...] = fused_attention_backward(kind, prefix, *qkv, out)
    return grads


_fused.defvjp(_fused_forward, _fused_backward)


def attend(kind: Attention, prefix: int, sequence: int, q: jax.Array, k: jax.Array,
            v: jax.Array) -> jax.Array:
    """(batch, tokens, heads, dim) each."""
    batch, tokens, heads, dim = q.shape
    kv_heads = k.shape[2]
    if sequence > 1:
        k, v = (jnp.tile(x, (1, sequence, 1, 1)) for x in (k, v))
    q = q.reshape(batch, tokens, kv_heads, heads // kv_heads, dim)
    q = q.transpose(0, 2, 1, 3, 4).reshape(batch * kv_heads, tokens, heads // kv_heads, dim)
    k, v = (x.transpose(0, 2, 1, 3).reshape(batch * kv_heads, x.shape[1], x.shape[3])
            for x in (k, v))
    out = _fused(kind, prefix, q, k, v)
    out = out.reshape(batch, kv_heads, tokens, heads // kv_heads, -1)
    return out.transpose(0, 2, 1, 3, 4).reshape(batch, tokens, heads, -1)
