# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Describe the machine that tests/gpu/run runs on, and find what its programs need."""
import contextlib
import glob
import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
BUILD = "build/on-gpu"      # not build: programs that were built elsewhere may not run here
PACKED = os.path.join(TREE, "build", "gpu")
PACKAGES = ("jax", "jaxlib", "jax-cuda13-plugin", "numpy", "optax", "flax", "torch",
            "cupy-cuda13x")
SMI = {"name": "name", "driver": "driver_version", "memory": "memory.total",
       "memory_used": "memory.used", "link_generation": "pcie.link.gen.max",
       "link_width": "pcie.link.width.max"}


def said_by(*command):
    """Return the first line of a program's output, or None."""
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True,
                              cwd=TREE).stdout.strip()
        return said.splitlines()[0] if said else None
    except (OSError, subprocess.SubprocessError):
        return None


def first_line(path, start=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((line[len(start):].strip(" \t:\n") for line in file
                         if line.startswith(start)), None)
    except OSError:
        return None


def has_gpu():
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def card():
    """Return what nvidia-smi says about the first GPU, or None."""
    said = said_by("nvidia-smi", f"--query-gpu={','.join(SMI.values())}", "--format=csv,noheader")
    return dict(zip(SMI, (word.strip() for word in said.split(",")))) if said else None


def free_share():
    """Return which share of the first GPU's memory is free; 1 if that is not known."""
    total, used = ((card() or {}).get(name, "").split() for name in ("memory", "memory_used"))
    return 1 - int(used[0]) / int(total[0]) if total and used else 1


def hold_gpus():
    """Open the cards for as long as this process lives. Without persistence mode the driver
    would initialise them again, for seconds, for each program."""
    for path in glob.glob("/dev/nvidia[0-9]*"):
        with contextlib.suppress(OSError):      # a program that needs the card reports it
            os.open(path, os.O_RDWR | os.O_CLOEXEC)


def raise_memlock():
    """Raise RLIMIT_MEMLOCK as far as allowed, for what tests lock."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for limit in (hard, resource.RLIM_INFINITY):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))


def spill_folder():
    """Return a folder whose file system has direct I/O, if there is one."""
    build = os.path.join(TREE, "build")
    for folder in (build, "/var/tmp", "/tmp", os.path.expanduser("~"), "/mnt"):
        with contextlib.suppress(OSError):
            os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
            return folder
    return build


def description():
    setting = "/sys/kernel/mm/transparent_hugepage/"
    return {
        "gpus": list(filter(None, [card()])),
        "processor": first_line("/proc/cpuinfo", "model name"),
        "is_virtual": "hypervisor" in (first_line("/proc/cpuinfo", "flags") or "").split(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int((first_line("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024,
        "nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "kernel": platform.release(),
        "huge_pages": first_line("/proc/sys/vm/nr_hugepages"),
        "transparent_huge_pages": first_line(setting + "enabled"),
        "transparent_huge_pages_of_shared_memory": first_line(setting + "shmem_enabled"),
    }


def versions():
    """Return the versions of packages; the commit as git or tests/gpu/pack has it."""
    found = {name.lower(): each.version for each in importlib.metadata.distributions()
             if (name := each.metadata["Name"]) and name.lower() in PACKAGES}
    return {**found, "python": platform.python_version(),
            "actmem": first_line(os.path.join(TREE, "VERSION")),
            "commit": said_by("git", "describe", "--always", "--dirty", "--abbrev=12") or
            first_line(os.path.join(PACKED, "commit"))}


def make_arguments():
    """Return make's arguments for this machine's Python and CUDA, and for what
    tests/gpu/pack brought."""
    def first(*patterns):
        return next((path for pattern in patterns for path in glob.glob(pattern)), "")
    # Another compiler may warn of more.
    arguments, flags = [f"B={BUILD}"], "CFLAGS=-O2 -g -Wno-error"
    cuda = first(f"{os.environ.get('CUDA_HOME', '/usr/local/cuda')}/include/cuda.h",
                 *(f"{place}/nvidia/cu13/include/cuda.h" for place in sys.path),
                 f"{PACKED}/cuda/cuda.h")
    xla = first(*(f"{place}/jaxlib/include" for place in sys.path))
    arguments += [f"CUDA_INCLUDE={os.path.dirname(cuda)}"] if cuda else []
    arguments += [f"XLA_INCLUDE={xla}"] if xla else []
    if os.path.isdir(PACKED):
        flags += f" -I{PACKED}/include -L{PACKED}/lib"
        arguments += [f"TOOLS_CFLAGS=-I{PACKED}/include -I{PACKED}/include/libsmartcols",
                      f"TOOLS_LIBS=-L{PACKED}/lib -lsmartcols -ljansson -Wl,-rpath,{PACKED}/lib"]
    return [*arguments, flags]


def make():
    return shutil.which("make") or f"{PACKED}/bin/make"
