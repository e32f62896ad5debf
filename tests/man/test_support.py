# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""docs/support.md against the files of the project: suites that there are, versions that
these have."""
import os
import re
import subprocess
import tomllib

from tap import case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


TEXT = read("docs", "support.md")
# first cell → the others
ROWS = {cells[0]: " | ".join(cells[1:]) for cells in (
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines() if line.startswith("| "))}


def found(pattern, *path):
    return re.search(pattern, read(*path), re.MULTILINE)[1]


def pinned(package, *path):
    return found(rf"^{re.escape(package)}==(\S+)$", *path)


def suites():
    told = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, text=True,
                          stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}).stdout
    return set(re.search(r"run one of: (.*)", told)[1].split())


def row(*words):
    """The row whose first cell has all of these."""
    rows = [key for key in ROWS if all(re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", key)
                                       for word in words)]
    assert rows, f"no row of {words}"
    return " ".join(ROWS[key] for key in rows)


@case
def each_suite_that_is_named_there_is():
    named = {name for cells in ROWS.values() for name in re.findall(r"`([a-z][\w.-]+)`", cells)
             if "." not in name or name.startswith("vm-")}
    assert len(named) > 20 and named <= suites(), named - suites()


@case
def kernels():
    labels = found(r"^labels='(.*)'$", "tests", "vm", "kernel").split()
    assert len(labels) > 2
    for label in labels:
        assert f"`vm-{label}`" in row(label), label
    known = {name for name in suites() if re.match(r"vm-\d", name)}
    assert known == {f"vm-{label}" for label in labels}, known
    ubuntu = found(r"^VM_UBUNTU := \$\(addprefix ubuntu-,(.*)\)$", "tests", "vm", "vm.mk").split()
    for version in ubuntu:
        assert f"`make check-vm-ubuntu-{version}`" in row(version), version


@case
def distributions():
    names = {"bookworm": "Debian 12", "trixie": "Debian 13"}
    for suite in ("deb", "fresh"):
        tested = found(r"^suites='(.*)'$", "tests", suite, "run").split()
        rows = {key for key in ROWS if f"`{suite}`" in ROWS[key] and key.startswith("Debian")}
        assert {names[name] for name in tested} == rows, (tested, rows)


@case
def versions_of_python():
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    oldest = project["requires-python"].removeprefix(">= ")
    assert "`jax`" in row("Python", oldest)
    first, last = re.search(r"^newest='\((\d), (\d+)\) <= .* <= \(3, (\d+)\)'", read(
        "scripts", "python"), re.MULTILINE).group(2, 3)
    assert f"3.{first} to 3.{last}" in TEXT


@case
def versions_of_jax():
    module = ("lib", "python", "actmem", "jax", "_versions.py")
    oldest, newest = re.search(r'^OLDEST, NEWEST = "(.*)", "(.*)"', read(*module),
                               re.MULTILINE).groups()
    assert pinned("jax", "scripts", "requirements.txt") == oldest
    assert pinned("jax", "scripts", "requirements-demo.txt") == newest
    assert "`jax`" in row("JAX", oldest) and "`jax-newest`" in row("JAX", newest)
    wrong = re.findall(r'^    "(\d\S*)": "', read(*module), re.MULTILINE)
    assert wrong
    for version in wrong:
        assert "wrong values" in row("JAX", version)
    assert f"JAX before {oldest}" in ROWS and f"JAX after {newest}" in ROWS
    major, minor = re.search(r"FFI_MAJOR, FFI_MINOR = (\d+), (\d+)", read(*module)).groups()
    assert f"major version than {major}, or its minor is below {minor}" in row("JAX after", newest)


@case
def versions_of_cuda():
    for package in ("nvidia-cuda-runtime", "nvidia-cuda-crt"):
        version = pinned(package, "scripts", "requirements.txt")
        assert "`cuda`" in row("CUDA", ".".join(version.split(".")[:2]))
    plugin = re.search(r"^jax-cuda(\d+)-plugin==(\S+)$", read("tests", "plugin", "requirements.txt"),
                       re.MULTILINE)
    assert "`plugin`" in row("plugin for CUDA", plugin[1], plugin[2])


if __name__ == "__main__":
    main()
