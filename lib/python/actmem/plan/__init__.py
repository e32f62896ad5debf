# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The choice of activations to keep, offload or recompute, before anything is compiled.

    plan = actmem.jax.plan(loss, params, batch, device_memory="70G", machine=machine)
    print(plan)
    layer = jax.checkpoint(layer, policy=plan.policy)

names      what there is to decide         work     what recomputing it costs
between    what devices send each other    defaults what a plan takes of a machine
memory     what a program needs            time     queues of a device, its link and files
layers     a program as layers in time     search   the fastest that fits
decide     what the plan is, and why       report   a plan, and its file
measure    the best few, run               _graph, _fusion, _trace    programs from jaxprs
models     published models                decoder  the function of a step of one
machine    published figures of machines   probe    those of this one, measured
of_model   the plan of a published model   command  actmem plan
check      first steps against a plan
"""
from __future__ import annotations

import dataclasses
import hashlib
import math
import numbers
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.sharding import PartitionSpec

from actmem.plan import _trace, defaults, memory, names
from actmem.plan._graph import Graph
from actmem.plan import machine as machines
from actmem.plan.layers import Timeline
from actmem.plan.machine import Machine
from actmem.plan.memory import Compiler
from actmem.plan.names import Candidate
from actmem.plan.between import Between
from actmem.plan.decide import decided, tried
from actmem.plan.report import Mismatch, Plan, Row, load_plan
from actmem.plan.search import KEEP, OFFLOAD, RECOMPUTE, Choice, Nothing, Search

__all__ = ["KEEP", "OFFLOAD", "RECOMPUTE", "Choice", "Compiler", "Machine", "Mismatch",
           "Nothing", "Plan", "Row", "load_plan", "plan", "plan_key"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(what: str, size: int | float | str | None) -> float:
    """A number of bytes, as 70e9, "70G" or "70GiB"; without a limit for None."""
    if size is None:
        return math.inf
    count = size
    if isinstance(size, str):
        # GB is a thousand millions to some and 2^30 to others.
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(iB)?\s*", size, re.IGNORECASE)
        count = float(found[1]) * _UNITS[found[2].upper()] if found else 0
    if isinstance(count, bool) or not isinstance(count, numbers.Real) or not count > 0:
        raise ValueError(f"{what}={size!r} is no number of bytes, as \"70G\" or \"70GiB\"")
    return count


def _check_counts(**counts: tuple[int, int]) -> None:
    """Of each, its value and the least that has a sense."""
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or \
                value < least:
            raise ValueError(f"{name}={value!r} is no number from {least}")


def plan_key(function: Callable[..., Any], *args: Any, machine: Machine | str = "here",
             mesh: Any = None, specs: Mapping[str, PartitionSpec] | None = None,
             ) -> dict[str, str]:
    """The program, machine and JAX that a plan is for: load_plan() refuses one for others.
    The arguments are those of plan()."""
    return _key(_trace.Program(function, args, mesh, specs), machines.find(machine))


def _key(program: _trace.Program, machine: Machine) -> dict[str, str]:
    figures = sorted((name, figure.value) for name, figure in machine.figures.items())
    measured = f"{figures}{machine.measured}{machine.requests}"
    return {"jaxpr": _digest(program.text() + program.layout.text()), "JAX": jax.__version__,
            "machine": f"{machine.name} ({_digest(measured)[:8]})"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan(function: Callable[..., Any], *args: Any, machine: Machine | str = "here",
         device_memory: int | float | str | None = None,
         host_memory: int | float | str | None = None, donated: int = 0,
         compiler: Compiler | None = None, ring: int = 2, model: str | None = None,
         resident: int = 0, devices: int | None = None, choice: Choice | None = None,
         measure: int = 0, destination: str = "pinned_host", mesh: Any = None,
         specs: Mapping[str, PartitionSpec] | None = None, between: Between | None = None,
         frozen: int = 0) -> Plan:
    """Decides for each named value of a training step whether the device keeps it, it goes to
    the host, or it is computed again. A step, as opposed to a loss, is traced again for each
    policy, and JAX's caches are cleared for that: what was compiled is compiled again.

    Args:
      function: A loss, of parameters and a batch, that returns a number; or a step, which
        takes the gradient of a checkpointed function itself. Layers under jax.checkpoint
        are planned whatever their policy; where there are none, the bodies of scans are.
        Where a loss names nothing, names are proposed for what its large products make.
      *args: Its arguments, or their shapes (jax.ShapeDtypeStruct). What depends on the first
        alone is weights.
      machine: What the device, its link and files do: a machine, or its name for
        machine.find(); "here" is what `actmem probe` has measured.
      device_memory: Bytes of the device that a step may take, as "70G"; 0.9 of the machine's
        if None, and math.inf for no limit.
      host_memory: Bytes of the host that one device may take, and the rest goes to files; its
        part of 0.8 of the machine's, where that is known, if None.
      donated: Bytes of the arguments that are donated.
      compiler: How programs are compiled, as memory.CPU; as for the machine if None.
      ring: How many layers may be under way to the host.
      model: What to call it.
      resident: Bytes that a device has besides, or, if below 0, does not have of what the
        function takes and returns.
      devices: How many of the host's do the same at once; all of the mesh, or as many as a
        host has, if None.
      choice: What to foresee, instead of looking for the fastest, whether it fits or not.
      measure: How many steps each of the best few is to run on this machine's devices; the
        fastest of them is the plan. 0: the plan is foreseen alone.
      destination: Where JAX offloads to; "actmem" for actmem.jax.
      mesh: The devices that share the program, where neither its arguments' shardings nor
        jax.lax.with_sharding_constraint tell them. All bytes are those of one device.
      specs: Of names, how a mesh divides what they name, where that is not as operands are
        divided.
      between: What devices send each other, where the function is one device's part and does
        not have it: see of_model.py.
      frozen: How many of the arguments behind the first are weights that are not trained.

    Returns:
      A Plan: print it, or take its policy.

    Raises:
      ValueError: Nothing has a name, nothing fits, the mesh does not divide a value, or both
        choice= and measure= are given; it names what to change.
      MachineError: There is no such machine, or it lacks a figure.
    """
    _check_counts(ring=(ring, 1), measure=(measure, 0), donated=(donated, 0), frozen=(frozen, 0),
                  devices=(1 if devices is None else devices, 1))
    machine = machines.find(machine)
    if choice is not None and measure:
        raise ValueError("measure= looks for the fastest policy, and choice= gives one: give "
                         "one of them")
    if device_memory is None:
        device_memory = defaults.device_memory_of(machine)
    if host_memory is None:
        host_memory = defaults.host_memory_of(machine)
    how = compiler or defaults.compiler_of(machine)
    program = _trace.Program(function, args, mesh, specs, frozen)
    written = program.written()
    candidates = names.find(written, program.batch)
    key, proposed = _key(program, machine), dict[str, str]()
    if not candidates:
        proposed = _proposed(program, names.propose(written, program.batch))
        candidates = names.find(program.written(), program.batch)
    graph = program.graph(jax.checkpoint_policies.save_only_these_names())

    def memory_of(found: Graph) -> memory.Memory:
        return memory.foresee(found, donated, how)

    def peak_of(saved: frozenset[str]) -> int:
        found = graph if not saved else program.graph(
            jax.checkpoint_policies.save_only_these_names(*sorted(saved)))
        return memory_of(found).peak + resident

    least = memory_of(graph)
    fixed = least.peak - least.temporary + resident - sum(
        graph.inputs[i].bytes for i in program.batch)
    if devices is None:
        devices = defaults.devices_of(machine, program.layout.sizes)
    search = Search(Timeline(graph, machine, how, between), candidates, machine, peak_of,
                    bytes_of("device_memory", device_memory),
                    bytes_of("host_memory", host_memory), ring, devices, fixed)
    if choice is not None:
        _check_names(choice, candidates)
    found = decided(search, candidates, model or _trace.name_of(function),
                    key, choice, destination)
    found = dataclasses.replace(found, proposed=proposed)
    return tried(search, program, measure, found, candidates, donated, resident) \
        if measure else found


def _check_names(choice: Choice, candidates: list[Candidate]) -> None:
    there = [each.name for each in candidates]
    for name in sorted(choice.kept | choice.offloaded):
        if name not in there:
            raise ValueError(f"nothing is named {name!r}: there are {', '.join(there)}")


def _proposed(program: _trace.Program, products: list[Candidate]) -> dict[str, str]:
    """Names that the program gets, of its large products, by name the line that makes each."""
    places = {each.place: each.name for each in products}
    if not products or program.is_step:
        raise ValueError(
            f"{_trace.name_of(program.function)} names nothing to decide about: give its large "
            "products a name with jax.ad_checkpoint.checkpoint_name" + (": " + "; ".join(
                f"{each.place}, {each.bytes} bytes" for each in products[:8])
                if products else ", of which it has none"))
    program.give_names(places)
    return {name: place for place, name in places.items()}
