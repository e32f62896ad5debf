# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The plan of a published model on a machine, without its code: decoder.py's function stands
for it, one device's part of a step.

    of_model.plan_of(models.find("llama-2-13b"), machine.find("h200"), batch=8, tokens=4096,
                     shard=decoder.Shard(fsdp=8))

The function computes with whole weights, and has gradients as large; of these a device has
its part, beside the optimizer's state, and one layer's weights as they are gathered.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from actmem.plan import Choice, Plan, decoder, plan
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
            choice: Choice | None = None, **options: Any) -> Plan:
    """The plan of one device of the mesh, in a step of all of them.

    Args:
      model, batch, tokens, shard, images, train, lora, attention: As decoder.step() takes them.
      device_memory, host_memory, choice, options: As plan() takes them.
    """
    step = decoder.step(model, batch=batch, tokens=tokens, images=images, shard=shard,
                        train=train, lora=lora, attention=attention)
    has = step.bytes["weights"] + step.bytes["gathered"] + step.bytes["gradients"] + \
        step.bytes["optimizer"]
    # The gradients are results, and as large as the weights that are trained.
    seen = 2 * _bytes(step.trained) + _bytes(step.frozen)
    devices = int(machine.need("devices")) if machine.has("devices") else 1
    return plan(step.loss, step.trained, step.frozen, step.batch, machine=machine,
                device_memory=device_memory, host_memory=host_memory,
                model=model.name, resident=has - seen, devices=min(devices, shard.devices),
                choice=choice, frozen=1, between=Between(step, machine),
                **options)


@dataclasses.dataclass(frozen=True)
class Length:
    """What a plan would be for sequences of another length; None: nothing fits."""
    tokens: int
    plan: Plan | None
    lacks: str = ""

    def line(self, first: Plan) -> str:
        """As a line below `first`, with the names of which something else becomes there."""
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
    """The plans of other lengths, each by plan_at(tokens)."""
    found = []
    for tokens in lengths:
        try:
            found.append(Length(tokens, plan_at(tokens)))
        except Nothing as error:
            found.append(Length(tokens, None, str(error)))
    return found
