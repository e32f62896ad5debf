# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Estimates how fast a training job wears out its disks. Compares the bytes that the job writes in
a day with the endurance of the disks."""
from __future__ import annotations

import dataclasses

from actmem.plan.machine import Machine

DAY = 86400
YEARS = 5                       # Endurance.total refers to this number of years
CAPACITY = 8 * 3.84e12          # bytes of the disks of a DGX H200; assumed if the machine's
                                # description has no disk_bytes
WARNED, REFUSED = 1, 10         # limits of Wear.ratio


@dataclasses.dataclass(frozen=True)
class Endurance:
    """The endurance of all disks of a host together. `writes` is the number of drive writes per day
    (DWPD). `total`, if given, replaces `writes`: it is the number of bytes that may be written in
    five years."""
    writes: float = 1.0
    total: float | None = None

    def of_day(self, capacity: float) -> float:
        """Returns how many bytes may be written in a day."""
        return self.total / (YEARS * 365) if self.total else self.writes * capacity


@dataclasses.dataclass(frozen=True)
class Wear:
    day_bytes: float                # written in a day, on all disks of a host
    allowed: float                  # bytes that may be written in a day
    basis: str                      # how `allowed` was found

    @property
    def ratio(self) -> float:
        return self.day_bytes / self.allowed

    def __str__(self) -> str:
        return (f"{_petabytes(self.day_bytes)} a day on disks, {self.ratio:.3g} times the "
                f"{_petabytes(self.allowed)} that they are made for ({self.basis})")


def _petabytes(count: float) -> str:
    return f"{count / 1e15:.3g} PB"


def capacity_of(machine: Machine) -> tuple[float, str]:
    """Returns the capacity in bytes of all disks of a host, and where the number comes from."""
    if not machine.has("disk_bytes"):
        return CAPACITY, "assumed"
    basis = machine.figures["disk_bytes"].basis
    return machine.need("disk_bytes"), "given" if basis == "given" else f"of {machine.name}"


def wear_of(machine: Machine, endurance: Endurance, step_bytes: float, seconds: float) -> Wear:
    """Returns the wear of a host's disks. In each step, which takes `seconds` seconds, all devices
    of the host together write `step_bytes`."""
    capacity, source = capacity_of(machine)
    basis = f"{_petabytes(endurance.total)} in {YEARS} years" if endurance.total else (
        f"{endurance.writes:g} drive writes a day of {capacity / 1e12:.4g} TB, {source}")
    return Wear(step_bytes / seconds * DAY, endurance.of_day(capacity), basis)
