# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The wheel of `make wheel`: what is in it, and that it works where it was installed."""
import ast
import email
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile

from packaging.requirements import Requirement

from tap import case, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGE = os.path.join(ROOT, "lib", "python", "actmem")
LIBRARIES = {"actmem/libactmem.so.0", "actmem/libactmem_xla.so"}
WHEEL, = glob.glob(os.path.join(ROOT, "build", "wheel", "*.whl"))

PROGRAM = os.path.join(ROOT, "tests", "python", "wheel_program.py")


def sh(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}"
    return result.stdout


def versions():
    spec = importlib.util.spec_from_file_location(
        "_versions", os.path.join(PACKAGE, "jax", "_versions.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata():
    with zipfile.ZipFile(WHEEL) as wheel:
        name, = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(wheel.read(name))


@case
def all_of_the_package_is_in_it():
    sources = {os.path.relpath(path, os.path.dirname(PACKAGE))
               for pattern in ("*.py", "*/*.py", "plan/*.json", "plan/*.csv", "plan/*.txtpb",
                               "py.typed")
               for path in glob.glob(os.path.join(PACKAGE, pattern))}
    with zipfile.ZipFile(WHEEL) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == sources | LIBRARIES, names ^ (sources | LIBRARIES)


def for_which():
    """The machines that it is for, as auditwheel has it from its libraries."""
    told = sh(sys.executable, "-m", "auditwheel", "show", WHEEL,
              env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "build", "wheels-python")})
    return re.search(r'platform tag:\s+"(manylinux_2_\d+_x86_64)"', told)[1]


@case
def what_it_says_of_itself():
    with open(os.path.join(ROOT, "VERSION"), encoding="utf-8") as file:
        version = file.read().strip()
    assert os.path.basename(WHEEL) == f"actmem-{version}-py3-none-{for_which()}.whl", WHEEL
    said = metadata()
    assert said["Version"] == version
    assert said["License-Expression"] == "(LGPL-2.1-or-later OR MIT) AND BSD-2-Clause AND MIT"
    assert said["Requires-Python"] == ">=3.11"


@case
def its_versions_of_jax_are_those_that_are_warned_of_by_none():
    known = versions()
    required = list(map(Requirement, metadata().get_all("Requires-Dist")))
    assert not any(one.marker.evaluate({"extra": ""}) for one in required)
    for extra, parts in (("jax", set()), ("plan-cuda", {"cuda13-local"}), ("plan-tpu", {"tpu"})):
        jax, = (one for one in required if one.name == "jax" and
                one.marker.evaluate({"extra": extra}))
        assert jax.extras == parts, (extra, jax)
        for version in (known.OLDEST, known.NEWEST):
            assert version in jax.specifier, (extra, version)
        for version in ("0.9.2", known.NEWEST + ".1", *known.WRONG):
            assert version not in jax.specifier, (extra, version)
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        built_with = tomllib.load(file)["build-system"]["requires"]
    assert f"jaxlib == {known.OLDEST}" in built_with, built_with


# Strings that name a command and do not recommend it, or recommend something of the module as well.
NAMED = ("does not support", "Measures the rates", "actmem bench ", "actmem.jax.")


def strings_of(path):
    """The strings of a file except its docstrings."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    documented = [node for node in ast.walk(tree)
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docstrings = {id(node.body[0].value) for node in documented
                  if node.body and isinstance(node.body[0], ast.Expr)}
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and
            isinstance(node.value, str) and id(node) not in docstrings]


@case
def messages_name_no_command_that_its_user_lacks():
    """Or they say how to get it. `actmem run` alone starts the files of _start."""
    with open(os.path.join(ROOT, "tools", "main.c"), encoding="utf-8") as file:
        subcommands = re.findall(r'{ "(\w+)", "', file.read())
    command = re.compile(r"\bactmem (" + "|".join(subcommands) + r")\b")
    paths = [path for folder in ("", "jax", "plan")
             for path in glob.glob(os.path.join(PACKAGE, folder, "*.py"))]
    named = [text for path in paths for text in strings_of(path) if command.search(text)]
    assert len(subcommands) > 10 and len(named) > 5, (subcommands, named)
    assert all("docs/installing.md" in text or any(words in text for words in NAMED)
               for text in named), named


def check_messages(python, folder):
    """Without the command, and with one in PATH."""
    own = os.path.join(folder, "own")
    os.mkdir(own)
    os.symlink("/bin/true", os.path.join(own, "actmem"))
    how = "docs/installing.md says how to install the command"
    opens = "import actmem\ntry: actmem.open(backend='driver')\nexcept OSError as e: print(e)"
    for path, has_command in (("", False), (own, True)):
        def told(*arguments, path=path):
            return subprocess.run([python, *arguments], cwd=folder, text=True, check=False,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={"JAX_PLATFORMS": "cpu", "HOME": folder, "PATH": path}).stdout

        called = "actmem " if has_command else "python3 -m actmem "
        plan = told("-m", "actmem", "plan", "--model", "llama-3.3-70b", "--machine", "none")
        assert plan.startswith(f"{called}plan: ") and f"({called}probe --json)" in plan, plan
        assert "how to install the actmem command" in told("-m", "actmem", "doctor")
        assert os.path.exists("/dev/actmem") or (how in told("-c", opens)) != has_command


def check_installed(environment):
    """In a new environment of the Python, and with the JAX, of that one."""
    python = os.path.join(ROOT, environment, "bin", "python")
    packages, = glob.glob(os.path.join(ROOT, environment, "lib", "python3*", "site-packages"))
    with tempfile.TemporaryDirectory() as folder:
        sh(python, "-m", "venv", "--without-pip", folder)
        own, = glob.glob(os.path.join(folder, "lib", "python3*", "site-packages"))
        sh(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python",
           os.path.join(folder, "bin", "python"), "install", "--no-deps", "--no-index", WHEEL)
        with open(os.path.join(own, "jax.pth"), "w", encoding="utf-8") as file:
            file.write(packages + "\n")
        told = sh(os.path.join(folder, "bin", "python"), PROGRAM, cwd=folder,
                  env={"ACTMEM_ALLOW": "any", "JAX_PLATFORMS": "cpu", "HOME": folder,
                       "PATH": ""})
        check_messages(os.path.join(folder, "bin", "python"), folder)
    assert told.startswith(("memfd: ", "driver: ")), told


@case
def installed_by_pip_it_works():
    check_installed("build/venv")


@case
def installed_by_pip_it_works_with_todays_jax():
    check_installed("build/venv-newest")


if __name__ == "__main__":
    main()
