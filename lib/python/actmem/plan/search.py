# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Searches for the best choice. A choice says for each name whether its values are kept, offloaded
or recomputed. With up to ten names, the search tries all combinations. With more names, it changes
one or two names at a time. The search estimates the memory of all choices, and predicts the memory
of the best choices exactly."""
from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NoReturn

from actmem.plan.layers import Timeline
from actmem.plan.machine import Machine, MachineError, Rates
from actmem.plan.names import Candidate
from actmem.plan.targets import TPUS
from actmem.plan.time import Step, simulate

KEEP, OFFLOAD, RECOMPUTE = "keep", "offload", "recompute"
EXHAUSTIVE = 10         # up to this number of names, try all combinations
SPARED = 2              # at most this many layers have live recomputed values at a time
ROUNDING = 0.01         # relative difference below which two steps count as equal


class Nothing(ValueError):
    """No choice fits. `needs` is the least device memory that a choice needs, if it is known."""

    def __init__(self, message: str, needs: int | None = None) -> None:
        super().__init__(message)
        self.needs = needs


class NoFiles(Nothing, MachineError):
    """A choice would fit if values were written to files, but the machine's description has no
    rates of files."""


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
    """The search for the best choice for a program on a machine. `peak_of(names)` predicts the
    device memory if the values of these names are kept. `fixed` is the part of that memory, in
    bytes, that does not depend on the batch."""

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
        # How many bytes each name adds at least, by the names that are saved already.
        self._adds: dict[frozenset[str], dict[str, float]] = {}
        self._parts: dict[frozenset[str], dict[frozenset[str], Step]] = {}

    def time(self, choice: Choice, rates: Rates | None = None, waits: bool = False) -> Step:
        """Returns the time of a step with this choice. simulate() explains `waits`."""
        steps = [(part.times, simulate(part.layers, rates or self.rates, part.rest,
                                       self.ring, self.host_memory, waits))
                 for part in self.timeline.parts(choice.kept, choice.offloaded)]
        # Microbatches run one after the other. They reuse the same host memory, but each microbatch
        # writes files of its own.
        return Step(sum(times * step.seconds for times, step in steps),
                    sum(times * step.compute for times, step in steps),
                    sum(times * step.waited for times, step in steps),
                    max(step.host_bytes for _, step in steps),
                    sum(times * step.disk_bytes for times, step in steps))

    def forward(self, choice: Choice) -> float:
        """Returns the seconds that the device computes in the forward passes of layers whose values
        are offloaded."""
        return sum(part.times * sum(layer.forward for layer in part.layers if layer.sent)
                   for part in self.timeline.parts(choice.kept, choice.offloaded))

    def stock_seconds(self, choice: Choice) -> float | None:
        """Returns the duration of a step, in seconds, if JAX's own offloading moves the values. On
        a TPU, XLA has the flag LIST (targets.py), and otherwise its default flags. Returns None if
        nothing is offloaded, or if the time is unknown."""
        if not choice.offloaded:
            return None
        if self.machine.name in TPUS:
            waited = self.timeline.iteration_waits(choice.kept, choice.offloaded, self.rates)
            return None if waited is None else self.time(choice).compute + waited
        if not self.machine.has("stock_waits"):
            return None
        step = self.time(choice, waits=True)
        return None if step.disk_bytes else step.seconds

    def peak(self, choice: Choice) -> int:
        """Returns the peak of device memory. It is the peak of a program that keeps the offloaded
        values, minus these values, plus the ring: the values of `ring` layers that are in
        transfer."""
        return self._kept_peak(choice.saved) - self._gone(choice)

    def stock_peak(self, choice: Choice) -> int | None:
        """Returns the peak of device memory with JAX's own offloading on a GPU. XLA has no ring: an
        iteration of a scan waits for its copies. Values of unrolled layers stay on the device until
        the backward pass. Returns None for TPUs, and if stock_seconds() returns None."""
        if self.machine.name in TPUS or self.stock_seconds(choice) is None:
            return None
        return self._kept_peak(choice.saved) - sum(
            self.sizes[name].bytes for name in choice.offloaded if self.sizes[name].is_scanned)

    def _kept_peak(self, saved: frozenset[str]) -> int:
        if saved not in self._peaks:
            self._peaks[saved] = self._peak_of(saved)
            self._learn_from(saved)
        return self._peaks[saved]

    def _learn_from(self, saved: frozenset[str]) -> None:
        """Finds how many bytes the values of each further name add at least to the memory of the
        program that saves `saved`. They add at least as many as to a program that saves fewer
        names."""
        adds = dict.fromkeys(self.names, -math.inf)
        for there, known in self._adds.items():
            if there <= saved:
                adds = {name: max(adds[name], known[name]) for name in adds}
        self._adds[saved] = adds
        for name in saved & adds.keys():
            less = saved - {name}
            if less in self._peaks:
                more = min(self.more[name], self._peaks[saved] - self._peaks[less])
                for there, known in self._adds.items():
                    if less <= there:
                        known[name] = max(known[name], more)

    def _learn(self) -> None:
        """Predicts the memory if no values are saved, and if those of one name are."""
        if not self._has_learnt:
            self._has_learnt = True
            for names in (frozenset(), *(frozenset({name}) for name in self.names)):
                self._kept_peak(names)

    def _least(self, choice: Choice) -> float:
        """Estimates the least memory that the choice can need, from programs that save the values
        of fewer names. Each additional name adds at least the bytes that it adds to a program that
        saves still fewer names. But it is not assumed to add more than the bytes of its values in
        all layers except SPARED layers. Without this name, the values of SPARED layers are also
        live, because they are recomputed. The estimate is also reduced by the largest value of one
        layer, because this value is possibly not live at the peak."""
        if choice.saved not in self._peaks:
            self._learn()
        if choice.saved in self._peaks:
            return self.peak(choice)
        return self._estimate(choice.saved)[0] - self.spared - self._gone(choice)

    def _estimate(self, saved: frozenset[str]) -> tuple[float, frozenset[str]]:
        """Returns the largest estimate from programs that save fewer names, and the names that
        this program saves."""
        return max(((self._peaks[there] + sum(adds.get(name, 0) for name in saved - there), there)
                    for there, adds in self._adds.items() if there < saved),
                   key=lambda each: (each[0], len(each[1])))

    def _explain(self, choice: Choice) -> None:
        """Predicts the memory of programs that save fewer names than `choice`, until the estimate
        from them says that `choice` does not fit. The estimates of similar choices then say so,
        too."""
        if not self._has_learnt:
            return
        saved = choice.saved
        while True:
            least, there = self._estimate(saved)
            adds = self._adds[there]
            unsure = {name: self.more[name] - adds[name] for name in adds
                      if name in saved - there and there | {name} not in self._peaks}
            if least - self.spared - self._gone(choice) > self.device_memory or not unsure:
                return
            self._kept_peak(there | {max(unsure, key=unsure.__getitem__)})

    def _gone(self, choice: Choice) -> int:
        """Returns the device memory that offloading frees. The values of `ring` layers that are in
        transfer stay on the device."""
        return sum(max(0, self.sizes[name].bytes - self.ring * self.sizes[name].bytes_each)
                   for name in choice.offloaded)

    def has_room(self, choice: Choice) -> bool:
        """Returns whether host memory and files can hold the offloaded values."""
        return self.rates.has_files or self.host_memory >= sum(
            self.sizes[name].bytes for name in choice.offloaded)

    def best(self, offloads: bool = True) -> Choice:
        """Returns the fastest choice that fits. If `offloads` is False, considers only choices that
        offload nothing."""
        return self.few(1, offloads)[0]

    def few(self, count: int, offloads: bool = True) -> list[Choice]:
        """Returns the `count` fastest choices that fit, or all if fewer fit."""
        actions = (RECOMPUTE, KEEP, OFFLOAD) if offloads else (RECOMPUTE, KEEP)
        if len(self.names) <= EXHAUSTIVE:
            found: list[Choice] = []
            for choice in self._exhaustive(actions):
                # Skip a choice if a faster one saves the same names, and offloads only names that
                # this one offloads, too.
                if not any(each.saved == choice.saved and each.offloaded <= choice.offloaded
                           for each in found):
                    found.append(choice)
                if len(found) == count:
                    break
            if not found:
                self._refuse(actions)
            return found
        best = self.greedy(actions)
        around = sorted((choice for choice in self._around(best, actions) if choice != best),
                        key=lambda choice: self.time(choice).seconds)
        return [best, *itertools.islice((choice for choice in around if self._fits(choice)),
                                        count - 1)]

    def _fits(self, choice: Choice) -> bool:
        if self._least(choice) > self.device_memory:
            return False
        fits = self.peak(choice) <= self.device_memory
        if not fits:
            self._explain(choice)
        return fits

    def _exhaustive(self, actions: Sequence[str]) -> Iterator[Choice]:
        """Yields all choices that fit, the fastest first. The queue contains sets of saved names,
        ordered by compute time, and choices, ordered by step time. A set at the front of the queue
        is split into choices. The memory of a choice at the front is predicted exactly."""
        queue: list[tuple[float, int, float, int, Choice, bool]] = []
        count = itertools.count()
        for saved in _subsets(self.names):
            choice = Choice(saved)
            heapq.heappush(queue, (self._compute(choice), 0, 0.0, next(count), choice, False))
        while queue:
            _, _, _, _, choice, is_timed = heapq.heappop(queue)
            if is_timed:
                # The search has possibly computed more peaks since then, which change the estimate.
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
        """Returns a lower bound of the step time: the compute time of a step that saves the same
        named values, whether it keeps or offloads them."""
        return sum(part.times * (part.rest + sum(layer.forward + layer.backward
                                                 for layer in part.layers))
                   for part in self.timeline.parts((), choice.saved))

    def greedy(self, actions: Sequence[str] = (RECOMPUTE, KEEP, OFFLOAD)) -> Choice:
        """Returns a choice that results from changing the action of one or two names at a time.
        Each change is the one that saves most time. Stops when no change saves time."""
        best = Choice()
        self._learn()
        if self.peak(best) > self.device_memory:
            smaller = [choice for choice in self._small()
                       if self.has_room(choice) and self._fits(choice)] \
                if OFFLOAD in actions else []
            if not smaller:
                self._refuse(actions)
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
        """Returns choices that can need less memory than the choice that recomputes all named
        values. Some offload the values of a single name. The others form two series. The first
        starts with nothing offloaded, and offloads the values of one more name in each choice. The
        second starts with all named values offloaded, and recomputes those of one more name in each
        choice. The next name is always the one that saves most memory."""
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
        return [choice for choice in found if choice.saved]

    def _around(self, choice: Choice, actions: Sequence[str]) -> list[Choice]:
        """Returns the choices that differ from `choice` in the actions of at most two names, and
        whose offloaded values fit into host memory and files."""
        around = [choice.but(name, action) for name in self.names for action in actions]
        around += [each.but(name, action) for each in around for name in self.names
                   for action in actions]
        return [each for each in dict.fromkeys(around) if self.has_room(each)]

    def _refuse(self, actions: Sequence[str]) -> NoReturn:
        """Raises the exception NoFiles if a choice would fit with values in files, but the machine
        lacks rates of files. Otherwise raises the exception Nothing."""
        least = self.peak(Choice())
        may_lack_room = OFFLOAD in actions and not self.has_room(
            Choice(offloaded=frozenset(self.names)))
        if may_lack_room and any(not self.has_room(choice) and self._fits(choice)
                                 for choice in self._small()):
            try:
                self.machine.check(["disk_write", "disk_read"])
            except MachineError as error:
                raise NoFiles(str(error)) from None
        raise Nothing(f"nothing fits into device_memory={self.device_memory:.0f} bytes: the "
                      f"program that recomputes every name needs {least}; use a smaller batch "
                      "or more devices", least)

    def gain(self, choice: Choice, other: Choice) -> float:
        """Returns the time that `choice` gains over `other`, relative to the step that recomputes
        all named values."""
        return (self.time(other).seconds - self.time(choice).seconds) / \
            self.time(Choice()).seconds

    def surest(self, best: Choice, stays: Choice) -> Choice | None:
        """Returns the choice whose gain over `stays` exceeds the error of this gain by the largest
        margin, or None if no gain exceeds its error. Considers choices that offload some of the
        names that `best` offloads, and recompute the rest. If a choice offloads fewer names, its
        gain depends less on the link's rate, so the error may be smaller."""
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
        """Returns the error of gain(choice, other). Each rate of the machine can be wrong by the
        machine's error. The rates of files are assumed to deviate as the link's rate does. The
        difference in compute time between the two choices can be wrong by the machine's error,
        too."""
        off = self.machine.error
        whole = self.time(Choice()).seconds
        gain = self.gain(choice, other)
        worst = 0.0
        for link, compute in ((1 - off, 1.0), (1.0, 1 + off), (1 - off, 1 + off),
                              (1 + off, 1 - off)):
            # Slowing transfers down by a factor has the same effect as speeding up compute by this
            # factor.
            rates = self.rates.scaled(link / compute, link / compute)
            there = (self.time(other, rates).seconds -
                     self.time(choice, rates).seconds) / whole
            worst = max(worst, abs(there - gain))
        spared = abs(self.time(other).compute - self.time(choice).compute) / whole
        return worst + off * spared + self.rounding(choice, other)

    def rounding(self, choice: Choice, other: Choice) -> float:
        """Returns the part of a gain that can be due to chance or to the cost of more calls, even
        if all rates are exact. This part is large for a small program, and negligible for a large
        program."""
        values = sum(each.count for name, each in self.sizes.items()
                     if choice.action(name) != other.action(name))
        return ROUNDING + self.machine.unsure * values / self.time(Choice()).seconds

    def break_even(self, choice: Choice, name: str) -> float | None:
        """Returns the link rate, in bytes a second, at which a step that also offloads `name` is as
        fast as a step with `choice`; None if offloading `name` is slower at every rate."""
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
