# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Predicts the time of a training step. The optimizer state is in host memory, and the weights and
gradients can be there, too. The update runs on the device or on the host's processors.

    step = update.predict(job, Update("state", "host", "nothing"), update.rates_of(machine, devices=1))

A step is a list of phases: forward and backward passes of the micro-batches, and the update. If a
pass hides the update (runs at the same time), the update is not a separate phase. In a phase, the
device computes, the link copies in both directions, the host's memory serves the copies and the
host's update, and disks transfer the bytes that exceed host memory. All these resources work at the
same time, so a phase takes as long as the slowest of them.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from actmem.plan.machine import Machine

DRAM_EFFICIENCY = 0.8           # default of the figure "dram_efficiency"
STORED = ("nothing", "state", "weights")
PLACES = ("device", "host")
# The pass that hides the update. "backward" is possible unless the update needs a value that
# depends on all gradients, such as their norm. "forward" is the next forward pass, as with
# actmem.optax.delayed.
BEHIND = ("backward", "forward", "nothing")


@dataclasses.dataclass(frozen=True)
class Bytes:
    """Bytes per parameter. If `master` is 0, the update changes the weights directly, without a
    master copy."""
    weight: float = 2
    gradient: float = 2
    master: float = 4
    moments: float = 8

    @property
    def state(self) -> float:
        return self.master + self.moments

    @property
    def all(self) -> float:
        return self.weight + self.gradient + self.state


@dataclasses.dataclass(frozen=True)
class Job:
    """One device's part of a step. `forward` and `backward` are seconds for all micro-batches."""
    parameters: float               # trained parameters of this device
    forward: float
    backward: float
    bytes: Bytes = Bytes()
    microbatches: int = 1
    clips: bool = True
    # Number of parameters whose weights actmem can store. None means all trained parameters.
    layers: float | None = None
    frozen_bytes: float = 0         # bytes of stored weights that are not trained
    sent: float = 0                 # bytes of activations that a step copies to the host and back
    host_memory: float = math.inf   # bytes for stored state, weights and gradients

    @property
    def in_layers(self) -> float:
        return self.parameters if self.layers is None else self.layers

    @property
    def weight_bytes(self) -> float:
        return self.in_layers * self.bytes.weight + self.frozen_bytes

    @property
    def gradient_bytes(self) -> float:
        return self.in_layers * self.bytes.gradient

    def stored_bytes(self, stored: str) -> float:
        """Returns how many bytes the store holds for `stored`, without activations."""
        return {"nothing": 0.0, "state": self.parameters * self.bytes.state}.get(
            stored, self.parameters * self.bytes.state + self.weight_bytes + self.gradient_bytes)


@dataclasses.dataclass(frozen=True)
class Update:
    stored: str                     # one of STORED
    place: str = "device"           # one of PLACES
    behind: str = "nothing"         # one of BEHIND


@dataclasses.dataclass(frozen=True)
class Rates:
    """Bytes a second for one device. `link_*_both` are rates while data also moves in the other
    direction. `near` is the memory rate of those nodes that have a device in use, divided by the
    number of devices. `host` is the memory rate of all nodes, divided by the number of devices."""
    link_out: float
    link_in: float
    link_out_both: float
    link_in_both: float
    near: float
    host: float
    disk_write: float = 0.0         # 0: unknown
    disk_read: float = 0.0


def rates_of(machine: Machine, devices: int = 1) -> Rates:
    """Returns the rates for each of `devices` devices of one host that update at the same time. The
    host's memory does not limit the link rates here, because each phase counts the memory's traffic
    separately."""
    def link(direction: str, both: bool) -> float:
        alone = machine.need(f"link_{direction}")
        rate = min(alone, machine.need(f"link_{direction}_all")) if devices > 1 else alone
        return rate * (machine.need(f"link_{direction}_both") / alone if both else 1)

    def files(name: str) -> float:
        return machine.need(name) / devices if machine.has(name) else 0.0
    nodes = machine.need("host_nodes")
    memory = nodes * machine.effective("host_bandwidth", "dram_efficiency", DRAM_EFFICIENCY)
    there = machine.need("devices") if machine.has("devices") else devices
    used = min(nodes, math.ceil(devices * nodes / there))
    return Rates(link("out", False), link("in", False), link("out", True), link("in", True),
                 memory * used / nodes / devices, memory / devices, files("disk_write"),
                 files("disk_read"))


@dataclasses.dataclass(frozen=True)
class Load:
    """The work of a phase: seconds of compute, and bytes to transfer. `out` is from the device to
    the host, and `into` is from the host to the device."""
    compute: float = 0.0
    out: float = 0.0
    into: float = 0.0
    update: float = 0.0             # bytes in host memory that the host's update reads and writes
    write: float = 0.0
    read: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(*(mine + more for mine, more in zip(
            dataclasses.astuple(self), dataclasses.astuple(other))))

    def times(self, count: float) -> Load:
        return Load(*(mine * count for mine in dataclasses.astuple(self)))

    def parts(self, rates: Rates) -> dict[str, float]:
        """Returns the seconds that each resource works. All resources work at the same time."""
        ends = (self.out / rates.link_out_both, self.into / rates.link_in_both)
        both = min(ends)            # after this time, one direction is idle
        link = both + (self.out - both * rates.link_out_both) / rates.link_out + (
            self.into - both * rates.link_in_both) / rates.link_in
        memory = (self.out + self.into) / rates.near
        if self.update:
            memory = (self.out + self.into + self.update) / rates.host
        disk = max((self.write / rates.disk_write if rates.disk_write else 0.0),
                   (self.read / rates.disk_read if rates.disk_read else 0.0))
        return {"compute": self.compute, "link": link, "host memory": memory, "disks": disk}

    def seconds(self, rates: Rates) -> float:
        return max(self.parts(rates).values())


@dataclasses.dataclass(frozen=True)
class Prediction:
    seconds: float                  # seconds of a step
    compute: float                  # seconds of a step in which the device computes
    parts: dict[str, float]         # seconds of each resource if the update ran alone
    stored_bytes: float             # bytes of one device, in host memory and on disks
    spilled_bytes: float            # the part of stored_bytes that exceeds host memory
    written_bytes: float            # bytes that a step writes to disks

    @property
    def waits(self) -> float:
        """The seconds of a step in which the device does not compute."""
        return self.seconds - self.compute

    @property
    def limit(self) -> str:
        """The resource that limits the update."""
        return max(self.parts, key=lambda name: self.parts[name])


@dataclasses.dataclass(frozen=True)
class Spilled:
    """The bytes on disks. The state leaves host memory first, because only the update needs it."""
    state: float
    gradients: float
    weights: float

    @staticmethod
    def of(job: Job, stored: str) -> Spilled:
        left = max(0.0, job.stored_bytes(stored) - job.host_memory)
        state = min(left, job.parameters * job.bytes.state)
        gradients = min(left - state, job.gradient_bytes)
        return Spilled(state, gradients, left - state - gradients)

    @property
    def all(self) -> float:
        return self.state + self.gradients + self.weights


def _update(job: Job, update: Update, spilled: Spilled) -> Load:
    """Returns the load of an update of stored state. If the weights are stored, the gradients are
    stored, too."""
    if update.stored == "nothing":
        return Load()
    each, count = job.bytes, job.parameters
    disks = Load(write=spilled.state + spilled.weights, read=spilled.state + spilled.gradients)
    # Without a master copy, the update reads the weights.
    weights = 0 if each.master else each.weight
    if update.place == "host":
        # The host's processors read gradients, read and write the state, and write new weights.
        host = count * (each.gradient + 2 * each.state + each.weight + weights)
        if update.stored == "weights":
            return disks + Load(update=host)
        return disks + Load(out=count * each.gradient, into=count * each.weight, update=host)
    if update.stored == "state":
        return disks + Load(out=count * each.state, into=count * each.state)
    into = count * each.state
    if update.behind != "backward":     # otherwise the device has the layer's weights and gradients
        into += count * weights + job.gradient_bytes
    return disks + Load(out=count * each.state + job.weight_bytes - job.frozen_bytes, into=into)


def _norm(job: Job, update: Update, spilled: Spilled) -> Load:
    """Returns the load of computing the norm of stored gradients on the device before an update.
    With one micro-batch there is no load, because the backward pass has computed the norm."""
    if update.stored != "weights" or not job.clips or job.microbatches == 1:
        return Load()
    return Load(into=job.gradient_bytes, read=spilled.gradients)


def _passes(job: Job, update: Update, spilled: Spilled) -> tuple[Load, Load, Load]:
    """Returns the load of a forward pass, the load of a backward pass, and the additional load of
    each backward pass of a step except the first."""
    count = job.microbatches
    forward = Load(job.forward / count, out=job.sent / count)
    backward = Load(job.backward / count, into=job.sent / count)
    if update.stored != "weights":
        return forward, backward, Load()
    weights = Load(into=job.weight_bytes, read=spilled.weights)
    gradients = Load(out=job.gradient_bytes, write=spilled.gradients)
    return forward + weights, backward + weights + gradients, Load(
        into=job.gradient_bytes, read=spilled.gradients)


def _phases(job: Job, update: Update, spilled: Spilled) -> Iterator[Load]:
    forward, backward, again = _passes(job, update, spilled)
    own = _update(job, update, spilled)
    if update.behind == "forward" and update.stored == "weights" and update.place == "device":
        # The first forward pass uses the new weights that the update has left on the device.
        own += Load(into=-job.weight_bytes)
    if update.behind == "backward" and update.stored == "weights" and update.place == "device":
        # The update uses each gradient immediately, so gradients are not copied to the host.
        own += Load(out=-job.gradient_bytes)
    for number in range(job.microbatches):
        is_last = number == job.microbatches - 1
        yield forward + own if not number and update.behind == "forward" else forward
        more = backward + again if number else backward
        yield more + own if is_last and update.behind == "backward" else more
    if update.behind == "nothing":
        yield _norm(job, update, spilled)
        yield own


def predict(job: Job, update: Update, rates: Rates) -> Prediction:
    """Predicts a step. Raises ValueError if the backward pass cannot hide the update."""
    if update.behind == "backward" and job.clips:
        raise ValueError("clipping by the global norm needs all gradients, so the update cannot run "
                         "behind the backward pass")
    spilled = Spilled.of(job, update.stored)
    phases = list(_phases(job, update, spilled))
    parts = _update(job, update, spilled).parts(rates)
    if update.behind == "nothing":
        norm = _norm(job, update, spilled).parts(rates)
        parts = {name: seconds + norm[name] for name, seconds in parts.items()}
    del parts["compute"]
    return Prediction(_sum(phase.seconds(rates) for phase in phases), job.forward + job.backward,
                      parts, job.stored_bytes(update.stored), spilled.all,
                      _sum(phase.write for phase in phases))


def _sum(numbers: Iterable[float]) -> float:
    return math.fsum(numbers)
