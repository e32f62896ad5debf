# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What tests/gpu/run runs: its parts, in order, and the commands of each."""
import glob
import json
import os
import sys
from typing import Callable, NamedTuple, Optional

import machine
from machine import TREE, Missing

GIB = 1 << 30
LOGS = "build/check/gpu"


class Command(NamedTuple):
    name: str
    argv: list
    environment: dict = {}
    seconds: float = 600
    good: tuple = (0,)
    prefix: str = ""            # of the facts that it tells


class Part(NamedTuple):
    name: str
    title: str
    least: float                # seconds that earlier parts leave it
    seconds: float              # and the most that it takes
    commands: Callable          # (context, seconds) → Commands; or raises Missing
    after: Optional[Callable] = None


class Context:
    """Where things are, and the environment that programs get."""

    def __init__(self, options):
        self.standin = options.standin and os.path.abspath(options.standin)
        self.cuda_include = options.cuda_include
        self.layers_options = [f"--{name}={value}" for name, value in (
            ("models", options.models), ("forms", options.forms), ("ring", options.ring),
            ("trace", options.trace and os.path.join(TREE, LOGS))) if value]
        self.no_build = options.no_build or bool(options.build)
        self.build = os.path.join(TREE, options.build or machine.BUILD)
        self.library_folder = self.standin or ""
        self.environment = {
            "PYTHONPATH": ":".join(filter(None, [os.path.join(TREE, "lib/python"),
                                                 os.environ.get("PYTHONPATH")])),
            "ACTMEM_LIBDIR": os.path.join(self.build, "lib"),
            "ACTMEM_ALLOW": os.environ.get("ACTMEM_ALLOW", "thp,4k"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if self.standin:
            self.environment.update(LD_LIBRARY_PATH=self.standin, JAX_PLATFORMS="cpu",
                                    ACTMEM_ALLOW="any")
        self.test_environment = {}      # of programs in C, which ask for pages themselves

    def allow_unlocked(self):
        self.test_environment["ACTMEM_ALLOW"] = "unlocked"
        if self.environment["ACTMEM_ALLOW"] != "any":
            self.environment["ACTMEM_ALLOW"] += ",unlocked"

    @property
    def small(self):
        return bool(self.standin)

    def built(self, *names):
        """Paths of what the first part built."""
        paths = [os.path.join(self.build, name) for name in names]
        for path in paths:
            if not os.path.exists(path):
                raise Missing(f"{os.path.relpath(path, TREE)} was not built")
        return paths if len(paths) > 1 else paths[0]

    def python(self, name, script, *arguments, under=None, **more):
        """A program in Python; `under` are options of `actmem run`."""
        path = os.path.join(TREE, script)
        if not os.path.exists(path):
            raise Missing(f"there is no {script}")
        argv = [sys.executable, path, *map(str, arguments)]
        if under is not None:
            argv = [self.built("bin/actmem"), "run", *under, "--", *argv]
        return Command(name, argv, {**self.environment, **more.pop("environment", {})}, **more)


def _build(context, seconds, targets=("gpu-lists", "gpu-programs", "gpu-preload")):
    if context.no_build:
        return []
    arguments, told = machine.make_arguments(context.cuda_include)
    for line in told:
        print(f"  {line}")
    machine.clear_of_others()
    jobs = len(os.sched_getaffinity(0))
    # One after the other, as two makes would build the same at once.
    return [Command(f"make {target}", ["make", "-k", "-s", f"-j{jobs}", *arguments, target])
            for target in targets]


def _build_first(context, seconds):
    return _build(context, seconds, ("gpu-lists", "gpu-programs"))


def _sanity(context, seconds):
    return [context.python("sanity", "tests/gpu/sanity.py")]


def _probe_size(context):
    return str(64 << 20 if context.small else GIB)


def _probe_first(context, seconds):
    probe = context.built("tests/gpu-probe")
    return [Command(f"probe {group}", [probe, group, _probe_size(context)], context.environment,
                    seconds) for group, seconds in (("pieces", 25), ("device", 10))]


def _odd(context, seconds):
    return [Command("odd", [context.built("tests/gpu-probe"), "odd"], context.environment)]


def _probe(context, seconds):
    probe = context.built("tests/gpu-probe")
    commands = [Command("probe", [probe, _probe_size(context)], context.environment)]
    standin = os.path.join(context.build, "tests/cuda/standin")
    if not context.small and os.path.exists(standin):
        # What the tests elsewhere take for CUDA, asked the same.
        commands += [Command(f"stand-in {group}", [probe, group, "8388608"],
                             {**context.environment, "LD_LIBRARY_PATH": standin},
                             prefix="stand-in: ")
                     for group in ("flags", "registering", "freeing", "mapping", "contexts",
                                   "ranges", "capture")]
    return commands


def _only_differences(context, output):
    """Of the stand-in's answers those that are not the driver's."""
    for fact, answer in list(output.facts.items()):
        if fact.startswith("stand-in: "):
            if output.facts.get(fact.removeprefix("stand-in: ")) == answer or \
                    answer.startswith("0x"):
                del output.facts[fact]


def _listed(context, kind):
    """The programs that make says it builds, and what there is to say of those that it
    did not."""
    with open(context.built(f"{kind}-programs"), encoding="utf-8") as file:
        programs = [os.path.join(TREE, line) for line in file.read().split()]
    built = [path for path in programs if os.access(path, os.X_OK)]
    if not built:
        raise Missing(f"no programs of tests/{kind} were built")
    return built, [Command(f"{os.path.basename(path)} was not built", ["false"])
                   for path in programs if path not in built]


def _by_worth(program):
    """Copies by streams tell most of a card; what waits, and so takes long, is last."""
    name = os.path.basename(program)
    return name == "stream_waits", not name.startswith("stream"), name


def _cuda(context, seconds):
    programs, missing = _listed(context, "cuda")
    return missing + [_cuda_programs(context, sorted(programs, key=_by_worth))]


def _cuda_programs(context, programs):
    return Command("tests/cuda", ["tests/cuda/run", context.library_folder, *programs],
                   {"ACTMEM_TEST_SECONDS": "25", **context.test_environment})


# Of streams: what is asked of the driver, then the order of copies.
STREAMS = ("stream_api", "stream", "stream_announce", "stream_random")


def _streams(context, seconds):
    programs, _ = _listed(context, "cuda")
    paths = {os.path.basename(path): path for path in programs}
    return [_cuda_programs(context, [paths[name]])._replace(name=name, seconds=30)
            if name in paths else Command(f"{name} was not built", ["false"])
            for name in STREAMS]


def _preload(context, seconds):
    if not os.path.exists(os.path.join(TREE, "tests/preload/run")):
        raise Missing("there is no tests/preload")
    programs, missing = _listed(context, "preload")
    return missing + [Command("tests/preload", ["tests/preload/run", context.build,
                                                context.library_folder, *programs],
                              context.test_environment)]


def _program(name, *if_small):
    def commands(context, seconds):
        return [context.python(name, f"tests/gpu/{name}.py", *(if_small if context.small else ()))]
    return commands


def _tutorial(context, seconds):
    scripts = sorted(glob.glob(os.path.join(TREE, "examples/offload_*.py")))
    if not scripts:
        raise Missing("there are no examples/offload_*.py")
    commands = []
    for script in scripts:
        name = os.path.basename(script).removesuffix(".py")
        script = os.path.relpath(script, TREE)
        for way, under in (("plain", None), ("run", ["-v"])):
            told = os.path.join(TREE, LOGS, f"{name}-{way}.json")
            if os.path.exists(told):
                os.unlink(told)
            commands.append(context.python(
                f"{name} {way}", script, "--json", told,
                *(["--small"] if context.small else []), under=under))
    return commands


def _collect_tutorial(context, output):
    for path in sorted(glob.glob(os.path.join(TREE, LOGS, "offload_*.json"))):
        with open(path, encoding="utf-8") as file:
            output.data.append({"program": os.path.basename(path), "told": json.load(file)})


def _layers(context, seconds):
    return [context.python("layers", "tests/gpu/layers.py",
                           # It tells what it found by itself, before it is ended.
                           "--minutes", round(max(seconds - 10, 1) / 60, 2),
                           "--actmem", context.built("bin/actmem"), *context.layers_options,
                           *(["--toy"] if context.small else []))]


def _two_processes(context, seconds):
    return [context.python("two processes", "tests/gpu/two_processes.py",
                           "--actmem", context.built("bin/actmem"),
                           "--spill", machine.spill_folder(),
                           "--seconds", round(seconds))]


def _beside_alone(context, output):
    """Each figure under actmem run beside the same without it."""
    alone = {figure["figure"]: figure["value"] for figure in output.figures}
    for figure in output.figures:
        name, _, where = figure["figure"].partition(", ")
        peer = f"{name}, alone"
        if where == "under actmem run" and alone.get(peer):
            figure.update(peer=peer, peer_value=alone[peer], ratio=figure["value"] / alone[peer])


def _pinned(context, seconds, modules=("driver", "cudart", "torch", "cupy")):
    commands, small = [], ("--standin", "--bytes", 32 << 20) if context.small else ()
    for module in ("driver",) if context.small else modules:
        commands += [
            context.python(f"{module}", "tests/gpu/pinned.py", module, *small, good=(0, 77)),
            context.python(f"{module} under actmem run", "tests/gpu/pinned.py", module, *small,
                           "--in-region", under=["-v"], good=(0, 77))]
    return commands


def _pinned_first(context, seconds):
    return _pinned(context, seconds, ("driver", "cudart"))


def _checkpoint_first(context, seconds):
    return [context.python("checkpoint", "tests/gpu/checkpoint.py", "--case", "memory")]


PARTS = [
    # Without it there is nothing else.
    Part("build", "the library, the preload, the handlers, the command and the tests",
         150, 240, _build),
    Part("sanity", "does JAX compute here?", 30, 120, _sanity),
    Part("probe", "what the driver does where its manual is silent", 40, 240, _probe,
         _only_differences),
    Part("cuda", "tests of the runtime", 20, 120, _cuda),
    Part("preload", "tests of the preload", 30, 150, _preload),
    Part("checkpoint", "actmem.jax.checkpoint on the GPU", 90, 240,
         _program("checkpoint", "--cpu")),
    Part("arrays", "actmem.jax.asarray", 25, 90, _program("arrays")),
    Part("tutorial", "the examples, plain and under actmem run", 90, 240, _tutorial,
         _collect_tutorial),
    Part("layers", "a stack of transformer layers, offloaded by JAX and by actmem",
         180, 1500, _layers),
    Part("two_processes", "two processes that share limits", 70, 180, _two_processes),
    Part("pinned", "pinned memory of programs, PyTorch and CuPy", 45, 120, _pinned,
         _beside_alone),
    Part("odd", "what a driver may not bear: memory unmapped while it is registered, a context "
         "that is reset", 10, 60, _odd),
]

# Of tests/gpu/first: each answers a question (answers.py), then the first figures.
FIRST = [
    Part("build", "the library, the preload, the handlers, the command and the tests",
         70, 150, _build_first),
    Part("probe", "is memory of each kind registered, and how fast?", 15, 40, _probe_first),
    Part("cuda", "do copies by streams keep their order?", 20, 60, _streams),
    Part("checkpoint", "are gradients those of nothing offloaded?", 30, 75, _checkpoint_first),
    Part("pinned", "is the pinned memory of programs in a region?", 15, 30, _pinned_first,
         _beside_alone),
    Part("layers", "a stack of transformer layers, offloaded by JAX and by actmem",
         180, 540, _layers),
]
