#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs small random JAX programs, and compares what actmem computes with stock JAX.

    tests/jax/programs.py SEED                      one program, and all about it
    tests/jax/programs.py SEED --count 1000
    tests/jax/programs.py SEED --seconds 120 --python build/venv/bin/python \\
        --python build/venv-newest/bin/python       with both versions of JAX at once

Each seed is a program (what model(x, w, s, n) computes and which derivatives of it), a
form in which it is compared with stock JAX, and flags. The results have to be those of
stock JAX under the same policy, bit by bit. Where bits differ, both are compared with the
same program in float64: actmem's error may be stock's plus one rounding. After each of
three runs no block may remain, and no run may have more bytes at a time than it puts.

A program that stock JAX refuses is skipped. One that only actmem refuses has failed, unless
the refusal is documented (DOCUMENTED in generator/compare.py). A failing program is made
smaller, and printed as Python with the command that repeats it. The end of a run prints
the seed that comes next.

What it cannot compare, and why:

  blocks of a vjp function outside of jit, with jax_remat3
                        JAX itself keeps what such a function has saved
  results where stock JAX refuses the program in float64, and bits differ
                        there is nothing that tells which one is more exact
  a policy that offloads, in stock JAX
                        on a CPU the reference saves the same values on the device
  what an import of actmem.jax changes
                        the reference runs in the same process: test_import.py compares it
  spilled values on a mesh, and of jacrev and hessian
                        values of 512 KiB, which a budget needs, take too long there
  jax_scan3             stock JAX cannot differentiate scans with it
  GPUs                  the references would have to run on one: tests/gpu
"""
import argparse
import collections
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from generator import draw, shrink, text, workers  # noqa: E402

PASSED = ("same", "close")
SHRUNK_MOST = 4         # kinds of failures of a version of JAX
PROGRESS_SECONDS = 15
COMPARED_LEAST = 0.5    # of the programs


def command(seed, python):
    return f"{python} tests/jax/programs.py {seed}"


def title(case):
    """The case without its program."""
    parts = [case["form"], *("jax_" + flag for flag in case["flags"])]
    if case["spills"]:
        parts.append("spilled")
    mesh = case["program"]["mesh"]
    if mesh:
        parts.append(f"mesh {'x'.join(map(str, mesh['shape']))} {mesh['kind']}")
    return ", ".join([*parts, case["program"]["dtype"]])


class Run:
    """Seeds with one version of JAX."""

    def __init__(self, options, python, say):
        self.options = options
        self.python = python
        self.workers = workers.Workers(python, options.timeout)
        self.say = say
        self.counts = collections.Counter()     # by result
        self.by = collections.defaultdict(collections.Counter)
        self.skipped = collections.Counter()
        self.failures = []                      # (seed, case, verdict, lines)
        self.kinds = set()
        self.seed = options.seed
        self.began = time.monotonic()

    def case(self, seed):
        case = draw.case(seed)
        if self.options.form:
            case["form"] = self.options.form
        return case

    def is_over(self):
        if self.options.seconds:
            return time.monotonic() - self.began >= self.options.seconds
        return self.seed >= self.options.seed + self.options.count

    def take(self):
        self.version = f"JAX {self.workers.version()}"
        told = time.monotonic()
        shrunk = 0.0
        while not self.is_over():
            case = self.case(self.seed)
            verdict = self.workers.run(case)
            self.count(case, verdict)
            if verdict["result"] not in (*PASSED, "skipped"):
                began = time.monotonic()
                self.fail(case, verdict)
                self.began += time.monotonic() - began
            self.seed += 1
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                self.say(f"{self.version}: {self.summary()}, next seed {self.seed}")
        self.workers.close()

    def count(self, case, verdict):
        result = verdict["result"]
        self.counts[result] += 1
        flags = verdict.get("flags", case["flags"])     # that this version of JAX has
        for key in [case["form"], " + ".join(flags) or "no flags",
                    "spilled" if case["spills"] else "in memory",
                    "mesh " + "x".join(map(str, case["program"]["mesh"]["shape"]))
                    if case["program"]["mesh"] else "no mesh"]:
            self.by[key][result] += 1
        if result == "skipped":
            self.skipped[verdict["reason"]] += 1

    def fail(self, case, verdict):
        kind = verdict["result"], verdict["reason"]
        is_new = kind not in self.kinds
        self.kinds.add(kind)
        lines = [f"seed {self.seed}, {self.version}, {title(case)}: {verdict['result']}: "
                 f"{verdict['detail']}", f"repeat: {command(self.seed, self.python)}"]
        if self.options.shrink_seconds and is_new and len(self.kinds) <= SHRUNK_MOST:
            case, verdict = shrink.shrink(case, verdict, self.workers.run,
                                          self.options.shrink_seconds)
            lines.append(f"smaller, {title(case)}: {verdict['result']}: {verdict['detail']}")
            lines += describe(case)
        self.failures.append((self.seed, case, verdict, lines))
        for line in lines:
            for part in line.splitlines():
                self.say(part)

    def summary(self):
        return f"{sum(self.counts.values())} programs: " + counted(self.counts)


def counted(counts):
    return ", ".join(f"{number} {result}" for result, number in counts.most_common())


def describe(case):
    program = case["program"]
    known = {key: program[key] for key in ("rows", "columns", "mesh", "layers")}
    return ["    " + line for line in [f"# {json.dumps(known)}",
                                       *text.source(program).splitlines()]]


def tell(run, tap):
    """What came of a version of JAX; returns the number of results."""
    rate = sum(run.counts.values()) / max(time.monotonic() - run.began, 0.1)
    run.say(f"{run.version}: {run.summary()}; {rate:.2f} a second; next seed {run.seed}")
    for key, counts in sorted(run.by.items()):
        run.say(f"{run.version}, {key}: {counted(counts)}")
    for reason, number in run.skipped.most_common(12 if tap else None):
        run.say(f"{run.version}: {number} skipped: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=0, help="run so many seeds")
    parser.add_argument("--seconds", type=float, default=0, help="run seeds for that long")
    parser.add_argument("--python", action="append",
                        help="of an environment with JAX; several run at the same time")
    parser.add_argument("--form", choices=draw.FORMS, help="instead of the seed's")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a program")
    parser.add_argument("--shrink-seconds", type=float, default=60,
                        help="spend that long on making a failing program smaller")
    parser.add_argument("--tap", action="store_true")
    options = parser.parse_args()
    is_one = not options.count and not options.seconds
    options.count = options.count or 1

    lock = threading.Lock()

    def say(line):
        with lock:
            print(f"# {line}" if options.tap else line, flush=True)
    if is_one:
        case = draw.case(options.seed)
        say(title(case))
        for line in describe(case):
            say(line)
    runs = [Run(options, python, say) for python in options.python or [sys.executable]]
    threads = [threading.Thread(target=run.take) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    number = 0
    has_failed = False
    for run in runs:
        tell(run, options.tap)
        compared = sum(run.counts[result] for result in PASSED) + len(run.failures)
        few = compared < COMPARED_LEAST * sum(run.counts.values())
        results = [(False, f"seed {seed} of {run.version}, {title(case)}: {verdict['result']}")
                   for seed, case, verdict, _ in run.failures]
        results.append((not few or is_one, f"{compared} of {sum(run.counts.values())} programs "
                        f"were compared by {run.version}"))
        for good, what in results:
            number += 1
            has_failed |= not good
            if options.tap:
                print(f"{'ok' if good else 'not ok'} {number} - {what}", flush=True)
    if options.tap:
        print(f"1..{number}")
    return has_failed


if __name__ == "__main__":
    sys.exit(main())
