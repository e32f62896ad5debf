# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The device memory that a program needs: the maximum of live bytes over all steps.

A value has a buffer from the step that makes it to the last step that reads it. _fusion.py finds
the steps. For GPUs, _order.py finds the order of a loop's steps, and _splits.py finds the memory
for the parts of divided products. While the steps of a loop's body run, the loop's carried values,
stacked values and other operands also have buffers. For some platforms, XLA's buffer assignment
also puts a buffer into the memory of a result that does not exist yet.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Set
from typing import Any

import jax
import jax.numpy as jnp

from actmem.plan import _order, _splits
from actmem.plan._fusion import (CPU, ELEMENTWISE, GPU, MOVING, PLAIN, TPU, Compiler, Step,
                                 Steps)
from actmem.plan._gathers import with_gathers
from actmem.plan._graph import PRODUCTS, Graph, Node, Value, local_shape

__all__ = ["CPU", "GPU", "PLAIN", "TPU", "Buffers", "Compiler", "Memory", "Shared", "foresee"]


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


@dataclasses.dataclass(frozen=True)
class Shared:
    """Weights that `devices` devices share: each stores a part, as with fsdp. The first `trained`
    inputs are trained weights. Their gradients are the last results. The next `frozen` inputs have
    no gradients."""

    trained: int = 0
    frozen: int = 0
    devices: int = 1


def foresee(graph: Graph, donated: int = 0, compiler: Compiler = GPU,
            shared: Shared = Shared()) -> Memory:
    """Predicts the memory of a program whose results reuse `donated` bytes of its arguments."""
    if shared.devices > 1 and not compiler.fuses_products:
        graph = with_gathers(graph, shared.trained + shared.frozen, compiler.hides_latency)
    gradients = graph.outputs[len(graph.outputs) - shared.trained:]
    sizes = {id(value): value.bytes // shared.devices
             for value in (*graph.inputs[:shared.trained + shared.frozen], *gradients)
             if value is not None}
    arguments = sum(sizes.get(id(value), value.bytes) for value in graph.inputs)
    outputs = sum((sizes.get(id(value), value.bytes) if value else 4) + 8
                  for value in graph.outputs)
    kept = {id(value) for value in graph.outputs if value is not None}
    if shared.devices > 1:
        # Devices add up a gradient when it is computed, and each device keeps its part. A loop
        # stacks only these parts.
        whole = {id(value) for value in gradients if value is not None and not (
            value.maker is not None and any(each is value for each in _stacked(value.maker)))}
        kept -= whole
        sizes = {key: size for key, size in sizes.items() if key not in whole}
    return Memory(arguments, outputs, min(donated, outputs),
                  Buffers(graph, compiler, kept, _aliased(graph, donated), sizes).peak)


def _aliased(graph: Graph, donated: int) -> set[int]:
    """Returns the results that overwrite donated arguments. The first arguments are donated, as
    long as together they have at most `donated` bytes."""
    free: dict[Any, int] = {}
    for value in graph.inputs:
        if value.bytes > donated:
            break
        donated -= value.bytes
        key = local_shape(value.aval), value.aval.dtype
        free[key] = free.get(key, 0) + 1
    found = set[int]()
    for result in graph.outputs:
        if result is not None and id(result) not in found:
            key = local_shape(result.aval), result.aval.dtype
            if free.get(key):
                free[key] -= 1
                found.add(id(result))
    return found


@dataclasses.dataclass(eq=False)
class Buffer:
    """Memory of a value in the steps from `begin` to `end`."""

    value: Value
    bytes: int
    begin: int
    end: int = 0
    is_result: bool = False
    depth: int = 0                  # number of enclosing loops


class Buffers:
    """The buffers of a program, except those of its inputs. If a device holds only a part of a
    value, `sizes` has the size of this part in bytes."""

    def __init__(self, graph: Graph, compiler: Compiler, results: set[int],
                 aliased: Set[int] = frozenset(), sizes: Mapping[int, int] | None = None) -> None:
        self.compiler, self.sizes = compiler, sizes or {}
        self.found: list[Buffer] = []
        self.now = 0                    # the number of the current step
        self.depth = 0
        self._walk(graph, results, True)
        if compiler.hosts == "all" or compiler.hosts == "outer" and not aliased:
            self._host(aliased)
        self.live = self._live()
        self.peak = self.live[1]

    def _bytes(self, value: Value) -> int:
        size = self.sizes.get(id(value), value.bytes) if not self.depth else value.bytes
        return size // 2 if self._is_stored_bf16(value) else size

    def _is_stored_bf16(self, value: Value) -> bool:
        """Returns whether XLA writes this float32 value in bfloat16, because only products of
        bfloat16 read it. XLA does this only for results of elementwise operations and products, and
        for stacked values. Other values, such as the result of a sort or a value that a loop
        carries, stay float32."""
        maker = value.maker
        return self.compiler.multiplies_bf16 and maker is not None and _is_multiplied(value) and (
            maker.op in ELEMENTWISE or maker.op in PRODUCTS or
            any(each is value for each in _stacked(maker)))

    def _open(self, value: Value, is_result: bool = False) -> Buffer:
        buffer = Buffer(value, self._bytes(value), self.now, self.now, is_result, self.depth)
        self.found.append(buffer)
        return buffer

    def _walk(self, graph: Graph, elsewhere: set[int], is_outer: bool = False, carried: int = 0,
              first: int = 0) -> None:
        """Adds the buffers of a graph's steps. If `is_outer` is true, `elsewhere` has the program's
        results. Otherwise, `elsewhere` has the values whose buffers belong to the loop that
        contains the graph."""
        steps = Steps(graph, self.compiler).steps
        if self.compiler.fetches_early and is_outer:
            steps = _delayed(steps, graph)
        if self.compiler.hides_latency and not is_outer:
            steps = _order.hiding(steps)
        if self.compiler.hoists_casts:
            self._hoist(graph, steps, is_outer)
        last = {key: at for at, step in enumerate(steps) for key in step.reads}
        last |= {id(value): len(steps) for value in graph.outputs if value is not None and (
            not is_outer or id(value) in elsewhere)}
        open_: dict[int, Buffer] = {}
        ends: dict[int, list[int]] = {}

        def begin(value: Value, at: int) -> None:
            if id(value) in open_ or id(value) in elsewhere and not is_outer:
                return
            open_[id(value)] = self._open(value, id(value) in elsewhere)
            ends.setdefault(last.get(id(value), at), []).append(id(value))

        for value in _copied(graph, steps, first, carried):
            begin(value, 0)
        if self.compiler.fetches_early and is_outer:
            for step in steps:
                for value in filter(_is_fetched_argument, step.made):
                    begin(value, 0)
        if self.compiler.is_wide:
            # Stacked values are allocated before any step runs.
            for step in steps:
                for value in _stacked(step.node):
                    if id(value) in last:
                        begin(value, 0)
        for at, step in enumerate(steps):
            before, self.now = self.now, self.now + 1
            ending = ends.pop(at, [])
            reused = self._reused(step, open_, ending, elsewhere)
            if is_outer and step.node.op == "scan":
                # A loop changes a carried result in place, in the buffer of the initial value.
                for value, out in _carried(step.node):
                    if id(value) in ending and id(out) in elsewhere and id(value) in open_ and \
                            id(out) not in open_:
                        ending.remove(id(value))
                        open_[id(out)] = open_.pop(id(value))
                        open_[id(out)].is_result = True
                        ends.setdefault(last.get(id(out), at), []).append(id(out))
            for value in step.made:
                begin(value, at)
            self._inside(step.node)
            for key in ending + ends.pop(at, []):
                open_.pop(key).end = before if key in reused else self.now
        self.now += 1
        for buffer in open_.values():
            buffer.end = self.now

    def _hoist(self, graph: Graph, steps: list[Step], is_outer: bool) -> None:
        """Moves casts of loop operands out of the loops. Adds one step for each cast, before the
        first loop that uses its result."""
        casts: dict[tuple[int, Any], Node] = {}
        for step in list(steps):
            for value, dtype in _casts(step.node, self.compiler.multiplies_bf16):
                if value.maker is None and not is_outer:
                    continue            # cast before the loop that contains the graph
                if self._is_stored_bf16(value):
                    continue
                key = id(value), dtype
                if key not in casts:
                    made = Value(self._bytes(value) // value.aval.dtype.itemsize * dtype.itemsize,
                                 value.aval)
                    casts[key] = made.maker = Node("convert_element_type", [value], [made], {}, None)
                    steps.insert(steps.index(step), Step(casts[key], {id(value): value}, [made]))
                made, = casts[key].outputs
                step.reads[id(made)] = made

    def _reused(self, step: Step, live: dict[int, Buffer], ending: list[int],
                elsewhere: set[int]) -> set[int]:
        """Returns the operands whose memory the results of `step` reuse. No later step reads these
        operands."""
        node = step.node
        if node.op == "scan":
            # The loop changes these carried values in place, and copies the others.
            return {id(value) for value, out in _carried(node)
                    if id(value) in ending and id(out) not in elsewhere}
        if not step.made or node.op in MOVING or node.op not in ELEMENTWISE and \
                not node.op.startswith("scatter"):
            return set()
        if not self.compiler.is_wide and any(
                _changes_in_place(user, step.made[0]) for user in step.made[0].users):
            # A step that reads this result writes its own result into the same buffer. In XLA's
            # heap simulator, a buffer with several values does not take over an operand's buffer.
            return set()
        size = step.made[0].bytes
        return set([key for key, value in step.reads.items()
                    if key in ending and value.bytes == size and not _is_fetched(value)][:1])

    def _inside(self, node: Node) -> None:
        """Adds the buffers that a step needs besides its operands and results."""
        if self.compiler.splits_products and node.op in PRODUCTS:
            size = _splits.partial_bytes(node)
            if size:
                self._open(node.outputs[0]).bytes = size
        for body in node.bodies:
            written = {id(value) for value in body.outputs if value is not None} \
                if node.op == "scan" else set()
            self.depth += 1
            self._walk(body, written, False, node.carries, node.consts)
            self.depth -= 1

    def _host(self, aliased: Set[int]) -> None:
        """Removes each buffer that can share the memory of a result, because the two are never live
        at the same time. Like XLA, starts with the largest buffer, and puts each buffer into the
        smallest result that has space for it. Does not use the memory of `aliased` results, because
        this memory belongs to arguments."""
        places: list[tuple[int, list[Buffer]]] = []
        found = []
        for buffer in sorted(self.found, key=lambda each: (-each.bytes, not each.is_result)):
            if buffer.is_result:
                if id(buffer.value) not in aliased:
                    places.append((buffer.bytes, [buffer]))
                continue
            for size, taken in reversed(places):
                if buffer.depth and self.compiler.hosts == "outer":
                    continue
                if size >= buffer.bytes and all(
                        buffer.end < each.begin or each.end < buffer.begin for each in taken):
                    taken.append(buffer)
                    break
            else:
                found.append(buffer)
        self.found = found

    def _live(self) -> tuple[int, int]:
        """Returns the number of the step with the most live bytes, and how many bytes are live in
        this step."""
        changes: dict[int, int] = {}
        for buffer in self.found:
            if not buffer.is_result:
                changes[buffer.begin] = changes.get(buffer.begin, 0) + buffer.bytes
                changes[buffer.end + 1] = changes.get(buffer.end + 1, 0) - buffer.bytes
        total, most = 0, (0, 0)
        for when in sorted(changes):
            total += changes[when]
            most = max(most, (when, total), key=lambda each: each[1])
        return most

    def largest(self) -> list[Value]:
        """Returns the values that are live at the peak of live bytes, the largest first."""
        when = self.live[0]
        return sorted((each.value for each in self.found
                       if not each.is_result and each.begin <= when <= each.end),
                      key=lambda value: -value.bytes)


def _copied(graph: Graph, steps: list[Step], first: int, count: int) -> list[Value]:
    """Returns the carried values that a step can still read after another step has written the next
    iteration's value. The loop must copy these values."""
    copied = []
    makers = {id(value): at for at, step in enumerate(steps) for value in step.made}
    for value, new in zip(graph.inputs[first:first + count], graph.outputs):
        readers = [at for at, step in enumerate(steps) if id(value) in step.reads]
        if new is value or not readers:
            continue
        end = makers.get(id(new), -1) if new is not None else -1
        before = _before(steps, end, makers)
        if any(at not in before for at in readers):
            copied.append(value)
    return copied


def _before(steps: list[Step], end: int, makers: dict[int, int]) -> set[int]:
    """Returns the step `end` and all steps that must run before it, in no particular order."""
    found, stack = set[int](), [end] if end >= 0 else []
    while stack:
        at = stack.pop()
        if at in found:
            continue
        found.add(at)
        stack += [makers[key] for key in steps[at].reads if key in makers]
    return found


def _delayed(steps: list[Step], graph: Graph) -> list[Step]:
    """Returns the steps in the order of a scheduler that runs other steps during copies from the
    host. The steps that need an argument from the host come last. If only these steps read the
    results of another step, that step runs just before them."""
    late, needed = set[int](), {id(value) for value in graph.outputs}
    for step in steps:
        if any(id(value) in late or _is_fetched_argument(value) for value in step.reads.values()):
            late |= {id(step), *(id(value) for value in step.made)}
    if not late:
        return steps
    for step in reversed(steps):
        if id(step) not in late and (not step.made or any(id(value) in needed or
                                                          _is_fetched_argument(value)
                                                          for value in step.made)):
            needed |= {id(step)} | step.reads.keys()
    makers = {id(value): step for step in steps for value in step.made}
    found = [step for step in steps if id(step) in needed]
    there = {id(step) for step in found}
    stack = [step for step in reversed(steps) if id(step) in late]
    while stack:
        step = stack[-1]
        before = [makers[key] for key in step.reads
                  if key in makers and id(makers[key]) not in there]
        stack += reversed(before)
        if not before and id(stack.pop()) not in there:
            there.add(id(step))
            found.append(step)
    return found


def _is_fetched(value: Value) -> bool:
    """Returns whether a value is copied from the host. No result takes over the buffer of such a
    value, because an asynchronous copy also uses the buffer."""
    return _fetched_from(value) is not None


def _is_fetched_argument(value: Value) -> bool:
    source = _fetched_from(value)
    return source is not None and source.maker is None


def _fetched_from(value: Value) -> Value | None:
    """Returns the host value from which `value` is copied to the device, or None."""
    node = value.maker
    if node is None or node.op != "device_put" or len(node.inputs) != len(node.outputs):
        return None
    source = next(given for given, made in zip(node.inputs, node.outputs) if made is value)
    return source if value.bytes and not source.bytes else None


def _changes_in_place(node: Node, value: Value) -> bool:
    """Returns whether the results of `node` use the buffer of its operand `value`."""
    if node.op == "scan":
        return any(each is value for each, _ in _carried(node))
    return node.op.startswith("scatter") and node.inputs[0] is value


def _is_of_f32(value: Value) -> bool:
    return bool(getattr(value.aval, "dtype", None) == jnp.float32)


def _multiplies_bf16(node: Node) -> bool:
    """Returns whether XLA for TPUs casts the float32 operands of a product to bfloat16."""
    return node.op in PRODUCTS and node.params.get("precision") in (
        None, (jax.lax.Precision.DEFAULT,) * 2)


def _is_multiplied(value: Value) -> bool:
    """Returns whether a value is float32 and is read only by products that multiply in bfloat16."""
    if not _is_of_f32(value) or value.is_output or not value.users or _is_fetched(value):
        return False
    for user in value.users:
        if user.op == "scan":
            body, = user.bodies
            if any(each is value and (user.consts <= i < user.consts + user.carries or
                                      not _is_multiplied(body.inputs[i]))
                   for i, each in enumerate(user.inputs)):
                return False
        elif user.op in ("dynamic_slice", "reshape", "transpose"):
            if not _is_multiplied(user.outputs[0]):
                return False
        elif not _multiplies_bf16(user):
            return False
    return True


def _casts(loop: Node, multiplies_bf16: bool) -> list[tuple[Value, Any]]:
    """Returns the operands of a loop that its body, or an inner loop, casts to another type, each
    with its new type. Omits carried values, because these differ between iterations."""
    if loop.op != "scan":
        return []
    body, = loop.bodies
    inner = {id(value): i for i, value in enumerate(body.inputs)}
    found = []
    for node in body.nodes:
        wanted = _casts(node, multiplies_bf16)
        if multiplies_bf16 and _multiplies_bf16(node):
            wanted = [(value, jnp.dtype(jnp.bfloat16)) for value in node.inputs if _is_of_f32(value)]
        if node.op == "convert_element_type" and node.inputs:
            value, dtype = node.inputs[0], node.outputs[0].aval.dtype
            # XLA does not move operations that enlarge their operand.
            wanted = [(value, dtype)] if dtype.itemsize < value.aval.dtype.itemsize else []
        for value, dtype in wanted:
            if value.maker is not None and value.maker.op == "dynamic_slice":
                value = value.maker.inputs[0]
            i = inner.get(id(value), -1)
            if i >= 0 and not loop.consts <= i < loop.consts + loop.carries:
                found.append((loop.inputs[i], dtype))
    return found


def _carried(loop: Node) -> Iterator[tuple[Value, Value]]:
    """Yields the initial and the final value of each variable that a loop carries."""
    return zip(loop.inputs[loop.consts:][:loop.carries], loop.outputs)


def _stacked(node: Node) -> list[Value]:
    return node.outputs[node.carries:] if node.op == "scan" else []
