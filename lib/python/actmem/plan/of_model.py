# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The plan of a published model on a machine, without the model's code. It uses decoder.py's
function, which is one device's part of a step.

    of_model.plan_of(models.find("llama-2-13b"), machine.find("h200"), batch=8, tokens=4096,
                     shard=decoder.Shard(fsdp=8))

The function computes with whole weights, and its gradients have the same size. A device stores only
its part of the weights, the gradients and the optimizer's state, and the gathered weights of one
layer.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from actmem.plan import Choice, Plan, decoder, plan
from actmem.plan._trace import Program
from actmem.plan.between import Between
from actmem.plan.machine import Machine
from actmem.plan.models import Model
from actmem.plan.search import Nothing


def _bytes(tree: dict[str, Any]) -> int:
    return sum(math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
               for leaf in jax.tree.leaves(tree))


def _whole(step: decoder.Step, of_device: decoder.Step) -> tuple[Program, int]:
    """Returns the program of all devices, with its weights divided by fsdp, and the bytes of the
    optimizer's state on one device. XLA divides the rest."""
    shard = of_device.shard
    if shard.devices != shard.data * shard.fsdp:
        raise ValueError("--compile divides a model only by data and fsdp: use --mesh with these "
                         f"two, not {shard}")
    mesh = jax.make_mesh((shard.data, shard.fsdp), ("data", "fsdp"),
                         axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def divided(name: str, leaf: Any) -> Any:
        # The first dimension of a group's weights counts its layers.
        first = 1 if name.startswith("group") else 0
        sizes = [size if i >= first and size % shard.fsdp == 0 else 0
                 for i, size in enumerate(leaf.shape)]
        axes: list[str | None] = [None] * len(sizes)
        if max(sizes, default=0):
            axes[sizes.index(max(sizes))] = "fsdp"
        return _on(mesh, leaf, PartitionSpec(*axes))
    trained, frozen = ({name: divided(name, leaf) for name, leaf in tree.items()}
                       for tree in (step.trained, step.frozen))
    batch = {name: _on(mesh, leaf, PartitionSpec(("data", "fsdp")))
             for name, leaf in step.batch.items()}
    return Program(step.loss, (trained, frozen, batch), frozen=1), of_device.bytes["optimizer"]


def _on(mesh: Any, leaf: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))


def plan_of(model: Model, machine: Machine, *, batch: int, tokens: int,
            shard: decoder.Shard = decoder.Shard(), images: int | None = None,
            train: str = "all", lora: decoder.Lora | None = None, attention: str = "kernel",
            device_memory: float | None = None, host_memory: float | None = None,
            choice: Choice | None = None, compile: str | None = None, **options: Any) -> Plan:
    """Returns the plan of one device of the mesh, in a step of all devices.

    Args:
      model, batch, tokens, shard, images, train, lora, attention: As for decoder.step().
      device_memory, host_memory, choice, compile, options: As for plan().
    """
    step, whole = (decoder.step(model, batch=batch, tokens=tokens, images=images, shard=each,
                                train=train, lora=lora, attention=attention)
                   for each in (shard, decoder.Shard()))
    has = step.bytes["weights"] + step.bytes["gathered"] + step.bytes["gradients"] + \
        step.bytes["optimizer"]
    # The gradients are results. They are as large as the trained weights.
    seen = 2 * _bytes(step.trained) + _bytes(step.frozen)
    devices = int(machine.need("devices")) if machine.has("devices") else 1
    return plan(step.loss, step.trained, step.frozen, step.batch, machine=machine,
                device_memory=device_memory, host_memory=host_memory,
                model=model.name, resident=has - seen, devices=min(devices, shard.devices),
                choice=choice, frozen=1, between=Between(step, machine), compile=compile,
                whole=_whole(whole, step) if compile and shard.devices > 1 else None, **options)


@dataclasses.dataclass(frozen=True)
class Length:
    """The plan for sequences of another length. `plan` is None if nothing fits."""
    tokens: int
    plan: Plan | None
    lacks: str = ""

    def line(self, first: Plan) -> str:
        """Returns a line to print below `first`. It lists the names whose action differs."""
        if self.plan is None:
            return f"at {self.tokens} tokens: {self.lacks}"
        there = {row.name: row.action for row in first.names}
        other = [f"{row.name} {row.action}" for row in self.plan.names
                 if row.action != there.get(row.name)]
        return (f"at {self.tokens} tokens: gain {self.plan.gain:.1%} ± {self.plan.error:.1%}; "
                f"{', '.join(other) or 'the same policy'}")

    def json(self) -> dict[str, Any]:
        if self.plan is None:
            return {"tokens": self.tokens, "lacks": self.lacks}
        return {"tokens": self.tokens, "gain": self.plan.gain, "error": self.plan.error,
                "actions": {row.name: row.action for row in self.plan.names}}


def by_length(plan_at: Callable[[int], Plan], lengths: Sequence[int]) -> list[Length]:
    """Returns the plans of other lengths. plan_at(tokens) makes each."""
    found = []
    for tokens in lengths:
        try:
            found.append(Length(tokens, plan_at(tokens)))
        except Nothing as error:
            found.append(Length(tokens, None, str(error)))
    return found
