# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A plan: an action for each name, and the reason for the action. A plan can be output as a table,
JSON, a policy for jax.checkpoint, lines of a MaxText configuration, or a curve. It can also be
saved to a file, which a later run loads."""
from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from actmem.plan import check
from actmem.plan._files import read_text
from actmem.plan.search import KEEP, OFFLOAD, RECOMPUTE
from actmem.plan.targets import LIST, TPUS

FORMAT = 1


class Mismatch(ValueError):
    """The plan is for another program, machine or version of JAX."""


def policy_of(kept: Sequence[str], offloaded: Sequence[str], destination: str) -> Any:
    """Returns a jax.checkpoint policy that keeps some names and offloads others. This kind of
    policy is used even if nothing is offloaded: actmem.jax.checkpoint would offload everything that
    a policy of another kind saves."""
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=list(kept), names_which_can_be_offloaded=list(offloaded),
        offload_src="device", offload_dst=destination)


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    bytes: int
    action: str
    why: str


@dataclasses.dataclass(frozen=True)
class Run:
    """A policy that was compiled and run."""
    kept: tuple[str, ...]
    offloaded: tuple[str, ...]
    step_s: float           # the median
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Build:
    """A policy that XLA compiled for the target of plan(compile=)."""
    target: str
    kept: tuple[str, ...]
    offloaded: tuple[str, ...]
    method: str             # how values are offloaded: "stock" (by JAX itself), "actmem", or "" if
                            # none
    peak_bytes: int | None  # None: XLA reports only that the memory is too small
    host_bytes: int
    copies: int             # copies to the host in a step
    late_copies: int        # copies to the host whose values stay on the device until the backward
                            # pass
    # Seconds of a step in which the device waits for copies. None if unknown.
    wait_s: float | None
    rematerialised: int     # values that XLA computes again by itself
    refused: str = ""       # why this policy is not recommended, or ""
    # Flags of the compilers, by environment variable.
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        peak = "too much" if self.peak_bytes is None else size_text(self.peak_bytes)
        words = [f"compiled for {self.target}: {peak} of device memory, "
                 f"{size_text(self.host_bytes)} of host memory, with "
                 f"{_policy_text(self.kept, self.offloaded)}"]
        if self.wait_s:
            words.append(f"its schedule waits {self.wait_s:.3g} s for copies")
        if self.rematerialised:
            words.append(f"XLA rematerialises {self.rematerialised} values by itself, so its "
                         "times cannot be compared: use a smaller batch")
        if self.refused:
            words.append(f"refused: {self.refused}")
        # Omit flags that the environment already sets.
        words += [f"with {name}={shlex.quote(value)}" for name, value in self.flags.items()
                  if os.environ.get(name) != value]
        return "; ".join(words)

    def json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        policy = {KEEP: fields.pop("kept"), OFFLOAD: fields.pop("offloaded")}
        return {"target": fields.pop("target"), "policy": policy, **fields}


def _policy_text(kept: Sequence[str], offloaded: Sequence[str]) -> str:
    return f"{', '.join(kept) or 'nothing'} kept and {', '.join(offloaded) or 'nothing'} offloaded"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The result of plan()."""

    model: str
    machine: str
    names: Sequence[Row]
    step_s: float
    recompute_step_s: float
    error: float            # error of the gain
    peak_bytes: int
    host_bytes: int
    disk_bytes: int
    abstains: str           # why nothing is offloaded although offloading could gain, or ""
    key: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The points of the curve: peak bytes, seconds of a step, and kind of choice. Empty unless plan()
    # made the curve.
    curve: Sequence[tuple[int, float, str]] = ()
    # For each layer: seconds forward, seconds backward, bytes sent to the host.
    layers: Sequence[tuple[float, float, int]] = ()
    devices: int = 1        # number of the host's devices that run this program at once
    destination: str = "pinned_host"        # memory of offloaded values
    measured: Sequence[Run] = ()            # the fastest first
    waited_s: float = 0.0   # seconds of the step in which the device waits for transfers
    rate_error: float = 0.0         # relative error of the rates
    # Names to add to the function, and the source lines of their values.
    proposed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    microbatches: int = 1           # number in a step; `layers` has the layers of all microbatches
    lacks: str = ""         # which memory is too small for the given choice, or ""
    compiled: Sequence[Build] = ()          # the policies that XLA compiled
    # Seconds of a step with JAX's own offloading, and on a TPU with XLA's flag LIST (targets.py).
    # None: unknown, or nothing is offloaded.
    stock_step_s: float | None = None
    # Peak of device memory with JAX's own offloading. None: equal to peak_bytes, or unknown.
    stock_peak_bytes: int | None = None
    # Seconds of a step without a limit of device memory, or None if unknown.
    unlimited_step_s: float | None = None
    # Says which of weights, gradients and optimizer state actmem stores, and where the update runs.
    # "" if `actmem plan` did not choose a placement.
    placement: str = ""

    @property
    def gain(self) -> float:
        """The time that the plan saves in a step, as a share of the time of a step that recomputes
        all named values."""
        return 1 - self.step_s / self.recompute_step_s

    def check(self, stats: Mapping[str, Any], *, since: Mapping[str, Any] | None = None,
              steps: int = 1) -> check.Checked:
        """Compares the first steps of a training run with the prediction, and names the term that
        deviates most.

        Args:
          stats: actmem.jax.stats() after these steps, plus other measurements: `step_s` (seconds
            of a step) and `peak_bytes` (of a device).
          since: actmem.jax.stats() before these steps.
          steps: The number of steps between `since` and `stats`.

        Raises:
          ValueError: `stats` has nothing to compare, or the plan has a placement. With a placement,
            copies of weights and state would be counted as copies of activations.
        """
        return check.check(self, stats, since or {}, steps)

    def with_action(self, action: str) -> list[str]:
        return [row.name for row in self.names if row.action == action]

    @property
    def policy(self) -> Any:
        """A policy for jax.checkpoint or actmem.jax.checkpoint."""
        return policy_of(self.with_action(KEEP), self.with_action(OFFLOAD), self.destination)

    def maxtext(self) -> str:
        """Returns the lines of a MaxText configuration."""
        words = {KEEP: "device", OFFLOAD: "offload", RECOMPUTE: "remat"}
        return "\n".join(["remat_policy: custom", *(
            f"{'decoder_layer_input' if row.name == 'layer_input' else row.name}: "
            f"{words[row.action]}" for row in self.names)]) + "\n"

    def __str__(self) -> str:
        rows = [("name", "bytes", "action", "why"), *(
            (row.name, size_text(row.bytes), row.action, row.why) for row in self.names)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join((row[0].ljust(widths[0]), row[1].rjust(widths[1]),
                            row[2].ljust(widths[2]), row[3])).rstrip() for row in rows]
        lines.append(
            f"{self.model} on {self.machine}: a step of {self.step_s:.4g} s, "
            f"{self.recompute_step_s:.4g} s if all is recomputed; gain {self.gain:.1%} "
            f"± {self.error:.1%}; {size_text(self.peak_bytes)} of device memory, "
            f"{size_text(self.host_bytes)} of host memory, {size_text(self.disk_bytes)} in files")
        if self.stock_step_s is not None:
            longer = self.stock_step_s / self.recompute_step_s - 1
            step = f"the step takes {self.stock_step_s:.4g} s ({abs(longer):.1%} " \
                f"{'longer' if longer > 0 else 'shorter'} than if all is recomputed), because "
            if self.machine in TPUS:
                lines.append(
                    f"with LIBTPU_INIT_ARGS={LIST}, {step}each iteration of a loop waits for its "
                    "own copies; without this flag, it can wait longer; compile the plan "
                    "(--compile, or compile= in Python) to see XLA's schedule, and flags that "
                    "shorten the wait")
            else:
                lines.append(
                    f"with actmem.jax.checkpoint; with JAX's own offloading, {step}the device "
                    "waits for copies from the host; it needs "
                    f"{size_text(self.stock_peak_bytes or 0)} of device memory")
        if self.lacks:
            lines.append(self.lacks)
        if self.abstains:
            lines.append(self.abstains)
        for name, place in self.proposed.items():
            lines.append(f"before using this plan, name the value that {place} computes: "
                         f"jax.ad_checkpoint.checkpoint_name(..., \"{name}\")")
        for run in self.measured:
            lines.append(f"measured: {run.step_s:.4g} s and {size_text(run.peak_bytes)} with "
                         f"{_policy_text(run.kept, run.offloaded)}")
        lines += map(str, self.compiled)
        if self.placement:
            lines.append(self.placement)
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Returns the object that `actmem plan --json` prints. It has `stock_step_s` and
        `stock_peak_bytes` only if these are not None, `lacks` only if a given policy does not fit,
        and `compiled` only if XLA compiled policies."""
        return {
            "model": self.model, "machine": self.machine,
            "names": [dataclasses.asdict(row) for row in self.names],
            "step_s": self.step_s, "recompute_step_s": self.recompute_step_s,
            "gain": self.gain, "error": self.error, "peak_bytes": self.peak_bytes,
            "host_bytes": self.host_bytes, "disk_bytes": self.disk_bytes,
            "abstains": bool(self.abstains),
            **{name: getattr(self, name) for name in ("stock_step_s", "stock_peak_bytes")
               if getattr(self, name) is not None},
            **({"lacks": self.lacks} if self.lacks else {}),
            **({"compiled": [each.json() for each in self.compiled]} if self.compiled else {}),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file for load_plan(). Replaces an existing regular file. Raises
        FileExistsError if `path` exists and is something else, such as /dev/stdout."""
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "it is not a regular file; choose another path",
                                  os.fspath(path))
        fields = dataclasses.asdict(self) | {"format": FORMAT}
        written = f"{os.fspath(path)}.{os.getpid()}"
        try:
            with open(written, "w", encoding="utf-8") as file:
                json.dump(fields, file, indent=1)
            os.replace(written, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(written)
            raise

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws step time against device memory, and marks the plan. Raises ValueError if the plan
        has no curve: call plan(..., curve=True)."""
        if not self.curve:
            raise ValueError("the plan has no curve: call plan(..., curve=True)")
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plot() needs matplotlib: pip install matplotlib") from None
        figure = Figure(figsize=(6, 4))
        axes = figure.add_subplot(xlabel="device memory (GiB)", ylabel="step (s)")
        for kind in ("keep or recompute", "with offloading"):
            points = sorted((peak / 2**30, seconds) for peak, seconds, each in self.curve
                            if each == kind)
            axes.step([x for x, _ in points], [y for _, y in points], where="post", label=kind)
        axes.plot([self.peak_bytes / 2**30], [self.step_s], "o", label="the plan")
        axes.legend()
        figure.savefig(path)


def load_plan(path: str | os.PathLike[str], key: Mapping[str, str] | None = None, *,
              force: bool = False) -> Plan:
    """Returns the plan that save() wrote.

    Args:
      path: The file.
      key: The key of the present program, from plan_key(). If None, only the version of JAX is
        compared.
      force: Accept a plan even if its key differs.

    Raises:
      Mismatch: The plan is for another program, machine or version of JAX.
    """
    try:
        fields = json.loads(read_text(path))
    except ValueError:
        fields = None
    found = _plan_of(fields)
    if found is None:
        raise Mismatch(f"{os.fspath(path)} is not a plan of this version of actmem: make a new "
                       "plan")
    here = {"JAX": jax.__version__} if key is None else key
    others = [f"{what} {found.key.get(what)}, but this is {what} {wanted}"
              for what, wanted in here.items() if found.key.get(what) != wanted]
    if others and not force:
        raise Mismatch(f"{os.fspath(path)} is a plan for {'; for '.join(others)}: make a "
                       "new plan, or pass force=True")
    return found


def _plan_of(fields: Any) -> Plan | None:
    """Returns the plan of an object that save() wrote, or None for any other object."""
    if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
        return None
    try:
        fields["names"] = tuple(Row(**row) for row in fields["names"])
        for name in ("curve", "layers"):
            fields[name] = tuple(tuple(row) for row in fields[name])
        fields["measured"] = tuple(
            Run(tuple(run.pop("kept")), tuple(run.pop("offloaded")), **run)
            for run in fields["measured"])
        fields["compiled"] = tuple(
            Build(**build | {name: tuple(build[name]) for name in ("kept", "offloaded")})
            for build in fields.get("compiled", ()))
        found = Plan(**fields)
    except (AttributeError, KeyError, TypeError):
        return None
    return found if _is_sound(found) else None


def _is_sound(plan: Plan) -> bool:
    """Returns whether the fields of `plan` have valid types and lengths."""
    numbers = (*(getattr(plan, name) for name in (
        "step_s", "recompute_step_s", "error", "peak_bytes", "host_bytes", "disk_bytes",
        "devices", "waited_s", "rate_error", "microbatches")), *(row.bytes for row in plan.names),
        *(number for layer in plan.layers for number in layer),
        *(number for point in plan.curve for number in point[:2]),
        *(number for run in plan.measured for number in (run.step_s, run.peak_bytes)),
        *(number for build in plan.compiled for number in (
            build.host_bytes, build.copies, build.late_copies, build.rematerialised,
            build.peak_bytes or 0, build.wait_s or 0)), plan.stock_step_s or 0,
        plan.unlimited_step_s or 0)
    words = (plan.model, plan.machine, plan.abstains, plan.destination, plan.lacks,
             *(word for row in plan.names for word in (row.name, row.action, row.why)),
             *(word for run in plan.measured for word in run.kept + run.offloaded),
             *(word for build in plan.compiled for word in (
                 build.target, build.method, build.refused, *build.kept, *build.offloaded)),
             *(word for words in (plan.key, plan.proposed) if isinstance(words, dict)
               for word in words.values()))
    return (isinstance(plan.key, dict) and isinstance(plan.proposed, dict) and
            all(type(number) in (int, float) for number in numbers) and
            all(isinstance(word, str) for word in words) and plan.recompute_step_s > 0 and
            all(row.action in (KEEP, OFFLOAD, RECOMPUTE) for row in plan.names) and
            all(len(point) == 3 for point in (*plan.curve, *plan.layers)))


def size_text(count: float) -> str:
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if count < 1024:
            break
        unit, count = larger, count / 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
