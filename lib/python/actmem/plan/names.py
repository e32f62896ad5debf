# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The candidates of a plan: the values of a function that have a name, by checkpoint_name, and
that depend on its batch. Where nothing is named, the results of large products, to name."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from actmem.jax import _private
from actmem.plan._graph import PRODUCTS, Graph, Node, Value, local_shape


@dataclasses.dataclass(frozen=True)
class Candidate:
    name: str
    bytes: int              # on a device, of all layers together
    count: int              # how often it is there
    shape: tuple[int, ...]  # on a device
    place: str              # the line of the program that makes it

    @property
    def bytes_each(self) -> int:
        return self.bytes // self.count


def find(graph: Graph, batch: Iterable[int]) -> list[Candidate]:
    """The named values of a function's graph, in the order in which they are made; `batch`
    are the numbers of those inputs that are no weights."""
    found: dict[str, list[tuple[Value, int]]] = {}
    depends = _Depends()
    depends.run(graph, [graph.inputs[i] for i in batch])
    for value, length in _values(graph, 1):
        if id(value) in depends.values:
            for name in value.names:
                found.setdefault(name, []).append((value, length))
    return [_candidate(name, uses) for name, uses in found.items()]


def propose(graph: Graph, batch: Iterable[int], least: int = 1 << 16) -> list[Candidate]:
    """The results of products that would be worth a name, of `least` bytes or more each; the
    name is that of the file and the number of the line."""
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
                     _private.place_of(maker.where) if maker and maker.where else "?")


def _values(graph: Graph, length: int) -> Iterable[tuple[Value, int]]:
    for value in graph.inputs:
        yield value, length
    for node in graph.nodes:
        for value in node.outputs:
            yield value, length
        for body in node.bodies:
            # Microbatches come one after the other.
            yield from _values(body, length * (1 if body.is_step else node.length))


class _Depends:
    """The values that depend on given ones, in bodies of loops too."""

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
            # Of a choice or a while loop the operands are not one to one.
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
