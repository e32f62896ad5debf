# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measure training steps of a stack of transformer layers with Q, K and V offloaded, by
each method, and compare gradients with those of full recomputation.

Each case is a process of its own. Before a case starts, its prediction is printed
(predict.py). The number of layers is found first, by compiling stock's program: XLA must
not rematerialise anything in it, because a comparison with such a program is void.
"""
import argparse
import json
import os
import sys
import tempfile
import time
from typing import NamedTuple

import machine
import predict
import running
import stack
from telling import fact, is_rounding

HERE = os.path.dirname(os.path.abspath(__file__))
# What the programs of the methods are, and what starts them.
METHODS = {
    "recomputed": ("recomputed", []),
    "stock": ("stock", []),
    "actmem": ("actmem", []),
    "stock, actmem run": ("stock", ["run", "--"]),
    "actmem run --offload": ("stock", ["run", "--offload", "--"]),
    "planned": ("planned", []),
}
FLAGS = {"": "", "pipelined": "--xla_gpu_enable_pipelined_host_offloading=true"}
SHARE = 0.88                # of the card's memory, for XLA's pool
LEAST_SECONDS, CASE_SECONDS = 20, 180
FEW_LAYERS = 4              # a method that keeps more layers on the card does not offload
LATE_SHARE = 0.5            # of the puts, in the last quarter of a forward pass


class Case(NamedTuple):
    model: str
    form: str
    method: str
    flags: str = ""

    @property
    def name(self):
        return " ".join(filter(None, self))


def order(models, forms, methods, flags):
    """Return the cases, the most valuable first. Other flags are for stock alone."""
    pairs = [(model, form) for model in models for form in forms]
    return [Case(*pair, method) for pair in pairs for method in methods] + \
        [Case(*pair, "stock", flag) for pair in pairs for flag in flags
         if flag and "stock" in methods]


class Runs:
    """The cases that ran, and what is known of the machine."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.done, self.sizes = {}, {}
        self.deadline = time.monotonic() + options.minutes * 60
        self.share = max(0.1, min(SHARE, machine.free_share() - 0.08))
        # XLA searches the fastest kernels once for all cases; another search may end
        # differently. This search is part of what is measured, so it is not disabled here.
        self.cache = f"--xla_gpu_per_fusion_autotune_cache_dir={folder}"
        size = 64 << 20 if options.toy else 1 << 30
        self.link = self.tell_link([f"--product={256 if options.toy else 8192}"], size)
        self.link_under = self.tell_link([], size, [options.actmem, "run", "--"])
        self.attention = "xla" if options.toy else "cudnn"

    def tell_link(self, more, size, prefix=()):
        found, why = self.python("link.py", [f"--bytes={size}", *more], 120, prefix)
        print(json.dumps({"link": found, "why": why, "under": list(prefix)}), flush=True)
        return found or {}

    def python(self, script, arguments, seconds, prefix=(), flags="", **environment):
        """Return the last line of its output from JSON, or None and the reason."""
        given = os.environ.get("XLA_FLAGS", "")
        variables = {"XLA_FLAGS": f"{given} {self.cache} {FLAGS[flags]}".strip(),
                     "LAYERS_BEGAN": repr(time.time()), **environment}
        if "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            variables.setdefault("XLA_CLIENT_MEM_FRACTION", f"{self.share:.2f}")
        return running.run_json([*prefix, sys.executable, os.path.join(HERE, script),
                                 *map(str, arguments)], min(
                                     seconds, self.deadline - time.monotonic()), variables)

    def arguments(self, case, sizes):
        return [f"--model={case.model}", f"--layers={sizes.layers}", f"--form={case.form}",
                f"--attention={self.attention}"]

    def sizes_of(self, case):
        """Return the model with as many layers as fit. Without cuDNN, use XLA's attention."""
        key = case.model, case.form
        while key not in self.sizes:
            sizes = stack.MODELS[case.model]
            found, why = self.python("training.py", [*self.arguments(case, sizes), "--fit"],
                                     CASE_SECONDS)
            fact(f"layers of {case.model} {case.form}, attention by {self.attention}",
                 why or json.dumps(found["tried"]))
            if found or self.attention == "xla":
                self.sizes[key] = sizes._replace(layers=found["layers"] if found else
                                                 sizes.layers // 2)
            else:
                self.attention = "xla"
        return self.sizes[key]

    def predict(self, case, sizes):
        """The layers' rate comes from the recomputed case, once that has run."""
        rate = self.link.get("product", 0) * predict.EFFICIENCY
        for other, row in self.done.items():
            if other[:3] == (*case[:2], "recomputed") and "step_s" in row:
                rate = sizes.layers * 4 * sizes.forward_flop / row["step_s"]
        pinned = predict.pinned_bytes(case, sizes)
        step = predict.step_seconds(case, sizes, rate, self.link)
        under = METHODS[case.method][1] or case.method in predict.OURS
        allocation = (self.link_under if under else self.link).get("allocation")
        return {"step_s": step, "pinned_bytes": pinned,
                "first_run_s": predict.first_run_seconds(step, pinned, allocation)}

    def run(self, case):
        began = time.monotonic()
        sizes = self.sizes_of(case)
        predicted = self.predict(case, sizes)
        print(json.dumps({"predicted": case.name, "layers": sizes.layers, **predicted}),
              flush=True)
        method, prefix = METHODS[case.method]
        arguments = [*self.arguments(case, sizes), f"--method={method}",
                     f"--steps={3 if self.options.toy else 10}",
                     f"--gradients={self.folder}/{case.model}-{case.form}.npz",
                     *(["--trace"] if self.options.trace and case.method in predict.OURS else [])]
        found, why = self.python(
            "training.py", arguments, CASE_SECONDS,
            [self.options.actmem, *prefix] if prefix else [], case.flags,
            **({"ACTMEM_HEAP_GROW": str(predict.grow_bytes(sizes))}
               if case.method in predict.OURS else {}))
        row = {"case": case.name, "layers": sizes.layers, **({"why": why} if why else {}),
               **{f"predicted_{name}": predicted[name] for name in ("step_s", "first_run_s")},
               "predicted_pinned_gb": predicted["pinned_bytes"] / 1e9}
        row.update(self.measured(case, sizes, found) if found else {})
        row["took_s"] = round(time.monotonic() - began, 1)
        self.done[case] = row
        print(json.dumps(row), flush=True)

    def measured(self, case, sizes, found):
        """Return what the table shows of it, and why the result is not good, if so."""
        grown, live = found["grown"], sizes.layers * sum(sizes.offloaded_bytes)
        pinned = grown["actmem"] or grown["driver"] or grown["anonymous"]
        difference, late = found.get("difference"), found.get("late_puts")
        row = {"valid": case.method == "recomputed" if difference is None else
               is_rounding(case.method, difference), "gradient_difference": difference,
               **{name: found[name] for name in ("step_s", "steps", "first_step_s", "compile_s",
                                                 "first_run_s", "hidden_out", "hidden_in")
                  if name in found},
               "spread": (found["step_max_s"] - found["step_min_s"]) / found["step_s"],
               "pinned_gb": pinned / 1e9, "late_puts": late,
               "pinned_per_live": pinned / live if case.method != "recomputed" else None,
               "found": found}
        recomputed = self.done.get(Case(*case[:2], "recomputed"), {}).get("found")
        if recomputed:
            kept = (found["memory"]["temp_size_in_bytes"] -
                    recomputed["memory"]["temp_size_in_bytes"]) / sum(sizes.offloaded_bytes)
            row["kept_layers"] = round(kept, 2)
            if kept > FEW_LAYERS:
                row["memory"] = f"Q, K and V of {kept:.1f} layers stay on the device"
        if late and late > LATE_SHARE:
            row["order"] = "XLA delays puts to the end of the forward pass"
        if found["rematerialised"]:
            row["void"] = f"XLA rematerialises {found['rematerialised']} instructions"
        return row


def is_bad(case, row):
    """Return whether a case fails the whole part: it did not run, or actmem was wrong or did
    not offload."""
    return "why" in row or case.method in predict.OURS and (
        not row["valid"] or case.method != "planned" and ("memory" in row or "order" in row))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--actmem", required=True, metavar="FILE", help="the command")
    parser.add_argument("--models", default="llama-2-13b,gemma-2-27b")
    parser.add_argument("--forms", default="scanned,unrolled")
    parser.add_argument("--methods", default=";".join(METHODS), help="separated by ;")
    parser.add_argument("--flags", default=",pipelined", help="sets of XLA's flags for stock")
    parser.add_argument("--trace", action="store_true",
                        help="profile one more step: which copies are hidden behind kernels?")
    parser.add_argument("--toy", action="store_true", help="small sizes")
    options = parser.parse_args()
    if options.toy:
        options.models = "small"
    failed, omitted = 0, []
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options, folder)
        for case in order(options.models.split(","), options.forms.split(","),
                          options.methods.split(";"), options.flags.split(",")):
            if runs.deadline - time.monotonic() < LEAST_SECONDS:
                omitted.append(case.name)
                continue
            runs.run(case)
            failed += is_bad(case, runs.done[case])
    if omitted:
        fact("omitted, because there was no time", "; ".join(omitted))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
