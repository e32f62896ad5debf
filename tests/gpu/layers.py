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
import sys
import tempfile
import time
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))

import machine                      # noqa: E402
import predict                      # noqa: E402
import processes                    # noqa: E402

FLAGS = {"": "", "lhs": "--xla_gpu_enable_latency_hiding_scheduler=true"}
FLAGS["lhs+pipelined"] = FLAGS["lhs"] + " --xla_gpu_enable_pipelined_host_offloading=true"
# What bfloat16's rounding may give where a case is fused otherwise, and where layers are
# unrolled; what is wrong is off by about as much as it is long.
TOLERANCE = 0.1
TOLERANCE_OF_FORMS = 0.3
LEAST_SECONDS = 20
NO_MEMORY = "RESOURCE_EXHAUSTED"
ATTEMPTS = 4
SHARE = 0.88                # of the card's memory, for XLA's pool
AUTOTUNED = "--xla_gpu_per_fusion_autotune_cache_dir"
FEW_LAYERS = 4              # whose values may be on the device at once, where they go out
LATE_SHARE = 0.5            # of the puts, in the last quarter of a forward pass
GIB = 1 << 30


class Case(NamedTuple):
    model: str
    form: str
    method: str
    flags: str = ""
    under: bool = False         # actmem run
    best: bool = False          # flags: those of the fastest stock case of model and form
    ring: str = ""              # of the device's memory; else the one that is usual

    @property
    def name(self):
        words = [self.model, self.form, self.method if not self.under else "stock, actmem run"]
        more = ",".join(filter(None, [self.flags, self.ring and f"ring={self.ring}"]))
        return " ".join(words + ([more] if more else []))


def order(models, forms, flags, ring=None):
    """The most valuable first: a run that has too little time leaves out the rest. What
    ours is judged by, and ours, come before JAX's other flags; if one of those is faster
    after all, ours is run once more with it."""
    def main_cases(model, form):
        ours = [Case(model, form, "stock", under=True, best=True),
                Case(model, form, "actmem", best=True)]
        if ring and form == "scanned":
            ours.append(ours[-1]._replace(ring=ring))
        likely, others = flags[-1], [flag for flag in reversed(flags[:-1]) if flag != "lhs"]
        return [Case(model, form, "remat"), Case(model, form, "stock", likely), *ours,
                *[Case(model, form, "stock", flag) for flag in others], *ours]

    cases = []
    for model in models:
        for form in forms:
            cases += main_cases(model, form)
    for model in models:
        for form in forms:
            cases += [Case(model, form, "actmem"),
                      *[Case(model, form, "stock", flag) for flag in flags if flag == "lhs"]]
    return cases


def lines_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


class Runs:
    """The cases that were run, and what is known from them."""

    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.done = {}
        self.link = {}
        self.link_under = {}
        self.sizes = {}
        # Some is left for what others have there, and for what XLA takes besides.
        self.share = max(0.1, min(SHARE, (machine.free_share() or 1) - 0.08))
        self.deadline = time.monotonic() + options.minutes * 60
        # XLA looks for the fastest kernels once for all cases, or noise would hide the difference.
        self.autotuned = ""
        if machine.xla_knows(AUTOTUNED.lstrip("-")):
            os.makedirs(os.path.join(folder, "autotuned"), exist_ok=True)
            self.autotuned = f"{AUTOTUNED}={os.path.join(folder, 'autotuned')}"

    def left(self):
        return self.deadline - time.monotonic()

    def run_json(self, argv, seconds, **environment):
        """Its last line as JSON, or the reason why there is none."""
        paths = [os.path.join(self.folder, name) for name in ("output", "errors")]
        with open(paths[0], "w", encoding="utf-8") as output, \
                open(paths[1], "w", encoding="utf-8") as errors:
            status = processes.run(argv, seconds, {**os.environ, **environment}, output, errors)
        lines, told = ([line.strip() for line in lines_of(path) if line.strip()]
                       for path in paths)
        for line in lines:
            if line.startswith("#"):
                print(line, flush=True)
        if status == 0 and lines:
            try:
                return json.loads(lines[-1]), None
            except ValueError:
                pass
        sys.stderr.write("\n".join(told[-40:]) + "\n")
        sys.stderr.flush()
        if status is None:
            return None, f"not done in {seconds:.0f} s"
        telling = [line for line in told if NO_MEMORY in line] or \
            [line for line in told if "Error" in line or "actmem" in line]
        how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
        return None, f"{how}: {(telling or told or ['?'])[-1][:300]}"

    def under(self):
        return [self.options.actmem, "run", "--"]

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
        return {"XLA_FLAGS": f"{given} {self.autotuned} {FLAGS[flags]}".strip(),
                **self.share_of_memory(), "LAYERS_BEGAN": repr(time.time())}

    def share_of_memory(self):
        """XLA's variable, unless the user sets it or its old name: XLA refuses both at once."""
        name = "XLA_CLIENT_MEM_FRACTION"
        if name in os.environ or "XLA_PYTHON_CLIENT_MEM_FRACTION" in os.environ:
            return {}
        return {name: f"{self.share:.2f}"}

    def sizes_of(self, model):
        import stack                    # loads JAX: not before the link is measured
        if model not in self.sizes:
            sizes = stack.MODELS[model]
            if self.options.layers:
                sizes = sizes._replace(layers=min(self.options.layers, sizes.layers))
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
        if not stock and case.method == "actmem":
            return case._replace(best=False)        # by itself, then
        return case._replace(flags=min(stock)[1], best=False) if stock else None

    def predict(self, case, sizes):
        pinned = predict.pinned_bytes(case, sizes, predict.grow_bytes(sizes))
        step = predict.step_seconds(case, sizes, self.rate(case.model, sizes), self.link)
        allocation = (self.link_under if case.under or case.method == "actmem" else
                      self.link).get("allocation")
        return {"step_s": step, "pinned_bytes": pinned,
                "first_run_s": predict.first_run_seconds(step, pinned, allocation)}

    def program(self, case, sizes):
        # Both forms have the same weights, but not the same order of sums.
        own, other = (os.path.join(self.folder, f"{case.model}-{form}-{sizes.layers}.npz")
                      for form in (case.form,
                                   "unrolled" if case.form == "scanned" else "scanned"))
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
        if self.options.trace and case.method == "actmem" and not case.ring:
            program.append(f"--trace={self.options.trace}/trace-{case.model}-{case.form}.json.gz")
        return (self.under() if case.under else []) + program

    def run(self, case):
        """With fewer layers, if there turns out to be no memory for the first of a model."""
        began = time.monotonic()
        for _ in range(ATTEMPTS):
            sizes = self.sizes_of(case.model)
            predicted = self.predict(case, sizes)
            print(json.dumps({"predicted": case.name, "layers": sizes.layers, **predicted}),
                  flush=True)
            found, why = self.run_json(
                self.program(case, sizes), min(self.left(), self.options.case_seconds),
                **self.environment(case.flags),
                **({"ACTMEM_HEAP_GROW": str(predict.grow_bytes(sizes))}
                   if case.method == "actmem" else {}),
                **({"ACTMEM_DEVICE_RING": case.ring} if case.ring else {}))
            first = not any("step_s" in row for other, row in self.done.items()
                            if other.model == case.model)
            if not why or NO_MEMORY not in why or not first or sizes.layers == 1:
                break
            print(f"# {case.name}: no memory for {sizes.layers} layers: {why}", flush=True)
            self.sizes[case.model] = sizes._replace(layers=max(1, sizes.layers * 3 // 4))
        row = self.row(case, sizes, predicted, found, why)
        if found and case.method != "remat":
            row.update(self.kept_on_device(case, sizes, found) | self.late_puts(found))
        row["took_s"] = round(time.monotonic() - began, 1)
        self.done[case] = row
        print(json.dumps(row), flush=True)

    def kept_on_device(self, case, sizes, found):
        """How many layers' Q, K and V a case has on the device more than recomputation has:
        in an unrolled program nothing waits for puts, and XLA may leave them for later."""
        remat = next((row["found"]["memory"]["temp_size_in_bytes"]
                      for other, row in self.done.items() if row.get("found", {}).get("memory") and
                      (other.model, other.form, other.method, row["layers"]) ==
                      (case.model, case.form, "remat", sizes.layers)), None)
        temp = found.get("memory", {}).get("temp_size_in_bytes")
        if temp is None or remat is None:
            return {}
        layers = (temp - remat) / sum(sizes.offloaded_bytes)
        return {"kept_layers": round(layers, 2)} | (
            {"memory": f"Q, K and V of {layers:.1f} layers stay on the device"}
            if layers > FEW_LAYERS else {})

    @staticmethod
    def late_puts(found):
        """Memory does not show all of it: outputs, as gradients are, have room until they are
        computed. XLA's order does."""
        late = found.get("late_puts")
        if late is None:
            return {}
        return {"late_puts": round(late, 2)} | (
            {"order": "XLA has left puts for the end of the forward pass or later"}
            if late > LATE_SHARE else {})

    @staticmethod
    def row(case, sizes, predicted, found, why):
        row = {"case": case.name, "layers": sizes.layers}
        if why:
            return {**row, "why": why, "predicted_step_s": predicted["step_s"],
                    "predicted_pinned_gb": predicted["pinned_bytes"] / 1e9}
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
            **{name: found[name] for name in ("hidden_out", "hidden_in") if name in found},
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
    parser.add_argument("--ring", metavar="SIZE", help="actmem scanned once more, with such a ring")
    parser.add_argument("--trace", metavar="FOLDER", help="of a step of actmem more")
    parser.add_argument("--case-seconds", type=float, default=180, help="the most for one case")
    parser.add_argument("--toy", action="store_true", help="small sizes, one form")
    options = parser.parse_args()
    if options.toy:
        options.models, options.forms, options.flags = "small", "scanned", ",lhs+pipelined"
        options.steps = 3
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(options, folder)
        runs.measure_link()
        failed, left_out = 0, []
        for planned in order(options.models.split(","), options.forms.split(","),
                             options.flags.split(","), options.ring):
            case = runs.settled(planned)
            if case is None:
                print(f"# {planned.name}: left out, as none of JAX's own was right", flush=True)
                continue
            if case in runs.done:
                continue
            if runs.left() < LEAST_SECONDS:
                left_out.append(case.name)
                continue
            runs.run(case)
            row = runs.done[case]
            failed += "why" in row or case.method == "actmem" and (
                not row["valid"] or "memory" in row or "order" in row)
        if left_out:
            names = list(dict.fromkeys(left_out))
            print(json.dumps({"fact": "left out, as there was no time", "answer":
                              "; ".join(names)}), flush=True)
        tell_figures(runs.done)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
