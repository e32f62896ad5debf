# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What this machine does, by the probe, at the shapes of the products of the cases' programs."""
import argparse
import json
import math
import os

from actmem.plan import machine, probe
from actmem.plan._trace import Program
from actmem.plan.work import flops_of, shape_of


def come_first(nice=-19):
    """Has this process, with those of its session, run before others, where that is permitted:
    what is measured are then the processors, as far as that goes on a machine that others use
    as well."""
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(nice))
    except OSError:
        pass


def shapes_of(graph):
    found = set()
    for node in graph.nodes:
        if node.op == "dot_general":
            shape = shape_of(node)
            found.add((*shape, flops_of(node) // (2 * math.prod(shape))))
    for node in graph.nodes:
        for body in node.bodies:
            found |= shapes_of(body)
    return found


def shapes(program):
    """(m, k, n) of the products of a program's step, and how many they are at once."""
    return shapes_of(Program(program.loss_of(None), program.args).graph(lambda *_, **__: False))


def measure(path, programs, command, folder, seconds, file_bytes=256 << 20):
    """The machine of the file `path`, with what it lacks for these programs."""
    told = None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
    wanted = sorted(set().union(*map(shapes, programs)))
    options = argparse.Namespace(
        products=[(m, k, n, "float32", batch) for m, k, n, batch in wanted], spill=[folder],
        allow_buffered=True, command=command, memory=16 << 20, file_bytes=file_bytes,
        seconds=seconds)
    come_first()
    told = probe.measure(told, options)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
    os.replace(f"{path}.new", path)
    return machine.from_json(told, path)
