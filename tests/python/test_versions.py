# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Versions of JAX from PyPI that are too old are refused in words, before anything of theirs
is used that they do not have; and what the module says of XLA's FFI is what the handlers do."""
import os
import re
import subprocess

from tap import case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


MODULE = read("lib", "python", "actmem", "jax", "_versions.py")
OLDEST = re.search(r'OLDEST, NEWEST = "([^"]+)"', MODULE)[1]


def refused(version):
    python = subprocess.run(["scripts/setup", "jax", version], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, check=True).stdout.strip()
    told = subprocess.run(
        [python, "-c", "import jax\nprint(jax.__version__, flush=True)\nimport actmem.jax"],
        env={"PYTHONPATH": os.path.join(ROOT, "lib", "python"), "JAX_PLATFORMS": "cpu",
             "ACTMEM_LIBDIR": os.path.join(ROOT, "build", "lib"), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    first, *_, last = told.stdout.splitlines()
    assert told.returncode and first == version, told.stdout
    assert last.startswith(f"ImportError: actmem.jax does not work with JAX {version}, only with ") and \
        last.endswith(f"; pip install 'jax>={OLDEST}'"), told.stdout


@case
def the_last_before_the_oldest_is_refused():
    refused("0.10.0")


@case
def one_that_has_other_names_is_refused_by_its_version():
    refused("0.5.3")


@case
def the_interface_is_that_of_the_handlers():
    said = re.search(r"FFI_MAJOR, FFI_MINOR = (\d+), (\d+)", MODULE).groups()
    minor = re.search(r"#define FFI_MINOR\s+(\d+)", read("lib", "xla", "ffi.c"))[1]
    assert said == ("0", minor), (said, minor)


if __name__ == "__main__":
    main()
