# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The choice of activations to keep, offload or recompute, before anything is compiled.

    plan = actmem.jax.plan(loss, params, batch, device_memory="70G", machine=machine)
    print(plan)
    layer = jax.checkpoint(layer, policy=plan.policy)

names      what there is to decide         work     what recomputing it costs
memory     what a program needs            time     queues of a device, its link and files
layers     a program as layers in time     search   the fastest that fits
report     a plan, and its file            _graph, _fusion, _trace    programs from jaxprs
models     published models                decoder  the function of a step of one
machine    published figures of machines   probe    those of this one, measured
"""
from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax

from actmem.plan import _trace, memory, names
from actmem.plan._graph import Graph
from actmem.plan import machine as machines
from actmem.plan.layers import Timeline
from actmem.plan.machine import Machine
from actmem.plan.memory import Compiler
from actmem.plan.names import Candidate
from actmem.plan.report import Mismatch, Plan, Row, load_plan
from actmem.plan.search import KEEP, OFFLOAD, RECOMPUTE, Choice, Search

__all__ = ["Compiler", "Machine", "Mismatch", "Plan", "Row", "load_plan", "plan", "plan_key"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(what: str, size: int | float | str | None) -> float:
    """A number of bytes, as 70e9 or "70G"; without a limit for None."""
    if size is None:
        return math.inf
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGT]?)(i?B)?\s*", size, re.IGNORECASE)
        if not found:
            raise ValueError(f"{what}={size!r} is no number of bytes, as \"70G\"")
        return float(found[1]) * _UNITS[found[2].upper()]
    if size <= 0:
        raise ValueError(f"{what}={size!r} is no number of bytes, as \"70G\"")
    return size


def plan_key(function: Callable[..., Any], *args: Any, machine: Machine | str = "here",
             ) -> dict[str, str]:
    """The program, machine and JAX that a plan is for: load_plan() refuses one for others."""
    return _key(_trace.Program(function, args), machines.find(machine))


def _key(program: _trace.Program, machine: Machine) -> dict[str, str]:
    text = re.sub(r" at 0x[0-9a-f]+", "", str(program.jaxpr))
    return {"jaxpr": hashlib.sha256(text.encode()).hexdigest()[:16],
            "jax": jax.__version__, "machine": machine.name}


def plan(function: Callable[..., Any], *args: Any, machine: Machine | str = "here",
         device_memory: int | float | str | None = None,
         host_memory: int | float | str | None = None, donated: int = 0,
         compiler: Compiler = memory.GPU, ring: int = 2, model: str | None = None,
         resident: int = 0, devices: int = 1, choice: Choice | None = None) -> Plan:
    """Decides for each named value of a training step whether the device keeps it, it goes to
    the host, or it is computed again.

    Args:
      function: A loss, of parameters and a batch, that returns a number; or a step, which
        takes the gradient of a checkpointed function itself. Layers under jax.checkpoint
        are planned whatever their policy; where there are none, the bodies of scans are.
      *args: Its arguments, or their shapes (jax.ShapeDtypeStruct). What depends on the first
        alone is weights.
      machine: What the device, its link and files do: a machine, or its name for
        machine.find(); "here" is what `actmem probe` has measured.
      device_memory: Bytes of the device that a step may take, as "70G".
      host_memory: Bytes of the host; the rest goes to files.
      donated: Bytes of the arguments that are donated.
      compiler: How programs are compiled, as memory.CPU.
      ring: How many layers may be under way to the host.
      model: What to call it.
      resident: Bytes that a device has besides, or, if below 0, does not have of what the
        function takes and returns.
      devices: How many of the host's do the same at once.
      choice: What to foresee, instead of looking for the fastest.

    Returns:
      A Plan: print it, or take its policy.

    Raises:
      ValueError: Nothing has a name, or nothing fits; it names what to change.
      MachineError: There is no such machine, or it lacks a figure.
    """
    machine = machines.find(machine)
    program = _trace.Program(function, args)
    written = Graph.of(program.jaxpr)
    candidates = names.find(written, program.batch)
    if not candidates:
        _nothing_named(function, names.propose(written, program.batch))
    graph = program.graph(jax.checkpoint_policies.save_only_these_names())

    def peak_of(saved: frozenset[str]) -> int:
        found = graph if not saved else program.graph(
            jax.checkpoint_policies.save_only_these_names(*sorted(saved)))
        return memory.foresee(found, donated, compiler).peak + resident

    search = Search(Timeline(graph, machine), candidates, machine, peak_of,
                    bytes_of("device_memory", device_memory),
                    bytes_of("host_memory", host_memory), ring, devices)
    if choice:
        _check_names(choice, candidates)
    return _decided(search, candidates, model or _trace.name_of(function),
                    _key(program, machine), choice)


def _check_names(choice: Choice, candidates: list[Candidate]) -> None:
    there = [each.name for each in candidates]
    for name in sorted(choice.kept | choice.offloaded):
        if name not in there:
            raise ValueError(f"nothing is named {name!r}: there are {', '.join(there)}")


def _nothing_named(function: Callable[..., Any], proposed: list[Candidate]) -> None:
    products = "; ".join(f"{each.name}, {each.bytes} bytes" for each in proposed[:8])
    raise ValueError(
        f"{_trace.name_of(function)} names nothing to decide about: give its large products a "
        "name with jax.ad_checkpoint.checkpoint_name" + (f": {products}" if products else ""))


def _decided(search: Search, candidates: list[Candidate], model: str,
             key: Mapping[str, str], choice: Choice | None = None) -> Plan:
    best = choice or search.best()
    if not search.has_room(best):
        search.machine.check(("disk_write", "disk_read"))
    abstains, error = "", 0.0
    if best.offloaded and not choice:
        try:
            stays = search.best(offloads=False)
        except ValueError:
            stays = None                # nothing fits without it
        if stays is not None:
            gain, error = search.gain(best, stays), search.error(best, stays)
            if gain <= error:
                sure = search.surest(best, stays)
                if sure is None:
                    abstains = (f"abstains: offloading {', '.join(sorted(best.offloaded))} "
                                f"would gain {gain:.1%}, within the error of {error:.1%}")
                best = sure or stays
    error = search.error(best, Choice())
    recomputing, step = search.time(Choice()), search.time(best)
    return Plan(model, search.machine.name,
                tuple(Row(each.name, each.bytes, best.action(each.name),
                          _why(search, best, each)) for each in candidates),
                step.seconds, recomputing.seconds, error, search.peak(best), step.host_bytes,
                step.disk_bytes, abstains, dict(key), tuple(_curve(search)),
                tuple((layer.forward, layer.backward, layer.sent)
                      for part in search.timeline.parts(best.kept, best.offloaded)
                      for layer in part.layers * part.times), search.rates.devices)


def _why(search: Search, best: Choice, each: Candidate) -> str:
    action = best.action(each.name)
    seconds = search.time(best).seconds
    if action != RECOMPUTE:
        longer = search.time(best.but(each.name, RECOMPUTE)).seconds - seconds
        if action == KEEP:
            return f"to recompute it takes {longer:.3g} s"
        if longer <= 0:
            return f"the backward pass begins with it: to leave it there takes {each.bytes} bytes"
        return f"to recompute it takes {longer:.3g} s, and to keep it {each.bytes} bytes"
    if each.name not in search.names:
        return "the backward pass does not need it"
    kept = best.but(each.name, KEEP)
    if search.time(kept).seconds >= seconds:
        return "to keep it spares nothing"
    spared = seconds - search.time(kept).seconds
    over = search.peak(kept) - search.device_memory
    words = f"to keep it spares {spared:.3g} s" + (
        f" and lacks {over:.0f} bytes" if over > 0 else "")
    if not search.has_room(best.but(each.name, OFFLOAD)):
        return words + "; the host has no room for it, and files' rates are not known"
    rate = search.break_even(best, each.name)
    if rate is None:
        return words + "; to offload it gains at no rate of the link"
    return words + f"; to offload it gains beyond {rate / 1e9:.3g} GB/s of the link"


def _curve(search: Search) -> list[tuple[int, float, str]]:
    """Step times of names kept, or offloaded, one after the other, by what each byte gains."""
    points = []
    for action, kind in ((KEEP, "keep or recompute"), (OFFLOAD, "with offloading")):
        choice = Choice()
        order = sorted(search.names, key=lambda name: (
            search.time(Choice(frozenset({name}))).seconds - search.time(Choice()).seconds) /
            max(search.sizes[name].bytes, 1))
        points.append((search.peak(choice), search.time(choice).seconds, kind))
        for name in order:
            choice = choice.but(name, action)
            if search.has_room(choice):
                points.append((search.peak(choice), search.time(choice).seconds, kind))
    return points
