# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Reads the schedule of a program that XLA compiled: which copies to the host and back the program
has, and whether they start in the forward or the backward pass.

    schedule = _schedule.read(compiled.as_text())

The backward pass begins with the first product, loop or kernel that JAX's transposition made. A
copy of a value to the host is late if the copy starts in the backward pass. In the forward pass, a
copy is late if it starts after more than half of the products between the value's computation and
the backward pass. The memory space of the host is S(5) in XLA's text. Copies in loop bodies count
once for each iteration.
"""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

HOST = "S(5)"
HEADER = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\{$")
DEFINED = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = (.*)$")
OPCODE = re.compile(r"\s*([\w-]+)\(")
LEAF = re.compile(r"([a-z][a-z0-9]*)\[([0-9,]*)\](\{[^}]*\})?")
NAME = re.compile(r"%([\w.-]+)")
OP_NAME = re.compile(r'op_name="([^"]*)"')
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
CALLED = re.compile(r"\b(?:to_apply|true_computation|false_computation)=%([\w.-]+)"
                    r"|\bbranch_computations=\{([^}]*)\}")
TARGET = re.compile(r'custom_call_target="([^"]*)"')
KERNEL = re.compile(r"gemm|cublas|cudnn|triton|tpu_custom_call", re.IGNORECASE)
PRODUCTS = ("dot_general", "ragged_dot_general", "conv_general_dilated")
BACKWARD = "transpose(jvp"
CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
COMPUTES, STARTS, ENDS = "computes", "starts", "ends"       # events
# Instructions that move no bytes themselves, though computations that they call can move bytes.
STILL = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call",
         "conditional", "opt-barrier", "after-all")
# Matches an instruction that XLA computes again because memory is short. XLA also duplicates cheap
# instructions, even if memory suffices. XLA names these duplicates ".rematerialized", a name that
# the pattern does not match.
REMATERIALISED = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+\.remat\d*(?:\.[\w.]*)? = ", re.MULTILINE)


@dataclasses.dataclass
class Schedule:
    """Numbers of copies, calls and bytes in one step. A copy is exposed if the device computes no
    product between the start and the end of the copy."""
    rematerialised: int = 0         # instructions that XLA computes again to save memory
    copies_out: int = 0             # copies by XLA, from the device to the host
    late_out: int = 0
    bytes_out: int = 0
    late_bytes_out: int = 0
    exposed_bytes_out: int = 0
    copies_in: int = 0
    bytes_in: int = 0
    exposed_bytes_in: int = 0
    puts: int = 0                   # calls of actmem that store a value
    late_puts: int = 0
    put_bytes: int = 0
    takes: int = 0
    # XLA's computations with copies: how often each runs, and its events in order. An event is a
    # number of compute cycles, the start of a copy (its name, direction and bytes), or the end of a
    # copy. The list is empty if XLA reports no cycles, as for GPUs.
    timed: list[list[Any]] = dataclasses.field(default_factory=list)

    def wait(self, clock: float, link_out: float, link_in: float) -> float:
        """Returns the number of seconds of a step in which the device waits for copies. Copies in
        one direction run one after the other. `clock` is in cycles per second, `link_out` and
        `link_in` are in bytes per second."""
        rates = {True: link_out, False: link_in}
        return math.fsum(times * _wait(events, clock, rates) for times, events in self.timed)


def _wait(events: list[list[Any]], clock: float, rates: Mapping[bool, float]) -> float:
    now = waited = 0.0
    free = {True: 0.0, False: 0.0}          # when the link finishes its latest copy
    ends: dict[str, float] = {}
    for event in events:
        if event[0] == COMPUTES:
            now += event[1] / clock
        elif event[0] == STARTS:
            _, name, is_out, size = event
            free[is_out] = ends[name] = max(now, free[is_out]) + size / rates[is_out]
        else:
            waited += max(0.0, ends[event[1]] - now)
            now = max(now, ends[event[1]])
    return waited


@dataclasses.dataclass(frozen=True)
class _Leaf:
    bytes: int
    is_host: bool


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    result: str             # type of its result
    opcode: str
    operands: tuple[str, ...]
    rest: str               # attributes
    number: int | None = None       # value of a constant that is an integer >= 0

    @property
    def op_name(self) -> str:
        found = OP_NAME.search(self.rest)
        return found[1] if found else ""

    @property
    def target(self) -> str:
        found = TARGET.search(self.rest)
        return found[1] if found and self.opcode.startswith("custom-call") else ""

    @property
    def computes(self) -> bool:
        """Whether this is a product, a kernel or a loop. Such instructions take most of a step's
        time."""
        return self.opcode in ("dot", "convolution", "while") or bool(
            KERNEL.search(self.target)) or self.opcode not in STILL and \
            self.op_name.rpartition("/")[2] in PRODUCTS


def _closing(text: str) -> int:
    """Returns the index after the parenthesis that closes the first parenthesis of `text`."""
    depth = 0
    for found in re.finditer(r"[()]", text):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return found.end()
    return len(text)


def _leaves(text: str) -> list[_Leaf]:
    """Returns the size of each array in the text of a type, and whether the array is in host
    memory."""
    found = []
    for kind, dims, layout in LEAF.findall(text):
        bits = re.search(r"\d+", kind)
        size = int(bits[0]) if bits else 8
        count = math.prod(int(dim) for dim in dims.split(",") if dim)
        found.append(_Leaf(count * size // 8, HOST in layout))
    return found


def _instruction(line: str) -> _Instruction | None:
    found = DEFINED.match(line)
    if not found:
        return None
    name, rest = found[1], found[2]
    end = _closing(rest) if rest.startswith("(") else rest.find(" ")
    opcode = OPCODE.match(rest, end)
    if not opcode:
        return None
    inside = rest[opcode.end() - 1:]
    closing = _closing(inside)
    number = inside[1:closing - 1] if opcode[1] == "constant" else ""
    return _Instruction(name, rest[:end], opcode[1], tuple(NAME.findall(inside[:closing])),
                        inside[closing:], int(number) if number.isdecimal() else None)


def _computations(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Returns the instructions of each computation in order, and the entry computation's name."""
    found: dict[str, list[_Instruction]] = {}
    entry, into = "", list[_Instruction]()
    for line in text.splitlines():
        header = HEADER.match(line)
        if header:
            into = found.setdefault(header[2], [])
            entry = header[2] if header[1] else entry
        elif line.startswith(" "):
            each = _instruction(line)
            if each:
                into.append(each)
    return found, entry


@dataclasses.dataclass(frozen=True)
class _Copy:
    is_out: bool
    bytes: int              # of one iteration
    stack: int              # bytes of the host's buffer


def _copy_of(each: _Instruction, types: Mapping[str, list[_Leaf]]) -> _Copy | None:
    """Returns the copy between device and host that an instruction makes or starts, or None."""
    if each.opcode in STILL or each.opcode.endswith("-done") or each.target == "AllocateBuffer":
        return None
    if each.opcode.endswith("-start") and each.result.startswith("("):
        inner = each.result[1:]
        if inner.startswith("("):           # ((operands), result, context)
            end = _closing(inner)
            read, made = _leaves(inner[:end]), _leaves(inner[end:])[:1]
        else:                               # (result, operand, context)
            made, read = _leaves(inner)[:1], _leaves(inner)[1:2]
    else:
        made = _leaves(each.result)
        read = [leaf for name in each.operands for leaf in types.get(name, ())]
    host = [leaf.bytes for leaf in made + read if leaf.is_host]
    if not host:
        return None
    written = [leaf.bytes for leaf in made if not leaf.is_host]
    sent = [leaf.bytes for leaf in read if not leaf.is_host]
    if any(leaf.is_host for leaf in made):
        return _Copy(True, max(sent), max(host)) if sent else None
    return _Copy(False, max(written), max(host)) if written else None


class _Passes:
    """Finds where the backward pass begins among the instructions of a computation."""

    def __init__(self, lines: list[_Instruction]) -> None:
        self.lines = lines
        self.begin = next((i for i, each in enumerate(lines)
                           if each.computes and BACKWARD in each.op_name), len(lines))
        self.before = [0]           # number of products before each instruction
        self.made: dict[str, int] = {}      # index of the latest product that each value needs
        for i, each in enumerate(lines):
            self.before.append(self.before[i] + each.computes)
            self.made[each.name] = i if each.computes else max(
                (self.made.get(name, -1) for name in each.operands), default=-1)

    def is_late(self, i: int) -> bool:
        """Returns whether instruction `i`, a copy or a put, is late. The docstring of this module
        says which copies are late."""
        if i >= self.begin or self.begin == len(self.lines):
            return i >= self.begin
        made = self.before[max((self.made.get(name, -1) for name in self.lines[i].operands),
                               default=-1) + 1]
        return 2 * (self.before[i] - made) > self.before[self.begin] - made


class _Reader:
    def __init__(self, text: str) -> None:
        self.computations, self.entry = _computations(text)
        self.found = Schedule(rematerialised=len(REMATERIALISED.findall(text)))

    def walk(self, name: str, times: int, is_counted: bool, is_late: bool) -> int:
        """Adds the copies and calls of a computation, which runs `times` times, to the schedule.
        `is_counted` says whether XLA states the trip counts of all enclosing loops. Returns the
        cycles of one run."""
        lines = self.computations.get(name, [])
        types = {each.name: _leaves(each.result) for each in lines}
        passes = _Passes(lines)
        events, started, total, runs = list[list[Any]](), set[str](), 0, times
        for i, each in enumerate(lines):
            late = is_late or i >= passes.begin
            found = CYCLES.search(each.rest)
            cycles = int(found[1]) if found else 0
            if each.opcode == "while":
                trips = self._trips(each)
                body = re.search(r"\bbody=%([\w.-]+)", each.rest)
                if body:
                    cycles += (trips or 1) * self.walk(body[1], times * (trips or 1),
                                                       is_counted and trips is not None, late)
            for inner in self._called(each):
                cycles += self.walk(inner, times, is_counted, late)
            total += cycles
            if cycles and events and events[-1][0] == COMPUTES:
                events[-1][1] += cycles
            elif cycles:
                events.append([COMPUTES, cycles])
            if each.opcode.endswith("-done"):
                events += [[ENDS, operand] for operand in each.operands if operand in started]
            copy = _copy_of(each, types)
            if copy or each.target == "actmem_put":
                late = late or passes.is_late(i)
            self._call(each, types, times, late)
            if copy:
                count = times if is_counted else times * max(1, copy.stack // max(1, copy.bytes))
                self._add(copy, count, late, self._is_exposed(lines, i))
                runs = max(runs, count)
                started.add(each.name)
                events.append([STARTS, each.name, copy.is_out, copy.bytes])
                if not each.opcode.endswith("-start"):
                    events.append([ENDS, each.name])
        if total and started:
            self.found.timed.append([runs, events])
        return total

    def _trips(self, each: _Instruction) -> int | None:
        """Returns the number of iterations of a loop, or None if it is unknown. XLA's text for TPUs
        does not state this number. For TPUs, the loop must be a scan: its counter begins at 0, and
        its condition compares the counter with the number."""
        found = TRIPS.search(each.rest)
        if found:
            return int(found[1])
        condition = re.search(r"\bcondition=%([\w.-]+)", each.rest)
        lines = self.computations.get(condition[1], []) if condition else []
        numbers = {line.name: line.number for line in lines}
        return next((numbers.get(line.operands[-1]) for line in reversed(lines)
                     if line.opcode == "compare" and "direction=LT" in line.rest), None)

    @staticmethod
    def _called(each: _Instruction) -> Iterator[str]:
        if each.opcode in ("call", "conditional"):
            for name, names in CALLED.findall(each.rest):
                yield from [name] if name else NAME.findall(names)

    @staticmethod
    def _is_exposed(lines: list[_Instruction], start: int) -> bool:
        if not lines[start].opcode.endswith("-start"):
            return True
        for each in lines[start + 1:]:
            if each.opcode.endswith("-done") and lines[start].name in each.operands:
                return True
            if each.computes:
                return False
        return True

    def _call(self, each: _Instruction, types: Mapping[str, list[_Leaf]], times: int,
              late: bool) -> None:
        found = self.found
        if each.target == "actmem_put":
            found.puts += times
            found.late_puts += times * late
            found.put_bytes += times * sum(
                leaf.bytes for name in each.operands for leaf in types.get(name, ()))
        elif each.target == "actmem_take":
            found.takes += times

    def _add(self, copy: _Copy, count: int, late: bool, exposed: bool) -> None:
        found, size = self.found, copy.bytes * count
        if copy.is_out:
            found.copies_out += count
            found.late_out += count * late
            found.bytes_out += size
            found.late_bytes_out += size * late
            found.exposed_bytes_out += size * exposed
        else:
            found.copies_in += count
            found.bytes_in += size
            found.exposed_bytes_in += size * exposed


def read(text: str) -> Schedule:
    """Returns the Schedule of a program that XLA compiled. `text` is the program's text."""
    reader = _Reader(text)
    reader.walk(reader.entry, 1, True, False)
    return reader.found
