# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A function of JAX that computes what a model does in a training step, to be looked at, not
trained with: its loss, with MaxText's names on what a policy can keep.

    step = decoder.step(models.find("llama-2-13b"), batch=4, tokens=4096,
                        shard=decoder.Shard(fsdp=8))
    jax.make_jaxpr(jax.grad(step.loss))(step.trained, step.frozen, step.batch)

It is one device's part: sizes are divided by the mesh's axes, and what devices send each
other is not in the function but in `step.collectives`. Weights are those that a device
computes with, gathered over fsdp; what it has of them between layers is in `step.bytes`.
Without sharding it is the model, and runs, on random weights (`initial()`).

Attention is what a fused kernel does: a call of fused_attention(), backward of
fused_attention_backward(), that leaves nothing in memory but its result and that makes all
scores again backward. It goes by blocks of queries, which leave out the keys behind the
diagonal but for a block's. Its output alone has a name ("context").
"""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from actmem.plan.models import Attention, Group, Layer, Model

QUERY_BLOCKS = 8                # of a causal attention: 9/16 of all scores, 1/2 at best
WINDOW_BLOCKS = 4               # a window's part that one block of queries is
LOGITS_BYTES = 1 << 30          # of one chunk of the loss, unless told otherwise
NAMES = ("decoder_layer_input", "query_wa_proj", "kv_wa_proj", "query_proj", "key_proj",
         "value_proj", "context", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo")

Weights = dict[str, Any]
Remat = Callable[[Callable[..., Any]], Callable[..., Any]]


class ShardError(ValueError):
    """The mesh does not divide a size."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """The mesh's axes: how many devices each has. The batch is divided by data, fsdp and
    expert; a sequence by sequence; heads, widths and the vocabulary by tensor; experts by
    expert; and what is kept of weights by fsdp, too."""
    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    sequence: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise ShardError(f"{field.name}={value!r} is no number of devices")

    @property
    def devices(self) -> int:
        return self.data * self.fsdp * self.tensor * self.sequence * self.expert


@dataclasses.dataclass(frozen=True)
class Lora:
    """Two factors of `rank` beside each of these weights, which alone are trained."""
    rank: int = 16
    targets: tuple[str, ...] = ("query", "key", "value", "out")


@dataclasses.dataclass(frozen=True)
class Collective:
    """What a device sends or gets in a step, beside computing: `bytes` is the whole value,
    of which each of the `devices` of the axis has its part, or its addend; `count` is how
    often. Those of phase "forward" are repeated where the layer is computed again, but for
    what a policy keeps."""
    axis: str
    kind: str                       # "all-gather", "reduce-scatter", "all-reduce", "all-to-all"
    devices: int
    bytes: int
    count: int
    phase: str                      # "forward" or "backward"
    of: str


@dataclasses.dataclass(frozen=True)
class Step:
    """What step() makes. `loss(trained, frozen, batch)` is a scalar; the arguments are
    jax.ShapeDtypeStructs in dicts."""
    model: Model
    shard: Shard
    loss: Callable[[Weights, Weights, Weights], jax.Array]
    trained: Weights
    frozen: Weights
    batch: Weights
    groups: tuple[tuple[int, tuple[Callable[..., Any], ...]], ...]
    collectives: tuple[Collective, ...]
    bytes: dict[str, int]           # "weights", "gradients", "optimizer" of one device

    def initial(self, seed: int = 0) -> tuple[Weights, Weights, Weights]:
        """Arrays for the arguments: random weights, tokens and pixels."""
        return tuple(_random(tree, self.model.vocab, seed + i) for i, tree in  # type: ignore
                     enumerate((self.trained, self.frozen, self.batch)))


def _random(tree: Weights, vocab: int, seed: int) -> Weights:
    random = np.random.default_rng(seed)
    arrays = {}
    for name, shape in tree.items():
        if jnp.issubdtype(shape.dtype, jnp.integer):
            value = random.integers(0, vocab, shape.shape)
        elif name.endswith("scale"):
            value = np.ones(shape.shape)
        else:
            value = random.normal(0, 0.02, shape.shape)
        arrays[name] = value.astype(shape.dtype)
    return arrays


def _divided(what: str, size: int, axis: str, devices: int) -> int:
    if size % devices:
        raise ShardError(f"{axis}={devices} does not divide {what}, which is {size}")
    return size // devices


def _kv_heads(kind: Attention, tensor: int) -> int:
    """Where there are fewer of them than devices, several have the same."""
    if kind.kv_heads < tensor and tensor % kind.kv_heads == 0:
        return 1
    return _divided("the number of key and value heads", kind.kv_heads, "tensor", tensor)


# Weights: the shapes of one device's, by name.

def _attention_shapes(kind: Attention, d: int, tensor: int) -> dict[str, tuple[int, ...]]:
    heads = _divided("the number of query heads", kind.q_heads, "tensor", tensor)
    kv_heads = _kv_heads(kind, tensor)
    shapes: dict[str, tuple[int, ...]] = {}
    if kind.kv_rank:
        plain = kind.head_dim - kind.rope_dim
        if kind.q_rank:
            shapes["query_a"] = (d, kind.q_rank)
            shapes["query_a_scale"] = (kind.q_rank,)
        shapes["query"] = (kind.q_rank or d, heads, kind.head_dim)
        shapes["kv_a"] = (d, kind.kv_rank + kind.rope_dim)
        shapes["kv_a_scale"] = (kind.kv_rank,)
        shapes["key"] = (kind.kv_rank, heads, plain)
        shapes["value"] = (kind.kv_rank, heads, kind.values)
    else:
        shapes["query"] = (d, heads, kind.head_dim)
        shapes["key"] = (d, kv_heads, kind.head_dim)
        if not kind.shares_kv:
            shapes["value"] = (d, kv_heads, kind.values)
    if kind.has_norms:
        shapes["query_scale"] = shapes["key_scale"] = (kind.head_dim,)
    if kind.qkv_bias:
        for name in ("query", "key", "value"):
            shapes[f"{name}_bias"] = shapes[name][1:]
    shapes["out"] = (heads, kind.values, d)
    if kind.out_bias:
        shapes["out_bias"] = (d,)
    return shapes


def _mlp_shapes(layer: Layer, d: int, d_ff: int, prefix: str = "",
                ) -> dict[str, tuple[int, ...]]:
    names = ("wi_0", "wi_1") if layer.is_gated else ("wi_0",)
    shapes: dict[str, tuple[int, ...]] = {prefix + name: (d, d_ff) for name in names}
    shapes[prefix + "wo"] = (d_ff, d)
    if layer.has_mlp_bias:
        shapes.update({f"{prefix}{name}_bias": (d_ff,) for name in names})
        shapes[prefix + "wo_bias"] = (d,)
    return shapes


def layer_shapes(layer: Layer, d: int, shard: Shard) -> dict[str, tuple[int, ...]]:
    """The weights of a layer that one device computes with."""
    shapes = _attention_shapes(layer.attention, d, shard.tensor)
    norms = ["attention_norm", "mlp_norm"]
    if layer.has_post_norms:
        norms += ["post_attention_norm", "post_mlp_norm"]
    for name in norms:
        shapes[f"{name}_scale"] = (d,)
        if layer.norm == "layer":
            shapes[f"{name}_bias"] = (d,)
    experts = layer.experts
    if experts is None:
        width = _divided("the MLP's width", layer.d_ff, "tensor", shard.tensor)
        return shapes | _mlp_shapes(layer, d, width)
    count = _divided("the number of experts", experts.count, "expert", shard.expert)
    width = _divided("an expert's width", experts.d_ff, "tensor", shard.tensor)
    shapes["router"] = (d, experts.count)
    if experts.has_bias:
        shapes["router_bias"] = (experts.count,)
    for name, shape in _mlp_shapes(layer, d, width).items():
        shapes[f"expert_{name}"] = (count, *shape)
    if experts.shared_d_ff:
        width = _divided("the shared experts' width", experts.shared_d_ff, "tensor",
                         shard.tensor)
        shapes |= _mlp_shapes(layer, d, width, "shared_")
    return shapes


def _with_lora(shapes: dict[str, tuple[int, ...]], lora: Lora) -> dict[str, tuple[int, ...]]:
    for name in lora.targets:
        shape = shapes.get(name)
        if shape is None:
            continue
        inputs = shape[:2] if name == "out" else shape[:1]
        shapes = {**shapes, f"{name}.lora_a": (*inputs, lora.rank),
                  f"{name}.lora_b": (lora.rank, *shape[len(inputs):])}
    return shapes


# What a layer computes.

def _norm(w: Weights, name: str, x: jax.Array, kind: str = "rms") -> jax.Array:
    wide = x.astype(jnp.float32)
    if kind == "layer":
        wide = wide - jnp.mean(wide, -1, keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    wide = wide * w[f"{name}_scale"]
    if kind == "layer":
        wide = wide + w[f"{name}_bias"]
    y: jax.Array = wide.astype(x.dtype)
    return y


def _product(w: Weights, name: str, x: jax.Array, dims: int = 1) -> jax.Array:
    """x times the weight of that name, over its first `dims` dimensions."""
    y: jax.Array = jnp.tensordot(x, w[name].astype(x.dtype), dims)
    if f"{name}.lora_a" in w:
        low = jnp.tensordot(x, w[f"{name}.lora_a"].astype(x.dtype), dims)
        y = y + jnp.tensordot(low, w[f"{name}.lora_b"].astype(x.dtype), 1)
    if f"{name}_bias" in w:
        y = y + w[f"{name}_bias"].astype(x.dtype)
    return y


def _rope(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    sin, cos = (f(angles)[:, None, :].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


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


def _attend(kind: Attention, prefix: int, sequence: int, q: jax.Array, k: jax.Array,
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


def _qkv(kind: Attention, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
         ) -> tuple[jax.Array, jax.Array, jax.Array]:
    if kind.kv_rank:
        return _latent_qkv(kind, w, x, name)
    q, k = _product(w, "query", x), _product(w, "key", x)
    v = k if kind.shares_kv else _product(w, "value", x)
    if kind.has_norms:
        q, k = _norm(w, "query", q), _norm(w, "key", k)
    if kind.has_rope:
        q, k = _rope(q), _rope(k)
    return q, k, v


def _latent_qkv(kind: Attention, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
                ) -> tuple[jax.Array, jax.Array, jax.Array]:
    low = x
    if kind.q_rank:
        low = _norm(w, "query_a", name(_product(w, "query_a", x), "query_wa_proj"))
    q = _product(w, "query", low)
    low = name(_product(w, "kv_a", x), "kv_wa_proj")
    turned = _rope(low[:, :, None, kind.kv_rank:])
    low = _norm(w, "kv_a", low[..., :kind.kv_rank])
    k = _product(w, "key", low)
    plain = kind.head_dim - kind.rope_dim
    q = jnp.concatenate([q[..., :plain], _rope(q[..., plain:])], -1)
    turned = jnp.broadcast_to(turned, (*k.shape[:3], kind.rope_dim))
    return q, jnp.concatenate([k, turned], -1), _product(w, "value", low)


def _mlp(layer: Layer, product: Callable[[str, jax.Array], jax.Array], x: jax.Array,
         name: Callable[..., jax.Array]) -> jax.Array:
    act = jax.nn.gelu if layer.act == "gelu" else jax.nn.silu
    hidden = act(name(product("wi_0", x), "mlpwi_0"))
    if layer.is_gated:
        hidden = hidden * name(product("wi_1", x), "mlpwi_1")
    return name(product("wo", hidden), "mlpwo")


def _experts(layer: Layer, w: Weights, x: jax.Array, name: Callable[..., jax.Array],
             ) -> jax.Array:
    """Every expert gets as many of the tokens as if all were alike, in an order by expert;
    those of a device's own experts come from all devices that share them, as many as go."""
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
        out = out + _mlp(layer, lambda weight, y: _product(w, f"shared_{weight}", y), flat,
                         name)
    return out.reshape(x.shape)


def layer_function(layer: Layer, prefix: int = 0, sequence: int = 1, named: str = "",
                   ) -> Callable[[Weights, jax.Array], jax.Array]:
    """What one layer makes of its weights and its input (batch, tokens, hidden). The first
    `prefix` tokens see each other, as an image's do. `named` goes in front of all names."""
    def name(x: jax.Array, what: str) -> jax.Array:
        y: jax.Array = checkpoint_name(x, named + what)
        return y

    def apply(w: Weights, x: jax.Array) -> jax.Array:
        kind = layer.attention
        x = name(x, "decoder_layer_input")
        y = _norm(w, "attention_norm", x, layer.norm)
        q, k, v = _qkv(kind, w, y, name)
        q, k, v = name(q, "query_proj"), name(k, "key_proj"), name(v, "value_proj")
        y = name(_attend(kind, prefix, sequence, q, k, v), "context")
        y = name(_product(w, "out", y, 2), "out_proj")
        if layer.has_post_norms:
            y = _norm(w, "post_attention_norm", y)
        x = x + y
        y = _norm(w, "mlp_norm", x, layer.norm)
        if layer.experts:
            y = _experts(layer, w, y, name)
        else:
            y = _mlp(layer, lambda weight, y: _product(w, weight, y), y, name)
        if layer.has_post_norms:
            y = _norm(w, "post_mlp_norm", y)
        return x + y
    return apply


# The whole.

def _inner(weights: Weights, prefix: str) -> Weights:
    return {name[len(prefix):]: value for name, value in weights.items()
            if name.startswith(prefix)}


def _groups(model: Model, scan: bool) -> tuple[Group, ...]:
    if scan:
        return model.groups
    return tuple(Group((layer,), 1) for layer in model.layers)


def shapes(model: Model, shard: Shard = Shard(), scan: bool = True, images: int = 0,
           lora: Lora | None = None) -> dict[str, tuple[int, ...]]:
    """Every weight that one device computes with, by name: "group0.1.query" is that of the
    second layer in the first group, of all its repetitions."""
    d = model.hidden
    vocab = _divided("the vocabulary", model.vocab, "tensor", shard.tensor)
    all_shapes: dict[str, tuple[int, ...]] = {"embed": (vocab, d), "final_norm_scale": (d,)}
    if not model.is_tied:
        all_shapes["head"] = (d, vocab)
    for number, group in enumerate(_groups(model, scan)):
        stack = (group.repeat,) if group.repeat > 1 else ()
        for position, layer in enumerate(group.layers):
            of_layer = layer_shapes(layer, d, shard)
            if lora:
                of_layer = _with_lora(of_layer, lora)
            all_shapes.update({f"group{number}.{position}.{name}": (*stack, *shape)
                               for name, shape in of_layer.items()})
    vision = model.vision
    if vision and images:
        inner = vision.patch ** 2 * vision.channels
        all_shapes |= {"vision.embed": (inner, vision.hidden),
                       "vision.embed_bias": (vision.hidden,),
                       "vision.positions": (vision.patches, vision.hidden),
                       "vision.final_norm_scale": (vision.hidden,),
                       "vision.final_norm_bias": (vision.hidden,),
                       "vision.projection": (vision.hidden, d)}
        if vision.has_projection_bias:
            all_shapes["vision.projection_bias"] = (d,)
        if vision.has_norm:
            all_shapes["vision.projection_norm_scale"] = (vision.hidden,)
        all_shapes.update({f"vision.layer.{name}": (vision.depth, *shape) for name, shape in
                           layer_shapes(vision.layer, vision.hidden, Shard()).items()})
    return all_shapes


def count(model: Model) -> int:
    """How many weights the model has, its vision tower's included."""
    return sum(math.prod(shape) for shape in shapes(model, images=1).values())


def _see(model: Model, w: Weights, pixels: jax.Array) -> jax.Array:
    """(batch, images × tokens, hidden) of patches (batch, images, patches, their pixels)."""
    vision = model.vision
    assert vision is not None
    batch, images = pixels.shape[:2]
    x = pixels.reshape(batch * images, *pixels.shape[2:])
    x = _product(w, "embed", x) + w["positions"].astype(x.dtype)
    layer = jax.checkpoint(layer_function(vision.layer, named="vision_"))
    x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x, _inner(w, "layer."))
    x = _norm(w, "final_norm", x, "layer")
    ratio = vision.patches // vision.tokens
    if ratio > 1:
        side, part = math.isqrt(vision.patches), math.isqrt(ratio)
        x = x.reshape(-1, side // part, part, side // part, part, vision.hidden).mean((2, 4))
        x = x.reshape(-1, vision.tokens, vision.hidden)
    if vision.has_norm:
        x = _norm(w, "projection_norm", x)
    x = _product(w, "projection", x)
    return x.reshape(batch, images * vision.tokens, -1)


def _loss_of(model: Model, w: Weights, x: jax.Array, targets: jax.Array, chunk: int,
             ) -> jax.Array:
    """The mean over all tokens, by chunks whose logits are computed again."""
    head = w["embed"].T if model.is_tied else w["head"]

    @jax.checkpoint
    def part(total: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        x, targets = inputs
        logits = jnp.dot(x, head.astype(x.dtype), preferred_element_type=jnp.float32)
        if model.softcap:
            logits = model.softcap * jnp.tanh(logits / model.softcap)
        right = jnp.take_along_axis(logits, targets[:, None] % logits.shape[1], 1)[:, 0]
        return total + jnp.sum(jax.nn.logsumexp(logits, -1) - right), None

    x = x.reshape(-1, chunk, x.shape[-1])
    total, _ = jax.lax.scan(part, jnp.zeros((), jnp.float32), (x, targets.reshape(-1, chunk)))
    return total / targets.size


def _chunk(tokens: int, vocab: int, chunks: int) -> int:
    if chunks:
        return _divided("the number of tokens", tokens, "loss_chunks", chunks)
    size = max(1, min(tokens, LOGITS_BYTES // (4 * vocab)))
    return next(n for n in range(size, 0, -1) if tokens % n == 0)


def _trains(train: str | Callable[[str], bool], lora: Lora | None) -> Callable[[str], bool]:
    attention = ("query", "key", "value", "out", "kv_a")
    if lora:
        return lambda name: ".lora_" in name
    if callable(train):
        return train
    if train == "all":
        return lambda name: not name.startswith("vision.")
    if train == "attention":
        return lambda name: name.startswith("group") and name.split(".")[2].startswith(attention)
    raise ValueError(f"train={train!r} is neither 'all', 'attention' nor a function of a "
                     "weight's name")


def _stored(name: str, shape: tuple[int, ...], dtype: Any, shard: Shard) -> int:
    item: int = jnp.dtype(dtype).itemsize
    return math.prod(shape) * item // (1 if name.startswith("vision.") else shard.fsdp)


def _collectives(model: Model, step_shapes: Mapping[str, tuple[int, ...]], shard: Shard,
                 is_trained: Callable[[str], bool], groups: Sequence[Group], rows: int,
                 tokens: int, item: int) -> list[Collective]:
    found = []
    activation = rows * tokens * model.hidden * item
    for number, group in enumerate(groups):
        for position, layer in enumerate(group.layers):
            prefix, of = f"group{number}.{position}.", f"layer {number}.{position}"
            sizes = {name: math.prod(shape) // group.repeat * item
                     for name, shape in step_shapes.items() if name.startswith(prefix)}
            whole = sum(sizes.values())
            trained = sum(size for name, size in sizes.items() if is_trained(name))

            def add(axis: str, kind: str, bytes_: int, times: int, phase: str,
                    of: str = of, group: Group = group) -> None:
                if getattr(shard, axis) > 1 and bytes_:
                    found.append(Collective(axis, kind, getattr(shard, axis), bytes_,
                                            times * group.repeat, phase, of))
            for phase in ("forward", "backward"):
                add("fsdp", "all-gather", whole, 1, phase)
                add("tensor", "all-reduce", activation, 2, phase)
                kind = layer.attention
                keys = rows * tokens * shard.sequence * item * (
                    kind.head_dim + kind.values) * _kv_heads(kind, shard.tensor)
                add("sequence", "all-gather" if phase == "forward" else "reduce-scatter",
                    keys, 1, phase)
                if layer.experts:
                    add("expert", "all-to-all", activation * layer.experts.top_k, 2, phase)
            add("fsdp", "reduce-scatter", trained, 1, "backward")
            add("data", "all-reduce", trained // shard.fsdp, 1, "backward")
    for name in ("embed", "head"):
        size = math.prod(step_shapes.get(name, (0,))) * item
        if shard.fsdp > 1 and size:
            found += [Collective("fsdp", "all-gather", shard.fsdp, size, 1, phase, name)
                      for phase in ("forward", "backward")]
            if is_trained(name):
                found.append(Collective("fsdp", "reduce-scatter", shard.fsdp, size, 1,
                                        "backward", name))
    return found


def step(model: Model, *, batch: int, tokens: int, images: int | None = None,
         shard: Shard = Shard(), scan: bool = True, remat: Remat | None = None,
         train: str | Callable[[str], bool] = "all", lora: Lora | None = None,
         dtype: Any = jnp.bfloat16, weight_dtype: Any = jnp.float32, loss_chunks: int = 0,
         optimizer_bytes: int = 8) -> Step:
    """One device's part of a training step.

    Args:
      batch: Sequences of a step, on all devices together.
      tokens: Tokens of text in each.
      images: Images in front of each sequence's text (as the model is used); each adds the
        tokens that its vision tower makes. The tower is not trained unless `train` says so.
      shard: The mesh.
      scan: Whether equal layers are one scan, or one after the other.
      remat: What to make of each layer's function, as
        functools.partial(jax.checkpoint, policy=...); nothing if None.
      train: "all" weights but the tower's, "attention" alone, or which of shapes()' names.
      lora: Train these factors instead.
      dtype: Of activations, and of weights that are not trained.
      weight_dtype: Of those that are.
      loss_chunks: In how many parts the logits are made; as many as keep each within
        LOGITS_BYTES if 0.
      optimizer_bytes: Of state for each trained weight; 8 is Adam's.

    Raises:
      ShardError: The mesh does not divide a size; the error names both.
      ValueError: An argument makes no sense.
    """
    for what, value in (("batch", batch), ("tokens", tokens)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{what}={value!r} is no number from 1")
    images = model.images if images is None else images
    if images and not model.vision:
        raise ValueError(f"images={images}, but {model.name or 'the model'} has no vision "
                         "tower")
    rows = _divided("the batch", batch, "data x fsdp x expert",
                    shard.data * shard.fsdp * shard.expert)
    seen = images * model.vision.tokens if model.vision else 0
    here = _divided("the number of tokens", tokens + seen, "sequence", shard.sequence)
    if shard.sequence > 1 and seen:
        raise ShardError(f"sequence={shard.sequence} divides no sequence with images in it")
    groups = _groups(model, scan)
    step_shapes = shapes(model, shard, scan, images, lora)
    is_trained = _trains(train, lora)
    trained, frozen = {}, {}
    for name, shape in step_shapes.items():
        if is_trained(name):
            trained[name] = jax.ShapeDtypeStruct(shape, weight_dtype)
        else:
            frozen[name] = jax.ShapeDtypeStruct(shape, dtype)
    if not trained:
        raise ValueError(f"no weight of {model.name or 'the model'} is trained: train={train!r}, "
                         f"lora={lora!r}")
    text = here - seen
    data = {"tokens": jax.ShapeDtypeStruct((rows, text), jnp.int32),
            "targets": jax.ShapeDtypeStruct((rows, text), jnp.int32)}
    if seen and model.vision:
        data["pixels"] = jax.ShapeDtypeStruct(
            (rows, images, model.vision.patches,
             model.vision.patch ** 2 * model.vision.channels), dtype)
    chunk = _chunk(rows * text, step_shapes["embed"][0], loss_chunks)
    wrap = remat or (lambda function: function)
    functions = tuple(tuple(wrap(layer_function(layer, seen, shard.sequence))
                            for layer in group.layers) for group in groups)

    def loss(trained: Weights, frozen: Weights, batch: Weights) -> jax.Array:
        w = {**frozen, **trained}
        embed = w["embed"]
        x = jnp.take(embed, batch["tokens"] % embed.shape[0], 0).astype(dtype)
        if "pixels" in batch:
            x = jnp.concatenate([_see(model, _inner(w, "vision."), batch["pixels"]), x], 1)
        for number, (group, layers) in enumerate(zip(groups, functions)):
            def body(x: jax.Array, w: Weights, layers: Any = layers) -> tuple[jax.Array, None]:
                for position, layer in enumerate(layers):
                    x = layer(_inner(w, f"{position}."), x)
                return x, None
            inner = _inner(w, f"group{number}.")
            x = jax.lax.scan(body, x, inner)[0] if group.repeat > 1 else body(x, inner)[0]
        x = _norm(w, "final_norm", x[:, seen:])
        return _loss_of(model, w, x, batch["targets"], chunk)

    weights = sum(_stored(name, value.shape, value.dtype, shard)
                  for name, value in (trained | frozen).items())
    learned = sum(_stored(name, value.shape, jnp.int8, shard)
                  for name, value in trained.items())
    return Step(
        model, shard, loss, trained, frozen, data,
        tuple((group.repeat, layers) for group, layers in zip(groups, functions)),
        tuple(_collectives(model, step_shapes, shard, is_trained, groups, rows, here,
                           jnp.dtype(dtype).itemsize)),
        {"weights": weights, "gradients": learned * jnp.dtype(weight_dtype).itemsize,
         "optimizer": learned * optimizer_bytes})
