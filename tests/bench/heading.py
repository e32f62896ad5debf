#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Tables of results in Markdown, below a line that says when, by which command and on which machine
the table was made.

    heading.py COMMAND [PACKAGE...]

Versions are those of the named Python packages that are installed (default: jax).
"""
import datetime
import importlib.metadata
import os
import platform
import re
import sys

NAMES = {"jax": "JAX"}


def processor():
    """Returns the name of the processor, or the architecture if the kernel reports no name."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def versions(packages):
    for package in packages:
        try:
            yield f"{NAMES.get(package, package)} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue


def machine(packages=("jax",)):
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    kernel = re.match(r"\d+\.\d+(\.\d+)?", platform.release())
    return ", ".join([f"{os.cpu_count()} CPUs ({processor()})", f"{memory:.0f} GiB",
                      f"Linux {kernel[0] if kernel else platform.release()}", *versions(packages)])


def line(command, packages=("jax",), verb="Measured", date=None):
    """Returns the line above a table that `command` prints. `date`: of the measurement, today
    unless given.
    """
    date = date or datetime.date.today()
    return f"{verb} on {date.day} {date:%B %Y} by `{command}`, on {machine(packages)}:"


def print_line(command, *args, **options):
    """Prints the line, and the empty line that Markdown needs before a table."""
    print(f"{line(command, *args, **options)}\n", flush=True)


def table(head, *rows):
    """Returns the text of a table."""
    head, *rows = ("| " + " | ".join(cells) + " |" for cells in (head, *rows))
    rule = "|" + "---|" * (head.count(" | ") + 1)
    return "\n".join([head.replace("|  |", "| |"), rule, *rows])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: heading.py COMMAND [PACKAGE...]")
    print_line(sys.argv[1], sys.argv[2:] or ("jax",))
