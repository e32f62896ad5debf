# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The options, help and error messages of the commands `actmem plan` and `actmem probe`. This
module does not need JAX. actmem.plan.command and actmem.plan.probe do the work."""
from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from actmem import _wheel

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
AXES = ("data", "fsdp", "tensor", "sequence", "expert")
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


class UsageError(ValueError):
    """The value of an option is invalid. The error message names the option."""


class _Parser(argparse.ArgumentParser):
    """Prints an error on one line, and a second line that refers to --help."""

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())      # argparse would ignore write errors

    def format_help(self) -> str:
        return super().format_help().replace("usage:", "Usage:", 1)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}\nTry '{self.prog} --help'.", file=sys.stderr)
        raise SystemExit(USAGE)


def _bytes(word: str) -> int:
    number = word[:-1] if word[-1:] in _UNITS else word
    if not number.isdecimal() or not int(number):
        raise argparse.ArgumentTypeError(f"'{word}' is not a number of bytes, such as 256M")
    return int(number) << _UNITS.get(word[-1:], 0)


def _bytes_from(least: str) -> Callable[[str], int]:
    """Returns a parser of numbers of bytes that are at least `least`, such as "2M"."""
    def parsed(word: str) -> int:
        if (number := _bytes(word)) < _bytes(least):
            raise argparse.ArgumentTypeError(f"'{word}' is less than {least}")
        return number
    return parsed


def _count(word: str, least: int = 1) -> int:
    if not word.isdecimal() or not least <= int(word) <= 1 << 30:
        raise argparse.ArgumentTypeError(f"'{word}' is not a number from {least} to {1 << 30}")
    return int(word)


def _count_or_none(word: str) -> int:
    return _count(word, 0)


def _counts(word: str) -> list[int]:
    counts = [_count(part) for part in word.split(",")]
    if len(set(counts)) < len(counts):
        raise argparse.ArgumentTypeError(f"'{word}' contains a number twice")
    return counts


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"'{word}' is not a number of seconds from 0 to 3600")
    return value


def _rates(word: str) -> tuple[int, int]:
    read, comma, write = word.partition(",")
    if not comma:
        raise argparse.ArgumentTypeError(f"'{word}' is not READ,WRITE in bytes a second, such as "
                                         "48G,26G")
    return _bytes(read), _bytes(write)


def _endurance(word: str) -> tuple[float, float | None]:
    """Returns the rated drive writes a day, and the rated total of written bytes. For a word such
    as 3, the second result is None. For a word such as 56PB, the first result is 1."""
    try:
        value = float(word.removesuffix("PB"))
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(
            f"'{word}' is neither drive writes a day, such as 3, nor written bytes, such as 56PB")
    return (1.0, value * 1e15) if word.endswith("PB") else (value, None)


def _mesh(word: str) -> dict[str, int]:
    mesh = {}
    for part in word.split(","):
        axis, _, number = part.partition("=")
        if axis not in AXES or not number:
            raise argparse.ArgumentTypeError(
                f"'{part}' is not an axis with its number of devices, such as fsdp=8: valid axes "
                f"are {', '.join(AXES)}")
        if axis in mesh:
            raise argparse.ArgumentTypeError(f"'{axis}' is given twice")
        mesh[axis] = _count(number)
    return mesh


def _names(word: str) -> tuple[str, ...]:
    return tuple(name for name in word.split(",") if name)


def plan_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_wheel.command("plan"), usage="%(prog)s [OPTION]... [FILE.py:FUNCTION]",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Predicts a training step on a machine. For each named value of the step, "
        "decides whether\nto keep the value on the device, offload it to the host, or recompute "
        "it in the backward\npass. The step is that of a model (--model, --config) or of "
        "FUNCTION. FUNCTION returns the\narguments of actmem.jax.plan(): a loss or a step, and "
        "its arguments or their shapes.",
        epilog="Without --offload and --keep, finds the fastest policy that fits. Otherwise, "
        "predicts the\npolicy that these options specify. The exit status is 1 if no policy fits "
        "or the plan fails,\nand 2 for bad usage.")
    parser.add_argument("function", nargs="?", metavar="FILE.py:FUNCTION",
                        help=argparse.SUPPRESS)
    add = parser.add_argument_group("Step").add_argument
    add("--model", metavar="NAME", help="a model in the table, such as llama-3.3-70b")
    add("--config", metavar="FILE", help="a model's config.json in the format of Hugging Face")
    add("--batch", metavar="N", type=_count,
        help="sequences in a model's step, on all devices together; default: one per device")
    add("--tokens", metavar="N[,N...]", type=_counts,
        help="text tokens in each sequence; default: 4096. For each further length, only report "
             "the names whose action differs from the action at the first length")
    add("--images", metavar="N", type=_count_or_none,
        help="images in front of each sequence; default: the model's usual number")
    add("--train", choices=("all", "attention"), metavar="all|attention",
        help="which weights of the model are trained; default: all")
    add("--lora", metavar="RANK", type=_count,
        help="train LoRA factors of that rank instead of weights")
    add("--attention", choices=("kernel", "dot_product"), metavar="kernel|dot_product",
        help="how the model computes attention, by MaxText's names; default: kernel")
    add = parser.add_argument_group("Update").add_argument
    add("--optimizer", choices=("adamw", "lion", "sgd"), metavar="adamw|lion|sgd",
        help="optimizer with two moments for each weight (adamw), one (lion) or none (sgd); "
             "default: adamw")
    add("--state-dtype", choices=("float32", "bfloat16"), metavar="float32|bfloat16",
        help="type of the moments; default: float32")
    add("--master", choices=("f32", "none"), metavar="f32|none",
        help="whether there are float32 weights besides the bfloat16 weights; default: f32")
    add("--no-clip", action="store_true", default=None,
        help="the update needs no value that depends on all gradients, such as their norm")
    add("--accumulate", metavar="N", type=_count,
        help="divide the batch into N micro-batches and add up their gradients")
    add("--unrolled", action="store_true", default=None,
        help="layers are in a Python loop instead of lax.scan, so a pass can hide the update")
    add = parser.add_argument_group("Machine").add_argument
    add("--machine", metavar="here|NAME|FILE",
        help="a machine in the table, such as h200; a file; or here, which is this machine as "
             f"{_wheel.command('probe')} measured it; default: the machine of --compile, or here")
    add("--devices", metavar="N", type=_count,
        help="number of devices that share the model (fsdp); default: the devices of one host")
    add("--mesh", metavar="AXIS=N,...", type=_mesh,
        help=f"instead of --devices: number of devices on each axis. Axes: {', '.join(AXES)}")
    add("--device-memory", metavar="SIZE", type=_bytes,
        help="maximum memory of a step on each device, such as 70G; default: 90%% of the "
             "device's memory")
    add("--host-memory", metavar="SIZE", type=_bytes,
        help="host memory for the values and the state of one device; the rest goes to files; default: the "
             "device's share of the host's memory")
    add("--disk", metavar="READ,WRITE", type=_rates,
        help="bytes a second of all disks of a host together, such as 48G,26G; default: rates "
             f"that {_wheel.command('probe')} --spill measured")
    add("--disk-bytes", metavar="SIZE", type=_bytes,
        help="size of all disks of a host together; default: the machine's size, or 8 disks of "
             "3.84 TB")
    add("--disk-endurance", metavar="N|NPB", type=_endurance,
        help="drive writes a day, or petabytes in five years, that the disks of a host are rated "
             "for; default: 1 drive write a day")
    add("--allow-wear", action="store_true", default=None,
        help="accept plans that write more than ten times the bytes that the disks are rated for")
    add = parser.add_argument_group("Policy").add_argument
    add("--offload", metavar="NAME,...", type=_names,
        help="predict a policy that offloads these names")
    add("--keep", metavar="NAME,...", type=_names,
        help="predict a policy that keeps these names on the device")
    add("--compile", metavar="TARGET",
        help="let XLA compile the best few policies for a target, such as h200, h200x8 or "
             "v5p:2x2x1, and drop those that do not fit or save no time. This machine need not "
             "have the target")
    add("--measure", metavar="N", type=_count,
        help="compile the best few policies, run N steps of each, and choose the fastest")
    add = parser.add_argument_group("Output").add_argument
    add("--plot", metavar="FILE",
        help="draw step time against device memory to a file such as plan.svg")
    add("--save", metavar="FILE",
        help="save the plan for actmem.jax.load_plan() and actmem replay --plan")
    add("--maxtext", action="store_true", help="print the lines of a MaxText configuration")
    add("-J", "--json", action="store_true", help="print JSON")
    add("-h", "--help", action="help", help="print this")
    return parser


def probe_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_wheel.command("probe"), usage="%(prog)s [OPTION]...", add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures the rates of this machine for actmem plan: matrix products, device "
        "memory, the\nlink to the host, the host's memory and files. Saves the results. Later "
        "calls measure\nonly rates that are not saved yet, and save them too.")
    add = parser.add_argument_group("Measurements").add_argument
    add("--products", metavar="MxKxN,...", help="shapes of products, such as 4096x8192x8192")
    add("--dtypes", metavar="NAME,...", default="bfloat16,float32",
        help="types of products; default: bfloat16,float32")
    add("--spill", metavar="DIR", action="append", default=[],
        help="measure files in this directory; may be repeated")
    add("--allow-buffered", action="store_true",
        help="use the page cache if the file system has no direct I/O")
    # actmem bench, which measures these, refuses less.
    add("--memory", metavar="SIZE", type=_bytes_from("2M"), default=256 << 20,
        help="bytes to copy in each measurement; default: 256M")
    add("--file-bytes", metavar="SIZE", type=_bytes_from("1M"), default=1 << 30,
        help="length of the file in a --spill directory; default: 1G")
    add("--seconds", metavar="SECONDS", type=_seconds, default=0.5,
        help="duration of each measurement; default: 0.5")
    add("--command", metavar="FILE", default="actmem",
        help="the actmem command that measures memory and files; default: the one that was "
             "called, or actmem in PATH")
    add("--again", action="store_true", help="discard saved results")
    add = parser.add_argument_group("Output").add_argument
    add("-J", "--json", action="store_true", help="print JSON")
    add("-h", "--help", action="help", help="print this")
    return parser


COMMANDS = {"plan": (plan_parser, "actmem.plan.command"), "probe": (probe_parser,
                                                                    "actmem.plan.probe")}


def _has_jax(prog: str) -> bool:
    try:
        importlib.import_module("jax")
    except ImportError as error:
        print(f"{prog}: {sys.executable} cannot import JAX ({error}): activate an environment "
              "that has JAX, or run `pip install jax`",
              file=sys.stderr)
        return False
    return True


def _has_device(prog: str) -> bool:
    """Returns whether JAX has a device. JAX has no device if JAX_PLATFORMS names a platform that is
    not available."""
    try:
        importlib.import_module("jax").local_devices()
    except (RuntimeError, AssertionError) as error:
        of = os.environ.get("JAX_PLATFORMS", "")
        print(f"{prog}: JAX has no device{f' of JAX_PLATFORMS={of}' if of else ''}: "
              f"{str(error).partition(chr(10))[0] or 'JAX does not know that platform'}",
              file=sys.stderr)
        return False
    return True


def run(arguments: Sequence[str]) -> int:
    """Runs the command. After printing a usage error or the help, raises SystemExit."""
    name, *rest = arguments or [""]
    if name not in COMMANDS:
        print(f"python3 -m actmem: '{name}' must be one of {', '.join(COMMANDS)}; "
              "docs/installing.md says how to install the actmem command, which has more commands",
              file=sys.stderr)
        return USAGE
    make, module = COMMANDS[name]
    parser = make()
    options = parser.parse_args(rest)
    runs = name != "plan" or options.measure or not options.compile and options.machine in (
        None, "here")
    if not runs:            # leave the accelerator to other processes
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    if not _has_jax(parser.prog) or (runs and not _has_device(parser.prog)):
        return FAILED
    try:
        status: int = importlib.import_module(module).run(options)
    except UsageError as error:
        parser.error(str(error))
    except ImportError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        status = FAILED
    return status


def main() -> NoReturn:
    """Runs the command and ends the process with its exit status, or with FAILED if the output
    cannot be written."""
    prog = " ".join(["actmem", *sys.argv[1:2]])
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            status = run(sys.argv[1:])
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else FAILED
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if error.errno != errno.EPIPE:      # EPIPE: the reading process has ended
            print(f"{prog}: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os._exit(FAILED)        # sys.exit() would report the error again
    sys.exit(status)
