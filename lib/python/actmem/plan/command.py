# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem plan: plans a model, or a function in a file, on a machine."""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import jax

import actmem
from actmem import _wheel
from actmem._command import DONE, FAILED, UsageError
from actmem.plan import Choice, Plan, decoder, defaults, memory, of_model, placement, plan
from actmem.plan import machine as machines
from actmem.plan import models, targets
from actmem.plan.wear import Endurance

OF_UPDATE = ("optimizer", "state_dtype", "master", "no_clip", "accumulate", "unrolled",
             "disk_bytes", "disk_endurance", "allow_wear")
OF_MODELS = ("devices", "mesh", "batch", "tokens", "images", "train", "lora", "attention",
             *OF_UPDATE)

Named = TypeVar("Named")


class FunctionError(ValueError):
    """The file lacks the function, or the function returns a wrong value."""


def load(what: str) -> tuple[Any, ...]:
    """Calls FUNCTION in FILE.py. Returns the function and the arguments that FUNCTION returns. The
    file can import modules from its own folder."""
    path, _, name = what.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise UsageError(f"'{what}' is not a function in a file, such as train.py:make_step")
    if not os.path.isfile(path):
        raise FunctionError(f"there is no file '{path}'")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    make = getattr(module, name, None)
    if not callable(make):
        has = ", ".join(key for key, value in vars(module).items()
                        if callable(value) and not key.startswith("_"))
        raise FunctionError(f"'{path}' has no function {name}: its functions are {has or 'none'}")
    made = make()
    if not isinstance(made, tuple) or not made or not callable(made[0]):
        raise FunctionError(f"{name}() of '{path}' returned {type(made).__name__}: it must "
                            "return a loss or a step, and its arguments, such as (loss, params, "
                            "batch)")
    try:
        inspect.signature(made[0]).bind(*made[1:])
    except TypeError as error:
        raise FunctionError(f"{name}() of '{path}' returned a function and {len(made) - 1} "
                            f"arguments, but the function does not accept these: {error}"
                            ) from None
    except ValueError:      # the function has no signature
        pass
    return made


def _place_of(error: BaseException, path: str) -> str:
    """Returns the line of the user's file where the error arose, or ""."""
    if isinstance(error, SyntaxError) and error.filename and os.path.samefile(
            error.filename, path):
        return f"{path}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
             if os.path.abspath(frame.filename) == os.path.abspath(path)]
    return f"{path}:{lines[-1]}" if lines else ""


def _words_of(error: Exception, options: argparse.Namespace) -> str:
    """Returns the error message as one line, or "" if the user did not cause the error."""
    words = str(error).partition("\n")[0]
    if options.function and not isinstance(error, FunctionError):
        place = _place_of(error, options.function.rpartition(":")[0])
        if place:
            return f"{place}: {type(error).__name__}: {words}"
    return words if isinstance(error, (ValueError, ImportError, OSError, actmem.Error,
                                       jax.errors.JAXTypeError)) else ""


def _tell(words: str) -> int:
    print(f"{_wheel.command('plan')}: {words}", file=sys.stderr)
    return FAILED


def _shard(options: argparse.Namespace, machine: machines.Machine) -> decoder.Shard:
    if options.compile:
        devices = targets.find(options.compile).devices
        if (options.devices or devices) != devices or \
                (options.mesh or {"fsdp": devices}) != {"fsdp": devices}:
            raise UsageError(f"--compile {options.compile} shards a model over {devices} devices "
                             "(fsdp): leave --devices and --mesh out")
        return decoder.Shard(fsdp=devices)
    if options.mesh:
        shard = decoder.Shard(**options.mesh)
        if options.devices and options.devices != shard.devices:
            raise UsageError(f"--mesh has {shard.devices} devices, but --devices is "
                             f"{options.devices}")
        return shard
    return decoder.Shard(fsdp=options.devices or int(machine.need("devices")))


def _find(find: Callable[[str], Named], name: str) -> Named:
    """Finds a model, a machine or a target. An unknown name is bad usage."""
    try:
        return find(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _find_machine(name: str) -> machines.Machine:
    if name == "here" or name.endswith((".json", ".csv")):
        return machines.find(name)
    return _find(machines.find, name)


def _target(options: argparse.Namespace) -> targets.Target | None:
    """Returns the target of --compile. If the target has several devices, gives JAX as many CPU
    devices, so that the user's function can make its mesh."""
    if not options.compile:
        return None
    target = _find(targets.find, options.compile)
    if options.machine and options.machine != target.machine:
        raise UsageError(f"--compile {target.name} implies --machine {target.machine}, but "
                         f"--machine is {options.machine}")
    if target.devices > 1:
        with contextlib.suppress(RuntimeError):     # raised if JAX has already created its devices
            jax.config.update("jax_num_cpu_devices", target.devices)
    return target


def _choice(options: argparse.Namespace) -> Choice | None:
    kept, offloaded = frozenset(options.keep or ()), frozenset(options.offload or ())
    both = ", ".join(sorted(kept & offloaded))
    if both:
        raise UsageError(f"{both} is in --keep and in --offload")
    if options.keep is None and options.offload is None:
        return None
    return Choice(kept, offloaded)


def _training(options: argparse.Namespace) -> placement.Training:
    writes, total = options.disk_endurance or (1.0, None)
    return placement.Training(
        options.optimizer or "adamw", options.state_dtype or "float32", options.master != "none",
        not options.no_clip, options.accumulate or 1, bool(options.unrolled),
        Endurance(writes, total), bool(options.allow_wear))


Found = tuple[Plan, list[of_model.Length], placement.Placed | None]


def _of_model(options: argparse.Namespace, machine: machines.Machine) -> Found:
    model = _find(models.find, options.model) if options.model else models.load(options.config)
    shard, training = _shard(options, machine), _training(options)
    least = shard.data * shard.fsdp * shard.expert * training.microbatches
    batch = (options.batch or least) // training.microbatches
    if options.batch and options.batch % training.microbatches:
        raise decoder.ShardError(f"accumulate={training.microbatches} does not divide the batch, "
                                 f"which is {options.batch}")
    shape = {"batch": batch, "images": options.images, "shard": shard,
             "train": options.train or "all", "attention": options.attention or "kernel",
             "lora": decoder.Lora(rank=options.lora) if options.lora else None}

    def plan_at(tokens: int, more: dict[str, Any], compiled: str | None = None) -> Plan:
        return of_model.plan_of(model, machine, tokens=tokens,
                                **shape | {"device_memory": options.device_memory,
                                           "host_memory": options.host_memory,
                                           "choice": _choice(options), "compile": compiled,
                                           "curve": bool(options.plot)} | more)
    first, *others = options.tokens or [4096]
    if options.compile:
        return plan_at(first, {}, options.compile), of_model.by_length(
            lambda tokens: plan_at(tokens, {}), others), None
    step = decoder.step(model, tokens=first, **shape)
    chooser = placement.Chooser(
        training, placement.Sizes.of(step, training.bytes), machine,
        options.device_memory or defaults.device_memory_of(machine),
        options.host_memory or defaults.host_memory_of(machine),
        lambda more: plan_at(first, more), _choice(options) is not None)
    found, placed = chooser.choose()
    more = chooser.options_of(found)
    return found, of_model.by_length(lambda tokens: plan_at(tokens, more), others), placed


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _of_function(options: argparse.Namespace, machine: machines.Machine) -> Found:
    for name in OF_MODELS:
        if getattr(options, name) is not None:
            raise UsageError(f"{_option(name)} applies only to a model: '{options.function}' sets "
                             "it itself")
    function, *arguments = load(options.function)
    compiler = defaults.compiler_of(machine)
    return plan(function, *arguments, machine=machine, compiler=compiler,
                # On a CPU, only actmem can move values out of the memory that programs use.
                destination="actmem" if compiler is memory.CPU else "pinned_host",
                device_memory=options.device_memory, host_memory=options.host_memory,
                model=options.function, choice=_choice(options),
                measure=options.measure or 0, compile=options.compile,
                curve=bool(options.plot)), [], None


def _planned(options: argparse.Namespace) -> tuple[Found, machines.Machine]:
    given = [what for what in (options.model, options.config, options.function) if what]
    if len(given) != 1:
        raise UsageError("give exactly one of --model NAME, --config FILE and FILE.py:FUNCTION")
    if options.measure and not options.function:
        raise UsageError("--measure runs a program: give FILE.py:FUNCTION, not a model")
    if options.measure and (options.keep is not None or options.offload is not None):
        raise UsageError("--measure cannot be combined with --keep or --offload: it searches for "
                         "the fastest policy")
    if options.measure and options.compile:
        raise UsageError("--measure and --compile cannot be combined: --measure runs programs on "
                         "this machine, but --compile only compiles them for another one")
    if options.measure and options.machine not in (None, "here"):
        raise UsageError(f"--measure runs on this machine, but --machine is {options.machine}")
    if options.lora and options.train:
        raise UsageError("--lora and --train cannot be combined: --lora trains only its factors")
    if options.json and options.maxtext:
        raise UsageError("--json and --maxtext cannot be combined")
    for name in OF_UPDATE:
        if options.compile and getattr(options, name) is not None:
            raise UsageError(f"--compile and {_option(name)} cannot be combined: --compile compiles "
                             "programs whose state is on the device")
    target = _target(options)
    machine = _find_machine(options.machine or (target.machine if target else "here"))
    if options.disk:
        machine = machine.replace(disk_read=options.disk[0], disk_write=options.disk[1])
    if options.disk_bytes:
        machine = machine.replace(disk_bytes=options.disk_bytes)
    return (_of_function if options.function else _of_model)(options, machine), machine


def run(options: argparse.Namespace) -> int:
    """Runs actmem plan with the options of _command.plan_parser()."""
    if options.plot and not importlib.util.find_spec("matplotlib"):
        return _tell("--plot needs matplotlib: pip install matplotlib")
    # Traces make many objects that live until the process ends. Search them for cycles less often.
    gc.set_threshold(100_000)
    try:
        (found, lengths, placed), machine = _planned(options)
    except UsageError:
        raise
    except Exception as error:      # pylint: disable=broad-exception-caught
        words = _words_of(error, options)
        if not words:
            raise
        return _tell(words)
    if options.json:
        others = {"lengths": [each.json() for each in lengths]} if lengths else {}
        where = {"placement": placed.json()} if placed else {}
        print(json.dumps(found.json() | where | others, indent=1))
    elif options.maxtext:
        print(found.maxtext(), end="")
    else:
        print("\n".join([str(found), *([str(placed)] if placed else []),
                         *(each.line(found) for each in lengths)]))
        assumed = machine.assumptions()
        if assumed:
            print(f"assumed figures of {machine.name}: {', '.join(assumed)}")
    try:
        if options.save:
            dataclasses.replace(found, placement=placed.saved if placed else "").save(
                options.save)
        if options.plot:
            found.plot(options.plot)
    except (ValueError, ImportError, OSError) as error:
        return _tell(str(error).partition("\n")[0])
    return DONE
