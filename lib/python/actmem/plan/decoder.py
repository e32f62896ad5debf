# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Makes the loss of a model as a JAX function, to analyse a training step without training. The
function gives MaxText's names to the values that a policy can save.

    step = decoder.step(models.find("llama-2-13b"), batch=4, tokens=4096,
                        shard=decoder.Shard(fsdp=8))
    jax.make_jaxpr(jax.grad(step.loss))(step.trained, step.frozen, step.batch)

The function computes one device's part of the model: the axes of the mesh divide the model's sizes.
The function omits the transfers between devices, which `step.collectives` lists. The function's
weights are already gathered over fsdp. `step.bytes` has the sizes, in bytes, of what a device
stores. Without sharding, the function computes the whole model, and can run on random weights
(`initial()`).

Attention is modelled as a fused kernel: a call of fused_attention, and of fused_attention_backward
in the backward pass. The kernel leaves only its results in memory, and computes all scores again in
the backward pass. The kernel computes one block of queries at a time, and omits the keys that
follow the block. The kernel's results are the output of attention, and for each query the logarithm
of the sum of the exponentials of its scores. Both results have the name "context", because the
backward pass needs both. With attention="dot_product", attention consists of two products and a
softmax, which write all scores to memory. In this case, only the result of attention has a name
("attention_out"). MaxText uses these names for the same settings of its `attention`.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actmem.plan._layer import Weights, layer_function, normed, projected
from actmem.plan._loss import total_loss
from actmem.plan._sizes import (Lora, Shard, ShardError, count, divided, groups_of,
                                kv_heads_of, layer_shapes, shapes, stored)
from actmem.plan.models import Group, Layer, Model

__all__ = ["ATTENTIONS", "NAMES", "Collective", "Lora", "Shard", "ShardError", "Step", "count",
           "layer_function", "layer_shapes", "shapes", "step"]

LOGITS_BYTES = 1 << 30          # default maximum size of a chunk of logits
NAMES = ("decoder_layer_input", "query_wa_proj", "kv_wa_proj", "query_proj", "key_proj",
         "value_proj", "context", "attention_out", "out_proj", "mlpwi_0", "mlpwi_1", "mlpwo")
ATTENTIONS = ("kernel", "dot_product")

Remat = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclasses.dataclass(frozen=True)
class Collective:
    """A transfer between devices in a step. `bytes` is the size of the whole value. Each of the
    `devices` on the axis has a part of the value, or an addend if the transfer adds up values.
    `count` is the number of repetitions in a step. When a layer is recomputed, transfers of phase
    "forward" are repeated, except those whose results a policy keeps."""
    axis: str
    kind: str                       # "all-gather", "reduce-scatter", "all-reduce", "all-to-all"
    devices: int
    bytes: int
    count: int
    phase: str                      # "forward" or "backward"
    of: str                         # "layer GROUP.POSITION", "embed" or "head"


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of step(). `loss(trained, frozen, batch)` returns a scalar. The arguments are
    dicts of jax.ShapeDtypeStruct."""
    model: Model
    shard: Shard
    loss: Callable[[Weights, Weights, Weights], jax.Array]
    trained: Weights
    frozen: Weights
    batch: Weights
    collectives: tuple[Collective, ...]
    bytes: dict[str, int]           # on one device. "weights", "gradients" and "optimizer": stored
                                    # for the whole step. "gathered": the gathered weights of the
                                    # largest layer

    def initial(self, seed: int = 0) -> tuple[Weights, Weights, Weights]:
        """Returns arrays for the arguments: random weights, tokens and pixels."""
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


def _inner(weights: Weights, prefix: str) -> Weights:
    return {name[len(prefix):]: value for name, value in weights.items()
            if name.startswith(prefix)}


def _see(model: Model, w: Weights, pixels: jax.Array, wrap: Remat) -> jax.Array:
    """Runs the vision tower. `pixels` has the shape (batch, images, patches, pixels of a patch).
    The result has (batch, images × tokens, hidden)."""
    vision = model.vision
    assert vision is not None
    batch, images = pixels.shape[:2]
    x = pixels.reshape(batch * images, *pixels.shape[2:])
    x = projected(w, "embed", x) + w["positions"].astype(x.dtype)
    layer = wrap(layer_function(vision.layer, named="vision_"))
    x, _ = jax.lax.scan(lambda x, w: (layer(w, x), None), x, _inner(w, "layer."))
    x = normed(w, "final_norm", x, "layer")
    ratio = vision.patches // vision.tokens
    if ratio > 1:
        side, part = math.isqrt(vision.patches), math.isqrt(ratio)
        x = x.reshape(-1, side // part, part, side // part, part, vision.hidden).mean((2, 4))
        x = x.reshape(-1, vision.tokens, vision.hidden)
    if vision.has_norm:
        x = normed(w, "projection_norm", x)
    x = projected(w, "projection", x)
    return x.reshape(batch, images * vision.tokens, -1)


def _chunk(tokens: int, vocab: int, chunks: int) -> int:
    if chunks:
        return divided("the number of tokens", tokens, "loss_chunks", chunks)
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
            of_experts = sum(size for name, size in sizes.items() if is_trained(name) and
                             name[len(prefix):].startswith("expert_"))

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
                    kind.head_dim + kind.values) * kv_heads_of(kind, shard.tensor)
                add("sequence", "all-gather" if phase == "forward" else "reduce-scatter",
                    keys, 1, phase)
                if layer.experts:
                    add("expert", "all-to-all", activation * layer.experts.top_k, 2, phase)
            add("fsdp", "reduce-scatter", trained, 1, "backward")
            # Devices with the same weights and different tokens add up their gradients.
            add("data", "all-reduce", trained // shard.fsdp, 1, "backward")
            add("sequence", "all-reduce", trained // shard.fsdp, 1, "backward")
            add("expert", "all-reduce", (trained - of_experts) // shard.fsdp, 1, "backward")
    for name in ("embed", "head"):
        size = math.prod(step_shapes.get(name, (0,))) * item
        if shard.fsdp > 1 and size:
            found += [Collective("fsdp", "all-gather", shard.fsdp, size, 1, phase, name)
                      for phase in ("forward", "backward")]
            if is_trained(name):
                found.append(Collective("fsdp", "reduce-scatter", shard.fsdp, size, 1,
                                        "backward", name))
        if size and is_trained(name):
            found += [Collective(axis, "all-reduce", getattr(shard, axis), size // shard.fsdp, 1,
                                 "backward", name)
                      for axis in ("data", "sequence", "expert") if getattr(shard, axis) > 1]
    return found


def step(model: Model, *, batch: int, tokens: int, images: int | None = None,
         shard: Shard = Shard(), scan: bool = True, remat: Remat | None = None,
         train: str | Callable[[str], bool] = "all", lora: Lora | None = None,
         dtype: Any = jnp.bfloat16, weight_dtype: Any = jnp.float32, loss_chunks: int = 0,
         optimizer_bytes: int = 8, attention: str = "kernel") -> Step:
    """Returns one device's part of a training step.

    Args:
      batch: The number of sequences in a step, on all devices together.
      tokens: The number of text tokens in each sequence.
      images: The number of images in front of each sequence's text. None: model.images. Each image
        adds the tokens that the vision tower makes from the image. The tower is not trained, unless
        `train` is a function that selects the tower's weights.
      shard: The mesh.
      scan: True: repeated layers run in a scan. False: each layer has its own operations.
      remat: A function that wraps each layer's function, such as
        functools.partial(jax.checkpoint, policy=...). None: no wrapper.
      train: The weights to train. "all": all except those of the vision tower. "attention": only
        those of attention. A function: it returns true for the name of each weight to train (see
        shapes()).
      lora: Low-rank factors to add to some weights. Only these factors are trained.
      dtype: The type of activations, and of weights that are not trained.
      weight_dtype: The type of weights that are trained.
      loss_chunks: The number of chunks in which the logits are computed. 0: as many as needed to
        keep each chunk within LOGITS_BYTES.
      optimizer_bytes: Bytes of optimizer state for each trained weight; Adam has 8.
      attention: How the text layers compute attention: "kernel" or "dot_product".

    Raises:
      ShardError: An axis of the mesh does not divide a size of the model. The error message names
        the axis and the size.
      ValueError: An argument is invalid.
    """
    for what, value in (("batch", batch), ("tokens", tokens)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{what}={value!r} must be a number of at least 1")
    if attention not in ATTENTIONS:
        raise ValueError(f"attention={attention!r} must be one of {', '.join(ATTENTIONS)}")
    images = model.images if images is None else images
    if images and not model.vision:
        raise ValueError(f"images={images}, but {model.name or 'the model'} has no vision "
                         "tower")
    rows = divided("the batch", batch, "data x fsdp x expert",
                    shard.data * shard.fsdp * shard.expert)
    seen = images * model.vision.tokens if model.vision else 0
    here = divided("the number of tokens", tokens + seen, "sequence", shard.sequence)
    if shard.sequence > 1 and seen:
        raise ShardError(f"sequence={shard.sequence} must be 1, because sequences with images "
                         "cannot be divided")
    groups = groups_of(model, scan)
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
    learns = ("embed" if model.is_tied else "head") in trained
    made: dict[Layer, Callable[..., Any]] = {}
    for layer in (layer for group in groups for layer in group.layers):
        if layer not in made:
            # JAX traces and differentiates a jitted function once, even if several layers are equal.
            made[layer] = wrap(jax.jit(layer_function(layer, seen, shard.sequence,
                                                      attention=attention)))
    functions = tuple(tuple(made[layer] for layer in group.layers) for group in groups)

    def loss(trained: Weights, frozen: Weights, batch: Weights) -> jax.Array:
        w = {**frozen, **trained}
        embed = w["embed"]
        x = jnp.take(embed, batch["tokens"] % embed.shape[0], 0).astype(dtype)
        if "pixels" in batch:
            x = jnp.concatenate([_see(model, _inner(w, "vision."), batch["pixels"], wrap), x], 1)
        for number, (group, layers) in enumerate(zip(groups, functions)):
            def body(x: jax.Array, w: Weights, layers: Any = layers) -> tuple[jax.Array, None]:
                for position, layer in enumerate(layers):
                    x = layer(_inner(w, f"{position}."), x)
                return x, None
            inner = _inner(w, f"group{number}.")
            x = jax.lax.scan(body, x, inner)[0] if group.repeat > 1 else body(x, inner)[0]
        x = normed(w, "final_norm", x[:, seen:]).reshape(-1, chunk, model.hidden)
        targets = batch["targets"]
        head = w["embed"].T if model.is_tied else w["head"]
        total: jax.Array = total_loss(model.softcap, learns, head, x,
                                       targets.reshape(-1, chunk))
        mean: jax.Array = total / targets.size
        return mean

    item = jnp.dtype(dtype).itemsize
    of_layer: dict[str, int] = {name: math.prod(shape) * item for name, shape in
                                step_shapes.items() if name in ("embed", "head")}
    for number, group in enumerate(groups):
        for position in range(len(group.layers)):
            prefix = f"group{number}.{position}."
            of_layer[prefix] = sum(math.prod(shape) for name, shape in step_shapes.items()
                                   if name.startswith(prefix)) * item // group.repeat
    weights = sum(stored(name, value.shape, value.dtype, shard)
                  for name, value in (trained | frozen).items())
    learned = sum(stored(name, value.shape, jnp.int8, shard)
                  for name, value in trained.items())
    return Step(
        model, shard, loss, trained, frozen, data,
        tuple(_collectives(model, step_shapes, shard, is_trained, groups, rows, here,
                           item)),
        {"gathered": max(of_layer.values()) if shard.fsdp > 1 else 0, "weights": weights,
         "gradients": learned * jnp.dtype(weight_dtype).itemsize,
         "optimizer": learned * optimizer_bytes})
