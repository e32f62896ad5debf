# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The order in which XLA's latency-hiding scheduler for GPUs runs the steps of a loop's body.

The scheduler places the last step first. A step can be placed when all steps that read its results
are placed. The scheduler takes the best of these steps by the rules of _rank().
Copies of slices of stacked values, and copies between device and host, run beside other steps: the
start and the end of a copy are separate items, with LATENCY between them. Times and costs are those
that the scheduler assumes, in the scheduler's own unit. This module contains only those rules of
XLA's latency_hiding_scheduler.cc and gpu_latency_hiding_scheduler.cc that changed a prediction.
If no rule changes the order, the scheduler keeps the order of the program.
"""
from __future__ import annotations

import dataclasses

from actmem.plan._fusion import ELEMENTWISE, Step
from actmem.plan._graph import PRODUCTS, Node

LATENCY = 5000.0        # time between the start and the end of a copy
NEXT = 1.0              # time between other items
SMALL = 1.0             # cost of a product, a sum, or the start or end of a copy
MEDIUM = 1000.0         # cost of an elementwise step or a custom call
SLICES = ("dynamic_slice", "dynamic_update_slice")


@dataclasses.dataclass(eq=False)
class _Item:
    """A step, the start or the end of a copy, or an item that takes no time: an input, or another
    shape of a value."""

    number: int                     # in the program's order
    step: Step | None = None
    cost: float = 0.0
    starts: bool = False            # true for the start of a copy
    ends: bool = False              # true for the end of a copy
    before: list[_Item] = dataclasses.field(default_factory=list)   # items that this one needs
    after: list[tuple[_Item, float]] = dataclasses.field(default_factory=list)
    left: int = 0                   # number of items in `after` that are not placed
    unlocks: int = 0                # number of items that become ready when this one is placed
    is_placed: bool = False
    ready: float = 0.0              # when the item can be placed, or was placed

    def needs(self, other: _Item, latency: float = NEXT) -> None:
        self.before.append(other)
        other.after.append((self, latency))

    def earliest(self, now: float) -> float:
        return max([now, *(item.ready + latency for item, latency in self.after)])


def hiding(steps: list[Step]) -> list[Step]:
    """Returns the steps of a loop's body in the scheduler's order. A copy to the host or into a
    stacked value is listed where the copy ends, because its operand must be in memory until then.
    Every other copy is listed where it starts, because its result is in memory from then on."""
    placed = _Scheduler(_Items(steps).all).placed()
    return [item.step for item in reversed(placed) if item.step is not None and not (
        item.starts if _leaves(item.step) else item.ends)]


def _is_on_host(step: Step) -> bool:
    return not any(value.bytes for value in step.reads.values())


def _is_copied(step: Step) -> bool:
    """Returns whether a step only copies. A slice or an update with fused operations also
    computes."""
    return step.node.op == "device_put" or \
        step.node.op in SLICES and not step.inner and not _is_on_host(step)


def _leaves(step: Step) -> bool:
    return step.node.op == "dynamic_update_slice" or \
        step.node.op == "device_put" and not any(value.bytes for value in step.made)


def _cost(step: Step) -> float:
    op = step.node.op
    if op in SLICES and _is_on_host(step):
        return 0.0              # a part of the copy from or to the host
    return MEDIUM if op in ELEMENTWISE or op in SLICES or step.node.is_kernel else SMALL


class _Items:
    def __init__(self, steps: list[Step]) -> None:
        self.all: list[_Item] = []
        self.makers: dict[int, _Item] = {}              # for each value, the item that makes it
        self.matrices: dict[int, _Item] = {}            # for each value, the item that gives it the
                                                        # shape that products read
        made = {id(value) for step in steps for value in step.made}
        for key in dict.fromkeys(key for step in steps for key in step.reads):
            if key not in made:
                self.makers[key] = self._add()
        for step in steps:
            self._add_step(step)

    def _add(self, step: Step | None = None, cost: float = 0.0, starts: bool = False,
             ends: bool = False) -> _Item:
        self.all.append(_Item(len(self.all), step, cost, starts, ends))
        return self.all[-1]

    def _add_step(self, step: Step) -> None:
        before = dict.fromkeys(self._read(step.node, key) for key in step.reads)
        if _is_copied(step):
            first = self._add(step, SMALL, starts=True)
            last = self._add(step, SMALL, ends=True)
            last.needs(first, LATENCY)
        else:
            first = last = self._add(step, _cost(step))
        for item in before:
            first.needs(item)
        for value in step.made:
            self.makers[id(value)] = last

    def _read(self, node: Node, key: int) -> _Item:
        """Returns the item that must end before `node` can read the value `key`. Products read
        matrices. If a value has more dimensions, XLA gives it another shape, in an operation that
        takes no time and that all products share."""
        if node.op not in PRODUCTS:
            return self.makers[key]
        if key not in self.matrices:
            self.matrices[key] = self._add()
            self.matrices[key].needs(self.makers[key])
        return self.matrices[key]


class _Scheduler:
    def __init__(self, items: list[_Item]) -> None:
        self.now = 0.0
        self.ready: list[_Item] = []
        self.free: list[_Item] = []         # ready items that take no time
        for item in items:
            item.left = len(item.after)
        for item in items:
            self._update(item)

    def placed(self) -> list[_Item]:
        """Returns the items from the last to the first."""
        found = []
        while self.free or self.ready:
            item = self.free.pop() if self.free else max(self.ready, key=self._rank)
            if item.cost:
                self.ready.remove(item)
            item.is_placed = True
            item.ready = item.earliest(self.now)
            self.now = item.ready + item.cost
            for each in item.before:
                each.left -= 1
                self._update(each)
            found.append(item)
        return found

    def _rank(self, item: _Item) -> tuple[bool, float, int, int]:
        """Ranks the ends of copies first, then the items that can be placed soonest, then those
        that make the most other items ready, then those that come last in the program."""
        return item.ends, min(self.now - item.ready, 0.0), item.unlocks, item.number

    def _update(self, item: _Item) -> None:
        """Makes `item` ready if no unplaced item needs it. If exactly one unplaced item needs
        `item`, counts `item` in the `unlocks` of this unplaced item."""
        if not item.left:
            item.ready = item.earliest(self.now)
            (self.ready if item.cost else self.free).append(item)
        elif item.left == 1:
            next(each for each, _ in item.after if not each.is_placed).unlocks += 1
