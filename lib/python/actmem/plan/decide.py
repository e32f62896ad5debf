# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Decides the plan: the fastest choice (search.py), unless its offloading saves too little time to
be certain. The plan then offloads fewer named values or none. This module also says why the values
of each name are kept, offloaded or recomputed."""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from actmem.plan import _trace, measure
from actmem.plan.names import Candidate
from actmem.plan.report import Plan, Row, Run, size_text
from actmem.plan.search import (KEEP, OFFLOAD, RECOMPUTE, ROUNDING, Choice, Nothing, Search)

SHORTLIST = 4           # choices to run, in addition to those without offloading
ATTEMPTS = 3            # attempts at finding a choice that fits


def decided(search: Search, candidates: Sequence[Candidate], model: str, key: Mapping[str, str],
            choice: Choice | None = None, destination: str = "pinned_host",
            curve: bool = False) -> Plan:
    """Returns the plan. `choice`, if given, becomes the plan even if it does not fit."""
    abstains = lacks = ""
    if choice is not None:
        lacks = _lacks(search, choice)
    else:
        choice = search.best()
        stays = _without_offloading(search) if choice.offloaded else None
        if stays is not None:
            gain, error = search.gain(choice, stays), search.error(choice, stays)
            if gain <= error:
                sure = search.surest(choice, stays)
                abstains = "" if sure else abstention(choice, gain, error)
                choice = sure or stays
        if choice.saved and search.peak(Choice()) <= search.device_memory and \
                search.gain(choice, Choice()) <= search.rounding(choice, Choice()):
            choice = Choice()       # the choice is no faster than full recomputation
    step = search.time(choice)
    return Plan(
        model, search.machine.name, rows(search, choice, candidates), step.seconds,
        search.time(Choice()).seconds, search.error(choice, Choice()), search.peak(choice),
        step.host_bytes, step.disk_bytes, abstains, dict(key),
        tuple(_curve(search)) if curve else (), layers_of(search, choice), search.rates.devices, destination,
        waited_s=step.waited, rate_error=search.machine.error,
        microbatches=_microbatches(search, choice), lacks=lacks,
        stock_step_s=search.stock_seconds(choice), stock_peak_bytes=search.stock_peak(choice),
        unlimited_step_s=min(search.time(each).seconds for each in _line(search, KEEP)))


def _lacks(search: Search, choice: Choice) -> str:
    """Returns why the choice does not fit, or "". If host memory is too small and the rates of
    files are unknown, removes the search's limit of host memory, so that the prediction assumes
    enough host memory."""
    lacks = []
    peak, limit = search.peak(choice), search.device_memory
    if peak > limit:
        lacks.append(f"{size_text(peak - limit)} of device memory (limit {size_text(limit)})")
    if not search.has_room(choice):
        sent = sum(search.sizes[name].bytes for name in choice.offloaded)
        lacks.append(f"{size_text(sent - search.host_memory)} of host memory (limit "
                     f"{size_text(search.host_memory)}; the rates of files are unknown)")
        search.host_memory = math.inf
    return f"the policy does not fit: it needs another {' and '.join(lacks)}" if lacks else ""


def tried(search: Search, program: _trace.Program, steps: int, plan: Plan,
          candidates: Sequence[Candidate], donated: int, resident: int = 0,
          shortlist: int = SHORTLIST) -> Plan:
    """Runs the best few choices, `steps` steps each, and returns the plan of the fastest."""
    policies = measure.Policies(program, search.device_memory - resident, donated,
                                plan.destination)
    _compile(search, policies, shortlist)
    found = policies.measure(steps)
    best, kept, gain, error = measure.fastest(found)
    abstains = ""
    if best is not kept and gain <= error:
        abstains = abstention(best.choice, gain, error)
        best = kept
    all_again = next((each for each in found if each.choice == Choice()), None)
    # If full recomputation does not fit, its step was not measured. Scale the best choice's time by
    # the predicted ratio of the two step times.
    recomputing = all_again.median if all_again else best.median * (
        search.time(Choice()).seconds / search.time(best.choice).seconds)
    step = search.time(best.choice)
    return dataclasses.replace(
        plan, names=rows(search, best.choice, candidates), step_s=best.median, stock_step_s=None,
        stock_peak_bytes=None,
        recompute_step_s=recomputing, peak_bytes=best.peak + resident,
        abstains=abstains,
        error=best.spread + (all_again or best).spread + ROUNDING, host_bytes=step.host_bytes,
        disk_bytes=step.disk_bytes, layers=layers_of(search, best.choice), waited_s=step.waited,
        measured=tuple(Run(tuple(sorted(each.choice.kept)), tuple(sorted(each.choice.offloaded)),
                           each.median, each.peak + resident) for each in found))


def _compile(search: Search, policies: measure.Policies, shortlist: int) -> None:
    """Compiles the best few choices. If none of them fits, lowers the search's limit of device
    memory and tries again. The new limit is the old limit times the device memory, divided by the
    least memory that a compiled choice needs."""
    limit = search.device_memory
    try:
        for _ in range(ATTEMPTS):
            few = search.few(shortlist)
            policies.compile(few)
            least = policies.least(few)
            if any(map(policies.fits, few)) or not least:
                break
            search.device_memory *= policies.device_memory / least
    except Nothing:
        if not policies.peaks:
            raise
    finally:
        search.device_memory = limit
    stays = _without_offloading(search)
    policies.compile([Choice(), *([stays] if stays else [])])


def layers_of(search: Search, choice: Choice) -> tuple[tuple[float, float, int], ...]:
    return tuple((layer.forward, layer.backward, layer.sent)
                 for part in search.timeline.parts(choice.kept, choice.offloaded)
                 for layer in part.layers * part.times)


def _microbatches(search: Search, choice: Choice) -> int:
    return max(part.times for part in search.timeline.parts(choice.kept, choice.offloaded))


def _without_offloading(search: Search) -> Choice | None:
    try:
        return search.best(offloads=False)
    except Nothing:
        return None


def abstention(choice: Choice, gain: float, error: float) -> str:
    return (f"abstains: offloading {', '.join(sorted(choice.offloaded))} would gain {gain:.1%}, "
            f"but the error is {error:.1%}")


def rows(search: Search, choice: Choice, candidates: Sequence[Candidate]) -> tuple[Row, ...]:
    return tuple(Row(each.name, each.bytes, choice.action(each.name), _why(search, choice, each))
                 for each in candidates)


def _why(search: Search, choice: Choice, each: Candidate) -> str:
    action = choice.action(each.name)
    seconds = search.time(choice).seconds
    if action != RECOMPUTE:
        longer = search.time(choice.but(each.name, RECOMPUTE)).seconds - seconds
        if action == KEEP:
            return f"recomputing takes {longer:.3g} s"
        if longer <= 0:
            return "the backward pass begins with it: keeping takes " + size_text(each.bytes)
        return f"recomputing takes {longer:.3g} s, keeping takes {size_text(each.bytes)}"
    if each.name not in search.names:
        return "the backward pass does not need it"
    kept = choice.but(each.name, KEEP)
    spared = seconds - search.time(kept).seconds
    if spared <= 0:
        return "keeping saves no time"
    return f"keeping saves {spared:.3g} s{_what_it_lacks(search, kept)}; " + \
        _break_even(search, choice, each.name)


def _what_it_lacks(search: Search, kept: Choice) -> str:
    """Says how much more memory `kept` needs. Assumes that all memory except `search.fixed` is
    proportional to the batch."""
    peak, limit = search.peak(kept), search.device_memory
    if peak <= limit:
        return ""
    share = (limit - search.fixed) / (peak - search.fixed) if peak > search.fixed else 0
    return f" but needs {size_text(peak - limit)} more memory" + (
        f" (it would fit with {share:.0%} of the batch)" if share > 0 else "")


def _break_even(search: Search, choice: Choice, name: str) -> str:
    other = choice.but(name, OFFLOAD)
    if not search.has_room(other):
        return "host memory is too small to offload it, and the rates of files are unknown"
    spared = search.time(choice).seconds - search.time(other).seconds
    if spared > 0:
        lacks = _what_it_lacks(search, other)
        if not lacks and search.gain(other, choice) <= search.error(other, choice):
            lacks = ", which is within the error"
        return f"offloading saves {spared:.3g} s{lacks}"
    rate = search.break_even(choice, name)
    if rate is None:
        return "offloading saves no time, however fast the link is"
    return f"offloading saves time if the link is faster than {rate / 1e9:.3g} GB/s"


def _line(search: Search, action: str) -> Iterator[Choice]:
    """Yields choices. The first recomputes all named values. Each later choice applies `action` to
    the values of one more name. Names whose values save the most time per byte come first."""
    choice = Choice()
    order = sorted(search.names, key=lambda name: (
        search.time(Choice(frozenset({name}))).seconds - search.time(Choice()).seconds) /
        max(search.sizes[name].bytes, 1))
    yield choice
    for name in order:
        choice = choice.but(name, action)
        if not search.has_room(choice):
            break
        yield choice


def _curve(search: Search) -> Iterator[tuple[int, float, str]]:
    """Yields the points of the curve of step time against device memory."""
    for action, kind in ((KEEP, "keep or recompute"), (OFFLOAD, "with offloading")):
        for choice in _line(search, action):
            yield search.peak(choice), search.time(choice).seconds, kind
