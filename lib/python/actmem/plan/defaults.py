# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The defaults of a plan for a machine: device memory, host memory, the number of devices, and the
compiler of programs."""
from __future__ import annotations

import math
from collections.abc import Mapping

import jax

from actmem.plan import memory, targets
from actmem.plan.machine import Machine, MachineError

DEVICE_SHARE = 0.9              # fraction of a device's memory that a plan uses
HOST_SHARE = 0.8                # fraction of a device's part of host memory that a plan uses


def device_memory_of(machine: Machine) -> float:
    """Returns how many bytes of device memory a step may use."""
    if not machine.has("hbm_bytes"):
        raise MachineError(f"machine {machine.name!r} has no figure 'hbm_bytes': pass "
                           "device_memory=")
    return machine.need("hbm_bytes") * DEVICE_SHARE


def host_memory_of(machine: Machine) -> float:
    """Returns how many bytes of host memory one device may use, or infinity if the machine does not
    state its host memory."""
    if not machine.has("host_bytes"):
        return math.inf
    devices = machine.need("devices") if machine.has("devices") else 1
    return machine.need("host_bytes") * HOST_SHARE / devices


def devices_of(machine: Machine, mesh: Mapping[str, int]) -> int:
    """Returns how many of the mesh's devices are in one host."""
    size = math.prod(mesh.values())
    return min(size, int(machine.need("devices"))) if machine.has("devices") else size


def compiler_of(machine: Machine) -> memory.Compiler:
    """Returns the settings of the machine's compiler."""
    platform = machine.platform         # the measured devices can be on another host
    if not platform and machine.name == "here":
        platform = jax.default_backend()
    if machine.name in targets.TPUS:
        platform = "tpu"
    return {"cpu": memory.CPU, "tpu": memory.TPU}.get(platform, memory.GPU)
