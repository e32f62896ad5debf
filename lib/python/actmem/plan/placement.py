# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Chooses a placement: where weights, gradients and optimizer state are stored, and where the
update runs. Plans the activations for each placement, under the same limits of device and host
memory. Chooses the placement with the fastest step among those that fit.

    chooser = placement.Chooser(training, sizes, machine, device_memory, host_memory, plan_at)
    found, placed = chooser.choose()
    print(found, placed, sep="\\n")
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from actmem.plan import _sizes, defaults, memory, update
from actmem.plan.decoder import Step
from actmem.plan.machine import Machine
from actmem.plan.report import Plan, size_text
from actmem.plan.search import Nothing
from actmem.plan.update import Bytes, Job, Prediction, Update
from actmem.plan.wear import REFUSED, WARNED, Endurance, Wear, capacity_of, wear_of

OPTIMIZERS = {"adamw": 2, "lion": 1, "sgd": 0}      # number of moments of each parameter
DTYPES = {"float32": 4, "bfloat16": 2}
GROUP_BYTES = 256 << 20         # default of actmem.optax.offload()
# GROUPS: how many copies of a group's state (GROUP_BYTES) an update needs on the device. LAYERS:
# how many copies of the largest layer's weights a step needs on the device, if actmem stores the
# weights. Both numbers were measured in programs that XLA compiled for an H200 (docs/state.md,
# docs/weights.md).
GROUPS, LAYERS = 1.5, 3.5
FASTER = 0.01                   # a placement replaces one that was tried before only if its step is
                                # shorter by this share

MEMORY = {"nothing": "weights, gradients and state on the device", "state": "state in actmem",
          "weights": "weights, gradients and state in actmem"}
WHEN = {"backward": "behind the backward pass", "forward": "behind the next forward pass",
        "nothing": "after the backward pass"}


@dataclasses.dataclass(frozen=True)
class Training:
    """How a model is trained, except how its loss is computed."""
    optimizer: str = "adamw"
    state_dtype: str = "float32"
    has_master: bool = True
    clips: bool = True
    microbatches: int = 1
    unrolled: bool = False      # the layers are not in a lax.scan
    endurance: Endurance = Endurance()
    allows_wear: bool = False

    @property
    def bytes(self) -> Bytes:
        return Bytes(master=4 if self.has_master else 0,
                     moments=OPTIMIZERS[self.optimizer] * DTYPES[self.state_dtype])

    def options(self, stored: str) -> dict[str, Any]:
        """Returns options for of_model.plan_of(). If the state is on the device and training uses a
        master copy, the weights are float32 and serve as this copy. If actmem stores the state, the
        state contains the master copy, and the device has bfloat16 weights."""
        is_whole = self.has_master and stored == "nothing"
        return {"weight_dtype": jnp.float32 if is_whole else jnp.bfloat16,
                "optimizer_bytes": int(self.bytes.moments) if stored == "nothing" else 0}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one device's part of a model."""
    devices: int                # devices of the mesh
    parameters: float           # trained parameters
    resident: float             # bytes of weights and gradients on the device
    layers: float               # trained parameters in stacked layers
    frozen_bytes: float         # bytes of stacked layers' weights that are not trained
    layer_bytes: float          # bytes of the weights of the largest layer
    leaf: float                 # trained parameters in the largest array

    @staticmethod
    def of(step: Step, each: Bytes) -> Sizes:
        def count(name: str, leaf: Any) -> int:
            return _sizes.stored(name, leaf.shape, jnp.int8, step.shard)
        repeats = {f"group{number}.": group.repeat
                   for number, group in enumerate(step.model.groups) if group.repeat > 1}
        layers = frozen = 0.0
        of_layer: dict[str, float] = {}
        for name, leaf in (step.trained | step.frozen).items():
            group = name.partition(".")[0] + "."
            if group not in repeats:
                continue
            size = count(name, leaf)
            if name in step.trained:
                layers += size
            else:
                frozen += size * each.weight
            layer = ".".join(name.split(".")[:2])
            of_layer[layer] = of_layer.get(layer, 0.0) + size * each.weight / repeats[group]
        trained = [count(*item) for item in step.trained.items()]
        parameters, weights = sum(trained), sum(
            count(*item) for item in step.frozen.items()) * each.weight
        return Sizes(step.shard.devices, parameters,
                     weights + parameters * (each.weight + each.gradient), layers, frozen,
                     max(of_layer.values(), default=0.0),
                     max(trained))


@dataclasses.dataclass(frozen=True)
class Option:
    """A placement. `lacks` says why the placement cannot be used, or is ""."""
    update: Update
    lacks: str = ""
    plan: Plan | None = None
    step: Prediction | None = None
    device_bytes: float = 0.0
    held_bytes: float = 0.0     # additional bytes of host memory during an update
    wear: Wear | None = None
    # Seconds that a step would take if the layers were not in a scan. A pass could then hide the
    # update.
    unrolled_s: float | None = None

    @property
    def seconds(self) -> float:
        return self.step.seconds if self.step else math.inf

    def __str__(self) -> str:
        if self.update.stored == "nothing":
            return MEMORY["nothing"]
        return (f"{MEMORY[self.update.stored]}, update on the {self.update.place} "
                f"{WHEN[self.update.behind]}")

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self.update)


@dataclasses.dataclass(frozen=True)
class Placed:
    """The chosen placement. str() returns the lines to print below the plan of activations."""
    best: Option
    others: tuple[Option, ...]
    call: str                   # the calls of actmem that a program needs
    assumed: str = ""           # assumptions about the host, or ""

    def __str__(self) -> str:
        best, step = self.best, self.best.step
        if best.update.stored == "nothing" or step is None:
            return "\n".join([f"{best}: they {'do not ' * bool(best.lacks)}fit",
                              *self._rejected()])
        lines = [f"{best}: a step of {step.seconds:.4g} s = {step.compute:.4g} s as above + "
                 f"{step.waits:.3g} s that nothing hides; the update alone takes "
                 + ", ".join(f"{name} {seconds:.3g} s" for name, seconds in step.parts.items()
                             if seconds),
                 f"memory with it: {size_text(best.device_bytes)} of the device, "
                 f"{size_text(self.host_bytes)} of the host, {size_text(self.disk_bytes)} on disks; "
                 f"in a program: {self.call}"]
        if best.unrolled_s is not None:
            lines.append(f"with layers in a Python loop instead of lax.scan (--unrolled), a step "
                         f"takes {best.unrolled_s:.4g} s, because a pass hides the update")
        if self.assumed:
            lines.append(self.assumed)
        if best.wear and best.wear.ratio > WARNED:
            lines.append(f"this wears the disks out: it writes {best.wear}; {REDUCES}")
        return "\n".join([*lines, *self._rejected()])

    def _rejected(self) -> list[str]:
        return [f"rejected: {each}: " + (each.lacks or f"{each.seconds:.4g} s, limited by its "
                                         f"{each.step.limit if each.step else ''}")
                for each in self.others]

    @property
    def saved(self) -> str:
        """Returns a line for Plan.placement."""
        is_placed = self.best.update.stored != "nothing"
        return f"{self.best}; in a program: {self.call}" if is_placed else ""

    @property
    def host_bytes(self) -> float:
        assert self.best.plan
        step = self.best.step
        return self.best.plan.host_bytes + self.best.held_bytes + (
            step.stored_bytes - step.spilled_bytes if step else 0)

    @property
    def disk_bytes(self) -> float:
        assert self.best.plan
        return self.best.plan.disk_bytes + (self.best.step.spilled_bytes if self.best.step else 0)

    def json(self) -> dict[str, Any]:
        """Returns the object "placement" of `actmem plan --json`. All bytes are those of one
        device, except in "wear", which is about all disks of a host."""
        best = self.best
        assert best.plan
        found: dict[str, Any] = best.json()
        if best.step:
            found |= {"step_s": best.step.seconds, "compute_s": best.step.compute,
                      "wait_s": best.step.waits,
                      "update_s": {name.replace(" ", "_"): seconds
                                   for name, seconds in best.step.parts.items()},
                      "device_bytes": best.device_bytes, "host_bytes": self.host_bytes,
                      "disk_bytes": self.disk_bytes}
        if best.wear:
            found["wear"] = {"day_bytes": best.wear.day_bytes, "allowed": best.wear.allowed}
        return found | {"rejected": [
            {**each.json(), "step_s": each.seconds if each.step else None, "why": each.lacks}
            for each in self.others]}


REDUCES = ("moments in bfloat16 (--state-dtype bfloat16) need half as many bytes as in float32; a "
           "master copy needs half as many bytes if only its lower 16 bits are stored, beside the "
           "weight in bfloat16")


class Chooser:
    """Chooses a placement. `plan_at(options)` plans the activations with options for
    of_model.plan_of(), and raises the exception Nothing if no choice fits."""

    def __init__(self, training: Training, sizes: Sizes, machine: Machine, device_memory: float,
                 host_memory: float, plan_at: Callable[[dict[str, Any]], Plan],
                 is_given: bool = False) -> None:
        self.training, self.sizes, self.machine, self.plan_at = training, sizes, machine, plan_at
        self.device_memory, self.host_memory = device_memory, host_memory
        self.is_given = is_given        # whether the caller gives the policy of activations
        self._made: list[tuple[Plan, dict[str, Any]]] = []
        self._refused: list[tuple[Nothing, dict[str, Any]]] = []
        self.devices = min(int(machine.need("devices")), sizes.devices) \
            if machine.has("devices") else sizes.devices

    def choose(self) -> tuple[Plan, Placed]:
        """Returns the plan of the activations and the placement. Raises the exception Nothing if no
        placement fits."""
        options = [self._on_device()]
        kept = options[0].plan
        if not options[0].lacks and kept and not self._may_gain(kept):
            return kept, Placed(options[0], (), "")
        beside = None
        is_tpu = defaults.compiler_of(self.machine) is memory.TPU
        for stored in ("state",) if is_tpu else ("state", "weights"):
            few = self._with(stored, beside)
            options += few
            beside = next((each.plan for each in few if each.plan and not each.plan.lacks and
                           self._lost(each.plan) <= FASTER * each.plan.step_s), None)
        best = options[0]
        for each in options:
            if not each.lacks and (best.lacks or each.seconds < best.seconds * (1 - FASTER)):
                best = each
        others = tuple(each for each in options if each is not best)
        if best.lacks and self.is_given:
            best = self._on_device(anyway=True)
        elif best.lacks:
            raise Nothing(f"nothing fits into device_memory={self.device_memory:.0f} bytes: " +
                          "; ".join(f"{each}: {each.lacks}" for each in options) +
                          (f"; {REDUCES}" if any(each.wear for each in options) else "") +
                          "; use a smaller batch or more devices")
        assert best.plan
        return best.plan, Placed(best, others, _call(best.update, self.training.has_master),
                                 self._assumed())

    def options_of(self, plan: Plan) -> dict[str, Any]:
        """Returns the options with which `plan` was made."""
        return next(more for found, more in self._made if found is plan)

    def _assumed(self) -> str:
        figures = self.machine.figures
        if figures["host_bandwidth"].basis == "measured":
            return ""
        share = figures["dram_efficiency"].value if "dram_efficiency" in figures else \
            update.DRAM_EFFICIENCY
        return (f"assumed: the host's update reaches {share:.0%} of "
                f"{self.machine.need('host_nodes'):g} × "
                f"{self.machine.need('host_bandwidth') / 1e9:.4g} GB/s with all processors")

    def _needs(self, needs: float, what: str = "the step") -> str:
        return (f"{what} needs {size_text(needs)} of device memory (limit "
                f"{size_text(self.device_memory)})")

    def _on_device(self, anyway: bool = False) -> Option:
        """Returns the placement with everything on the device. Plans the activations only if
        weights, gradients and state fit into device memory, or if `anyway` is true."""
        update_ = Update("nothing")
        needs = self.sizes.resident + self.sizes.parameters * self.training.bytes.state
        if needs > self.device_memory and not anyway:
            return Option(update_, self._needs(needs, "their sum"))
        try:
            found = self._planned("nothing", 0, self.host_memory)
        except Nothing as error:
            return Option(update_, self._needs(error.needs) if error.needs else str(error))
        return Option(update_, found.lacks, found, self._predict(found, update_),
                      found.peak_bytes)

    def _planned(self, stored: str, spared: float, host_memory: float) -> Plan:
        more = {**self.training.options(stored), "spared": int(spared), "host_memory": host_memory}

        def has_less(known: dict[str, Any]) -> bool:
            """Returns whether the options `known` have at least as much host memory as the options
            `more`, and are otherwise equal to them."""
            return known | {"host_memory": host_memory} == more and \
                host_memory <= known["host_memory"]
        for found, known in self._made:
            # A plan that is the best with more host memory is also the best with less, if it still
            # fits.
            if has_less(known) and not found.disk_bytes and found.host_bytes <= host_memory:
                return found
        for error, known in self._refused:
            if has_less(known):
                raise error
        try:
            found = self.plan_at(more)
        except Nothing as error:
            self._refused.append((error, more))
            raise
        count = self.training.microbatches
        if count > 1:
            found = dataclasses.replace(
                found, step_s=found.step_s * count,
                recompute_step_s=found.recompute_step_s * count, waited_s=found.waited_s * count,
                disk_bytes=found.disk_bytes * count, layers=tuple(found.layers) * count,
                microbatches=found.microbatches * count,
                stock_step_s=found.stock_step_s and found.stock_step_s * count)
        self._made.append((found, more))
        return found

    def _lost(self, found: Plan) -> float:
        """Returns the seconds that the plan loses because device memory is limited."""
        if found.unlimited_step_s is None:
            return 0.0
        return max(0.0, found.step_s - found.unlimited_step_s * self.training.microbatches)

    def _may_gain(self, kept: Plan) -> bool:
        """Returns whether a step could be shorter if actmem stored the state, and the device kept
        more activations in the memory that becomes free."""
        gain = self._lost(kept)
        if self._unsupported("state") or gain <= max(FASTER, kept.error) * kept.step_s:
            return False
        return gain > min(self._predict(kept, self._update("state", place)).waits
                          for place in update.PLACES
                          if not self._unsupported("state", place))

    def _unsupported(self, stored: str, place: str = "device") -> str:
        """Returns "" if actmem can store `stored` and can run the update at `place`. Otherwise
        returns the reason why not."""
        if defaults.compiler_of(self.machine) is memory.TPU:
            return ("not on TPUs: there, keep the state in pinned_host, and update it by "
                    "jax.experimental.compute_on")
        if stored == "state" and not self.training.bytes.state:
            return f"{self.training.optimizer} without a master copy has no state"
        if stored == "weights" and self.sizes.devices > 1:
            return f"weights are stored for one device only, not {self.sizes.devices}"
        if stored == "weights" and (self.training.unrolled or not self.sizes.layers):
            return "weights are stored only if a lax.scan runs over the layers"
        if place == "host" and self.sizes.devices > 1:
            return f"the host updates for one device only, not {self.sizes.devices}"
        return ""

    def _update(self, stored: str, place: str, unrolled: bool = False) -> Update:
        """Returns the update at `place`, with the pass that can hide the update. A scan returns the
        gradient of a stacked weight only at the end of the scan, so no pass hides an update of
        layers in a scan."""
        behind = "nothing"
        if stored == "state" and (unrolled or self.training.unrolled):
            if not self.training.clips:
                behind = "backward"
            elif place == "device":
                behind = "forward"
        return Update(stored, place, behind)

    def _job(self, found: Plan, how: Update) -> Job:
        forward = sum(layer[0] for layer in found.layers)
        return Job(self.sizes.parameters, forward, found.step_s - forward, self.training.bytes,
                   self.training.microbatches, self.training.clips, self.sizes.layers,
                   self.sizes.frozen_bytes, sum(layer[2] for layer in found.layers),
                   self.host_memory - found.host_bytes - self._held(how))

    def _predict(self, found: Plan, how: Update) -> Prediction:
        return update.predict(self._job(found, how), how,
                              update.rates_of(self.machine, self.devices))

    def _with(self, stored: str, beside: Plan | None) -> list[Option]:
        """Returns the placements with `stored` in actmem. `beside` is None, or the plan of the
        activations for a placement that stores less in actmem. The limit of device memory costs
        that plan almost no time. A placement that stores more in actmem frees more device memory,
        so it uses the plan `beside`, too."""
        updates = [self._update(stored, place) for place in update.PLACES]
        lacks = self._unsupported(stored)
        if lacks:
            return [Option(updates[0], lacks)]
        job = Job(self.sizes.parameters, 0, 0, self.training.bytes, layers=self.sizes.layers,
                  frozen_bytes=self.sizes.frozen_bytes)
        spared = job.weight_bytes + job.gradient_bytes - LAYERS * self.sizes.layer_bytes \
            if stored == "weights" else 0.0
        options = []
        for how in updates:
            lacks = self._unsupported(stored, how.place)
            if lacks:
                options.append(Option(how, lacks))
                continue
            temporary = self._temporary(how)
            host_memory = max(self.host_memory - job.stored_bytes(stored) - self._held(how), 1)
            try:
                # If a pass hides the update, the update and the activations need memory at the same
                # time.
                found = beside or self._planned(
                    stored, spared - (temporary if how.behind != "nothing" else 0), host_memory)
            except Nothing as error:
                lacks = self._needs(error.needs) if error.needs else str(error)
                options.append(Option(how, lacks))
            else:
                options.append(self._option(found, how, temporary))
        # If both updates are impossible for the same reason, report the reason once.
        return options if options[0].plan or options[0].lacks != options[-1].lacks else options[:1]

    def _leaf(self, how: Update) -> float:
        """Returns the maximum number of parameters that are updated at once."""
        in_layers = how.stored == "weights" or self.training.unrolled
        return self.sizes.layer_bytes / self.training.bytes.weight if in_layers else \
            self.sizes.leaf

    def _temporary(self, how: Update) -> float:
        """Returns the device memory that an update needs for groups of state."""
        if how.stored != "state" or how.place != "device":
            return 0.0
        state = self.training.bytes.state
        return GROUPS * max(min(GROUP_BYTES, self.sizes.parameters * state), self._leaf(how) * state)

    def _held(self, how: Update) -> float:
        """Returns the host memory that the new state of a leaf needs while the old state still
        exists."""
        return self._leaf(how) * self.training.bytes.state if how.place == "host" else 0.0

    def _option(self, found: Plan, how: Update, temporary: float) -> Option:
        step = self._predict(found, how)
        peak = float(found.peak_bytes)
        if how.behind == "nothing":
            peak = max(peak, self.sizes.resident + temporary if temporary else 0)
        lacks, wear = "", None
        if found.lacks:
            lacks = found.lacks
        elif peak > self.device_memory:
            lacks = self._needs(peak, "the update")
        elif step.spilled_bytes:
            lacks, wear = self._on_disks(found, step, found.host_bytes + self._held(how))
        faster = None
        if not self.training.unrolled:
            other = self._predict(found, self._update(how.stored, how.place, unrolled=True))
            faster = other.seconds if other.seconds < step.seconds * (1 - FASTER) else None
        return Option(how, lacks, found, step, peak, self._held(how), wear, faster)

    def _on_disks(self, found: Plan, step: Prediction, held: float) -> tuple[str, Wear | None]:
        """Returns two results. The first says why the data that exceeds host memory cannot be
        stored on disks; it is "" if the disks can store the data. The second is the wear of the
        disks, or None if the wear is unknown."""
        need = (f"it needs {size_text(step.stored_bytes + held)} of host memory (limit "
                f"{size_text(self.host_memory)})")
        if not (self.machine.has("disk_write") and self.machine.has("disk_read")):
            return f"{need}, and the rates of disks are unknown: pass --disk READ,WRITE", None
        capacity, source = capacity_of(self.machine)
        if (step.spilled_bytes + found.disk_bytes) * self.devices > capacity:
            return (f"{need}, and the rest exceeds the {size_text(capacity)} of the disks "
                    f"({source}): pass --disk-bytes"), None
        wear = wear_of(self.machine, self.training.endurance,
                       (step.written_bytes + found.disk_bytes) * self.devices, step.seconds)
        if wear.ratio > REFUSED and not self.training.allows_wear:
            return f"it would write {wear}; --allow-wear accepts that", wear
        return "", wear


def _call(how: Update, has_master: bool) -> str:
    tx = "actmem.optax.master_copy(tx)" if has_master else "tx"
    if how.behind == "forward":
        call = f"actmem.optax.delayed({tx})"
    else:
        call = f'actmem.optax.offload({tx}, on="host")' if how.place == "host" else \
            f"actmem.optax.offload({tx})"
    return call if how.stored != "weights" else f"actmem.jax.offload_params(layers), {call}"
