# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""make install into a folder, the installed files at work, make uninstall."""
import os
import re
import select
import shutil
import subprocess
import tempfile

from harness import BUILD, clean_environment
from tap import case, main

ROOT = os.path.dirname(BUILD)
PREFIX = "/opt/actmem"


def sh(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            stdin=subprocess.DEVNULL, text=True, check=False, **options)
    assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}"
    return result.stdout


def make(target, destdir, *variables, **more):
    environment = {k: v for k, v in clean_environment(**more).items()
                   if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    return sh("make", "-s", "-C", ROOT, target, f"PREFIX={PREFIX}", f"DESTDIR={destdir}",
              *variables, env=environment)


WITHOUT_JAX = ("left out: libactmem_xla.so, which JAX needs: python3 has no jaxlib since 0.10.1; "
               "build it with `make jax`")


def in_a_fresh_tree(folder):
    """Variables of a make without the environments for Python."""
    return "PYTHON3=python3", f"VENV={folder}/venv", f"DEMO_VENV={folder}/demo"


def fake_jaxlib(folder, version):
    os.makedirs(os.path.join(folder, "jaxlib", "include"), exist_ok=True)
    for name, text in ("__init__", ""), ("version", f"__version_info__ = {version}\n"):
        with open(os.path.join(folder, "jaxlib", name + ".py"), "w", encoding="ascii") as file:
            file.write(text)
    return folder


def files_under(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder)
                  for path, _, names in os.walk(folder) for name in names)


def manual_example():
    """The program that libactmem(3) shows."""
    with open(os.path.join(ROOT, "docs", "libactmem.3.scd"), encoding="utf-8") as file:
        return re.search(r"```\n(#include.*?)```", file.read(), re.DOTALL)[1]


@case
def what_is_installed_works_and_uninstall_leaves_nothing():
    with tempfile.TemporaryDirectory() as destdir:
        make("install", destdir)
        top = destdir + PREFIX
        check_command(top)
        check_program(destdir, top)
        check_python(top)
        check_manual(top)
        make("uninstall", destdir)
        assert sorted(os.listdir(destdir)) == ["program", "program.c"], files_under(destdir)


@case
def what_is_left_out_is_told_and_not_made():
    """The hint that names a command of make's does not run it."""
    with tempfile.TemporaryDirectory() as folder:
        for target in ("all", "install"):
            told = make(target, os.path.join(folder, "root"), *in_a_fresh_tree(folder),
                        PYTHONPATH=fake_jaxlib(folder, "(0, 10, 0)")).splitlines()
            assert WITHOUT_JAX in told, told
            assert all(line.startswith("left out: ") for line in told), told
        assert sorted(os.listdir(folder)) == ["jaxlib", "root"], os.listdir(folder)
        installed = files_under(os.path.join(folder, "root"))
        assert not [path for path in installed if "_xla" in path], installed


@case
def what_is_left_out_is_told_last():
    with tempfile.TemporaryDirectory() as folder:
        lines = make("all", folder, *in_a_fresh_tree(folder), "-j2", "ALL=slow",
                     "--eval=slow:; @sleep 0.5; echo built",
                     PYTHONPATH=fake_jaxlib(folder, "(0, 10, 0)")).splitlines()
        assert lines[0] == "built" and WITHOUT_JAX in lines[1:], lines


@case
def the_header_of_a_jaxlib_that_python_has_will_do():
    with tempfile.TemporaryDirectory() as folder:
        lines = make("all", folder, *in_a_fresh_tree(folder), "B=" + os.path.join(folder, "build"),
                     "-n", PYTHONPATH=fake_jaxlib(folder, "(0, 10, 1)")).splitlines()
        assert [line for line in lines if f"-isystem {folder}/jaxlib/include" in line], lines[-3:]
        assert [line for line in lines if "-o " + folder + "/build/lib/libactmem_xla.so" in line]
        assert not [line for line in lines if WITHOUT_JAX in line], lines[-1]


def check_command(top):
    actmem = os.path.join(top, "bin", "actmem")
    needed = sh("ldd", actmem)
    assert f"libactmem.so.0 => {os.path.join(top, 'bin')}/../lib/libactmem.so.0" in needed, needed
    assert sh(actmem, "--version", env=clean_environment()).startswith("actmem ")
    environment = sh(actmem, "run", "--allow", "any", "env", env=clean_environment())
    module = os.path.join(top, "lib", "actmem", "python")
    assert f"PYTHONPATH={module}/actmem/_start:{module}\n" in environment, environment
    assert "ACTMEM_LIBDIR" not in environment, environment
    told = sh(actmem, "replay", "--allow", "any", "--scale", "1/512", "--steps", "1",
              "--compute-ms-per-layer", "0", env=clean_environment())
    assert "llama-2-13b" in told, told


def check_program(destdir, top):
    source, program = os.path.join(destdir, "program.c"), os.path.join(destdir, "program")
    with open(source, "w", encoding="utf-8") as file:
        file.write(manual_example())
    pkg_config = clean_environment(PKG_CONFIG_PATH=os.path.join(top, "lib", "pkgconfig"),
                                   PKG_CONFIG_SYSROOT_DIR=destdir)
    flags = sh("pkg-config", "--cflags", "--libs", "actmem", env=pkg_config).split()
    assert f"-I{top}/include" in flags and f"-L{top}/lib" in flags, flags
    sh(os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", source, "-o", program, *flags,
       f"-Wl,-rpath,{top}/lib")
    told = sh(program, env=clean_environment(ACTMEM_ALLOW="any"))
    assert told.startswith(("memfd: ", "driver: ")), told
    assert f"{top}/lib/libactmem.so.0" in sh("ldd", program)


def check_python(top):
    actmem = os.path.join(top, "bin", "actmem")
    told = sh(actmem, "run", "--allow", "any", "python3", "-c",
              "import actmem; print(actmem.__file__)", env=clean_environment())
    assert told.startswith(top), told


def check_manual(top):
    """Each call is found by its name, in the page that it shares with others."""
    if shutil.which("scdoc") and shutil.which("man"):
        told = sh("man", "-M", os.path.join(top, "share", "man"), "actmem_store_take",
                  env=clean_environment(MANWIDTH="100"))
        assert told.startswith("actmem_store_put(3)"), told


@case
def progress_is_shown_while_packages_come():
    """A line of pip's appears at once, also with an awk that collects its input."""
    with open(os.path.join(ROOT, "scripts", "setup"), encoding="utf-8") as file:
        functions = re.findall(r"^(?:live_awk|pip_progress)\(\) \{\n.*?^\}\n", file.read(),
                               re.MULTILINE | re.DOTALL)
    assert len(functions) == 2
    with subprocess.Popen(["sh", "-c", "".join(functions) + "pip_progress"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write("  Downloading jax-0.12.0.1-py3-none-any.whl (3.1 MB)\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 20)[0], "nothing is shown"
        assert process.stdout.readline() == "  jax-0.12.0.1-py3-none-any.whl (3.1 MB)\n"
        process.stdin.close()


if __name__ == "__main__":
    main()
