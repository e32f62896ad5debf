# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What a plan takes of a machine if nobody says: so much of its memory, of its host's, so many of
its devices, and the compiler of its programs."""
from __future__ import annotations

import math
from collections.abc import Mapping

import jax

from actmem.plan import memory
from actmem.plan.machine import Machine, MachineError

DEVICE_SHARE = 0.9              # of a device's memory
HOST_SHARE = 0.8                # of its part of the host's


def device_memory_of(machine: Machine) -> float:
    """What a step may take of a device."""
    if not machine.has("hbm_bytes"):
        raise MachineError(f"machine {machine.name!r} has no figure 'hbm_bytes': give "
                           "device_memory")
    return machine.need("hbm_bytes") * DEVICE_SHARE


def host_memory_of(machine: Machine) -> float:
    """What one device may have of the host's memory; without a limit where that is not known."""
    if not machine.has("host_bytes"):
        return math.inf
    devices = machine.need("devices") if machine.has("devices") else 1
    return machine.need("host_bytes") * HOST_SHARE / devices


def devices_of(machine: Machine, mesh: Mapping[str, int]) -> int:
    """How many devices of a mesh one host has."""
    size = math.prod(mesh.values())
    return min(size, int(machine.need("devices"))) if machine.has("devices") else size


def compiler_of(machine: Machine) -> memory.Compiler:
    """How programs are compiled for it."""
    platform = machine.platform         # it may have been measured elsewhere
    if not platform and machine.name == "here":
        platform = jax.default_backend()
    return memory.CPU if platform == "cpu" else memory.GPU
