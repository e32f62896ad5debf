# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A mesh, and the weights that one of its devices computes with: see decoder.py."""
from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp

from actmem.plan.models import Attention, Group, Layer, Model


class ShardError(ValueError):
    """The number of devices on an axis of the mesh does not divide a size of the model."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """The number of devices on each axis of the mesh. data, fsdp and expert divide the batch.
    sequence divides a sequence. tensor divides heads, widths and the vocabulary. expert also
    divides the experts. fsdp also divides the stored weights."""
    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    sequence: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise ShardError(f"{field.name}={value!r} is not a number of devices")

    @property
    def devices(self) -> int:
        return self.data * self.fsdp * self.tensor * self.sequence * self.expert


@dataclasses.dataclass(frozen=True)
class Lora:
    """Adds two factors of rank `rank` to each weight in `targets`. Only the factors are trained."""
    rank: int = 16
    targets: tuple[str, ...] = ("query", "key", "value", "out")


def divided(what: str, size: int, axis: str, devices: int) -> int:
    if size % devices:
        raise ShardError(f"{axis}={devices} does not divide {what}, which is {size}")
    return size // devices


def kv_heads_of(kind: Attention, tensor: int) -> int:
    """Returns how many key heads a device has. If there are fewer heads than devices, several
    devices share a head."""
    if kind.kv_heads < tensor and tensor % kind.kv_heads == 0:
        return 1
    return divided("the number of key and value heads", kind.kv_heads, "tensor", tensor)


def _attention_shapes(kind: Attention, d: int, tensor: int) -> dict[str, tuple[int, ...]]:
    heads = divided("the number of query heads", kind.q_heads, "tensor", tensor)
    kv_heads = kv_heads_of(kind, tensor)
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
            if name in shapes:
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
    """Returns the shapes of a layer's weights that one device computes with."""
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
        width = divided("the MLP's width", layer.d_ff, "tensor", shard.tensor)
        return shapes | _mlp_shapes(layer, d, width)
    count = divided("the number of experts", experts.count, "expert", shard.expert)
    width = divided("an expert's width", experts.d_ff, "tensor", shard.tensor)
    shapes["router"] = (d, experts.count)
    if experts.has_bias:
        shapes["router_bias"] = (experts.count,)
    for name, shape in _mlp_shapes(layer, d, width).items():
        shapes[f"expert_{name}"] = (count, *shape)
    if experts.shared_d_ff:
        width = divided("the shared experts' width", experts.shared_d_ff, "tensor",
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


def groups_of(model: Model, scan: bool) -> tuple[Group, ...]:
    if scan:
        return model.groups
    return tuple(Group((layer,), 1) for layer in model.layers)


def shapes(model: Model, shard: Shard = Shard(), scan: bool = True, images: int = 0,
           lora: Lora | None = None) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all weights that one device computes with, by name. "group0.1.query" is
    the query weight of the second layer of the first group, for all repetitions of that layer."""
    d = model.hidden
    vocab = divided("the vocabulary", model.vocab, "tensor", shard.tensor)
    all_shapes: dict[str, tuple[int, ...]] = {"embed": (vocab, d), "final_norm_scale": (d,)}
    if not model.is_tied:
        all_shapes["head"] = (d, vocab)
    for number, group in enumerate(groups_of(model, scan)):
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
    """Returns the number of weights of the model, including its vision tower."""
    return sum(math.prod(shape) for shape in shapes(model, images=1).values())


def stored(name: str, shape: tuple[int, ...], dtype: Any, shard: Shard) -> int:
    item: int = jnp.dtype(dtype).itemsize
    return math.prod(shape) * item // (1 if name.startswith("vision.") else shard.fsdp)
