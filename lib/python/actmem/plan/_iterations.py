# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes how long each iteration of a scan waits for its own copies.

XLA's schedules for TPUs start and end each copy within one iteration. In the forward pass, an
iteration starts to copy a value to the host when the value exists, and ends when all copies have
ended. In the backward pass, an iteration starts all copies from the host when it begins. It waits
for a copy before the first operation, in the program's order, that reads the copied value. Copies
in one direction run one after the other.

In XLA's schedules, some copies to the host start later than this module assumes. Before a wait,
some iterations also compute results that come after the wait in the program. XLA's scheduler for
TPUs is not public, so this module has no rule for either difference.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from actmem.plan._graph import Value
from actmem.plan.work import Counted, Work

Price = Callable[[Work], float]     # returns the seconds that work takes


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


def wait_backward(body: Counted, there: Collection[str], offloaded: Collection[str], price: Price,
                  rate: float) -> float:
    """Returns the seconds that an iteration of the backward pass waits. `there` has the names of
    all values that the iteration need not recompute. The other arguments are as for
    wait_forward()."""
    ended = waited = 0.0
    for before, size in sorted(_needed(body, there, frozenset(offloaded), price)):
        ended += size / rate
        waited = max(waited, ended - before)
    return waited


def _made(body: Counted, offloaded: frozenset[str], price: Price) -> Iterator[tuple[float, int]]:
    """Yields, for each offloaded value, the seconds of compute that the value needs, and its
    bytes."""
    for node in body.graph.nodes:
        for value in node.outputs:
            if offloaded.intersection(value.names):
                wanted, seconds = {id(value)}, 0.0
                for each in reversed(body.graph.nodes):
                    if wanted.intersection(map(id, each.outputs)):
                        wanted.update(map(id, each.inputs))
                        seconds += body.cost_of(each, (), price)
                yield seconds, value.bytes


def _needed(body: Counted, there: Collection[str], offloaded: frozenset[str], price: Price,
            ) -> Iterator[tuple[float, int]]:
    """Yields, for each offloaded value, the seconds of compute before its first use, and its
    bytes."""
    nodes = body.needed(there)
    seconds = [body.cost_of(node, there, price) for node in nodes]

    def before(value: Value) -> float:
        total = 0.0
        for node, cost in zip(nodes, seconds):
            if any(each is value for each in node.inputs):
                break
            total += cost
        return total
    for node in body.graph.nodes:
        for value in node.outputs:
            if offloaded.intersection(value.again):
                yield before(value), value.bytes
