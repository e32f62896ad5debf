# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The order in which XLA's list scheduler runs the steps of a loop's body.

XLA has three schedulers that save memory: list, dfs and post_order. By default, it uses the one
whose program needs least memory. For TPUs, a flag selects the list scheduler (LIST in targets.py).
The list scheduler always runs the step that allocates least, among the steps whose operands exist.
This module ignores the memory that a step frees, because it changed no prediction. XLA's
latency-hiding scheduler then changes this order only near copies, as _iterations.py describes.
"""
from __future__ import annotations

from actmem.plan._fusion import Step


def listed(steps: list[Step], length: int) -> list[Step]:
    """Returns the steps in the list scheduler's order. `length` is the number of the loop's
    iterations: the scheduler assumes that a step that writes a slice of a stacked result allocates
    the whole stack."""
    makers = {id(value): step for step in steps for value in step.made}
    missing = {id(step): sum(key in makers for key in step.reads) for step in steps}
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for key in step.reads:
            readers.setdefault(key, []).append(step)
    allocated = {id(step): sum(value.bytes for value in step.made) + length * sum(
        node.inputs[0].bytes for node in (step.node, *step.inner)
        if node.op == "dynamic_update_slice") for step in steps}
    ready = [step for step in steps if not missing[id(step)]]
    order = []
    while ready:
        step = min(ready, key=lambda each: allocated[id(each)])
        ready.remove(step)
        order.append(step)
        for reader in (each for value in step.made for each in readers.get(id(value), ())):
            missing[id(reader)] -= 1
            if not missing[id(reader)]:
                ready.append(reader)
    return order
