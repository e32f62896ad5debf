# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The parts of `make bench`: which programs they are, and what these tell.

A part is a program that prints lines of JSON, a measurement each, and anything
else. A line has

    bench, peer_name, unit
    ours, peer          figures, of which the smaller is better, except in "/s"
    ratios              of each round, above 1 where ours is better: the ratio is their
                        median; or else it is that of the two
    aim                 what the ratio is to be at least; else 1; null: there is none

or, in place of ours, peer and ratios, rounds of both sides in turn: ours_seconds,
peer_seconds, for so many `bytes` (or pairs, or whatever unit counts) each. A line
of bench and left_out tells why something cannot be measured on this machine. The
exit status is 0 unless something that could be measured was not. With --smoke it
does little of everything.
"""
import ctypes.util
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
from typing import NamedTuple

HERE = os.path.dirname(os.path.realpath(__file__))
ALLOCATORS = (("glibc", None), ("mimalloc", "mimalloc"), ("jemalloc", "jemalloc"),
              ("tcmalloc", "tcmalloc_minimal"))
FIELDS = ("bench", "ours", "peer", "peer_name", "ratio", "unit")
CONFIDENCE = 0.95


class Failed(Exception):
    """A program that did not do what it is there for."""


class Part(NamedTuple):
    name: str
    title: str
    # {build}, {folder}: where `make` has built all, and these programs; {directory}: for
    # files; {smoke}: --smoke or nothing; {python}, {here}, {models}
    command: str
    # Once with each allocator preloaded, in PEER_NAME.
    with_allocators: bool = False
    # How much ours may be at most, whatever the peers need.
    at_most: float = None
    # Whether ours is to be better than a peer, where a line says nothing else.
    aims_at_peers: bool = True


# One line for each; those that take long come last.
PARTS = (
    Part("heap_peak", "Peak memory over live bytes", "{folder}/heap_peak {smoke} {models}",
         at_most=1.02),
    Part("heap_pair", "A block taken and given back", "{folder}/heap_pair {smoke} {models}",
         with_allocators=True, at_most=500, aims_at_peers=False),
    Part("jax_block", "JAX blocks put and taken", "{python} {here}/jax_block.py {smoke}"),
    Part("transfer", "Transfers between files and regions",
         "{python} {here}/transfer.py {smoke} {folder}/transfer {directory}"),
    Part("jax_malloc", "Training steps of JAX on the processors by their malloc",
         "{python} {here}/jax_malloc.py {smoke} {build}"),
    Part("update", "Optimizer updates on the host", "{folder}/update {smoke}"),
    Part("state", "Optimizer state in actmem", "{python} {here}/state.py {smoke} {build} {directory}"),
    Part("replay", "Training steps through a store",
         "{python} {here}/replay.py {smoke} {build}/bin/actmem-bench {directory}"),
)


class Result(NamedTuple):
    measured: list              # dicts of FIELDS and aim
    left_out: dict              # benchmark → why
    failures: list              # in words


def allocators():
    found = []
    for name, library in ALLOCATORS:
        path = ctypes.util.find_library(library) if library else None
        if library and not path:
            raise Failed(f"no {name} is installed; `scripts/setup packages bench` installs it")
        found.append({"PEER_NAME": name, **({"LD_PRELOAD": path} if path else {})})
    return found


def run(part, folder, directory, smoke, environment):
    """What a part's program tells, and None or how it failed."""
    places = {"build": os.path.dirname(folder), "folder": folder, "directory": directory,
              "here": HERE, "python": sys.executable, "smoke": "--smoke" if smoke else "",
              "models": os.path.join(HERE, "models.csv")}
    words = [word.format(**places) for word in shlex.split(part.command)]
    words = [word for word in words if word]
    try:
        result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                text=True, env=os.environ | environment, check=False)
    except OSError as error:
        return [], f"{part.name}: {error}"
    told = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    if result.returncode:
        name = os.path.basename(words[1] if words[0] == sys.executable else words[0])
        return told, f"{part.name}: {name}: exit status {result.returncode}"
    return told, None


def figures(told):
    """(ours, peer, ratio of each round) of a line."""
    if "ours_seconds" in told:
        rounds = list(zip(told["ours_seconds"], told["peer_seconds"]))
        ours, peer = (statistics.median(side) * 1e9 / told["bytes"] for side in zip(*rounds))
        return ours, peer, [p / o for o, p in rounds]
    ours, peer = told["ours"], told["peer"]
    if "ratios" in told:
        return ours, peer, told["ratios"]
    more_is_better = told["unit"].endswith("/s")
    return ours, peer, [ours / peer if more_is_better else peer / ours]


def interval(ratios):
    """Between which of them the median of ever so many rounds is, by CONFIDENCE: so many
    of n are above it as coins fall on one side. Of less than six it can be anywhere."""
    ratios, outside, left_off = sorted(ratios), 0, 0
    while True:
        outside += 2 * math.comb(len(ratios), left_off) / 2 ** len(ratios)
        if outside > 1 - CONFIDENCE:
            break
        left_off += 1
    return (ratios[left_off - 1], ratios[-left_off]) if left_off else None


def evaluate(told, aim=1):
    ours, peer, ratios = figures(told)
    between = interval(ratios)
    return {"bench": told["bench"], "ours": round(ours, 4), "peer": round(peer, 4),
            "peer_name": told["peer_name"], "ratio": round(statistics.median(ratios), 4),
            "unit": told["unit"], "aim": told.get("aim", aim),
            "between": between and tuple(round(end, 4) for end in between)}


def print_table(rows, left):
    """Columns of text, those of the numbers in `left` begun at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for cells in rows:
        print("  ".join(c.ljust(w) if i in left else c.rjust(w)
                        for i, (c, w) in enumerate(zip(cells, widths))).rstrip())


def bound(part, measured):
    """Ours against what it may be at most, by benchmark: the median, of several."""
    for name in dict.fromkeys(one["bench"] for one in measured):
        of_name = [one for one in measured if one["bench"] == name]
        ours = statistics.median(one["ours"] for one in of_name)
        yield {"bench": name, "ours": round(ours, 4), "peer": part.at_most,
               "peer_name": f"the aim, {part.at_most:g}", "ratio": round(part.at_most / ours, 4),
               "unit": of_name[0]["unit"], "aim": 1, "between": None}


def measure(part, folder, directory, smoke=False):
    """Whatever fails, what else was measured is told."""
    measured, left_out, failures = [], {}, []
    try:
        environments = allocators() if part.with_allocators else [{}]
    except Failed as error:
        return Result([], {}, [f"{part.name}: {error}"])
    for environment in environments:
        lines, failure = run(part, folder, directory, smoke, environment)
        failures += [failure] if failure else []
        for told in lines:
            try:
                if "left_out" in told:
                    left_out[told["bench"]] = told["left_out"]
                else:
                    measured.append(evaluate(told, 1 if part.aims_at_peers else None))
            except (KeyError, ZeroDivisionError, statistics.StatisticsError) as error:
                failures.append(f"{part.name}: no measurement ({error!r}): {json.dumps(told)}")
    if part.at_most:
        measured += bound(part, measured)
    if not measured and not left_out and not failures:
        failures.append(f"{part.name}: its program told nothing")
    return Result(measured, left_out, failures)
