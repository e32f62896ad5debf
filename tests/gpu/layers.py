# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Trains a stack of transformer layers with Q, K and V offloaded: by JAX itself, with
none of XLA's flags and with those that overlap copies; by the best of these under
`actmem run`; by actmem.jax.checkpoint; and with nothing saved, whose gradients are what
all others' are compared with.

Each case is a process of its own. What it is expected to take is printed before it
starts (predict.py says how), and in the table beside what it took.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))

import predict                      # noqa: E402

FLAGS = {"": "", "lhs": "--xla_gpu_enable_latency_hiding_scheduler=true"}
FLAGS["lhs+pipelined"] = FLAGS["lhs"] + " --xla_gpu_enable_pipelined_host_offloading=true"
# What bfloat16's rounding may give where a case is fused otherwise, and where layers are
# unrolled; what is wrong is off by about as much as it is long.
TOLERANCE = 0.1
TOLERANCE_OF_FORMS = 0.3
LEAST_SECONDS = 20
GIB = 1 << 30


class Case(NamedTuple):
    model: str
    form: str
    method: str
    flags: str = ""
    under: bool = False         # actmem run
    best: bool = False          # flags: those of the fastest stock case of model and form

    @property
    def name(self):
        words = [self.model, self.form, self.method if not self.under else "stock, actmem run"]
        return " ".join(words + ([self.flags] if self.flags else []))


def order(models, forms, flags):
    """The most valuable first: a run that has too little time leaves out the rest."""
    def main_cases(model, form, flags):
        return [Case(model, form, "remat"),
                *[Case(model, form, "stock", flag) for flag in flags],
                Case(model, form, "stock", under=True, best=True),
                Case(model, form, "actmem"),
                *([Case(model, form, "actmem", best=True)] if len(flags) > 1 else [])]

    first, cases = models[0], []
    for form in forms:
        cases += main_cases(first, form, flags)
        for model in models[1:]:
            cases += main_cases(model, form, [flag for flag in flags if flag != "lhs"])
    for form in forms:
        for model in models[1:]:
            cases.append(Case(model, form, "stock", "lhs"))
    return cases


class Runs:
    """The cases that were run, and what is known from them."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.done = {}
        self.link = {}
        self.link_under = {}
        self.sizes = {}
        self.deadline = time.monotonic() + options.minutes * 60

    def left(self):
        return self.deadline - time.monotonic()

    def run_json(self, argv, seconds, **environment):
        """Its last line as JSON, or the reason why there is none."""
        errors = os.path.join(self.folder, "errors")
        with open(errors, "w", encoding="utf-8") as file:
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=file, text=True,
                                       env={**os.environ, **environment})
            try:
                output, _ = process.communicate(timeout=max(seconds, 1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return None, f"not done in {seconds:.0f} s"
        lines = output.strip().splitlines()
        for line in lines:
            if line.startswith("#"):
                print(line, flush=True)
        if not process.returncode and lines:
            try:
                return json.loads(lines[-1]), None
            except ValueError:
                pass
        with open(errors, encoding="utf-8", errors="replace") as file:
            told = [line.strip() for line in file if line.strip()]
        sys.stderr.write("\n".join(told[-40:]) + "\n")
        telling = [line for line in told if "Error" in line or "actmem" in line]
        return None, f"exit status {process.returncode}: {(telling or told or ['?'])[-1][:300]}"

    def under(self, *options):
        return [self.options.actmem, "run", "--heap-grow", str(self.options.heap_grow),
                *options, "--"]

    def measure_link(self):
        program = [sys.executable, os.path.join(HERE, "link.py")]
        size = 64 << 20 if self.options.toy else GIB
        product = 256 if self.options.toy else 8192
        # The share of the device that JAX takes is that of the cases.
        self.link, why = self.run_json(
            [*program, f"--bytes={size}", f"--product={product}"], 120, **self.environment(""))
        if why:
            print(f"# the link was not measured: {why}", flush=True)
        self.link = self.link or {}
        self.link_under = self.run_json([*self.under(), *program, f"--bytes={size}"], 60)[0] or {}
        print(json.dumps({"link": self.link, "link_under_actmem_run": self.link_under}),
              flush=True)
        for name, unit in (("allocation", "GB/s"), ("out", "GB/s"), ("in", "GB/s")):
            if self.link.get(name) and self.link_under.get(name):
                tell_figure(f"driver's {name} under actmem run", self.link_under[name] / 1e9,
                            unit, "the driver alone", self.link[name] / 1e9)

    def environment(self, flags):
        given = os.environ.get("XLA_FLAGS", "")
        return {"XLA_FLAGS": f"{given} {FLAGS[flags]}".strip(),
                "XLA_PYTHON_CLIENT_MEM_FRACTION":
                    os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.88"),
                "LAYERS_BEGAN": repr(time.time())}

    def sizes_of(self, model):
        import stack                    # loads JAX: not before the link is measured
        if model not in self.sizes:
            sizes = stack.MODELS[model]
            if self.options.layers:
                sizes = sizes._replace(layers=self.options.layers)
            elif self.link.get("device_bytes"):
                sizes = stack.fitting(sizes, self.link["device_bytes"])
            self.sizes[model] = sizes
        return self.sizes[model]

    def rate(self, model, sizes):
        """Of compute: as the un-offloaded case had it, or by the product of matrices."""
        reached = [row["step_s"] for case, row in self.done.items()
                   if case.model == model and case.method == "remat" and "step_s" in row]
        if reached:
            return sizes.layers * 4 * sizes.forward_flop / reached[0]
        product = self.link.get("product")
        return product and product * predict.EFFICIENCY

    def settled(self, case):
        """The case with the flags of the fastest that JAX did by itself."""
        if not case.best:
            return case
        stock = [(row["step_s"], other.flags) for other, row in self.done.items()
                 if other.model == case.model and other.form == case.form and
                 other.method == "stock" and not other.under and row.get("valid")]
        return case._replace(flags=min(stock)[1], best=False) if stock else None

    def predict(self, case, sizes):
        pinned = predict.pinned_bytes(case, sizes, self.options.heap_grow)
        step = predict.step_seconds(case, sizes, self.rate(case.model, sizes), self.link)
        allocation = (self.link_under if case.under or case.method == "actmem" else
                      self.link).get("allocation")
        return {"step_s": step, "pinned_bytes": pinned,
                "first_run_s": predict.first_run_seconds(step, pinned, allocation)}

    def run(self, case):
        sizes = self.sizes_of(case.model)
        predicted = self.predict(case, sizes)
        print(f"# {case.name}, {sizes.layers} layers: predicted " + ", ".join(
            f"{name} {value:.4g}" for name, value in predicted.items() if value is not None),
            flush=True)
        # Both forms have the same weights, but not the same order of sums.
        own, other = (os.path.join(self.folder, f"{case.model}-{form}.npz") for form in
                      (case.form, "unrolled" if case.form == "scanned" else "scanned"))
        program = [sys.executable, os.path.join(HERE, "layers_case.py"),
                   f"--model={case.model}", f"--layers={sizes.layers}", f"--form={case.form}",
                   f"--method={case.method}", f"--steps={self.options.steps}",
                   f"--attention={self.link.get('attention', 'xla')}",
                   f"--copy-bytes={(1 if self.options.toy else 256) << 20}"]
        if case.method == "remat":
            program.append(f"--save={own}")
        for reference in (own, other):
            if os.path.exists(reference) and "compare" not in program[-1]:
                program.append(f"--compare={reference}")
        began = time.monotonic()
        found, why = self.run_json((self.under() if case.under else []) + program,
                                   min(self.left(), self.options.case_seconds),
                                   **self.environment(case.flags),
                                   **({"ACTMEM_HEAP_GROW": str(self.options.heap_grow)}
                                      if case.method == "actmem" else {}))
        row = self.row(case, sizes, predicted, found, why)
        row["took_s"] = round(time.monotonic() - began, 1)
        self.done[case] = row
        print(json.dumps(row), flush=True)

    @staticmethod
    def row(case, sizes, predicted, found, why):
        row = {"case": case.name, "layers": sizes.layers}
        if why:
            return {**row, "why": why}
        live = sizes.layers * sum(sizes.offloaded_bytes) if case.method != "remat" else 0
        grown = found["grown"]
        pinned = grown["actmem"] or grown["driver"] or grown["anonymous"]
        difference = found.get("difference")
        tolerance = TOLERANCE_OF_FORMS if case.method == "remat" else TOLERANCE
        row.update(
            valid=difference <= tolerance if difference is not None else
            case.method == "remat",
            step_s=found["step_s"], predicted_step_s=predicted["step_s"],
            spread=(found["step_max_s"] - found["step_min_s"]) / found["step_s"],
            steps=found["steps"], first_step_s=found["first_step_s"],
            compile_s=found["compile_s"], first_run_s=found["first_run_s"],
            predicted_first_run_s=predicted["first_run_s"], pinned_gb=pinned / 1e9,
            predicted_pinned_gb=predicted["pinned_bytes"] / 1e9,
            pinned_per_live=pinned / live if live else None,
            **{name: found[name] / 1e9 for name in (
                "put_out", "put_in", "round_trip", "driver_out", "driver_in") if name in found},
            gradient_difference=difference, found=found)
        return row


def tell_figure(name, value, unit, peer, peer_value):
    print(json.dumps({"figure": name, "value": value, "unit": unit, "peer": peer,
                      "peer_value": peer_value, "ratio": value / peer_value}), flush=True)


def tell_figures(done):
    """Each case of ours beside the fastest that JAX did by itself."""
    for case, row in done.items():
        stock = [other for c, other in done.items()
                 if (c.model, c.form, c.method, c.under) ==
                 (case.model, case.form, "stock", False) and other.get("valid")]
        if not row.get("valid") or not stock or case.method == "remat" or \
                case.method == "stock" and not case.under:
            continue
        peer = min(stock, key=lambda other: other["step_s"])
        for column, unit in (("step_s", "s"), ("first_step_s", "s"), ("first_run_s", "s"),
                             ("pinned_gb", "GB"), ("put_out", "GB/s"), ("put_in", "GB/s"),
                             ("round_trip", "GB/s")):
            if row.get(column) and peer.get(column):
                tell_figure(f"{row['case']}: {column}", row[column], unit, peer["case"],
                            peer[column])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--actmem", required=True, metavar="FILE", help="the command")
    parser.add_argument("--models", default="llama-2-13b,gemma-2-27b")
    parser.add_argument("--forms", default="scanned,unrolled")
    parser.add_argument("--flags", default=",lhs,lhs+pipelined",
                        help="sets of XLA's flags that JAX's own cases get")
    parser.add_argument("--layers", type=int, help="instead of as many as fit")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--case-seconds", type=float, default=180, help="the most for one case")
    parser.add_argument("--heap-grow", type=int, default=640 << 20, metavar="BYTES",
                        help="of each region: a multiple of the values' lengths")
    parser.add_argument("--toy", action="store_true", help="small sizes, one form")
    options = parser.parse_args()
    if options.toy:
        options.models, options.forms, options.flags = "small", "scanned", ",lhs+pipelined"
        options.steps, options.heap_grow = 3, 2 << 20
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options, folder)
        runs.measure_link()
        failed = 0
        for planned in order(options.models.split(","), options.forms.split(","),
                             options.flags.split(",")):
            case = runs.settled(planned)
            if case is None:
                print(f"# {planned.name}: left out, as none of JAX's own was right", flush=True)
                continue
            if case in runs.done:
                continue
            if runs.left() < LEAST_SECONDS:
                print(f"# {case.name}: left out, no time", flush=True)
                continue
            runs.run(case)
            failed += "why" in runs.done[case] or \
                not runs.done[case]["valid"] and case.method == "actmem"
        tell_figures(runs.done)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
