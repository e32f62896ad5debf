# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The candidates of a plan: the values of a function that have a name from checkpoint_name and
depend on the function's batch. If no value has a name, the candidates are the results of large
products, to which the plan then gives names."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from actmem.jax import _private
from actmem.plan._graph import PRODUCTS, Graph, Node, Value, local_shape


@dataclasses.dataclass(frozen=True)
class Candidate:
    name: str
    bytes: int              # on one device, in all layers together
    count: int              # number of occurrences
    shape: tuple[int, ...]  # on a device
    place: str              # the source line that makes the value
    is_scanned: bool = False        # whether a scan over layers makes the values

    @property
    def bytes_each(self) -> int:
        return self.bytes // self.count


def find(graph: Graph, batch: Iterable[int]) -> list[Candidate]:
    """Returns the named values of a function's graph, in program order. `batch` has the indices
    of the inputs that are not weights."""
    found: dict[str, list[tuple[Value, int]]] = {}
    depends = _Depends()
    depends.run(graph, [graph.inputs[i] for i in batch])
    for value, length in _values(graph, 1):
        if id(value) in depends.values:
            for name in value.names:
                found.setdefault(name, []).append((value, length))
    return [_candidate(name, uses) for name, uses in found.items()]


def propose(graph: Graph, batch: Iterable[int], least: int = 1 << 16) -> list[Candidate]:
    """Returns the results of products as candidates, if they have at least `least` bytes each. The
    name of a candidate consists of the file's name and the line number."""
    depends = _Depends()
    depends.run(graph, [graph.inputs[i] for i in batch])
    found: dict[str, list[tuple[Value, int]]] = {}
    for value, length in _values(graph, 1):
        maker = value.maker
        if maker is not None and maker.op in PRODUCTS and \
                id(value) in depends.values and value.bytes >= least:
            found.setdefault(_name_of(_private.place_of(maker.where)), []).append((value, length))
    return [_candidate(name, uses) for name, uses in found.items()]


def _name_of(place: str) -> str:
    return re.sub(r"\W", "_", place.replace(".py:", "_"))


def _candidate(name: str, uses: list[tuple[Value, int]]) -> Candidate:
    value = uses[0][0]
    maker = value.maker
    return Candidate(name, sum(each.bytes * length for each, length in uses),
                     sum(length for _, length in uses), local_shape(value.aval),
                     _private.place_of(maker.where) if maker and maker.where else "?",
                     any(length > 1 for _, length in uses))


def _values(graph: Graph, length: int) -> Iterable[tuple[Value, int]]:
    for value in graph.inputs:
        yield value, length
    for node in graph.nodes:
        for value in node.outputs:
            yield value, length
        for body in node.bodies:
            # Microbatches run one after the other, so values of different microbatches are not live
            # at the same time.
            yield from _values(body, length * (1 if body.is_step else node.length))


class _Depends:
    """The values that depend on given values, including values in bodies of loops."""

    def __init__(self) -> None:
        self.values: set[int] = set()

    def run(self, graph: Graph, inputs: Iterable[Value]) -> None:
        self.values |= {id(value) for value in inputs}
        for node in graph.nodes:
            if node.bodies:
                self._loop(node)
            elif any(id(value) in self.values for value in node.inputs):
                self.values |= {id(value) for value in node.outputs}

    def _loop(self, node: Node) -> None:
        for body in node.bodies:
            # The operands of a cond or while loop do not match the body's inputs one to one.
            pairs = zip(node.inputs, body.inputs) if node.op == "scan" else \
                [(value, inner) for inner in body.inputs for value in node.inputs]
            inputs = [inner for value, inner in pairs if id(value) in self.values]
            while True:
                self.run(body, inputs)
                carried = list(zip(body.outputs, body.inputs[node.consts:][:node.carries]))
                more = [inner for value, inner in carried
                        if id(value) in self.values and id(inner) not in self.values]
                if not more:
                    break
                inputs = more
            for value, out in zip(body.outputs, node.outputs):
                if id(value) in self.values:
                    self.values.add(id(out))
