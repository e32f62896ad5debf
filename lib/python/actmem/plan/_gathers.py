# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Gathered weights. If devices share the weights (fsdp), a device gathers a weight before it
computes with it. A program casts float32 weights first, so the graph already has a value as large
as the gathered weight: the result of the cast. This module adds such a value for weights that the
program uses as they are stored, such as frozen weights in bfloat16.
"""
from __future__ import annotations

from collections.abc import Iterable

from actmem.plan._graph import Graph, Node, Value

WIDE, NARROW = 4, 2     # itemsize of types that a program casts before it gathers, and after


def with_gathers(graph: Graph, weights: int, is_peeled: bool) -> Graph:
    """Returns a copy of the graph in which the first `weights` inputs are gathered before use. If
    `is_peeled` is true, the backward pass's first layer is peeled off its loop."""
    copy = graph.copy()
    _gather_all(copy, copy.inputs[:weights])
    if is_peeled:
        _gather_early(copy, copy.inputs[:weights])
    return copy


def _gathered(weight: Value, like: Value, size: int, readers: list[Node]) -> Node:
    """Returns an operation that gathers `weight`. The result has the type of `like`."""
    made = Value(size, like.aval, users=readers)
    made.maker = Node("gathered", [weight], [made], {}, None)
    return made.maker


def _gather_early(graph: Graph, weights: list[Value]) -> None:
    """Gathers the weights of the backward pass's first layer before a loop that computes the loss.
    XLA for GPUs moves each gather of a loop to the previous iteration, so it peels off the first
    iteration. Its scheduler hides the gathers of this iteration behind products. If loops compute
    the loss, no product is left, and the gathers run before these loops."""
    known = {id(weight) for weight in weights}
    loops = [node for node in graph.nodes if node.op == "scan"]
    for loop in loops:
        body, = loop.bodies
        if body.is_step:
            _gather_early(body, [inner for value, inner in zip(loop.inputs, body.inputs)
                                 if id(value) in known])
    at = next((i for i, loop in enumerate(loops)
               if any(node.turn for node in loop.bodies[0].nodes)), 0)
    if not at:
        return
    backward = loops[at]
    first = backward.consts + backward.carries
    forward = {id(value.maker) for value in backward.inputs[first:]}
    of_loss = []
    for loop in reversed(loops[:at]):
        if id(loop) in forward:
            break
        if loop.length > 1:         # XLA removes a loop with one iteration
            of_loss.append(loop)
    if not of_loss:
        return
    place = graph.nodes.index(of_loss[-1])
    for weight, inner in list(zip(backward.inputs, backward.bodies[0].inputs))[first:]:
        if id(weight) not in known:
            continue
        part, = inner.users[0].outputs
        node = _gathered(weight, part, part.bytes * NARROW // max(
            NARROW, part.aval.dtype.itemsize), [backward])
        weight.users.append(node)
        graph.nodes.insert(place, node)
        backward.inputs += node.outputs


def _gather_all(graph: Graph, weights: Iterable[Value]) -> None:
    for weight in weights:
        if weight.aval.dtype.itemsize >= WIDE:
            continue
        whole = []
        for user in dict.fromkeys(weight.users):
            if user.op != "scan":
                whole.append(user)
                continue
            body, = user.bodies
            for i, value in enumerate(user.inputs):
                if value is not weight:
                    continue
                if i >= user.consts + user.carries:
                    part = body.inputs[i].users[0].outputs[0]
                    _gather(body, part, part.users)
                elif body.is_step:
                    _gather_all(body, [body.inputs[i]])
                else:
                    whole.append(user)
        _gather(graph, weight, whole)


def _gather(graph: Graph, weight: Value, readers: Iterable[Node]) -> None:
    """Makes these operations read the gathered weight."""
    readers = list(dict.fromkeys(readers))
    if not readers:
        return
    node = _gathered(weight, weight, weight.bytes, readers)
    made, = node.outputs
    for reader in readers:
        reader.inputs = [made if value is weight else value for value in reader.inputs]
    weight.users = [node, *(user for user in weight.users if user not in readers)]
    graph.nodes.insert(min(map(graph.nodes.index, readers)), node)
