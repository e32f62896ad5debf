#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs small random JAX programs, and compares what actmem computes with stock JAX.

    tests/jax/programs.py SEED                      one program, and all about it
    tests/jax/programs.py SEED --count 1000
    tests/jax/programs.py SEED --seconds 120 --python build/venv/bin/python \\
        --python build/venv-newest/bin/python       with both versions of JAX at once
    tests/jax/programs.py SEED --seconds 120 --gpu --jobs 12    on the first GPU

Each seed is a program (what model(x, w, s, n) computes and which derivatives of it), a
form in which it is compared with stock JAX, and flags. The results have to be those of
stock JAX under the same policy, bit by bit. Where bits differ, both are compared with the
same program in float64: actmem's error may be stock's plus four times what a rounding of the
inputs does to the result. After each of three runs no block may remain, and no run may have
more bytes at a time than it puts.

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
  meshes of several GPUs        with --gpu, a program on such a mesh is left out
"""
import argparse
import collections
import json
import math
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


def title(case):
    """The case without its program."""
    parts = [case["form"], *("jax_" + flag for flag in case["flags"])]
    if case["spills"]:
        parts.append("spilled")
    mesh = case["program"]["mesh"]
    if mesh:
        parts.append(f"mesh {'x'.join(map(str, mesh['shape']))} {mesh['kind']}")
    return ", ".join([*parts, case["program"]["dtype"]])


def describe(case):
    """The program as Python, and how its inputs are made."""
    known = {key: case["program"][key] for key in ("rows", "columns", "mesh", "layers")}
    return [f"    {line}" for line in [f"# {json.dumps(known)}",
                                       *text.source(case["program"]).splitlines()]]


def counted(counts):
    return ", ".join(f"{number} {result}" for result, number in counts.most_common())


class Run:
    """Seeds with one version of JAX."""

    def __init__(self, options, python, job, say):
        self.options = options
        self.python = python
        self.workers = workers.Workers(python, options.timeout, options.gpu)
        self.version = f"JAX {self.workers.version()}"
        if options.jobs > 1:
            self.version += f", job {job}"
        self.say = say
        self.counts = collections.Counter()             # by result
        self.by = collections.defaultdict(collections.Counter)
        self.skipped = collections.defaultdict(list)    # seeds by reason
        self.failures = []
        self.kinds = set()                              # of failures
        self.seed = options.seed + job
        self.seconds = 0
        self.slowest = (0, options.seed)                # seconds, seed
        self.error = None

    def run(self):
        try:
            self._run()
        except Exception as error:      # of a thread: main() raises it
            self.error = error
        finally:
            self.workers.close()

    def _is_over(self):
        if self.options.seconds and self.seconds >= self.options.seconds:
            return True
        return bool(self.options.count) and self.seed >= self.options.seed + self.options.count

    def _run(self):
        said = 0
        while not self._is_over():
            began = time.monotonic()
            case = draw.case(self.seed, self.options.gpu)
            if self.options.form:
                case["form"] = self.options.form
            mesh = case["program"]["mesh"]
            if self.options.gpu and mesh and math.prod(mesh["shape"]) > 1:
                self.seed += self.options.jobs
                continue
            verdict = self.workers.run(case)
            self._count(case, verdict)
            took = time.monotonic() - began
            self.seconds += took
            self.slowest = max(self.slowest, (took, self.seed))
            if verdict["result"] not in (*PASSED, "skipped"):
                self._fail(case, verdict)
            self.seed += self.options.jobs
            if self.seconds - said > PROGRESS_SECONDS:
                said = self.seconds
                self.say([f"{self.version}: {self.summary()}"])

    def _count(self, case, verdict):
        result = verdict["result"]
        mesh = case["program"]["mesh"]
        flags = verdict.get("flags", case["flags"])     # that this version of JAX has
        self.counts[result] += 1
        for key in (case["form"], " + ".join(flags) or "no flags",
                    "spilled" if case["spills"] else "in memory",
                    f"mesh {'x'.join(map(str, mesh['shape']))}" if mesh else "no mesh"):
            self.by[key][result] += 1
        if result == "skipped":
            self.skipped[verdict["reason"]].append(self.seed)

    def _fail(self, case, verdict):
        kind = verdict["result"], verdict["reason"]
        is_new = kind not in self.kinds
        self.kinds.add(kind)
        what = f"seed {self.seed} of {self.version}, {title(case)}: {verdict['result']}"
        self.failures.append(what)
        self.say([what, *verdict["detail"].splitlines(),
                  f"repeat: {self.python} tests/jax/programs.py {self.seed}"
                  f"{' --gpu' * self.options.gpu}"])
        if self.options.shrink_seconds and is_new and len(self.kinds) <= SHRUNK_MOST:
            case, verdict = shrink.shrink(case, verdict, self.workers.run,
                                          self.options.shrink_seconds)
            self.say([f"seed {self.seed}, made smaller: {title(case)}: {verdict['detail']}",
                      *describe(case)])

    def compared(self):
        return sum(self.counts.values()) - self.counts["skipped"]

    def summary(self):
        return (f"{sum(self.counts.values())} programs: {counted(self.counts)}; "
                f"next seed {self.seed}; slowest: seed {self.slowest[1]}, "
                f"{self.slowest[0]:.0f} s")

    def report(self):
        """Lines about all that became of the seeds."""
        rate = sum(self.counts.values()) / max(self.seconds, 0.001)
        return [f"{self.version}: {self.summary()}; {rate:.2f} a second",
                *(f"{self.version}, {key}: {counted(counts)}"
                  for key, counts in sorted(self.by.items())),
                *(f"{self.version}: {len(seeds)} skipped, such as seed {seeds[0]}: {reason}"
                  for reason, seeds in sorted(self.skipped.items(),
                                              key=lambda item: -len(item[1])))]


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=0, help="run that many seeds")
    parser.add_argument("--seconds", type=float, default=0, help="run seeds for that long")
    parser.add_argument("--python", action="append",
                        help="of an environment with JAX; several run at the same time")
    parser.add_argument("--gpu", action="store_true", help="run on the first GPU, not the CPU")
    parser.add_argument("--jobs", type=int, default=1,
                        help="run so many programs at the same time, of different seeds")
    parser.add_argument("--form", choices=draw.FORMS, help="use this form for every seed")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a program")
    parser.add_argument("--shrink-seconds", type=float, default=60,
                        help="spend that long on making a failing program smaller")
    parser.add_argument("--tap", action="store_true", help="print the Test Anything Protocol")
    return parser.parse_args(arguments)


def main():
    options = options_of(sys.argv[1:])
    is_one = not options.count and not options.seconds
    options.count = options.count or int(is_one)
    lock = threading.Lock()

    def say(lines):
        with lock:
            for line in lines:
                print(f"# {line}" if options.tap else line, flush=True)
    if is_one:
        case = draw.case(options.seed, options.gpu)
        say([title(case), *describe(case)])
    runs = [Run(options, python, job, say) for python in options.python or [sys.executable]
            for job in range(1 if is_one else options.jobs)]
    threads = [threading.Thread(target=run.run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = []
    for run in runs:
        if run.error:
            raise run.error
        say(run.report())
        count = sum(run.counts.values())
        results += [(False, what) for what in run.failures]
        results.append((is_one or run.compared() >= COMPARED_LEAST * count,
                        f"{run.version}: {run.compared()} of {count} programs were compared"))
    if options.tap:
        for number, (good, what) in enumerate(results, 1):
            print(f"{'ok' if good else 'not ok'} {number} - {what}")
        print(f"1..{len(results)}")
    return not all(good for good, _ in results)


if __name__ == "__main__":
    sys.exit(main())
