# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The training step of a published model on all devices of a mesh, for XLA to compile. of_model.py
plans one device's part, without transfers between devices. This program contains these transfers:
each device holds a part of each weight, and gathers the weights of a layer at the start of the
layer (fsdp).

    program = sharded.program_of(models.find("llama-2-13b"), devices=8, batch=16, tokens=4096)
    jax.make_jaxpr(program.loss)(*program.args)
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from actmem.plan import decoder
from actmem.plan._layer import Weights
from actmem.plan._sizes import divided, groups_of
from actmem.plan.models import Group, Model

AXIS = "fsdp"


@dataclasses.dataclass(frozen=True)
class Sharded:
    """The result of program_of(). `loss(trained, frozen, batch)` returns a scalar. `args` has the
    shapes and shardings of the arguments of `loss`. `resident` is the number of bytes of optimizer
    state on each device."""
    loss: Callable[[Weights, Weights, Weights], jax.Array]
    args: tuple[Weights, Weights, Weights]
    resident: int


class _Axes:
    """The dimension in which each weight is divided: the first one whose size is a multiple of
    `devices`. An earlier dimension is better, because GPUs gather an array along dimension 0
    without a copy. To gather along another dimension, XLA first copies the weights of all
    layers."""

    def __init__(self, step: decoder.Step, groups: Sequence[Group], devices: int) -> None:
        self.of_array: dict[str, int] = {}
        # The key consists of the weight's name within its layer and the shape of a device's part.
        self.of_part: dict[tuple[str, tuple[int, ...]], int] = {}
        for name, leaf in (step.trained | step.frozen).items():
            is_of_layer = _is_of_layer(name)
            first = int(is_of_layer and _is_stacked(name, groups))
            shape = leaf.shape[first:]
            axis = next((i for i, size in enumerate(shape) if size % devices == 0), None)
            if axis is None:
                raise decoder.ShardError(f"{AXIS}={devices} divides no dimension of the weight "
                                         f"{name} ({' x '.join(map(str, shape))})")
            self.of_array[name] = first + axis
            part = (*shape[:axis], shape[axis] // devices, *shape[axis + 1:])
            key = name.split(".", 2)[2] if is_of_layer else name, part
            if self.of_part.setdefault(key, axis) != axis:
                raise decoder.ShardError(f"two weights named {key[0]} have parts of the same "
                                         f"shape, but {AXIS}={devices} divides them in different "
                                         "dimensions")

    def gathered(self, weights: Weights, dtype: Any) -> Weights:
        """Returns whole weights. Casts the parts first, so that devices send fewer bytes."""
        return {name: jax.lax.all_gather(value.astype(dtype), AXIS, tiled=True,
                                         axis=self.of_part[name, value.shape])
                for name, value in weights.items()}


def program_of(model: Model, *, devices: int, batch: int, tokens: int,
               dtype: Any = jnp.bfloat16, **options: Any) -> Sharded:
    """Returns the step of `devices` devices.

    Args:
      model, batch, tokens, options: As for decoder.step().
    """
    def remat(layer: Callable[..., Any]) -> Callable[..., Any]:
        return jax.checkpoint(lambda w, x: layer(axes.gathered(w, dtype), x), prevent_cse=False)
    rows = divided("the batch", batch, AXIS, devices)
    # This step has one device's rows of the batch, but whole weights.
    step = decoder.step(model, batch=rows, tokens=tokens, dtype=dtype, remat=remat, **options)
    axes = _Axes(step, groups_of(model, options.get("scan", True)), devices)
    if len(jax.devices()) < devices:
        raise ValueError(f"the step of {devices} devices needs as many CPU devices here, but JAX "
                         f"has {len(jax.devices())}: set JAX_NUM_CPU_DEVICES={devices}")
    mesh = jax.make_mesh((devices,), (AXIS,), devices=jax.devices()[:devices])

    def part(trained: Weights, frozen: Weights, batch: Weights) -> jax.Array:
        def whole(weights: Weights) -> Weights:
            outer = {name: value for name, value in weights.items() if not _is_of_layer(name)}
            return weights | axes.gathered(outer, dtype)
        mean: jax.Array = jax.lax.pmean(step.loss(whole(trained), whole(frozen), batch), AXIS)
        return mean

    def shape(leaf: jax.ShapeDtypeStruct, sizes: tuple[int, ...], *axes: str | None,
              ) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, leaf.dtype,
                                    sharding=NamedSharding(mesh, PartitionSpec(*axes)))
    trained, frozen = ({name: shape(leaf, leaf.shape, *[None] * axes.of_array[name], AXIS)
                        for name, leaf in tree.items()} for tree in (step.trained, step.frozen))
    data = {name: shape(leaf, (devices * leaf.shape[0], *leaf.shape[1:]), AXIS)
            for name, leaf in step.batch.items()}
    args = trained, frozen, data
    specs = jax.tree.map(lambda leaf: leaf.sharding.spec, args)
    # check_vma does not know that gathered weights vary by device, as their parts do.
    loss = jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(),
                         check_vma=False)
    return Sharded(loss, args, step.bytes["optimizer"] // devices)


def _is_of_layer(name: str) -> bool:
    return name.startswith("group") or ".layer." in name


def _is_stacked(name: str, groups: Sequence[Group]) -> bool:
    """Returns whether the array of this name has the weights of several layers."""
    return name.startswith("vision.") or \
        groups[int(name[len("group"):].partition(".")[0])].repeat > 1
