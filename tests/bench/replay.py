#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Training steps through a store, beside the longer one of compute and I/O.

    replay.py [--smoke] ACTMEM_BENCH DIRECTORY

Runs `actmem-bench replay` with a budget that holds about a fifth of what a step saves: once
without any compute, and once with twice as much of it as the I/O took. Prints a line of
JSON for each measurement: bench, ours, peer, peer_name, ratios, unit and aim. Figures are
medians of the steps from the second one on, the ratio that of each step's own; it is 1
where a step takes no longer than its bound. One row has no aim: it tells what the same
steps come to beside a disk that nothing is filled or verified beside.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

MODELS = ("llama-2-13b", "llama-3.3-70b")
TOKENS = 4096
# A step of this part of them tells the length of all.
PART = 64
# Within 5% of the bound, and of a step that computes at most 1% may be stall.
BOUND_AIM = 0.952
STALL_AIM = 0.99


def replay(args, model, budget, compute_ms, steps, tokens=TOKENS):
    command = [args.actmem_bench, "replay", "--json", "--allow", "any", "--model", model,
               "--tokens", str(tokens), "--scale", "1/256" if args.smoke else "1/4",
               "--budget", str(budget), "--spill", args.directory, "--steps", str(steps),
               "--compute-ms-per-layer", f"{compute_ms:.3f}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode:
        sys.exit(f"replay.py: exit status {done.returncode} of {' '.join(command)}")
    return json.loads(done.stdout)


def report(bench, steps, peer_name, peer, aim):
    print(json.dumps({
        "bench": bench, "ours": round(statistics.median(s["ms"] for s in steps), 3),
        "peer": round(statistics.median(map(peer, steps)), 3), "peer_name": peer_name,
        "ratios": [peer(s) / s["ms"] for s in steps],
        "unit": "ms", "aim": aim}), flush=True)


def measure(args, model):
    steps = 2 if args.smoke else 8
    part = replay(args, model, 4 << 20, 0, 1, TOKENS // PART)
    budget = max(part["step_bytes"] * PART // 5 >> 21 << 21, 4 << 20)
    free = replay(args, model, budget, 0, steps)["steps"][1:]
    report(f"replay_io_bound_{model}", free, "the bound, max(compute, I/O)",
           lambda step: step["bound_ms"], BOUND_AIM)
    report(f"replay_io_alone_{model}", free, "the bound, had the disk been alone",
           lambda step: step["bound_alone_ms"], None)
    io_ms = statistics.median(step["io_ms"] for step in free)
    computing = replay(args, model, budget, io_ms / part["layers"], steps)["steps"][1:]
    report(f"replay_compute_bound_{model}", computing, "the bound, max(compute, I/O)",
           lambda step: step["bound_ms"], BOUND_AIM)
    report(f"replay_stall_{model}", computing, "the same step without its stall",
           lambda step: step["ms"] - step["stall_ms"], STALL_AIM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="do little of everything")
    parser.add_argument("actmem_bench")
    parser.add_argument("directory")
    args = parser.parse_args()
    os.makedirs(args.directory, exist_ok=True)
    for model in MODELS[:1] if args.smoke else MODELS:
        measure(args, model)
    return 0


if __name__ == "__main__":
    sys.exit(main())
