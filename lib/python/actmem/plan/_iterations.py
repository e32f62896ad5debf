# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes how long each iteration of a scan waits for its own copies.

XLA's schedules for TPUs start and end each copy within one iteration. In the forward pass, an
iteration starts to copy a value to the host when the value exists, and ends when all copies have
ended. In the backward pass, an iteration starts all copies from the host when it begins. It waits
for a copy before the first step that reads the copied value. Steps that only give the value another
order do not count as readers, because XLA runs them just before the first other reader. Copies in
one direction run one after the other.

The order of the steps is that of XLA's list scheduler (_list_order.py). With another scheduler,
copies to the host can start later, and copies from the host can be needed sooner.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator

from actmem.plan._fusion import TPU, Steps
from actmem.plan._list_order import listed
from actmem.plan.work import Counted, Work

Price = Callable[[Work], float]     # returns the seconds that work takes
ARRANGES = ("transpose", "reshape")


def wait_forward(body: Counted, offloaded: Collection[str], seconds: float, price: Price,
                 rate: float) -> float:
    """Returns the seconds that an iteration of the forward pass waits.

    Args:
      body: The scan's body.
      offloaded: The names of the values that the iteration copies to the host.
      seconds: The compute time of the iteration.
      rate: The rate of the link to the host, in bytes a second.
    """
    ended = 0.0
    for begin, size in sorted(_made(body, frozenset(offloaded), price)):
        ended = max(ended, begin) + size / rate
    return max(0.0, ended - seconds)


def wait_backward(body: Counted, length: int, there: Collection[str], offloaded: Collection[str],
                  price: Price, rate: float) -> float:
    """Returns the seconds that an iteration of the backward pass waits. `length` is the number of
    iterations, and `there` has the names of all values that an iteration need not recompute. The
    other arguments are as for wait_forward()."""
    ended = waited = 0.0
    for before, size in sorted(_needed(body, length, frozenset(there),
                                       frozenset(offloaded), price)):
        ended += size / rate
        waited = max(waited, ended - before)
    return waited


def _made(body: Counted, offloaded: frozenset[str], price: Price) -> Iterator[tuple[float, int]]:
    """Yields, for each offloaded value, the seconds of compute that the value needs, and its
    bytes."""
    for value in body.graph.inputs:
        if offloaded.intersection(value.names):
            yield 0.0, value.bytes
    for node in body.graph.nodes:
        for value in node.outputs:
            if offloaded.intersection(value.names):
                wanted, seconds = {id(value)}, 0.0
                for each in reversed(body.graph.nodes):
                    if wanted.intersection(map(id, each.outputs)):
                        wanted.update(map(id, each.inputs))
                        seconds += body.cost_of(each, (), price)
                yield seconds, value.bytes


def _needed(body: Counted, length: int, there: frozenset[str], offloaded: frozenset[str],
            price: Price) -> Iterable[tuple[float, int]]:
    """Returns, for each offloaded value, the seconds of compute before its first use, and its
    bytes."""
    # A value that no node of the copy makes is an input of the copy.
    graph = dataclasses.replace(body.graph, nodes=body.needed(there)).copy()
    counted = Counted(graph)
    copied = {id(value): value for node in graph.nodes for value in node.inputs
              if value.maker is None and offloaded.intersection(value.again)}
    found: dict[int, tuple[float, int]] = {}
    ran: set[int] = set()
    now = 0.0
    for step in listed(Steps(graph, TPU).steps, length):
        read = [copied[key] for key in step.reads if key in copied]
        if step.node.op in ARRANGES and len(read) == len(step.reads) == 1:
            copied.update((id(value), read[0]) for value in step.made)
            continue
        for value in read:
            found.setdefault(id(value), (now, value.bytes))
        for node in (step.node, *step.inner):
            if id(node) not in ran:
                ran.add(id(node))
                now += counted.cost_of(node, there, price)
    return found.values()
