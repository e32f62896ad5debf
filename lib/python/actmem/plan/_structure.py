# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The structure of a model's computation: see models.py."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

PERIOD_MAX = 16


class ModelError(ValueError):
    """The model is unknown, or its configuration lacks a field or has an unknown one."""


@dataclasses.dataclass(frozen=True)
class Attention:
    """One kind of attention. A value head has as many dimensions as a key head, unless
    `value_dim` is set. If `kv_rank` is set, this is multi-head latent attention: `rope_dim` of the
    `head_dim` dimensions are rotated, and all heads of the key share these dimensions."""
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int = 0
    window: int = 0                 # keys that a query sees; 0: all preceding keys
    causal: bool = True
    shares_kv: bool = False         # the projected key also serves as the value
    has_norms: bool = False         # queries and keys are normalized, per head
    qkv_bias: bool = False
    out_bias: bool = False
    softcap: float = 0
    q_rank: int = 0
    kv_rank: int = 0
    rope_dim: int = 0
    has_rope: bool = True

    @property
    def values(self) -> int:
        return self.value_dim or self.head_dim


@dataclasses.dataclass(frozen=True)
class Experts:
    """A token passes through `top_k` of `count` experts, and through the shared experts, which
    form a single expert of width `shared_d_ff`."""
    count: int
    top_k: int
    d_ff: int
    shared_d_ff: int = 0
    has_bias: bool = False          # the router has a bias


@dataclasses.dataclass(frozen=True)
class Layer:
    """One kind of layer: attention, and then an MLP of width `d_ff` or experts."""
    attention: Attention
    d_ff: int
    experts: Experts | None = None
    is_gated: bool = True
    act: str = "silu"
    has_post_norms: bool = False
    has_mlp_bias: bool = False
    norm: str = "rms"               # or "layer", with a bias


@dataclasses.dataclass(frozen=True)
class Group:
    """Layers of several kinds, in order. A scan runs this sequence `repeat` times."""
    layers: tuple[Layer, ...]
    repeat: int


@dataclasses.dataclass(frozen=True)
class Vision:
    """A tower that makes `tokens` tokens from each image."""
    layer: Layer
    depth: int
    hidden: int
    image: int
    patch: int
    channels: int
    tokens: int
    has_projection_bias: bool
    has_norm: bool                  # a norm precedes the projection

    @property
    def patches(self) -> int:
        return (self.image // self.patch) ** 2


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    vocab: int
    is_tied: bool                   # the embedding is also the weight of the last product
    groups: tuple[Group, ...]
    softcap: float = 0              # of the logits
    vision: Vision | None = None
    images: int = 0                 # default number of images in a sequence
    source: str = ""
    parameters: int = 0             # as published, 0 if unknown

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(layer for group in self.groups
                     for layer in group.layers * group.repeat)


def grouped(layers: Sequence[Layer]) -> tuple[Group, ...]:
    """Divides layers into groups, in order. A group repeats a sequence of layers. Chooses each
    sequence so that its repetitions cover as many layers as possible."""
    groups, at = [], 0
    while at < len(layers):
        best, repeat = 1, 1
        for period in range(1, min(PERIOD_MAX, len(layers) - at) + 1):
            times = 1
            while layers[at + times * period:at + (times + 1) * period] == \
                    layers[at:at + period]:
                times += 1
            if times > 1 and times * period > best * repeat:
                best, repeat = period, times
        groups.append(Group(tuple(layers[at:at + best]), repeat))
        at += best * repeat
    return tuple(groups)
