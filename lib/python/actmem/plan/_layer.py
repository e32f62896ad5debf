# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The computation of one layer from its weights and its input: see decoder.py."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from actmem.plan._attention import attend, attend_by_products
from actmem.plan.models import Attention, Layer

Weights = dict[str, Any]


def normed(w: Weights, name: str, x: jax.Array, kind: str = "rms") -> jax.Array:
    wide = x.astype(jnp.float32)
    if kind == "layer":
        wide = wide - jnp.mean(wide, -1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    wide = wide * w[f"{name}_scale"]
    if kind == "layer":
        wide = wide + w[f"{name}_bias"]
    y: jax.Array = wide.astype(x.dtype)
    return y


def projected(w: Weights, name: str, x: jax.Array, dims: int = 1) -> jax.Array:
    """Multiplies the last `dims` dimensions of x by the first dimensions of the weight `name`."""
    y: jax.Array = jnp.tensordot(x, w[name].astype(x.dtype), dims)
    if f"{name}.lora_a" in w:
        low = jnp.tensordot(x, w[f"{name}.lora_a"].astype(x.dtype), dims)
        y = y + jnp.tensordot(low, w[f"{name}.lora_b"].astype(x.dtype), 1)
    if f"{name}_bias" in w:
        y = y + w[f"{name}_bias"].astype(x.dtype)
    return y


def rotated(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    sin, cos = (f(angles)[:, None, :].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def _qkv(kind: Attention, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
         ) -> tuple[jax.Array, jax.Array, jax.Array]:
    if kind.kv_rank:
        return _latent_qkv(kind, w, x, name)
    q, k = projected(w, "query", x), projected(w, "key", x)
    v = k if kind.shares_kv else projected(w, "value", x)
    if kind.has_norms:
        q, k = normed(w, "query", q), normed(w, "key", k)
    if kind.has_rope:
        q, k = rotated(q), rotated(k)
    return q, k, v


def _latent_qkv(kind: Attention, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
                ) -> tuple[jax.Array, jax.Array, jax.Array]:
    low = x
    if kind.q_rank:
        low = normed(w, "query_a", name(projected(w, "query_a", x), "query_wa_proj"))
    q = projected(w, "query", low)
    low = name(projected(w, "kv_a", x), "kv_wa_proj")
    turned = rotated(low[:, :, None, kind.kv_rank:])
    low = normed(w, "kv_a", low[..., :kind.kv_rank])
    k = projected(w, "key", low)
    plain = kind.head_dim - kind.rope_dim
    q = jnp.concatenate([q[..., :plain], rotated(q[..., plain:])], -1)
    turned = jnp.broadcast_to(turned, (*k.shape[:3], kind.rope_dim))
    return q, jnp.concatenate([k, turned], -1), projected(w, "value", low)


def _mlp(layer: Layer, product: Callable[[str, jax.Array], jax.Array], x: jax.Array,
         name: Callable[..., jax.Array]) -> jax.Array:
    act = jax.nn.gelu if layer.act == "gelu" else jax.nn.silu
    hidden = act(name(product("wi_0", x), "mlpwi_0"))
    if layer.is_gated:
        hidden = hidden * name(product("wi_1", x), "mlpwi_1")
    return name(product("wo", hidden), "mlpwo")


def experts_of(layer: Layer, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
             ) -> jax.Array:
    """Applies experts to tokens that are sorted by expert. Each expert gets the same number of
    tokens, as if the router were balanced. If devices share the experts, each device gets
    tokens for its own experts from all devices, and sends as many tokens as it gets."""
    experts = layer.experts
    assert experts is not None
    batch, tokens, d = x.shape
    flat = x.reshape(-1, d)
    count = w["expert_wi_0"].shape[0]
    logits = jnp.dot(flat, w["router"].astype(x.dtype), preferred_element_type=jnp.float32)
    chosen = logits + w["router_bias"] if experts.has_bias else logits
    _, index = jax.lax.top_k(jax.lax.stop_gradient(chosen), experts.top_k)
    gates = jax.nn.softmax(jnp.take_along_axis(logits, index, -1), -1).astype(x.dtype)
    index = index.reshape(-1) % count
    order = jnp.argsort(index)
    capacity = -(-index.size // count)
    sorted_index = index[order]
    rank = jnp.arange(index.size) - jnp.searchsorted(sorted_index, jnp.arange(count))[
        sorted_index]
    slot = jnp.where(rank < capacity, sorted_index * capacity + rank, count * capacity)
    token = order // experts.top_k
    inputs = jnp.zeros((count * capacity, d), x.dtype).at[slot].set(flat[token], mode="drop")

    def product(weight: str, y: jax.Array) -> jax.Array:
        return jnp.einsum("ecd,edf->ecf", y, w[f"expert_{weight}"].astype(y.dtype))

    y = _mlp(layer, product, inputs.reshape(count, capacity, d), name)
    y = jnp.take(y.reshape(-1, d), slot, 0, mode="fill", fill_value=0)
    y = y * gates.reshape(-1)[order][:, None]
    out = jnp.zeros_like(flat).at[token].add(y)
    if experts.shared_d_ff:
        out = out + _mlp(layer, lambda weight, y: projected(w, f"shared_{weight}", y), flat,
                         name)
    return out.reshape(x.shape)


def layer_function(layer: Layer, prefix: int = 0, sequence: int = 1, named: str = "",
                   attention: str = "kernel") -> Callable[[Weights, jax.Array], jax.Array]:
    """Returns the function that computes one layer from its weights and its input (batch, tokens,
    hidden). The first `prefix` tokens attend to each other, like the tokens of an image. `named` is
    the prefix of the names of all values. `attention` is explained at decoder.step()."""
    def name(x: jax.Array, what: str) -> jax.Array:
        y: jax.Array = checkpoint_name(x, named + what)
        return y

    def apply(w: Weights, x: jax.Array) -> jax.Array:
        kind = layer.attention
        x = name(x, "decoder_layer_input")
        y = normed(w, "attention_norm", x, layer.norm)
        q, k, v = _qkv(kind, w, y, name)
        q, k, v = name(q, "query_proj"), name(k, "key_proj"), name(v, "value_proj")
        if attention == "kernel":
            y = attend(kind, prefix, sequence, named + "context", q, k, v)
        else:
            y = name(attend_by_products(kind, prefix, sequence, q, k, v), "attention_out")
        y = name(projected(w, "out", y, 2), "out_proj")
        if layer.has_post_norms:
            y = normed(w, "post_attention_norm", y)
        x = x + y
        y = normed(w, "mlp_norm", x, layer.norm)
        if layer.experts:
            y = experts_of(layer, w, y, name)
        else:
            y = _mlp(layer, lambda weight, y: projected(w, weight, y), y, name)
        if layer.has_post_norms:
            y = normed(w, "post_mlp_norm", y)
        return x + y
    return apply
