# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The options, help and errors of actmem plan and actmem probe. This module does not need JAX.
actmem.plan.command and actmem.plan.probe do the work."""
from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
AXES = ("data", "fsdp", "tensor", "sequence", "expert")
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


class UsageError(ValueError):
    """The value of an option is invalid. The error message names the option."""


class _Parser(argparse.ArgumentParser):
    """Prints an error on one line, and a second line that names the help."""

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())      # argparse ignores errors of this write

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


def _count(word: str, least: int = 1) -> int:
    if not word.isdecimal() or not least <= int(word) <= 1 << 30:
        raise argparse.ArgumentTypeError(f"'{word}' is no number from {least} to {1 << 30}")
    return int(word)


def _count_or_none(word: str) -> int:
    return _count(word, 0)


def _counts(word: str) -> list[int]:
    counts = [_count(part) for part in word.split(",")]
    if len(set(counts)) < len(counts):
        raise argparse.ArgumentTypeError(f"'{word}' has a number twice")
    return counts


def _seconds(word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = -1
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"'{word}' is no number of seconds to 3600")
    return value


def _mesh(word: str) -> dict[str, int]:
    mesh = {}
    for part in word.split(","):
        axis, _, number = part.partition("=")
        if axis not in AXES or not number:
            raise argparse.ArgumentTypeError(
                f"'{part}' is no axis of a mesh with its devices, as fsdp=8: axes are "
                f"{', '.join(AXES)}")
        if axis in mesh:
            raise argparse.ArgumentTypeError(f"'{axis}' is there twice")
        mesh[axis] = _count(number)
    return mesh


def _names(word: str) -> tuple[str, ...]:
    return tuple(name for name in word.split(",") if name)


def plan_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="actmem plan", usage="actmem plan [OPTION]... [FILE.py:FUNCTION]", add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Foresees a training step on a machine, and decides for each of its named "
        "values whether\nthe device keeps it, it goes to the host, or the backward pass "
        "computes it again.\nThe step is that of a model, or of FUNCTION, which returns what "
        "actmem.jax.plan()\ntakes: a loss, or a step, and its arguments or their shapes.",
        epilog="Without --offload and --keep the fastest that fits is looked for; with them "
        "this one\npolicy is foreseen. Exit status 1 if nothing fits or something has no "
        "sense, 2 for\nbad usage.")
    parser.add_argument("function", nargs="?", metavar="FILE.py:FUNCTION",
                        help=argparse.SUPPRESS)
    add = parser.add_argument_group("Step").add_argument
    add("--model", metavar="NAME", help="of the table, as llama-3.3-70b")
    add("--config", metavar="FILE", help="a model's config.json, as of Hugging Face")
    add("--batch", metavar="N", type=_count,
        help="sequences of a model's step, on all devices together; default: one for each")
    add("--tokens", metavar="N[,N...]", type=_counts,
        help="tokens of text in each sequence, 4096 by default; and lengths at which to say "
             "what would become of other names")
    add("--images", metavar="N", type=_count_or_none,
        help="images in front of each sequence; default: as the model is used")
    add("--train", choices=("all", "attention"), metavar="all|attention",
        help="which weights of a model are trained; default: all")
    add("--lora", metavar="RANK", type=_count, help="train factors of that rank instead")
    add("--attention", choices=("kernel", "dot_product"), metavar="kernel|dot_product",
        help="how a model computes it, as MaxText's setting; default: kernel")
    add = parser.add_argument_group("Machine").add_argument
    add("--machine", metavar="here|NAME|FILE", default="here",
        help="of the table, as h200; a file; or here, the default, as actmem probe has "
             "measured it")
    add("--devices", metavar="N", type=_count,
        help="of the job, over which a model is sharded (fsdp); default: those of one host")
    add("--mesh", metavar="AXIS=N,...", type=_mesh,
        help=f"instead: devices of each axis, of {', '.join(AXES)}")
    add("--device-memory", metavar="SIZE", type=_bytes,
        help="of each device, as 70G; default: nine tenths of what it has")
    add("--host-memory", metavar="SIZE", type=_bytes,
        help="for what one device sends; beyond it are files; default: its share of the host")
    add = parser.add_argument_group("Policy").add_argument
    add("--offload", metavar="NAME,...", type=_names, help="foresee this policy: these names "
        "go to the host")
    add("--keep", metavar="NAME,...", type=_names, help="and these stay on the device")
    add("--measure", metavar="N", type=_count,
        help="compile the best few, run N steps of each, and take the fastest")
    add = parser.add_argument_group("Output").add_argument
    add("--plot", metavar="FILE", help="draw step time over device memory, as plan.svg")
    add("--save", metavar="FILE", help="for actmem.jax.load_plan(), and actmem replay --plan")
    add("--maxtext", action="store_true", help="print the lines of a MaxText configuration")
    add("-J", "--json", action="store_true", help="print JSON")
    add("-h", "--help", action="help", help="print this")
    return parser


def probe_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="actmem probe", usage="actmem probe [OPTION]...", add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures once what this machine does, for actmem plan: products, memory, "
        "the link to\nthe host, the host's memory and files. The results are kept; what "
        "is asked for\nbeyond it is measured and added.")
    add = parser.add_argument_group("Measurements").add_argument
    add("--products", metavar="MxKxN,...", help="shapes of products, as 4096x8192x8192")
    add("--dtypes", metavar="NAME,...", default="bfloat16,float32",
        help="of products; default: bfloat16,float32")
    add("--spill", metavar="DIR", action="append", default=[],
        help="on a device to spill to; may be repeated")
    add("--allow-buffered", action="store_true",
        help="through the page cache where there is no direct I/O")
    add("--memory", metavar="SIZE", type=_bytes, default=256 << 20,
        help="to copy; default: 256M")
    add("--file-bytes", metavar="SIZE", type=_bytes, default=1 << 30,
        help="length of the file to spill to; default: 1G")
    add("--seconds", metavar="SECONDS", type=_seconds, default=0.5,
        help="for each measurement; default: 0.5")
    add("--command", metavar="FILE", default="actmem",
        help="that measures memory and files; default: the one that was called")
    add("--again", action="store_true", help="forget what was measured")
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
        print(f"{prog}: {sys.executable} has no JAX, which tells what a program computes "
              f"({error}): activate an environment that has it, or pip install jax",
              file=sys.stderr)
        return False
    return True


def _has_device(prog: str) -> bool:
    """Returns whether JAX has a device. It has none if JAX_PLATFORMS names a missing platform."""
    try:
        importlib.import_module("jax").local_devices()
    except (RuntimeError, AssertionError) as error:
        of = os.environ.get("JAX_PLATFORMS", "")
        print(f"{prog}: JAX has no device{f' of JAX_PLATFORMS={of}' if of else ''}: "
              f"{str(error).partition(chr(10))[0] or 'it does not know that platform'}",
              file=sys.stderr)
        return False
    return True


def run(arguments: Sequence[str]) -> int:
    """Runs the command. Raises SystemExit after bad usage and after the help."""
    name, *rest = arguments or [""]
    if name not in COMMANDS:
        print(f"python3 -m actmem: '{name}' is none of {', '.join(COMMANDS)}", file=sys.stderr)
        return USAGE
    make, module = COMMANDS[name]
    parser = make()
    options = parser.parse_args(rest)
    runs = name != "plan" or options.machine == "here" or options.measure
    if not runs:            # needs no accelerator, and must not take one from others
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
    """Ends the process with a status. If the output cannot be written, that is a failure."""
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
        if error.errno != errno.EPIPE:      # EPIPE: the reader has ended
            print(f"{prog}: cannot write to standard output: {error.strerror}", file=sys.stderr)
        os._exit(FAILED)        # sys.exit() would report the error again
    sys.exit(status)
