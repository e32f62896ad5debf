# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Chooses which activations to keep, offload or recompute, before the program is compiled.

    plan = actmem.jax.plan(loss, params, batch, device_memory="70G", machine=machine)
    print(plan)
    layer = jax.checkpoint(layer, policy=plan.policy)

names      the values to decide about        work     the cost of recomputing values
between    transfers between devices         defaults the defaults for a machine
memory     the memory that a program needs   time     simulates device, link and files
layers     a program as a list of layers     search   finds the fastest choice that fits
decide     the plan and its reasons          report   the plan as a table and a file
measure    runs the best few choices         _graph, _fusion, _trace    programs as graphs
verify     compiles the best few choices for accelerators that are not present
models     published models                  decoder  a model's training step in JAX
machine    published figures of machines     probe    measures this machine
of_model   the plan of a published model     command  actmem plan
targets    accelerators that XLA knows       compiled  programs that XLA compiles for targets
sharded    a model's step on all devices
placement  where weights and state live, and where the update runs
update     the time of a step with state on the host          wear    the wear of disks
check      compares a training run's first steps with its plan
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

from actmem.plan import _trace, defaults, memory, names, targets
from actmem.plan._graph import Graph
from actmem.plan import machine as machines
from actmem.plan.layers import Timeline
from actmem.plan.machine import Machine
from actmem.plan.memory import Compiler
from actmem.plan.names import Candidate
from actmem.plan.between import Between
from actmem.plan.decide import decided, tried
from actmem.plan.report import Build, Mismatch, Plan, Row, load_plan
from actmem.plan.search import KEEP, OFFLOAD, RECOMPUTE, Choice, Nothing, Search
from actmem.plan.sharded import Sharded
from actmem.plan.verify import verified

__all__ = ["Build", "KEEP", "OFFLOAD", "RECOMPUTE", "Choice", "Compiler", "Machine", "Mismatch",
           "Nothing", "Plan", "Row", "load_plan", "plan", "plan_key"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(what: str, size: int | float | str | None) -> float:
    """Converts 70e9, "70G" or "70GiB" to a number of bytes. None means no limit."""
    if size is None:
        return math.inf
    count = size
    if isinstance(size, str):
        # "GB" is refused, because it may mean 10^9 or 2^30 bytes.
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(iB)?\s*", size, re.IGNORECASE)
        count = float(found[1]) * _UNITS[found[2].upper()] if found else 0
    if isinstance(count, bool) or not isinstance(count, numbers.Real) or not count > 0:
        raise ValueError(f"{what}={size!r} is not a number of bytes, such as \"70G\" or \"70GiB\"")
    return count


def _check_counts(**counts: tuple[int, int]) -> None:
    """Raises ValueError unless each value is an integer of at least its minimum. Each argument is a
    pair of a value and its minimum."""
    for name, (value, least) in counts.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or \
                value < least:
            raise ValueError(f"{name}={value!r} must be a number of at least {least}")


def plan_key(function: Callable[..., Any], *args: Any, machine: Machine | str = "here",
             mesh: Any = None, specs: Mapping[str, PartitionSpec] | None = None,
             ) -> dict[str, str]:
    """Returns a key that identifies the program, the machine and the version of JAX. load_plan()
    refuses a plan with another key. The arguments are those of plan()."""
    return _key(_trace.Program(function, args, mesh, specs), machines.find(machine))


def _key(program: _trace.Program, machine: Machine) -> dict[str, str]:
    figures = sorted((name, figure.value) for name, figure in machine.figures.items())
    measured = f"{figures}{machine.measured}{machine.requests}"
    return {"jaxpr": _digest(program.text() + program.layout.text()), "JAX": jax.__version__,
            "machine": f"{machine.name} ({_digest(measured)[:8]})"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan(function: Callable[..., Any], *args: Any, machine: Machine | str | None = None,
         device_memory: int | float | str | None = None,
         host_memory: int | float | str | None = None, donated: int = 0,
         compiler: Compiler | None = None, ring: int = 2, model: str | None = None,
         resident: int = 0, devices: int | None = None, choice: Choice | None = None,
         measure: int = 0, destination: str = "pinned_host", mesh: Any = None,
         specs: Mapping[str, PartitionSpec] | None = None, between: Between | None = None,
         frozen: int = 0, compile: str | None = None, whole: Sharded | None = None,
         shares: int = 1, curve: bool = False) -> Plan:
    """Decides for each named value of a training step whether to keep it on the device, offload
    it to the host, or recompute it. If `function` is a step, plan() traces the step several times,
    and clears JAX's caches. JAX must then recompile functions that it compiled before.

    Args:
      function: Either a loss, which takes parameters and a batch and returns a scalar; or a step,
        which itself computes the gradient of a checkpointed function. plan() replaces the policies
        of layers under jax.checkpoint. Without such layers, the bodies of scans are the layers. If
        a loss names no values, plan() names the results of its large products.
      *args: The arguments of `function`, or their shapes (jax.ShapeDtypeStruct). Values that
        depend only on the first argument are weights.
      machine: A Machine, or a name that machine.find() accepts. The machine gives the rates of the
        device, of the link between device and host, and of files. "here" is this machine as `actmem
        probe` measured it. None: the machine of compile=, or "here" without compile=.
      device_memory: Bytes of device memory that a step may use, such as "70G". None: 90% of
        the machine's device memory. math.inf: no limit.
      host_memory: Bytes of host memory that one device may use. Offloaded values beyond this limit
        go to files. None: 80% of the machine's host memory, divided by the number of its devices;
        no limit if the size of the host memory is unknown.
      donated: How many bytes of the arguments are donated. The first arguments count as donated, as
        long as together they have at most this many bytes on the device.
      compiler: The compiler's settings, such as memory.CPU. None: the settings for the machine's
        platform.
      ring: The maximum number of layers with unfinished transfers to the host.
      model: A name for the plan.
      resident: Bytes on the device in addition to those of the program. A negative number means
        that the device holds less than the function's arguments and results.
      devices: The number of devices of one host that run this program at the same time. None: the
        number of devices of the mesh, but at most the number of devices of one host.
      choice: Says for each name whether to keep, offload or recompute the values of this name. This
        choice becomes the plan even if it does not fit. None: the fastest choice that fits.
      measure: How many steps to run with each of the best few choices, on this machine's
        devices. The fastest choice becomes the plan. 0: only predict.
      destination: The memory to which the plan's policy offloads: a memory kind of JAX, or
        "actmem".
      mesh: The mesh of the devices that run the program. Needed if neither the shardings of the
        arguments nor jax.lax.with_sharding_constraint state a mesh. All numbers of bytes are per
        device.
      specs: The shardings of named values, by name. Needed for values that are not sharded
        like the operands of the operations that compute them.
      between: The transfers between devices, if `function` is one device's part of a model and
        does not contain these transfers: see of_model.py.
      frozen: How many arguments after the first are weights that are not trained.
      compile: A target such as "h200", "h200x8" or "v5p:2x2x1". This machine need not have the
        target's devices. XLA compiles the best few choices, and full recomputation, for the target.
        plan() drops the choices that do not fit, or whose schedule shows that offloading gains
        nothing. Compiling takes minutes, and plan() prints the progress on stderr. Results are
        cached.
      shares: How many devices divide the weights among themselves, if `function` computes with
        whole weights. A device gathers the weights of a layer to compute this layer, and otherwise
        stores only its part: see of_model.py.
      curve: Whether to compute the curve that Plan.plot() draws. The curve takes about half as long
        as the rest of plan().
      whole: The program that compile= compiles, if `function` is one device's part of a
        model: see sharded.py.

    Returns:
      A Plan: print it, or use its policy.

    Raises:
      ValueError: The function names no values, and plan() cannot name them. Or no choice fits. Or
        the mesh does not divide a value. Or two arguments conflict, such as measure= and compile=.
        Or jax_remat3 is set. The error message says what to change.
      MachineError: The machine is unknown, or its description lacks a figure that plan() needs.
      ImportError: The compiler for the target of compile= is not installed. The error message has
        the command that installs this compiler.
    """
    _check_counts(ring=(ring, 1), measure=(measure, 0), donated=(donated, 0), frozen=(frozen, 0),
                  devices=(1 if devices is None else devices, 1))
    target = targets.find(compile) if compile else None
    machine = machines.find(machine or (target.machine if target else "here"))
    if target and measure:
        raise ValueError("measure= and compile= cannot be combined: measure= runs programs on this "
                         "machine, but compile= only compiles them for another one")
    if target and machine.name != target.machine:
        raise ValueError(f"machine={machine.name!r} and compile={target.name!r} are different "
                         "machines: leave machine= out")
    if choice is not None and measure:
        raise ValueError("measure= and choice= cannot be combined: measure= searches for the "
                         "fastest policy, but choice= sets the policy")
    if target:
        targets.check_compiler(target)
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
    graph = program.graph_saving()

    def memory_of(found: Graph) -> memory.Memory:
        return memory.foresee(found, donated, how, memory.Shared(
            program.weights, program.frozen, shares) if shares > 1 else memory.Shared())

    def peak_of(saved: frozenset[str]) -> int:
        return memory_of(program.graph_saving(saved) if saved else graph).peak + resident

    least = memory_of(graph)
    fixed = least.peak - least.temporary + resident - sum(
        graph.inputs[i].bytes for i in program.batch)
    if devices is None:
        devices = defaults.devices_of(machine, program.layout.sizes)
    timed = memory.PLAIN if how in (memory.GPU, memory.TPU) else how
    search = Search(Timeline(graph, machine, timed, between), candidates, machine, peak_of,
                    parse_size("device_memory", device_memory),
                    parse_size("host_memory", host_memory), ring, devices, fixed)
    if choice is not None:
        _check_names(choice, candidates)
    found = decided(search, candidates, model or _trace.name_of(function),
                    key, choice, destination, curve)
    found = dataclasses.replace(found, proposed=proposed)
    if target:
        if whole:
            program, resident = _trace.Program(whole.loss, whole.args, frozen=frozen), \
                whole.resident
        return verified(search, program, target, found, candidates, donated, resident, choice)
    return tried(search, program, measure, found, candidates, donated, resident) \
        if measure else found


def _check_names(choice: Choice, candidates: list[Candidate]) -> None:
    there = [each.name for each in candidates]
    for name in sorted(choice.kept | choice.offloaded):
        if name not in there:
            raise ValueError(f"no value is named {name!r}: the names are {', '.join(there)}")


def _proposed(program: _trace.Program, products: list[Candidate]) -> dict[str, str]:
    """Names the large products of the program. Returns the source line of each name."""
    places = {each.place: each.name for each in products}
    if not products or program.is_step:
        raise ValueError(
            f"{_trace.name_of(program.function)} names no values" + (
                "; name its large products with jax.ad_checkpoint.checkpoint_name: " + "; ".join(
                    f"{each.place}, {each.bytes} bytes" for each in products[:8])
                if products else ", and it has no large products that could be named"))
    program.give_names(places)
    return {name: place for place, name in places.items()}
