# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program's graph as a sequence of layers. For a given set of names to keep or offload, each
layer has the compute time of its forward pass, that of its backward pass, and the number of bytes
that it sends to the host."""
from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from actmem.plan import _iterations
from actmem.plan._fusion import PLAIN, Compiler
from actmem.plan._graph import Graph, Node
from actmem.plan.between import Between
from actmem.plan.machine import Machine, Rates
from actmem.plan.time import Layer
from actmem.plan.work import Counted, Work


@dataclasses.dataclass(frozen=True)
class Part:
    """Layers that run forward and then backward, `times` times in a step."""

    times: int
    layers: list[Layer]
    rest: float                     # seconds outside of the layers


@dataclasses.dataclass
class _Stack:
    """The equal layers of one scan, or a single layer outside of scans."""

    length: int
    forward: float
    backward: float
    bytes: Mapping[str, int]        # bytes of one layer's values, by name
    stacking: float = 0.0           # seconds that a scan needs to stack one byte
    # The bodies of the stack's scans. None: the layer is outside of scans.
    backward_body: Counted | None = None
    forward_body: Counted | None = None

    def layer(self, stacked: Collection[str], offloaded: Collection[str]) -> Layer:
        sent = [size for name, size in self.bytes.items() if name in offloaded]
        put = sum(size for name, size in self.bytes.items() if name in stacked)
        return Layer(self.forward + put * self.stacking, self.backward, sum(sent), len(sent))


class Timeline:
    """The layers of a program, from its graph under a policy that recomputes all named values."""

    def __init__(self, graph: Graph, machine: Machine, compiler: Compiler = PLAIN,
                 between: Between | None = None) -> None:
        self.machine, self.between = machine, between
        # A scan stacks (copies into one array) the values that it keeps or sends to the host. The
        # stacking reads and writes each value once more. If processors copy values to the host, the
        # measured transfer rates already include the stacking of these values.
        self.stacking = 2 / machine.memory()
        self.copies = machine.has("transfer_share")
        self.counted = Counted(graph, compiler)
        self._prices: dict[int, float] = {}
        self._known: dict[frozenset[str], list[tuple[int, list[_Stack], float]]] = {}

    def parts(self, kept: Collection[str], offloaded: Collection[str]) -> list[Part]:
        """Returns the layers of a step that keeps or offloads the values of these names."""
        there = frozenset(kept) | frozenset(offloaded)
        stacked = kept if self.copies else there
        return [Part(times, [layer for stack in stacks
                             for layer in [stack.layer(stacked, offloaded)] * stack.length], rest)
                for times, stacks, rest in self._stacks(there)]

    def iteration_waits(self, kept: Collection[str], offloaded: Collection[str],
                        rates: Rates) -> float | None:
        """Returns the seconds of a step in which the device waits for copies. Assumes that each
        iteration of a scan waits for its own copies (see _iterations.py). Returns None if values of
        layers outside of scans are offloaded."""
        there = frozenset(kept) | frozenset(offloaded)
        waited = 0.0
        for times, stacks, _ in self._stacks(there):
            for stack in stacks:
                if not stack.layer((), offloaded).sent:
                    continue
                if stack.backward_body is None or stack.forward_body is None:
                    return None
                waited += times * stack.length * (_iterations.wait_forward(
                    stack.forward_body, offloaded, stack.forward, self._price,
                    rates.link_out) + _iterations.wait_backward(
                        stack.backward_body, stack.length, there, offloaded, self._price,
                        rates.link_in))
        return waited

    def needed_names(self) -> set[str]:
        """Returns the names of the values that the backward pass recomputes. Saving any other value
        gains nothing."""
        return {name for _, stacks, _ in self._stacks(frozenset()) for stack in stacks
                for name in stack.bytes}

    def _stacks(self, there: frozenset[str]) -> list[tuple[int, list[_Stack], float]]:
        if there not in self._known:
            self._known[there] = []
            self._part(self.counted, there, 1, self._known[there])
            if self.between:
                self._add(self.between, there, self._known[there])
        return self._known[there]

    @staticmethod
    def _add(between: Between, there: frozenset[str],
             found: list[tuple[int, list[_Stack], float]]) -> None:
        """Adds the time of each group's transfers between devices to the stack of the group's
        layers. If a group has no matching stack, adds this time to the time outside of layers."""
        times, stacks, rest = found[-1]
        behind = list(stacks)
        for group, (forward, backward) in reversed(list(zip(between.groups,
                                                            between.turns(there)))):
            if behind and behind[-1].length == group.repeat:
                stack = behind.pop()
                stack.forward = forward.of(stack.forward)
                stack.backward = backward.of(stack.backward)
            else:
                rest += group.repeat * (forward.of(0.0) + backward.of(0.0))
        found[-1] = times, stacks, rest + between.rest

    def _price(self, work: Work) -> float:
        price = self._prices.get(id(work))
        if price is None:
            price = self._prices[id(work)] = self.machine.seconds(work)
        return price

    def _part(self, counted: Counted, there: frozenset[str], times: int,
              found: list[tuple[int, list[_Stack], float]]) -> None:
        forward: list[tuple[Node, float]] = []
        backward: list[_Stack] = []
        turns: dict[int, float] = {}
        # Seconds outside of layers, before and after the first recomputation.
        before = rest = 0.0
        for node in counted.needed(there):
            inner = counted.inner.get(id(node), [])
            if node.op == "scan" and inner[0].graph.is_step:
                self._part(inner[0], there, times * node.length, found)
            elif node.op == "scan" and any(each.turn for each in inner[0].graph.nodes):
                backward.append(_Stack(node.length, 0.0, inner[0].cost(there, self._price),
                                       _bytes_by_name(inner[0].graph.nodes), self.stacking,
                                       inner[0]))
            elif node.op == "scan":
                forward.append((node, inner[0].cost(there, self._price)))
            else:
                seconds = max((each.cost(there, self._price) for each in inner), default=0.0)
                if id(node) in counted.own:
                    seconds += self._price(counted.own[id(node)])
                if node.turn:
                    turns[node.turn] = turns.get(node.turn, 0.0) + seconds
                elif turns:
                    rest += seconds
                else:
                    before += seconds
        stacks = []
        for stack in reversed(backward):
            # The forward pass of the stack is the first scan of the same length that no other stack
            # has taken.
            for i, (node, seconds) in enumerate(forward):
                if node.length == stack.length:
                    stack.forward = seconds
                    stack.forward_body = counted.inner[id(node)][0]
                    del forward[i]
                    break
            stacks.append(stack)
        rest += sum(seconds * node.length for node, seconds in forward)
        if turns:
            named: dict[int, list[Node]] = {}
            for node in counted.graph.nodes:
                named.setdefault(node.turn, []).append(node)
            for turn in sorted(turns, reverse=True):
                stacks.append(_Stack(1, before / len(turns), turns[turn],
                                     _bytes_by_name(named[turn])))
        else:
            rest += before
        if stacks or times == 1:
            found.append((times, stacks, rest))


def _bytes_by_name(nodes: list[Node]) -> dict[str, int]:
    """Returns, for each name, the bytes of the values of this name that a recomputation
    computes."""
    sizes: dict[str, int] = {}
    for node in nodes:
        for value in node.outputs:
            for name in value.again:
                sizes[name] = sizes.get(name, 0) + value.bytes
    return sizes
