# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Compares the prediction of a plan with the first steps of a training run, term by term."""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actmem.plan.report import Plan

BYTES_ERROR = 0.1               # permitted relative error of bytes


@dataclasses.dataclass(frozen=True)
class Term:
    name: str
    foreseen: float
    seen: float
    unit: str                   # "s" or "bytes", per step
    off: float                  # deviation of `seen` from `foreseen`, divided by the permitted
                                # error

    def __str__(self) -> str:
        return f"{self.name}: measured {self.seen:.4g} {self.unit}, predicted {self.foreseen:.4g}"


@dataclasses.dataclass(frozen=True)
class Checked:
    """The result of Plan.check(): print it."""
    terms: tuple[Term, ...]

    @property
    def off(self) -> str:
        """The name of the term that deviates most in relation to its permitted error. "" if all
        deviations are permitted."""
        worst = max(self.terms, key=lambda term: term.off)
        return worst.name if worst.off > 1 else ""

    def __str__(self) -> str:
        lines = [str(term) for term in self.terms]
        lines.append(f"the prediction of {self.off} was wrong" if self.off else
                     "all predictions are within the error")
        return "\n".join(lines)


def _of_bytes(name: str, foreseen: float, seen: float) -> Term:
    larger = max(foreseen, seen)
    off = abs(seen - foreseen) / larger / BYTES_ERROR if larger else 0.0
    return Term(name, foreseen, seen, "bytes", off)


def check(plan: Plan, stats: Mapping[str, Any], since: Mapping[str, Any], steps: int) -> Checked:
    """See Plan.check(). `stats` has totals over all devices. A stall delays only one device, so
    stall times are divided by the number of devices."""
    if plan.placement:
        raise ValueError(f"check() compares only activations, but this plan has {plan.placement}")
    store, before = stats.get("store", {}), since.get("store", {})

    def in_a_step(name: str) -> float:
        return float(store[name] - before.get(name, 0)) / steps
    terms = []
    waited = None
    if "take_stall_ns_total" in store:
        waited = (in_a_step("take_stall_ns_total") + in_a_step("put_stall_ns_total"))
        waited /= 1e9 * plan.devices
    if "step_s" in stats:
        # The permitted error of each time is a fraction of the time of the step.
        error = max(plan.rate_error, plan.error) * plan.step_s
        compute = plan.step_s - plan.waited_s
        seen = stats["step_s"] - (waited or 0.0)
        terms.append(Term("compute", compute, seen, "s", abs(seen - compute) / error))
        if waited is not None:
            terms.append(Term("waiting for transfers", plan.waited_s, waited, "s",
                              abs(waited - plan.waited_s) / error))
    sent = sum(layer[2] for layer in plan.layers) * plan.devices
    if "last_run_put_bytes" in stats:
        terms.append(_of_bytes("bytes offloaded", sent, stats["last_run_put_bytes"]))
    if "spilled_bytes_total" in store:
        terms.append(_of_bytes("bytes written to files", plan.disk_bytes * plan.devices,
                               in_a_step("spilled_bytes_total")))
    if "peak_bytes" in stats:
        terms.append(_of_bytes("device memory", plan.peak_bytes, stats["peak_bytes"]))
    if not terms:
        raise ValueError("stats has nothing to compare: pass actmem.jax.stats() with the measured "
                         "'step_s' and 'peak_bytes'")
    return Checked(tuple(terms))
