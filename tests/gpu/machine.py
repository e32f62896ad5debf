# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The machine that tests/gpu/run runs on: what it is, what is built for it."""
import glob
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
# What was compiled elsewhere may not run here, so not in build itself.
BUILD = "build/on-gpu"
PACKED = os.path.join(TREE, "build", "gpu")

PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "numpy", "optax", "flax", "torch",
            "cupy-cuda13x")


class Missing(Exception):
    """Something that a part cannot do without, in words."""


def said_by(*command):
    """The output of a program, or None."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60,
                              check=True, cwd=TREE).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def first_line(path, start=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(start):
                    return line[len(start):].strip(" \t:\n")
    except OSError:
        pass
    return None


def has_gpu():
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def _gpus():
    said = said_by("nvidia-smi", "--query-gpu=name,driver_version,memory.total,pci.bus_id",
                   "--format=csv,noheader")
    keys = ("name", "driver", "memory", "bus_id")
    return [dict(zip(keys, (word.strip() for word in line.split(","))))
            for line in (said or "").splitlines()]


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first(text):
    return text.splitlines()[0] if text else None


def description():
    memory = first_line("/proc/meminfo", "MemTotal")
    setting = "/sys/kernel/mm/transparent_hugepage/"
    return {
        "gpus": _gpus(),
        "processor": first_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.split()[0]) * 1024 if memory else None,
        "nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "kernel": platform.release(),
        "huge_pages": first_line("/proc/sys/vm/nr_hugepages"),
        "transparent_huge_pages": first_line(setting + "enabled"),
        "transparent_huge_pages_of_shared_memory": first_line(setting + "shmem_enabled"),
    }


def versions():
    found = {package: _version(package) for package in PACKAGES}
    found["python"] = platform.python_version()
    found["libc"] = " ".join(platform.libc_ver())
    found["gcc"] = _first(said_by(os.environ.get("CC", "gcc"), "--version"))
    nvcc = said_by("nvcc", "--version") or said_by("/usr/local/cuda/bin/nvcc", "--version")
    found["cuda"] = nvcc.splitlines()[-1] if nvcc else None
    found["actmem"] = first_line(os.path.join(TREE, "VERSION"))
    found["commit"] = said_by("git", "rev-parse", "HEAD")
    return {name: version for name, version in found.items() if version}


def _compiles(include, *flags):
    compiler = os.environ.get("CC", "gcc")
    try:
        return subprocess.run([compiler, *flags, "-E", "-o", "/dev/null", "-"],
                              input=f"#include <{include}>\n", text=True,
                              capture_output=True, check=False).returncode == 0
    except OSError:
        raise Missing(f"{compiler} is not installed") from None


def cuda_include(given=None):
    places = [given, os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include"),
              *glob.glob(os.path.join(TREE, "build/venv/lib/python3*/site-packages/nvidia/cu13/"
                                            "include"))]
    for place in filter(None, places):
        if os.path.exists(os.path.join(place, "cuda.h")):
            return place
    raise Missing("no cuda.h in " + ", ".join(filter(None, places)) + "; set CUDA_HOME")


def xla_include():
    """jaxlib's own, without loading it."""
    for place in sys.path:
        folder = os.path.join(place, "jaxlib", "include")
        if os.path.exists(os.path.join(folder, "xla/ffi/api/c_api.h")):
            return folder
    return None


def clear_of_others():
    """What another compiler, C library or jaxlib was used for is built anew."""
    used = "\n".join([" ".join(platform.libc_ver()), str(xla_include()),
                      str(_first(said_by(os.environ.get("CC", "gcc"), "--version")))])
    stamp = os.path.join(TREE, BUILD, "made-with")
    try:
        with open(stamp, encoding="utf-8") as file:
            same = file.read() == used
    except OSError:
        same = False
    if not same:
        shutil.rmtree(os.path.join(TREE, BUILD), ignore_errors=True)
        os.makedirs(os.path.dirname(stamp))
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(used)


def make_arguments(cuda=None):
    """For make, whose output is for this machine: with the headers and libraries that
    tests/gpu/pack brought where this machine lacks them."""
    flags, arguments, told = ["-O2", "-g"], [f"B={BUILD}"], []
    packed = [f"-I{PACKED}/include", f"-L{PACKED}/lib"]
    has_packed = os.path.isdir(os.path.join(PACKED, "lib"))
    if not shutil.which("make"):
        raise Missing("make is not installed")
    if not _compiles("liburing.h"):
        if not has_packed:
            raise Missing("liburing-dev is not installed; run tests/gpu/pack where it is, and "
                          "bring build/gpu along")
        flags += packed
    pkg_config = said_by("pkg-config", "--exists", "smartcols", "jansson") is not None
    if not pkg_config and has_packed:
        arguments += [f"TOOLS_CFLAGS={packed[0]} -I{PACKED}/include/libsmartcols",
                      f"TOOLS_LIBS={packed[1]} -lsmartcols -ljansson -Wl,-rpath,{PACKED}/lib"]
    elif not pkg_config:
        told.append("no command: libsmartcols-dev and libjansson-dev are neither installed nor "
                    "in build/gpu")
    xla = xla_include()
    if xla:
        arguments.append(f"XLA_INCLUDE={xla}")
    else:
        told.append(f"no handlers for JAX: {sys.executable} has no jaxlib")
    arguments += [f"CUDA_INCLUDE={cuda_include(cuda)}", f"CFLAGS={' '.join(flags)}"]
    return arguments, told
