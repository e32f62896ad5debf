# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Trains four variants of the same model, one after another, and compares the results.

Runs train.py in a separate process for each variant. Prints a table at the end. Writes the numbers
of the table to demo.json, a chart to demo.svg, and the logs to the folder demo.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import picture
import report
import variants

VARIANTS = ("kept", "recomputed", "actmem", "spilled")
WAYS = """A layer's activations between forward and backward:
  kept        all stay in XLA's memory
  recomputed  each layer's input stays, the rest is computed again
  actmem      Q, K, V and each layer's input are in actmem's regions
  spilled     like actmem, with a budget of {budget}; the rest is in a file

On a CPU, the demo shows right gradients and memory within budget, not speed.
"""
REFERENCE = "same policy"   # this variant runs no steps; its gradients must equal those of "actmem"
BAR = 24


def show_step(name, line):
    step, steps = line["step"], line["steps"]
    text = (f"step {step:{len(str(steps))}}/{steps}  loss {line['loss']:.3f}"
            f"  {line['ms']:.0f} ms")
    if sys.stdout.isatty():
        bar = "█" * (BAR * step // steps)
        print(f"\r\033[K{name:<12}{bar:░<{BAR}} {text}", end="", flush=True)
    elif step == 1 or step == steps or step % max(1, steps // 5) == 0:
        print(f"{name:<12}{text}", flush=True)


def environment_of(name, budget, spill):
    """Returns the environment of a variant. The variant "spilled" gets a budget, and a folder for
    its file."""
    if name != "spilled":
        return os.environ
    return os.environ | {"ACTMEM_BUDGET": budget, "ACTMEM_SPILL": str(spill)}


def is_memory(folder):
    """Returns true if the folder is on tmpfs, where spilled data stays in memory."""
    number = os.stat(folder).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        return any(line.split()[2] == device and
                   line.split(" - ")[1].startswith("tmpfs ") for line in mounts)


def run_variant(name, steps, folder, environment):
    """Runs train.py for this variant. Returns the measurements that train.py prints last."""
    stem = name.replace(" ", "-")
    command = [sys.executable, Path(__file__).with_name("train.py"), name,
               "--steps", str(steps), "--gradients", folder / f"{stem}.npz"]
    log_path = folder / f"{stem}.log"
    result = {}
    if sys.stdout.isatty():
        print(f"{name:<12}compiling", end="", flush=True)
    with open(log_path, "w", encoding="utf-8") as log, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=log, env=environment, text=True) as process:
        for text in process.stdout:
            line = json.loads(text)
            if "step" in line:
                show_step(name, line)
            else:
                result = line
    if sys.stdout.isatty():
        print("\n" if steps else "\r\033[K", end="", flush=True)
    if process.returncode or not result:
        tail = log_path.read_text(encoding="utf-8").splitlines()[-15:]
        status = process.returncode
        reason = (signal.strsignal(-status) if status < 0
                  else f"exit status {status}")
        sys.exit("\n".join(tail + [f"demo: variant '{name}' failed: {reason}"
                                   f" ({log_path})"]))
    return result


def max_difference(folder, one, other):
    """Compares the gradients of two variants. Returns the largest difference, and the largest
    gradient of `one`, both as absolute values."""
    with (np.load(folder / f"{one}.npz") as a,
          np.load(folder / f"{other}.npz") as b):
        if sorted(a.files) != sorted(b.files):
            sys.exit(f"demo: '{one}' and '{other}' differ in parameters")
        return (max(float(np.max(np.abs(a[n] - b[n]))) for n in a.files),
                max(float(np.max(np.abs(a[n]))) for n in a.files))


def compare(results, reference, folder):
    """Returns the contents of demo.json."""
    actmem = results["actmem"]
    for name, result in results.items():
        result["name"] = result.pop("variant")
        result.setdefault("offloaded_bytes_per_step", 0)
        result["peak_bytes"] = result["peak_rss_bytes"] + sum(
            region["bytes"] for region in result.get("regions", [])
            if not region["in_rss"])
        result["max_grad_diff"], largest = max_difference(folder, name, "kept")
    actmem["max_grad_diff_same_policy"], _ = max_difference(
        folder, "actmem", "same-policy")
    results["spilled"]["max_grad_diff_actmem"], _ = max_difference(
        folder, "spilled", "actmem")
    document = {"steps": len(actmem["losses"]), "shape": reference["shape"],
                "parameter_bytes": reference["parameter_bytes"]}
    for key in ("backend", "reason"):
        document[key] = actmem[key]
    for name in variants.IN_ACTMEM:
        del results[name]["backend"], results[name]["reason"]
    for key in ("regions", "counters"):
        document[key] = actmem.pop(key)
        document[f"{key}_spilled"] = results["spilled"].pop(key)
    for result in results.values():
        del result["shape"], result["parameter_bytes"]
    document["variants"] = list(results.values())
    document["largest_gradient"] = largest
    document["same_policy"] = {
        "temp_bytes": reference["temp_bytes"],
        "max_grad_diff": max_difference(folder, "same-policy", "kept")[0]}
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--output", type=Path, default=Path("build"),
                        help="folder for demo.json and demo.svg")
    parser.add_argument("--budget", default="12M",
                        help="budget of the variant that spills")
    parser.add_argument("--spill", type=Path, metavar="DIR",
                        help="folder for the file of the variant that spills"
                        " (default: in --output)")
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error("--steps must be at least 1")

    folder = arguments.output / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    spill = (arguments.spill or folder).resolve()
    print(WAYS.format(budget=arguments.budget), flush=True)
    results = {name: run_variant(name, arguments.steps, folder, environment_of(
                   name, arguments.budget, spill)) for name in VARIANTS}
    reference = run_variant(REFERENCE, 0, folder, os.environ)
    document = compare(results, reference, folder)
    document["spill_is_memory"] = is_memory(spill)

    json_path = arguments.output / "demo.json"
    unfinished = json_path.with_suffix(".json.part")
    unfinished.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(unfinished, json_path)
    svg_path = arguments.output / "demo.svg"
    svg_path.write_text(picture.svg(document), encoding="utf-8")
    print(report.text(document))
    print(f"\nWritten: {json_path}, {svg_path}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
