# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The device memory that a program needs: the maximum of live bytes over all steps.

A value is live from the step that makes it to the last step that reads it. _fusion.py finds the
steps. While a loop runs, its carried values, stacked values and other operands are live. It also
needs the memory for one iteration.
"""
from __future__ import annotations

import dataclasses

from actmem.plan._fusion import CPU, ELEMENTWISE, GPU, MOVING, Compiler, Step, Steps
from actmem.plan._graph import Graph, Node, Value

__all__ = ["CPU", "GPU", "Compiler", "Liveness", "Memory", "foresee"]


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes that a program needs, in the terms of JAX's memory_analysis()."""

    arguments: int
    outputs: int
    aliased: int
    temporary: int

    @property
    def peak(self) -> int:
        return self.arguments + self.outputs + self.temporary - self.aliased


def foresee(graph: Graph, donated: int = 0, compiler: Compiler = GPU) -> Memory:
    """Predicts the memory of a program; results reuse `donated` bytes of its arguments."""
    arguments = sum(value.bytes for value in graph.inputs)
    outputs = sum((value.bytes if value else 4) + 8 for value in graph.outputs)
    kept = {id(value) for value in graph.outputs if value is not None}
    return Memory(arguments, outputs, min(donated, outputs),
                  Liveness(graph, compiler, kept, hosts=not donated).peak)


class Liveness:
    """The lifetimes of a graph's values. Its inputs and the values in `elsewhere` do not count,
    because their memory is counted elsewhere."""

    def __init__(self, graph: Graph, compiler: Compiler, elsewhere: set[int],
                 carried: int = 0, first: int = 0, hosts: bool = False) -> None:
        self.compiler = compiler
        self.graph = graph
        self.elsewhere = elsewhere
        self.order = Steps(graph, compiler)
        self.steps = self.order.steps
        self.last: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            for key in step.reads:
                self.last[key] = at
        for output in graph.outputs:
            if output is not None:
                self.last[id(output)] = len(self.steps)
        self.copied = self._copied(first, carried)
        if hosts:
            self.elsewhere = self.elsewhere | self._hosted()
        self.peak = self._run()

    def _copied(self, first: int, count: int) -> list[Value]:
        """Returns the carried values that may still be read after the next iteration's value has
        been written. They must be copied."""
        copied = []
        makers = {id(value): at for at, step in enumerate(self.steps) for value in step.made}
        for value, new in zip(self.graph.inputs[first:first + count], self.graph.outputs):
            readers = [at for at, step in enumerate(self.steps) if id(value) in step.reads]
            if new is value or not readers:
                continue
            end = makers.get(id(new), -1) if new is not None else -1
            before = self._before(end, makers)
            if any(at not in before for at in readers):
                copied.append(value)
        return copied

    def _before(self, end: int, makers: dict[int, int]) -> set[int]:
        """Returns the step `end` and all steps that must run before it, in no particular order."""
        found, stack = set(), [end] if end >= 0 else []
        while stack:
            at = stack.pop()
            if at in found:
                continue
            found.add(at)
            stack += [makers[key] for key in self.steps[at].reads if key in makers]
        return found

    def _hosted(self) -> set[int]:
        """Returns the values that can use the memory of results that do not exist at that time."""
        begins = {id(value): at for at, step in enumerate(self.steps) for value in step.made}
        if self.compiler.is_wide:
            begins |= {id(value): 0 for step in self.steps for value in _stacked(step.node)}
        made = [value for step in self.steps for value in step.made]
        made.sort(key=lambda value: -value.bytes)
        places: list[tuple[int, list[tuple[int, int]]]] = []
        hosted = set()
        for value in made:
            if id(value) in self.elsewhere:
                places.append((value.bytes, [(begins[id(value)], len(self.steps))]))
        for value in made:
            if id(value) in self.elsewhere or id(value) not in self.last:
                continue
            begin, end = begins[id(value)], self.last[id(value)]
            for size, taken in reversed(places):
                if size >= value.bytes and all(end < b or e < begin for b, e in taken):
                    taken.append((begin, end))
                    hosted.add(id(value))
                    break
        return hosted

    def _run(self) -> int:
        live: set[int] = set()
        ends: dict[int, list[Value]] = {}
        total = most = 0

        def begin(value: Value) -> None:
            nonlocal total
            live.add(id(value))
            total += value.bytes
            ends.setdefault(self.last[id(value)], []).append(value)

        for value in self.copied:
            begin(value)
        if self.compiler.is_wide:
            # Stacked values are allocated before any step runs.
            for step in self.steps:
                for value in _stacked(step.node):
                    if id(value) in self.last and id(value) not in self.elsewhere:
                        begin(value)
        for at, step in enumerate(self.steps):
            made = [value for value in step.made if id(value) not in self.elsewhere and
                    id(value) not in live]
            need = sum(value.bytes for value in made) + self._inside(step, live, at) - \
                self._reused(step, made, live, at)
            most = max(most, total + need)
            for value in made:
                if id(value) in self.last:
                    begin(value)
            for value in ends.pop(at, ()):
                live.remove(id(value))
                total -= value.bytes
        return most

    def _reused(self, step: Step, made: list[Value], live: set[int], at: int) -> int:
        """Returns the bytes of an operand that is last used here and whose memory is reused."""
        if not made or step.node.op in MOVING or step.node.op not in ELEMENTWISE and \
                not step.node.op.startswith("scatter"):
            return 0
        size = made[0].bytes
        return size if any(value.bytes == size and self.last[key] == at
                           for key, value in step.reads.items() if key in live) else 0

    def _inside(self, step: Step, live: set[int], at: int) -> int:
        """Returns the bytes that a step needs besides its operands and results."""
        node = step.node
        if node.op != "scan":
            return max((Liveness(body, self.compiler, set()).peak for body in node.bodies),
                       default=0)
        need = 0
        # A carried value that is last used here stays in place; otherwise it is copied.
        taken: set[int] = set()
        for value, out in zip(node.inputs[node.consts:][:node.carries], node.outputs):
            if id(value) in live and self.last[id(value)] == at and id(value) not in taken:
                taken.add(id(value))
                need -= value.bytes if id(out) not in self.elsewhere else 0
        body, = node.bodies
        written = {id(value) for value in body.outputs if value is not None}
        return need + Liveness(body, self.compiler, written, node.carries, node.consts).peak


def _stacked(node: Node) -> list[Value]:
    return node.outputs[node.carries:] if node.op == "scan" else []
