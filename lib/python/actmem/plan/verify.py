# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Lets XLA check a plan. XLA compiles the best few choices, and the choice that recomputes all
values. XLA compiles for a target, which can be a device that this machine does not have. The peak
memory that XLA reports replaces the predicted peak. A choice is refused if it does not fit, or if
its schedule shows that offloading gains nothing."""
from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

from actmem.plan import _trace, compiled
from actmem.plan.decide import abstention, layers_of, rows
from actmem.plan.names import Candidate
from actmem.plan.report import Build, Plan, policy_of, size_text
from actmem.plan.search import Choice, Nothing, Search
from actmem.plan.targets import OFFLOAD_FLAGS, Target

SHORTLIST = 2           # choices that XLA compiles at a time
ATTEMPTS = 3            # attempts at finding choices that fit
EXHAUSTED = 0.9         # multiplies the memory limit if XLA does not report how much memory a
                        # choice needs


class Policies:
    """Choices for a program, compiled for a target on request."""

    def __init__(self, search: Search, program: _trace.Program, target: Target, donated: int,
                 resident: int, destination: str) -> None:
        self.search, self.program, self.target = search, program, target
        self.donated, self.resident, self.destination = donated, resident, destination
        self.limit = search.device_memory
        self.found: dict[Choice, compiled.Compiled] = {}
        # Environment variables with flags that a choice needs in addition to the flags that are set
        # already.
        self.variables: dict[Choice, Mapping[str, str]] = {}

    def compile(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            if choice not in self.found:
                self._compile(choice)

    def _compile(self, choice: Choice) -> None:
        policy = policy_of(sorted(choice.kept), sorted(choice.offloaded), self.destination)
        with self.program.jitted(policy) as step:
            lowered = compiled.lowered(step, self.program.shapes(), self.target, self.donated)
        mesh = math.prod(self.program.layout.sizes.values())
        if mesh > 1 and lowered.devices == 1:
            raise ValueError(f"compile= needs the mesh of {mesh} devices in the shardings of the "
                             "arguments: pass shapes with a jax.sharding.NamedSharding")
        words = f"compiling policy {len(self.found) + 1}: {self._text(choice)}"
        self.found[choice] = self._run(lowered, words, {})
        wait = self.wait(choice)
        if not choice.offloaded or not wait:
            return
        for variables in OFFLOAD_FLAGS.get(self.target.platform, ()):
            if self._is_better_with(variables, choice, lowered, wait):
                break

    def _is_better_with(self, variables: Mapping[str, str], choice: Choice,
                        lowered: compiled.Lowered, wait: float) -> bool:
        """Compiles the choice again with other flags, unless the user sets flags in the same
        environment variables. Uses the result, and returns True, if the device then waits for less
        than `wait` seconds and the program fits."""
        if compiled.flags().keys() & variables.keys():
            return False
        before = self.found[choice]
        self.found[choice] = self._run(
            lowered, f"compiling it again with other flags, because it waits {wait:.3g} s for copies",
            variables)
        peak, now = self.peak(choice), self.wait(choice)
        if peak is not None and peak <= self.limit and now is not None and now < wait:
            self.variables[choice] = variables
            return True
        self.found[choice] = before
        return False

    def _run(self, lowered: compiled.Lowered, words: str,
             variables: Mapping[str, str]) -> compiled.Compiled:
        self._tell(words)
        begin = time.monotonic()
        found = compiled.compile_for(self.target, lowered, variables)
        peak = "too much" if found.exhausted else size_text(found.peak + self.resident)
        self._tell(f"after {time.monotonic() - begin:.0f} s: {peak} of device memory")
        return found

    def _tell(self, words: str) -> None:
        print(f"actmem: {self.target.name}: {words}", file=sys.stderr, flush=True)

    @staticmethod
    def _text(choice: Choice) -> str:
        return f"{', '.join(sorted(choice.kept)) or 'nothing'} kept, " \
            f"{', '.join(sorted(choice.offloaded)) or 'nothing'} offloaded"

    def peak(self, choice: Choice) -> int | None:
        """Returns the device memory that a compiled choice needs, or None if it does not fit and
        XLA reports no number."""
        found = self.found[choice]
        return None if found.exhausted else found.peak + self.resident

    def wait(self, choice: Choice) -> float | None:
        """Returns the seconds that the device waits for copies in a step. Returns None if actmem's
        handlers copy the values, because XLA's schedule does not contain these copies.

        XLA for GPUs does not estimate the time of instructions. The result is then a lower bound:
        the time of the copies during which the device computes nothing. On GPUs, the device
        computes nothing during any copy from the host. If none of the copies to the host is late
        (_schedule.py), but all of them together take longer than the forward pass, the result
        contains at least the difference.
        """
        schedule, rates = self.found[choice].schedule, self.search.rates
        if choice.offloaded and self.destination == "actmem":
            return None
        if schedule.timed and self.search.machine.has("clock"):
            return schedule.wait(self.search.machine.need("clock"), rates.link_out,
                                 rates.link_in)
        out = schedule.exposed_bytes_out / rates.link_out
        if not schedule.late_bytes_out:
            out = max(out, schedule.bytes_out / rates.link_out - self.search.forward(choice))
        bytes_in = schedule.bytes_in if self.search.machine.has("stock_waits") else \
            schedule.exposed_bytes_in
        return out + bytes_in / rates.link_in

    def seconds(self, choice: Choice) -> float:
        """Returns the predicted time of a step. It includes the predicted wait, or the wait of
        XLA's schedule if that is longer."""
        step = self.search.time(choice)
        return step.seconds + max(0.0, (self.wait(choice) or 0.0) - step.waited)

    def refusal(self, choice: Choice) -> str:
        """Returns why a compiled choice cannot be recommended, or ""."""
        found, peak = self.found[choice], self.peak(choice)
        if peak is None:
            return f"it does not fit: {found.exhausted}"
        if peak > self.limit:
            return f"it does not fit: the limit is {size_text(self.limit)}"
        if not choice.offloaded or self.destination == "actmem":
            return ""
        schedule = found.schedule
        if not schedule.copies_out:
            return "XLA's program copies nothing to the host"
        if 2 * schedule.late_bytes_out > schedule.bytes_out:
            return (f"unrolled: {schedule.late_out} of {schedule.copies_out} offloaded values stay "
                    "on the device until just before the backward pass needs them; use "
                    "jax.lax.scan, or actmem.jax.checkpoint")
        return ""

    def usable(self, choices: Iterable[Choice]) -> list[Choice]:
        """Returns the choices that are not refused, with the fastest first."""
        return sorted((choice for choice in choices if not self.refusal(choice)),
                      key=self.seconds)

    def build(self, choice: Choice, refused: str) -> Build:
        found = self.found[choice]
        schedule = found.schedule
        method = ("actmem" if self.destination == "actmem" else "stock") \
            if choice.offloaded else ""
        return Build(self.target.name, tuple(sorted(choice.kept)), tuple(sorted(choice.offloaded)),
                     method, self.peak(choice), found.host_bytes,
                     schedule.copies_out + schedule.puts, schedule.late_out + schedule.late_puts,
                     self.wait(choice), schedule.rematerialised, refused,
                     {**compiled.flags(), **self.variables.get(choice, {})})


def _compile(search: Search, policies: Policies, count: int, offloads: bool) -> None:
    """Compiles the best few choices. If none of them fits, lowers the limit of predicted memory and
    tries again. The new limit is the old limit times the given limit, divided by the least memory
    that XLA reported. If XLA reported no memory, multiplies the old limit by EXHAUSTED."""
    try:
        for _ in range(ATTEMPTS):
            few = search.few(count, offloads)
            policies.compile(few)
            if policies.usable(few):
                break
            peaks = [peak for peak in map(policies.peak, few) if peak is not None]
            if peaks and min(peaks) <= policies.limit:
                break           # a choice fits, but is refused
            search.device_memory *= policies.limit / min(peaks) if peaks else EXHAUSTED
    except Nothing:
        pass                    # the caller uses the policies compiled so far
    finally:
        search.device_memory = policies.limit


def verified(search: Search, program: _trace.Program, target: Target, plan: Plan,
             candidates: Sequence[Candidate], donated: int, resident: int,
             given: Choice | None = None) -> Plan:
    """Returns the plan of the fastest compiled choice that is not refused, or of `given`.

    Raises:
      actmem.plan.Nothing: All compiled choices are refused, and `given` is None.
    """
    policies = Policies(search, program, target, donated, resident, plan.destination)
    if given is None:
        _compile(search, policies, SHORTLIST, True)
        _compile(search, policies, 1, False)
    else:
        policies.compile([given])
    policies.compile([Choice()])
    usable = policies.usable(policies.found)
    if not usable and given is None:
        raise Nothing(f"none of the {len(policies.found)} policies compiled for {target.name} can "
                      f"be used: {policies.refusal(Choice())}; use a smaller batch or more "
                      "devices")
    stays = next((choice for choice in usable if not choice.offloaded), None)
    best, abstains = given or usable[0], ""
    if given is None and best.offloaded and stays is not None:
        gain = (policies.seconds(stays) - policies.seconds(best)) / search.time(Choice()).seconds
        error = search.error(best, stays)
        if gain <= error:
            best, abstains = stays, abstention(best, gain, error)
    step, peak = search.time(best), policies.peak(best)
    refused = policies.refusal(best)
    return dataclasses.replace(
        plan, names=rows(search, best, candidates), step_s=policies.seconds(best),
        stock_step_s=search.stock_seconds(best) if plan.destination == "actmem" else None,
        stock_peak_bytes=search.stock_peak(best) if plan.destination == "actmem" else None,
        error=search.error(best, Choice()), peak_bytes=plan.peak_bytes if peak is None else peak,
        abstains=abstains, host_bytes=step.host_bytes, disk_bytes=step.disk_bytes,
        layers=layers_of(search, best), waited_s=max(step.waited, policies.wait(best) or 0.0),
        lacks=f"the policy is refused: {refused}" if refused else plan.lacks if given else "",
        compiled=tuple(policies.build(choice, policies.refusal(choice) or
                                      _loses(policies, choice, stays))
                       for choice in policies.found))


def _loses(policies: Policies, choice: Choice, stays: Choice | None) -> str:
    """Returns a message if the schedule of `choice` shows that `choice` is slower than the choice
    `stays`, which offloads nothing. Otherwise returns ""."""
    wait = policies.wait(choice)
    if stays is None or not choice.offloaded or not wait:
        return ""
    slower = policies.seconds(choice) - policies.seconds(stays)
    if slower <= 0 or policies.search.time(choice).seconds > policies.seconds(stays):
        return ""
    better = "; actmem.jax.checkpoint hides them" if policies.target.platform == "cuda" else ""
    return (f"it is {slower:.3g} s slower than a policy that offloads nothing: the device waits "
            f"{wait:.3g} s for its copies{better}")
