# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The order in which XLA's list scheduler runs steps.

XLA has three schedulers that save memory: list, dfs and post_order. By default, it uses the one
whose program needs least memory. For TPUs, a flag selects the list scheduler (LIST in targets.py).
The list scheduler always runs the step that frees most bytes, or allocates least, among the steps
whose operands exist. If several are equal, it runs the one whose operands existed last. XLA's
latency-hiding scheduler then changes this order only near copies, as _iterations.py describes.
"""
from __future__ import annotations

from collections.abc import Collection

from actmem.plan._fusion import Step
from actmem.plan._graph import Value


def listed(steps: list[Step], results: Collection[Value | None], length: int = 1) -> list[Step]:
    """Returns the steps of a graph in the list scheduler's order.

    Args:
      results: The graph's results, whose memory is never free.
      length: The number of iterations, if the graph is a loop's body. The scheduler assumes that a
        step that writes a slice of a stacked result allocates the whole stack.
    """
    needs = _needs(steps)
    waiting: dict[int, list[Step]] = {}
    for step in steps:
        for key in needs[id(step)]:
            waiting.setdefault(key, []).append(step)
    missing = {id(step): len(needs[id(step)]) for step in steps}
    unread: dict[int, int] = {}
    for step in steps:
        for key in step.reads:
            unread[key] = unread.get(key, 0) + 1
    kept = {id(value) for value in results}
    sizes = {id(value): value.bytes for step in steps for value in step.made
             if id(value) not in kept}
    allocated = {id(step): sum(value.bytes for value in step.made) + length * sum(
        node.inputs[0].bytes for node in (step.node, *step.inner)
        if node.op == "dynamic_update_slice") for step in steps}

    def freed(step: Step) -> int:
        return sum(sizes.get(key, 0) for key in step.reads if unread[key] == 1) - \
            allocated[id(step)]
    ready = [step for step in steps if not missing[id(step)]]
    order = []
    while ready:
        step = max(reversed(ready), key=freed)
        ready.remove(step)
        order.append(step)
        for key in step.reads:
            unread[key] -= 1
        for each in waiting.get(id(step), ()):
            missing[id(each)] -= 1
            if not missing[id(each)]:
                ready.append(each)
    return order


def _needs(steps: list[Step]) -> dict[int, dict[int, Step]]:
    """Returns, for each step, the steps that must run before it. With prevent_cse, a recomputation
    has a barrier: none of its steps runs before all operands of the recomputation exist."""
    makers = {id(value): step for step in steps for value in step.made}
    found = {id(step): {id(makers[key]): makers[key] for key in step.reads if key in makers}
             for step in steps}
    turns: dict[int, list[Step]] = {}
    for step in steps:
        if step.node.turn and step.node.prevents_cse:
            turns.setdefault(step.node.turn, []).append(step)
    for turn in turns.values():
        within = {id(step) for step in turn}
        operands = {key: each for step in turn for key, each in found[id(step)].items()
                    if key not in within}
        for step in turn:
            needs = found[id(step)]
            if not needs or not needs.keys() <= within:
                needs.update(operands)
    return found
