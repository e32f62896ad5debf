# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The plan of a published model on a machine, without its code: decoder.py's function stands
for it, one device's part of a step.

    of_model.plan_of(models.find("llama-2-13b"), machine.find("h200"), batch=8, tokens=4096,
                     shard=decoder.Shard(fsdp=8))

The function computes with whole weights, and has gradients as large; of these a device has
its part, beside the optimizer's state, and one layer's weights as they are gathered.
"""
from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from actmem.plan import Choice, Plan, decoder, plan
from actmem.plan.between import Between
from actmem.plan.machine import Machine
from actmem.plan.models import Model


def _bytes(tree: dict[str, Any]) -> int:
    return sum(math.prod(leaf.shape) * jnp.dtype(leaf.dtype).itemsize
               for leaf in jax.tree.leaves(tree))


def plan_of(model: Model, machine: Machine, *, batch: int, tokens: int,
            shard: decoder.Shard = decoder.Shard(), images: int | None = None,
            train: str = "all", lora: decoder.Lora | None = None,
            device_memory: float | None = None, host_memory: float | None = None,
            choice: Choice | None = None, **options: Any) -> Plan:
    """The plan of one device of the mesh, in a step of all of them.

    Args:
      model, batch, tokens, shard, images, train, lora: As decoder.step() takes them.
      device_memory, host_memory, choice, options: As plan() takes them.
    """
    step = decoder.step(model, batch=batch, tokens=tokens, images=images, shard=shard,
                        train=train, lora=lora)
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
