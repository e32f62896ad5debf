# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Plans the training of a published model on a machine, without the model's code. The planner uses
a function of decoder.py that computes one device's part of a step.

    of_model.plan_of(models.find("llama-2-13b"), machine.find("h200"), batch=8, tokens=4096,
                     shard=decoder.Shard(fsdp=8))

The function computes with whole weights, and returns whole gradients. The plan counts less memory
than the function needs: on a mesh, a device stores only its part of the weights, gradients and
optimizer state, plus the gathered weights of one layer.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from actmem.plan import Choice, Plan, decoder, defaults, plan, sharded
from actmem.plan.between import Between
from actmem.plan.machine import Machine
from actmem.plan.models import Model
from actmem.plan.search import Nothing


def _bytes(tree: dict[str, Any]) -> int:
    return sum(math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
               for leaf in jax.tree.leaves(tree))


def plan_of(model: Model, machine: Machine, *, batch: int, tokens: int,
            shard: decoder.Shard = decoder.Shard(), images: int | None = None,
            train: str = "all", lora: decoder.Lora | None = None, attention: str = "kernel",
            device_memory: float | None = None, host_memory: float | None = None,
            choice: Choice | None = None, compile: str | None = None,
            weight_dtype: Any = jnp.float32, optimizer_bytes: int = 8, spared: int = 0,
            **options: Any) -> Plan:
    """Returns the plan for one device of the mesh, in a step that runs on all devices.

    Args:
      model, batch, tokens, shard, images, train, lora, attention, weight_dtype,
        optimizer_bytes: As for decoder.step().
      device_memory, host_memory, choice, options: As for plan().
      compile: As for plan(). The target must have as many devices as the mesh, and fsdp must be the
        only axis that divides the model.
      spared: Bytes of weights and gradients that actmem stores, so that they are not on the device.
    """
    step = decoder.step(model, batch=batch, tokens=tokens, images=images, shard=shard,
                        train=train, lora=lora, attention=attention, weight_dtype=weight_dtype,
                        optimizer_bytes=optimizer_bytes)
    has = step.bytes["weights"] + step.bytes["gradients"] + step.bytes["optimizer"] - spared
    if defaults.compiler_of(machine).fuses_products:
        # For GPUs and CPUs, the function itself allocates the gathered weights, so plan() counts
        # them.
        has += step.bytes["gathered"]
    # plan() itself counts all weights and the gradients. The gradients are as large as the trained
    # weights.
    seen = (2 * _bytes(step.trained) + _bytes(step.frozen)) // shard.fsdp
    whole = None
    if compile:
        if shard != decoder.Shard(fsdp=shard.devices):
            raise decoder.ShardError("compile= supports meshes with fsdp alone: leave the other "
                                     "axes out")
        whole = sharded.program_of(model, devices=shard.devices, batch=batch, tokens=tokens,
                                   images=images, train=train, lora=lora, attention=attention)
    devices = int(machine.need("devices")) if machine.has("devices") else 1
    return plan(step.loss, step.trained, step.frozen, step.batch, machine=machine,
                device_memory=device_memory, host_memory=host_memory,
                model=model.name, resident=has - seen, devices=min(devices, shard.devices),
                choice=choice, frozen=1, between=Between(step, machine), compile=compile,
                whole=whole, shares=shard.fsdp,
                **options)


@dataclasses.dataclass(frozen=True)
class Length:
    """The plan for one of several sequence lengths. `plan` is None if nothing fits."""
    tokens: int
    plan: Plan | None
    lacks: str = ""

    def line(self, first: Plan) -> str:
        """Returns a line to print below `first`. The line lists the names whose action differs from
        that in `first`."""
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
    """Returns a result for each of the `lengths`. plan_at(tokens) makes the plans."""
    found = []
    for tokens in lengths:
        try:
            found.append(Length(tokens, plan_at(tokens)))
        except Nothing as error:
            found.append(Length(tokens, None, str(error)))
    return found
