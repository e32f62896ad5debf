# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes the time of the transfers between the devices of a mesh, for each group of layers.
decoder.py lists these transfers. Weights are gathered, and their gradients are summed, while
another layer computes. If several devices share the computation of a layer, the layer waits for the
transfers between these devices."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection

from actmem.plan._sizes import groups_of
from actmem.plan.decoder import Collective, Step
from actmem.plan.machine import Machine

# Axes whose transfers all run while another layer computes.
BESIDE = ("fsdp", "data")
# Axes whose sums of gradients run while another layer computes. Layers wait for all other transfers
# of these axes, and for all transfers of axes that are in neither list.
GRADIENTS = ("sequence", "expert")


@dataclasses.dataclass
class Turn:
    """The transfers in the forward or the backward pass of a layer, in seconds. The layer waits for
    some of these transfers (`waited`). The others run while a layer computes (`beside`)."""
    waited: float = 0.0
    beside: float = 0.0

    def of(self, compute: float) -> float:
        return max(compute + self.waited, self.beside)


class Between:
    """All transfers of a step, by group of layers."""

    def __init__(self, step: Step, machine: Machine) -> None:
        self.step, self.machine = step, machine
        self.groups = groups_of(step.model, scan=True)

    def _seconds(self, one: Collective) -> float:
        share = (one.devices - 1) / one.devices * (2 if one.kind == "all-reduce" else 1)
        return one.bytes * one.count * share / self.machine.need("interconnect")

    def _again(self, one: Collective, there: Collection[str]) -> float:
        """Returns the fraction of the forward transfer `one` that is repeated when the layer is
        recomputed."""
        group, position = (int(word) for word in one.of.split()[1].split("."))
        layer = self.groups[group].layers[position]
        if one.axis == "tensor":
            # On this axis, a layer has two sums: one after the attention, and one after the MLP.
            # The recomputation omits the sum after the MLP, unless a norm in this layer needs it.
            return 0.5 * ("out_proj" not in there) + \
                0.5 * (layer.has_post_norms and "mlpwo" not in there)
        if one.axis == "sequence":
            return float(not {"key_proj", "value_proj"} <= set(there))
        return 1.0

    def turns(self, there: Collection[str]) -> list[tuple[Turn, Turn]]:
        """Returns the forward and the backward transfers for one repetition of each group, if the
        values whose names are in `there` are kept or offloaded."""
        found = [(Turn(), Turn()) for _ in self.groups]
        for one in self.step.collectives:
            if not one.of.startswith("layer "):
                continue
            group = int(one.of.split()[1].split(".")[0])
            seconds = self._seconds(one) / self.groups[group].repeat
            forward, backward = found[group]
            turn = forward if one.phase == "forward" else backward
            if one.axis in BESIDE or one.axis in GRADIENTS and one.kind == "all-reduce":
                turn.beside += seconds
            else:
                turn.waited += seconds
                if one.phase == "forward":
                    backward.waited += seconds * self._again(one, there)
        return found

    @property
    def rest(self) -> float:
        """Seconds of transfers that belong to no layer."""
        return sum(self._seconds(one) for one in self.step.collectives
                   if not one.of.startswith("layer "))
