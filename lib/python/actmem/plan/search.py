# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The search over keep, offload or recompute for each name: all combinations of up to ten names,
beyond that step by step. Memory is estimated for all, and foreseen exactly for the best."""
from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from actmem.plan.layers import Timeline
from actmem.plan.machine import Machine, Rates
from actmem.plan.names import Candidate
from actmem.plan.time import Step, simulate

KEEP, OFFLOAD, RECOMPUTE = "keep", "offload", "recompute"
EXHAUSTIVE = 10         # names, up to which all is tried
SPARED = 2              # layers of which a value may be live though it is recomputed
ROUNDING = 0.01         # of a step, below which two are equal


class Nothing(ValueError):
    """No choice fits."""


@dataclasses.dataclass(frozen=True)
class Choice:
    kept: frozenset[str] = frozenset()
    offloaded: frozenset[str] = frozenset()

    @property
    def saved(self) -> frozenset[str]:
        return self.kept | self.offloaded

    def action(self, name: str) -> str:
        return KEEP if name in self.kept else OFFLOAD if name in self.offloaded else RECOMPUTE

    def but(self, name: str, action: str) -> Choice:
        kept, offloaded = self.kept - {name}, self.offloaded - {name}
        return Choice(kept | {name} if action == KEEP else kept,
                      offloaded | {name} if action == OFFLOAD else offloaded)


class Search:
    """Over the names of a program on a machine. `peak_of(names)` foresees the device's memory
    with these saved there, of which `fixed` are weights and the like."""

    def __init__(self, timeline: Timeline, candidates: Sequence[Candidate], machine: Machine,
                 peak_of: Callable[[frozenset[str]], int], device_memory: float = math.inf,
                 host_memory: float = math.inf, ring: int = 2, devices: int = 1,
                 fixed: int = 0) -> None:
        self.timeline, self.machine = timeline, machine
        self.rates = machine.rates(devices)
        self.fixed = fixed
        self.sizes: Mapping[str, Candidate] = {each.name: each for each in candidates}
        needed = timeline.needed_names()
        self.names = [each.name for each in candidates if each.name in needed]
        self.device_memory, self.host_memory, self.ring = device_memory, host_memory, ring
        self.more = {each.name: each.bytes - SPARED * each.bytes_each for each in candidates}
        self.spared = max((each.bytes_each for each in candidates if each.name in needed),
                          default=0)
        self._peak_of = peak_of
        self._peaks: dict[frozenset[str], int] = {}
        self._has_learnt = False
        self._parts: dict[frozenset[str], dict[frozenset[str], Step]] = {}

    def time(self, choice: Choice, rates: Rates | None = None) -> Step:
        """How long a step takes with this choice."""
        steps = [(part.times, simulate(part.layers, rates or self.rates, part.rest,
                                       self.ring, self.host_memory))
                 for part in self.timeline.parts(choice.kept, choice.offloaded)]
        # Microbatches come one after the other, in the same memory; each writes its files.
        return Step(sum(times * step.seconds for times, step in steps),
                    sum(times * step.compute for times, step in steps),
                    sum(times * step.waited for times, step in steps),
                    max(step.host_bytes for _, step in steps),
                    sum(times * step.disk_bytes for times, step in steps))

    def peak(self, choice: Choice) -> int:
        """The device's memory: that of a program that keeps what is offloaded, less that, and
        the ring through which it goes."""
        saved = choice.saved
        if saved not in self._peaks:
            self._peaks[saved] = self._peak_of(saved)
        return self._peaks[saved] - self._gone(choice)

    def _least(self, choice: Choice) -> float:
        """About the least memory that it may need, by what is known of programs that save less:
        what is saved besides is there for all layers, and what was live of one or two when it
        was recomputed may not be any more, nor the largest value that it is computed from."""
        saved = choice.saved
        if saved in self._peaks:
            return self.peak(choice)
        self._learn()
        least = max(peak + sum(self.more[name] for name in saved - there)
                    for there, peak in self._peaks.items() if there <= saved)
        return least - self.spared - self._gone(choice)

    def _learn(self) -> None:
        """What each name alone adds: of a value that a scan stores anyway that is nothing."""
        if not self._has_learnt:
            self._has_learnt = True
            least = self.peak(Choice())
            for name in self.names:
                alone = self.peak(Choice(frozenset({name})))
                self.more[name] = min(self.more[name], alone - least)

    def _gone(self, choice: Choice) -> int:
        """Bytes that leave the device, but for the ring through which they go."""
        return sum(max(0, self.sizes[name].bytes - self.ring * self.sizes[name].bytes_each)
                   for name in choice.offloaded)

    def has_room(self, choice: Choice) -> bool:
        """Whether the host takes what it offloads, files included."""
        return self.rates.has_files or self.host_memory >= sum(
            self.sizes[name].bytes for name in choice.offloaded)

    def best(self, offloads: bool = True) -> Choice:
        """The fastest that fits, of those that offload or of those that do not."""
        return self.few(1, offloads)[0]

    def few(self, count: int, offloads: bool = True) -> list[Choice]:
        """So many of the fastest that fit, or as many as there are."""
        actions = (RECOMPUTE, KEEP, OFFLOAD) if offloads else (RECOMPUTE, KEEP)
        if len(self.names) <= EXHAUSTIVE:
            found: list[Choice] = []
            for choice in self._exhaustive(actions):
                # To offload what may as well stay is of no use.
                if not any(each.saved == choice.saved and each.offloaded <= choice.offloaded
                           for each in found):
                    found.append(choice)
                if len(found) == count:
                    break
            return found or [self._nothing(actions)]
        best = self.greedy(actions)
        around = sorted((choice for choice in self._around(best, actions) if choice != best),
                        key=lambda choice: self.time(choice).seconds)
        return [best, *itertools.islice((choice for choice in around if self._fits(choice)),
                                        count - 1)]

    def _fits(self, choice: Choice) -> bool:
        return self._least(choice) <= self.device_memory and \
            self.peak(choice) <= self.device_memory

    def _exhaustive(self, actions: Sequence[str]) -> Iterator[Choice]:
        """All that fit, the fastest first. A set of saved names is looked at when its compute
        alone would be the fastest, and a choice foreseen exactly when its time is."""
        queue: list[tuple[float, int, float, int, Choice, bool]] = []
        count = itertools.count()
        for saved in _subsets(self.names):
            choice = Choice(saved)
            heapq.heappush(queue, (self._compute(choice), 0, 0.0, next(count), choice, False))
        while queue:
            _, _, _, _, choice, is_timed = heapq.heappop(queue)
            if is_timed:
                # By now more may be known.
                if self._fits(choice):
                    yield choice
                continue
            for offloaded in _subsets(choice.kept) if OFFLOAD in actions else [frozenset()]:
                each = Choice(choice.kept - offloaded, offloaded)
                least = self._least(each)
                if least <= self.device_memory and self.has_room(each):
                    heapq.heappush(queue, (self.time(each).seconds, len(offloaded), least,
                                           next(count), each, True))

    def _compute(self, choice: Choice) -> float:
        """The least that it computes, whatever of it is kept and whatever offloaded."""
        return sum(part.times * (part.rest + sum(layer.forward + layer.backward
                                                 for layer in part.layers))
                   for part in self.timeline.parts((), choice.saved))

    def greedy(self, actions: Sequence[str] = (RECOMPUTE, KEEP, OFFLOAD)) -> Choice:
        """Changes what gains most, one or two names at a time, while anything gains."""
        best = Choice()
        self._learn()
        if self.peak(best) > self.device_memory:
            smaller = [choice for choice in self._small() if self._fits(choice)] \
                if OFFLOAD in actions else []
            if not smaller:
                return self._nothing(actions)
            best = min(smaller, key=lambda choice: self.time(choice).seconds)
        seconds = self.time(best).seconds
        while True:
            around = self._around(best, actions)
            timed = sorted(((self.time(choice).seconds, i) for i, choice in enumerate(around)))
            for faster, i in timed:
                if faster >= seconds:
                    return best
                if self._fits(around[i]):
                    best, seconds = around[i], faster
                    break
            else:
                return best

    def _small(self) -> list[Choice]:
        """What needs less memory than to recompute all: one name offloaded, or all, or of
        these, one after the other, those that spare most, as long as any does."""
        found = [Choice(offloaded=frozenset({name})) for name in self.names]
        for least, action in ((Choice(), OFFLOAD),
                              (Choice(offloaded=frozenset(self.names)), RECOMPUTE)):
            found.append(least)
            while self.peak(least) > self.device_memory:
                smaller = min((least.but(name, action) for name in self.names), key=self.peak)
                if self.peak(smaller) >= self.peak(least):
                    break
                found.append(smaller)
                least = smaller
        return [choice for choice in found if choice.saved and self.has_room(choice)]

    def _around(self, choice: Choice, actions: Sequence[str]) -> list[Choice]:
        """What differs from it in one or two names."""
        around = [choice.but(name, action) for name in self.names for action in actions]
        around += [each.but(name, action) for each in around for name in self.names
                   for action in actions]
        return [each for each in dict.fromkeys(around) if self.has_room(each)]

    def _nothing(self, actions: Sequence[str]) -> Choice:
        least = self.peak(Choice())
        if OFFLOAD in actions and any(
                not self.has_room(choice) and self._fits(choice) for choice in (
                    Choice(offloaded=frozenset({name})) for name in self.names)):
            # With files it would fit.
            self.machine.check(["disk_write", "disk_read"])
        raise Nothing(f"nothing fits into device_memory={self.device_memory:.0f} bytes: the "
                      f"program that recomputes every name needs {least}; give it a smaller "
                      "batch, or more devices")

    def gain(self, choice: Choice, other: Choice) -> float:
        """What `choice` spares of the time of `other`, as a share of the step that recomputes
        all."""
        return (self.time(other).seconds - self.time(choice).seconds) / \
            self.time(Choice()).seconds

    def surest(self, best: Choice, stays: Choice) -> Choice | None:
        """Of those that offload some of what `best` does, and recompute the rest, the one whose
        gain over `stays` is most above its error. The more is offloaded, the nearer is the
        link to its limit, and the more the gain depends on the link."""
        found: list[tuple[float, int, Choice]] = []
        for offloaded in _subsets(best.offloaded):
            choice = Choice(best.kept, offloaded)
            gain = self.gain(choice, stays)
            if offloaded and gain > ROUNDING and self._fits(choice):
                found.append((gain - self.error(choice, stays), len(found), choice))
        if not found or max(found)[0] <= 0:
            return None
        return max(found)[2]

    def error(self, choice: Choice, other: Choice) -> float:
        """By how much the gain of `choice` over `other` may be off, as a share of the step:
        the rates of the machine are each what was said, within its error, those of files as
        that of the link, and so is that at which the work runs that one of them does not
        have."""
        off = self.machine.error
        whole = self.time(Choice()).seconds
        gain = self.gain(choice, other)
        worst = 0.0
        for link, compute in ((1 - off, 1.0), (1.0, 1 + off), (1 - off, 1 + off),
                              (1 + off, 1 - off)):
            # Compute that is faster by this factor is all else that is slower.
            rates = self.rates.scaled(link / compute, link / compute)
            there = (self.time(other, rates).seconds -
                     self.time(choice, rates).seconds) / whole
            worst = max(worst, abs(there - gain))
        spared = abs(self.time(other).compute - self.time(choice).compute) / whole
        return worst + off * spared + self.rounding(choice, other)

    def rounding(self, choice: Choice, other: Choice) -> float:
        """Of a gain, what is chance or the price of another call, whatever the rates are: much
        of the step of a small program, and nothing of that of a large one."""
        values = sum(each.count for name, each in self.sizes.items()
                     if choice.action(name) != other.action(name))
        return ROUNDING + self.machine.unsure * values / self.time(Choice()).seconds

    def break_even(self, choice: Choice, name: str) -> float | None:
        """At which rate of the link, in bytes a second, offloading `name` too would be as fast
        as `choice`; None if it would not be at any."""
        seconds = self.time(choice).seconds
        other = choice.but(name, OFFLOAD)

        def is_faster(factor: float) -> bool:
            return self.time(other, self.rates.scaled(factor, factor)).seconds < seconds
        low, high = 0.001, 1000.0
        if not is_faster(high):
            return None
        while high / low > 1.02:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if is_faster(middle) else (middle, high)
        return high * min(self.rates.link_out, self.rates.link_in)


def _subsets(names: Collection[str]) -> Iterator[frozenset[str]]:
    for count in range(len(names) + 1):
        yield from map(frozenset, itertools.combinations(sorted(names), count))
