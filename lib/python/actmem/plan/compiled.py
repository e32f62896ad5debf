# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Compiles each program for a target (targets.py) in a process of its own. Returns the memory that
the program needs, and the numbers that _schedule.py counts in the program's schedule. This machine
need not have the target's devices. No program runs.

    program = compiled.compile_for(target, compiled.lowered(step, shapes, target))
    program.peak, program.schedule.late_out

Results are kept in $XDG_CACHE_HOME/actmem/compiled. The key of a result is a hash of the lowered
program, the target, and the flags and versions of the compilers.
"""
from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import export

from actmem.plan import targets
from actmem.plan._schedule import Schedule
from actmem.plan.targets import Target

FORMAT = 4                      # version of the format of saved results; part of their keys
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
NO_VARIABLES: Mapping[str, str] = {}
COMPILERS = ("jax", "jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin", "libtpu")
# Matches source lines in a program's text.
PLACES = re.compile(r'^#loc.*\n| loc\((?:[^()"]|"[^"]*"|\((?:[^()"]|"[^"]*")*\))*\)', re.MULTILINE)
# The custom calls of actmem, which jax.export must accept in a program.
CALLS = tuple(export.DisabledSafetyCheck.custom_call(f"actmem_{name}")
              for name in ("put", "take", "tie", "hold", "drop", "ghost", "update"))


class CompileError(ValueError):
    """The compiler failed. The error message has the last line that the compiler printed."""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """The result of compiling a program. Sizes are in bytes, on one device."""
    argument: int = 0
    output: int = 0
    temp: int = 0
    alias: int = 0
    host_temp: int = 0
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    exhausted: str = ""         # XLA's error message if the program does not fit, or ""

    @property
    def peak(self) -> int:
        """The most device memory that the program needs."""
        return self.argument + self.output + self.temp - self.alias

    @property
    def host_bytes(self) -> int:
        return self.host_temp + self.schedule.put_bytes


def flags() -> dict[str, str]:
    """Returns the environment variables that set flags of the compilers."""
    return {name: os.environ[name] for name in FLAGS if os.environ.get(name)}


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A program that is lowered for a platform, and the axes of its mesh. Each axis has a name, a
    size and a type. Objects of this class can be pickled."""
    exported: Any               # jax.export.Exported
    axes: tuple[tuple[str, int, Any], ...] = ()
    donated: tuple[int, ...] = ()       # arguments that the program may overwrite

    @property
    def devices(self) -> int:
        return int(self.exported.nr_devices)


def lowered(function: Callable[..., Any], shapes: Sequence[Any], target: Target,
            donated: int = 0) -> Lowered:
    """Lowers a function for the target's platform. `shapes` describes the arguments. The program
    may overwrite its first arguments, as long as together they have at most `donated` bytes."""
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
    found = export.export(jitted, platforms=[target.platform], disabled_checks=CALLS)(*shapes)
    meshes = [each.sharding.mesh for each in jax.tree.leaves(shapes)
              if isinstance(getattr(each, "sharding", None), jax.sharding.NamedSharding)]
    axes = next((tuple(zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types))
                 for mesh in meshes if mesh.size == found.nr_devices), ())
    # Omit the program's derivative: JAX stores it as a function, which cannot be pickled.
    return Lowered(dataclasses.replace(found, _get_vjp=None), axes,
                   _first(jax.tree.leaves(shapes), donated))


def _first(shapes: Sequence[Any], size: int) -> tuple[int, ...]:
    """Returns the indices of the first shapes that together have at most `size` bytes. Skips shapes
    in host memory."""
    found = []
    for i, shape in enumerate(shapes):
        sharding = getattr(shape, "sharding", None)
        sizes = shape.shape if sharding is None else sharding.shard_shape(shape.shape)
        each = math.prod(sizes) * shape.dtype.itemsize
        if getattr(sharding, "memory_kind", None) == "pinned_host":
            continue
        if each > size:
            break
        found.append(i)
        size -= each
    return tuple(found)


def _versions() -> list[str]:
    found = []
    for name in COMPILERS:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def _cache_path(target: Target, program: Lowered, variables: Mapping[str, str]) -> str:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    words = repr((FORMAT, dataclasses.astuple(target), sorted({**flags(), **variables}.items()),
                  _versions(), program.axes, program.donated,
                  [str(aval) for aval in program.exported.in_avals]))
    text = PLACES.sub("", program.exported.mlir_module())
    key = hashlib.sha256(f"{words}{text}".encode())
    return os.path.join(folder, "actmem", "compiled", f"{key.hexdigest()[:32]}.json")


def _of_json(found: Any) -> Compiled:
    return Compiled(**{**found, "schedule": Schedule(**found.get("schedule", {}))})


def _kept(path: str) -> Compiled | None:
    """Returns the result in a file of the cache, or None if the file cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return _of_json(json.load(file))
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _keep(path: str, found: dict[str, Any]) -> None:
    """Writes a result to the cache. Ignores errors: they only cost another compilation."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(found, file)
        os.replace(file.name, path)
    except OSError:
        pass


def _environment(target: Target) -> dict[str, str]:
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    more = {"TPU_SKIP_MDS_QUERY": "1"} if target.platform == "tpu" else \
        {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    return {"TF_CPP_MIN_LOG_LEVEL": "3"} | os.environ | {
        "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"} | more


def _status_text(status: int) -> str:
    return f"exit status {status}" if status > 0 else f"signal {-status}"


def _reason(stderr: str) -> str:
    """Returns the last line that a compiler printed. Ignores notes and warnings of glog."""
    lines = [line.strip() for line in stderr.splitlines()
             if line.strip() and not re.match(r"[IW]\d{4}|WARNING: ", line)]
    return lines[-1] if lines else "the compiler printed no error"


def _run(target: Target, program: Lowered, variables: Mapping[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="actmem-") as folder:
        request, result = (os.path.join(folder, name) for name in ("request", "result"))
        with open(request, "wb") as file:
            pickle.dump((target, program.exported, program.axes, program.donated), file)
        done = subprocess.run([sys.executable, "-m", "actmem.plan._compiling", str(os.getpid()),
                               request, result], env={**_environment(target), **variables},
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if done.returncode:
            raise CompileError(f"compiling for {target.name} failed "
                               f"({_status_text(done.returncode)}): {_reason(done.stderr)}")
        with open(result, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found


def compile_for(target: Target, program: Lowered,
                variables: Mapping[str, str] = NO_VARIABLES) -> Compiled:
    """Compiles a program, unless the cache has the result. `variables` are added to the environment
    of the compiler.

    Raises:
      ImportError: The compiler is not installed. The error message has the command to install it.
      CompileError: The compiler failed.
      ValueError: The program is for several devices, but the target has a different number of
        devices.
    """
    if program.devices not in (1, target.devices):
        raise ValueError(f"the program is for {program.devices} devices, but {target.name} "
                         f"has {target.devices}: use a mesh of {target.devices} devices")
    targets.check_compiler(target)
    path = _cache_path(target, program, variables)
    known = _kept(path)
    if known is None:
        found = _run(target, program, variables)
        _keep(path, found)
        known = _of_json(found)
    return known
