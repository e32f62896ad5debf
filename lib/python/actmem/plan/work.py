# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Counts the work of a program from its graph: exact floating point operations for products and
convolutions, bytes by mesh axis for collectives, and bytes read and written for other operations.
The graph is that of a program that recomputes all named values. If some of these values are kept,
the operations that only recompute them are not counted."""
from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Iterable

from actmem.jax._private import Jaxpr
from actmem.plan import _kernels
from actmem.plan._fusion import COSTLY, PLAIN, Compiler, Steps
from actmem.plan._graph import Graph, Node, Value, local_shape

COLLECTIVES = frozenset("""psum psum2 psum_invariant all_gather all_to_all reduce_scatter
    ppermute pmax pmin all_gather_invariant""".split())
PARTS = frozenset(("dynamic_slice", "slice", "gather"))


# An operation, its results with the names that they get again, and its operands.
_Operation = tuple[Node, list[tuple[int, tuple[str, ...]]], list[int]]


@dataclasses.dataclass
class Work:
    flops: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    moved: float = 0
    collectives: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    shape: tuple[int, int, int] | None = None   # m, k, n of a product (m × k) · (k × n)
    batch: int = 1          # number of products at once
    costly: int = 0         # elements of exp() and similar functions
    strided: int = 0        # elements that are not read in memory order

    def add(self, other: Work, times: int = 1) -> None:
        for mine, theirs in ((self.flops, other.flops), (self.collectives, other.collectives)):
            for key, count in theirs.items():
                mine[key] += count * times
        self.moved += other.moved * times
        self.costly += other.costly * times
        self.strided += other.strided * times


def shape_of(node: Node) -> tuple[int, int, int] | None:
    """Returns (m, k, n) of a matrix product, or of each product in a batch; else None."""
    if node.op != "dot_general":
        return None
    (sums, other_sums), (batch, other_batch) = node.params["dimension_numbers"]
    left, right = (local_shape(aval) for aval in node.reads[:2])
    return (math.prod(size for i, size in enumerate(left) if i not in (*sums, *batch)),
            math.prod(left[i] for i in sums),
            math.prod(size for i, size in enumerate(right)
                      if i not in (*other_sums, *other_batch)))


def flops_of(node: Node) -> int:
    """Returns the floating point operations of a product on a device; 0 for other operations."""
    if node.op == "dot_general":
        (sums, _), _ = node.params["dimension_numbers"]
        taken = math.prod(local_shape(node.reads[0])[i] for i in sums)
        return int(2 * math.prod(local_shape(node.outputs[0].aval)) * taken)
    if node.op == "conv_general_dilated":
        dims = node.params["dimension_numbers"]
        window = node.reads[1]
        out_features = int(window.shape[dims.rhs_spec[0]])
        each = int(window.size) // max(out_features, 1)
        return int(2 * math.prod(local_shape(node.outputs[0].aval)) * each)
    return 0


def read_of(value: Value) -> int:
    """Returns how many bytes of `value` one step reads. If all users of `value` read only parts,
    such as the weights of one layer, returns the size of the largest part."""
    if value.users and all(user.op in PARTS for user in value.users):
        return min(value.bytes, max(part.bytes for user in value.users for part in user.outputs))
    return value.bytes


def _flops_in(compiler: Compiler, jaxpr: Jaxpr) -> collections.Counter[str]:
    """Counts all operations of a kernel's jaxpr, even those whose results seem unused, because a
    kernel writes its results instead of returning them."""
    def of(counted: Counted) -> Work:
        work = Work()
        for each in counted.own.values():
            work.add(each)
        for node in counted.graph.nodes:
            for inner in counted.inner.get(id(node), ()):
                work.add(of(inner), node.length)
        return work
    return of(Counted(Graph.of(jaxpr), compiler)).flops


def _elements(node: Node) -> int:
    return int(math.prod(local_shape(node.outputs[0].aval)))


def _is_strided(node: Node) -> bool:
    """Returns whether adjacent elements of the result are not adjacent in the operand."""
    if node.op != "transpose":
        return False
    shape = node.params.get("shape") or node.outputs[0].aval.shape
    order = [i for i, size in zip(node.params["permutation"], shape) if size != 1]
    return order[-1:] != [max(order, default=-1)]


class Counted:
    """A graph with the work of each of its steps (_fusion.py). A loop counts as one step."""

    def __init__(self, graph: Graph, compiler: Compiler = PLAIN) -> None:
        self.graph = graph
        self.inner: dict[int, list[Counted]] = {}
        self.own: dict[int, Work] = {}
        self._always: dict[Callable[[Work], float], float] = {}     # for cost()
        self._results = {id(value) for value in graph.outputs if value is not None}
        self._backwards: list[_Operation] = [
            (node, [(id(value), value.again) for value in node.outputs],
             [id(value) for value in node.inputs]) for node in reversed(graph.nodes)]
        for step in Steps(graph, compiler).steps:
            node = step.node
            if node.bodies:
                self.inner[id(node)] = [Counted(body, compiler) for body in node.bodies]
                continue
            work = Work(moved=sum(value.bytes for value in step.made) +
                        sum(read_of(value) for value in step.reads.values()))
            work.costly = sum(_elements(each) for each in (node, *step.inner)
                              if each.op in COSTLY)
            # XLA copies an unfused transpose block by block, without strided reads.
            if step.inner:
                work.strided = sum(_elements(each) for each in (node, *step.inner)
                                   if _is_strided(each))
            flops = flops_of(node)
            if node.is_kernel:
                work.flops = _kernels.flops_of(node.op, node.params, node.reads, functools.partial(
                    _flops_in, compiler))
            elif flops:
                work.flops[str(node.reads[0].dtype)] = flops
                work.shape = shape_of(node)
                if work.shape:
                    work.batch = flops // (2 * math.prod(work.shape))
            if node.op in COLLECTIVES:
                axes = node.params.get("axes", node.params.get("axis_name", "?"))
                work.collectives[str(axes)] = sum(value.bytes for value in node.inputs)
            work.collectives.update(node.between)
            self.own[id(node)] = work

    def needed(self, kept: Collection[str] = ()) -> list[Node]:
        """Returns the operations that run if the values with the names `kept` exist already."""
        return _needed(self._backwards, kept, set(self._results))[::-1]

    @functools.cached_property
    def _split(self) -> tuple[list[Node], list[_Operation], set[int]]:
        """Divides the operations into two groups. The first group runs whichever values exist, and
        the bodies of its loops do not depend on that either. Returns the first group; the second
        group, as in _backwards; and the ids of the graph's results and of the values that the first
        group reads."""
        every = {name for _, outputs, _ in self._backwards for _, again in outputs
                 for name in again}
        always = [node for node in self.needed(every)
                  if not any(inner._split[1] for inner in self.inner.get(id(node), ()))]
        known = {id(node) for node in always}
        wanted = self._results | {id(value) for node in always for value in node.inputs}
        return always, [each for each in self._backwards if id(each[0]) not in known], wanted

    def cost(self, kept: Collection[str], price: Callable[[Work], float]) -> float:
        """Returns the sum of `price` over the work of all operations that run if the values with
        the names `kept` exist already."""
        always, others, wanted = self._split
        if price not in self._always:
            self._always[price] = sum(self.cost_of(node, (), price) for node in always)
        return self._always[price] + sum(self.cost_of(node, kept, price)
                                         for node in _needed(others, kept, set(wanted)))

    def cost_of(self, node: Node, kept: Collection[str], price: Callable[[Work], float]) -> float:
        """Returns the sum of `price` over the work of one operation, including its bodies. An
        operation that is fused into another has no work of its own."""
        if id(node) in self.inner:
            return max(inner.cost(kept, price) for inner in self.inner[id(node)]) * node.length
        return price(self.own[id(node)]) if id(node) in self.own else 0.0

    def total(self, kept: Collection[str] = ()) -> Work:
        work = Work()
        for node in self.needed(kept):
            for inner in self.inner.get(id(node), ()):
                work.add(inner.total(kept), node.length)
            if id(node) in self.own:
                work.add(self.own[id(node)])
        return work


def _needed(backwards: Iterable[_Operation], kept: Collection[str],
            wanted: set[int]) -> list[Node]:
    """Returns the operations that run if the values with the names `kept` exist already, the last
    one first. `wanted` has the ids of the values that something else reads."""
    kept = frozenset(kept)
    nodes = []
    for node, outputs, inputs in backwards:
        # `outputs` is empty if the operation has only effects.
        if outputs and not any(key in wanted and kept.isdisjoint(again) for key, again in outputs):
            continue
        nodes.append(node)
        wanted.update(inputs)
    return nodes
