# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Compiles and runs the best few choices on this machine. A choice (search.py) says which values a
program keeps or offloads. Drops choices that do not fit into device memory. Runs one step of each
remaining choice in turn, so that a disturbance affects all of these choices alike."""
from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actmem.plan import _trace
from actmem.plan.report import policy_of
from actmem.plan.search import ROUNDING, Choice, Nothing


@dataclasses.dataclass(frozen=True)
class Measured:
    """A choice and its measured steps."""
    choice: Choice
    peak: int                       # bytes of device memory, from memory_analysis()
    seconds: tuple[float, ...]      # one number for each measured step

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> float:
        """The median deviation from the median time, divided by the median time."""
        return statistics.median(abs(each - self.median) for each in self.seconds) / self.median


def arrays_of(leaves: Sequence[Any], seed: int = 0) -> list[Any]:
    """Returns `leaves` with arrays in place of shapes. Floating-point arrays contain small random
    numbers."""
    random = np.random.default_rng(seed)
    return [_array_like(leaf, random) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
            for leaf in leaves]


def _array_like(leaf: jax.ShapeDtypeStruct, random: np.random.Generator) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else \
            jax.random.key(0)
    value = random.normal(0, 0.02, leaf.shape) if jnp.issubdtype(leaf.dtype, jnp.inexact) else \
        np.zeros(leaf.shape)
    return jax.device_put(jnp.asarray(value, leaf.dtype), leaf.sharding)


def _check_devices(leaves: Sequence[Any]) -> None:
    """Raises ValueError if an argument is on a device that only a topology describes, because such
    a device cannot run programs."""
    for leaf in leaves:
        for device in getattr(getattr(leaf, "sharding", None), "device_set", ()):
            try:
                is_here = device in jax.devices(device.platform)
            except RuntimeError:            # JAX has no device of this platform
                is_here = False
            if not is_here:
                raise ValueError(
                    f"measure= runs steps, but an argument is on a device that is not here, "
                    f"{device.device_kind} of a topology: use devices of this machine, or "
                    "compile= instead of measure=")


def _peak_of(compiled: Any, donated: int) -> int:
    found = compiled.memory_analysis()
    return int(found.argument_size_in_bytes + found.output_size_in_bytes +
               found.temp_size_in_bytes - found.alias_size_in_bytes -
               min(donated, found.output_size_in_bytes))


@contextmanager
def _dropped_if_exhausted() -> Iterator[None]:
    """Ignores JAX's error for exhausted device memory. The choice then counts as too large."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise


class Policies:
    """Choices for a program, compiled on request."""

    def __init__(self, program: _trace.Program, device_memory: float, donated: int,
                 destination: str) -> None:
        self.program, self.destination = program, destination
        self.device_memory, self.donated = device_memory, donated
        leaves = jax.tree.leaves(program.args)
        _check_devices(leaves)
        self.leaves = arrays_of(leaves)
        self.peaks: dict[Choice, int | None] = {}       # None if the compilation failed
        self._compiled: dict[Choice, Any] = {}          # only choices that fit

    def compile(self, choices: Iterable[Choice]) -> None:
        for choice in choices:
            if choice in self.peaks:
                continue
            self.peaks[choice] = None
            policy = policy_of(sorted(choice.kept), sorted(choice.offloaded), self.destination)
            with _dropped_if_exhausted():
                compiled = self.program.compiled(policy, self.leaves)
                peak = self.peaks[choice] = _peak_of(compiled, self.donated)
                if peak <= self.device_memory:
                    self._compiled[choice] = compiled

    def fits(self, choice: Choice) -> bool:
        return choice in self._compiled

    def least(self, choices: Iterable[Choice]) -> int | None:
        """Returns the smallest number of bytes that one of the choices needs, or None if no choice
        could be compiled."""
        return min((peak for peak in map(self.peaks.get, choices) if peak is not None),
                   default=None)

    def measure(self, steps: int) -> list[Measured]:
        """Measures `steps` steps of each choice that fits. Returns these choices, the fastest
        first.

        Raises:
          actmem.plan.Nothing: No choice fits.
        """
        there = [(choice, compiled, list[float]()) for choice, compiled in self._compiled.items()]
        for turn in range(steps + 1):
            left = []
            for each in there:
                _, compiled, seconds = each
                begin = time.perf_counter()
                with _dropped_if_exhausted():
                    jax.block_until_ready(compiled(*self.leaves))
                    if turn:        # the first step is not counted
                        seconds.append(time.perf_counter() - begin)
                    left.append(each)
            there = left
        if not there:
            least = self.least(self.peaks)
            raise Nothing(f"none of the {len(self.peaks)} compiled policies fits into "
                          f"device_memory={self.device_memory:.0f} bytes" +
                          (f": the smallest needs {least}" if least else ""))
        found = [Measured(choice, self.peaks[choice] or 0, tuple(seconds))
                 for choice, _, seconds in there]
        return sorted(found, key=lambda each: each.median)


def fastest(found: Sequence[Measured]) -> tuple[Measured, Measured, float, float]:
    """Returns four results. The first is the fastest choice. The second is the fastest choice that
    does not offload, or the fastest choice again if all choices offload. The third is the gain of
    the first choice over the second. The fourth is the error of this gain."""
    best = found[0]
    stays = next((each for each in found if not each.choice.offloaded), best)
    gain = 1 - best.median / stays.median
    return best, stays, gain, best.spread + stays.spread + ROUNDING
