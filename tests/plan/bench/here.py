# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What this machine does, by the probe, at the shapes of the products of the cases' programs."""
import argparse
import contextlib
import json
import math
import os
import signal
import time

from actmem.plan import machine, probe
from actmem.plan._trace import Program
from actmem.plan.work import flops_of, shape_of


AUTOGROUP = "/proc/self/autogroup"


def nice_of_session():
    """The priority of this session, or None if the kernel has none for sessions."""
    try:
        with open(AUTOGROUP, encoding="ascii") as file:
            return int(file.read().split()[-1])
    except (OSError, IndexError):
        return None


def set_nice(nice):
    with open(AUTOGROUP, "w", encoding="ascii") as file:
        file.write(str(nice))


def reset_nice(nice):
    while True:
        try:
            return set_nice(nice)
        except BlockingIOError:         # the kernel limits how often a user may set it
            time.sleep(0.05)


@contextlib.contextmanager
def first(nice=-19):
    """Runs this process, with those of its session, before others, if that is permitted: so it
    measures the processors as well as it can on a machine that others use, too. The session gets
    its old priority back at the end, also if an exception, SIGTERM or SIGHUP ends the process."""
    before = nice_of_session()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    is_first = before is not None

    def reset():
        if is_first:
            reset_nice(before)

    def end(number, _frame):
        reset()
        signal.signal(number, handlers[number])
        os.kill(os.getpid(), number)

    try:
        for number, handler in handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, end)
        try:
            if is_first:
                set_nice(nice)
        except OSError:
            is_first = False
        yield
    finally:
        reset()
        for number, handler in handlers.items():
            signal.signal(number, handler)


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
    with first():
        told = probe.measure(told, options)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(told, file, indent=1)
    os.replace(f"{path}.new", path)
    return machine.from_json(told, path)
