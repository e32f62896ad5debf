# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""List the parts of tests/gpu/run: their commands, and how long each may take."""
import glob
import os
import shlex
import sys
from collections.abc import Callable
from typing import NamedTuple

import machine
from machine import TREE

# XLA's search for the fastest kernels takes longer than a test may.
NO_SEARCH = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0"}


class Part(NamedTuple):
    name: str
    seconds: float
    commands: Callable          # (options, seconds) → (name, argv, environment, seconds, good)


def _python(options, name, script, *arguments, under=None, seconds=600, good=(0,), search=False):
    """Return the command that runs a Python program, under `actmem run` if asked for."""
    build = os.path.join(TREE, options.build)
    environment = {"PYTHONPATH": os.path.join(TREE, "lib/python"), "PYTHONUNBUFFERED": "1",
                   "PYTHONDONTWRITEBYTECODE": "1", "ACTMEM_LIBDIR": f"{build}/lib",
                   "ACTMEM_ALLOW": "thp,4k,unlocked",
                   **({} if search else NO_SEARCH)}
    if options.standin:
        environment.update(LD_LIBRARY_PATH=os.path.abspath(options.standin),
                           JAX_PLATFORMS="cpu", ACTMEM_ALLOW="any",
                           XLA_FLAGS="--xla_backend_optimization_level=0")
    prefix = [f"{build}/bin/actmem", "run", *under, "--"] if under is not None else []
    return (name, [*prefix, sys.executable, os.path.join(TREE, script), *arguments], environment,
            seconds, good)


def _make(target):
    def commands(options, seconds):
        jobs = len(os.sched_getaffinity(0))
        return [(f"make {target}", [machine.make(), "-k", "-s", f"-j{jobs}",
                                    *machine.make_arguments(), target],
                 {"ACTMEM_TEST_SECONDS": "25"}, seconds, (0,))]
    return commands


def _layers(*fixed):
    def commands(options, seconds):
        small = ["--toy", "--forms=scanned"] if options.standin else []
        return [_python(options, "layers", "tests/gpu/layers.py", f"--actmem={options.build}"
                        "/bin/actmem", f"--minutes={max(seconds - 10, 1) / 60:.2f}", *fixed,
                        *small, *shlex.split(options.layers), seconds=seconds, search=True)]
    return commands


def _probe(*groups):
    def commands(options, seconds):
        more = [] if options.standin else [f"--standin={machine.BUILD}/tests/cuda/standin"]
        return [_python(options, f"probe {group}", "tests/gpu/probe.py", group, *more, seconds=60)
                for group in groups]
    return commands


def _program(name, *if_small):
    def commands(options, seconds):
        return [_python(options, name, f"tests/gpu/{name}.py",
                        *(if_small if options.standin else ()), seconds=seconds)]
    return commands


def _programs(options, seconds):
    """Random programs, on all cores: XLA compiles each several times."""
    how = ["--count=4"] if options.standin else [
        "--gpu", f"--jobs={min(len(os.sched_getaffinity(0)), 14)}",
        f"--seconds={max(seconds - 60, 10):.0f}"]
    return [_python(options, "programs", "tests/jax/programs.py", "1", "--tap",
                    "--shrink-seconds=0", *how)]


def _tutorial(options, seconds):
    return [_python(options, f"{os.path.basename(script)} {way}", script, under=under)
            for script in sorted(glob.glob("examples/offload_*.py"))
            for way, under in (("plain", None), ("run", ["-v"]))]


def _pinned(options, seconds):
    modules = ("driver",) if options.standin else ("driver", "cudart", "torch")
    small = [f"--bytes={32 << 20}"] if options.standin else []
    return [_python(options, f"{module} {way}", "tests/gpu/pinned.py", module, *small, *more,
                    under=under, good=(0, 77)) for module in modules for way, under, more in (
                        ("alone", None, []), ("under actmem run", ["-v"], ["--in-region"]))]


BUILD = Part("build", 300, _make("gpu-needs"))
# Three cases, for the first minutes on a card.
FIRST = [BUILD, Part("layers", 540, _layers(
    "--models=llama-2-13b", "--forms=scanned", "--methods=recomputed;stock;actmem", "--flags="))]
# Tests come before measurements, and last what may leave the driver in disorder.
PARTS = [
    BUILD,
    Part("probe", 240, _probe("flags", "registering", "freeing", "ranges", "capture")),
    Part("cuda", 150, _make("check-gpu")),
    Part("preload", 200, _make("check-gpu-preload")),
    Part("checkpoint", 240, _program("checkpoint", "--cpu")),
    Part("programs", 240, _programs),
    Part("arrays", 90, _program("arrays")),
    Part("tutorial", 240, _tutorial),
    Part("pinned", 120, _pinned),
    Part("state", 540, _program("state", "--cpu")),
    Part("layers", 2400, _layers()),
    Part("odd", 60, _probe("unmapping")),
]
