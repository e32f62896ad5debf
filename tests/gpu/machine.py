# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The machine that tests/gpu/run runs on: what it is, what is built for it."""
import glob
import importlib.metadata
import mmap
import os
import platform
import re
import resource
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
CAP_IPC_LOCK = 1 << 14
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
        return subprocess.run(command, capture_output=True, text=True, timeout=20,
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


def use_packed_programs():
    """Behind those of the machine."""
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{PACKED}/bin"


def has_gpu():
    return bool(glob.glob("/dev/nvidia[0-9]*") or
                glob.glob("/proc/driver/nvidia/gpus/*/information"))


SMI = {"name": "name", "driver": "driver_version", "memory": "memory.total",
       "memory_used": "memory.used", "bus_id": "pci.bus_id",
       "link_generation": "pcie.link.gen.max", "link_width": "pcie.link.width.max"}


def _asked(what, columns):
    """Rows of nvidia-smi; none without one."""
    said = said_by("nvidia-smi", f"--query-{what}={','.join(columns.values())}",
                   "--format=csv,noheader")
    return [dict(zip(columns, (word.strip() for word in line.split(","))))
            for line in (said or "").splitlines()]


def _gpus():
    """As nvidia-smi has them, or what the kernel's module says where there is none."""
    found = _asked("gpu", SMI) or _asked("gpu", {key: SMI[key] for key in ("name", "driver")})
    if found:
        return found
    driver = re.search(r"\b\d+\.\d+[.\d]*\b",
                       first_line("/proc/driver/nvidia/version", "NVRM version") or "")
    paths = sorted(glob.glob("/proc/driver/nvidia/gpus/*/information"))
    return [{"name": first_line(path, "Model") or "unknown", "driver": driver and driver[0],
             "bus_id": first_line(path, "Bus Location")} for path in paths]


def free_share():
    """Of the first GPU's memory, what no one has yet; None without nvidia-smi."""
    for row in _asked("gpu", {"free": "memory.free", "total": "memory.total"}):
        words = [row[key].split()[0] for key in ("free", "total")]
        if all(word.isdigit() for word in words) and int(words[1]):
            return int(words[0]) / int(words[1])
        break
    return None


def gpu_programs():
    """Programs on the GPUs, who make what is measured here slower."""
    return [f"{row['name']} (process {row['pid']}) has {row['memory']}" for row in _asked(
        "compute-apps", {"pid": "pid", "name": "process_name", "memory": "used_memory"})]


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first(text):
    return text.splitlines()[0] if text else None


def _bytes_of(folder):
    try:
        state = os.statvfs(folder)
    except OSError:
        return None
    return state.f_blocks * state.f_frsize


def memory_limit():
    """Of this process's memory cgroup and those above it, or None."""
    limits = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            rows = [line.strip().split(":", 2) for line in file]
    except OSError:
        return None
    for _, controllers, path in rows:
        if "memory" in controllers.split(",") or not controllers:
            base, name = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes") if controllers else
                          ("/sys/fs/cgroup", "memory.max"))
            while True:
                limits.append(first_line(f"{base}{path.rstrip('/')}/{name}"))
                if path in ("/", ""):
                    break
                path = os.path.dirname(path)
    # The older cgroup's word for none is the largest of its pages.
    limits = [int(limit) for limit in limits if limit and limit.isdigit()]
    return min((limit for limit in limits if limit < 1 << 60), default=None)


def locked_memory():
    """What RLIMIT_MEMLOCK leaves, raised as far as may be; None: all."""
    unlimited = resource.RLIM_INFINITY
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for limits in ((unlimited, unlimited), (hard, hard)):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, limits)
            break
        except (OSError, ValueError):
            pass
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    capabilities = int(first_line("/proc/self/status", "CapEff") or "0", 16)
    return None if soft == unlimited or capabilities & CAP_IPC_LOCK else soft


def hold_gpus():
    """Without persistence mode the driver sets a card up, for seconds, for each program
    that finds it unused: as long as one has it open, it is not."""
    held = []
    for path in glob.glob("/dev/nvidia[0-9]*"):
        try:
            held.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:             # whoever needs the card will say so
            pass
    return held


def direct_io_folder(*folders):
    """The first whose file system has direct I/O, for files without names, or None."""
    for folder in folders:
        try:
            os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600))
            return folder
        except OSError:
            pass
    return None


def spill_folder():
    build = os.path.join(TREE, "build")
    return direct_io_folder(build, "/var/tmp", "/tmp", os.path.expanduser("~"), "/mnt") or build


def description():
    memory = first_line("/proc/meminfo", "MemTotal")
    setting = "/sys/kernel/mm/transparent_hugepage/"
    return {
        "gpus": _gpus(),
        "processor": first_line("/proc/cpuinfo", "model name"),
        "is_virtual": "hypervisor" in (first_line("/proc/cpuinfo", "flags") or "").split(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.split()[0]) * 1024 if memory else None,
        "nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")),
        "kernel": platform.release(),
        "shared_memory_bytes": _bytes_of("/dev/shm"),
        "memory_limit_bytes": memory_limit(),
        "locked_memory_bytes": locked_memory(),
        "io_uring_disabled": first_line("/proc/sys/kernel/io_uring_disabled"),
        "huge_pages": first_line("/proc/sys/vm/nr_hugepages"),
        "transparent_huge_pages": first_line(setting + "enabled"),
        "transparent_huge_pages_of_shared_memory": first_line(setting + "shmem_enabled"),
    }


def xla_knows(flag):
    """Whether each of XLA's libraries here has that flag: one that has not ends the process
    that is given it."""
    paths = [path for place in sys.path for pattern in
             ("jaxlib/libjax_common.so", "jaxlib/xla_extension.so",
              "jax_plugins/xla_cuda*/xla_cuda_plugin.so")
             for path in glob.glob(os.path.join(place, pattern))]

    def has(path):
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            return data.find(flag.encode()) >= 0
    return bool(paths) and all(map(has, paths))


def versions():
    found = {package: _version(package) for package in PACKAGES}
    found["python"] = platform.python_version()
    found["libc"] = " ".join(platform.libc_ver())
    found["gcc"] = _first(said_by(os.environ.get("CC", "gcc"), "--version"))
    nvcc = said_by("nvcc", "--version") or said_by("/usr/local/cuda/bin/nvcc", "--version")
    found["cuda"] = nvcc.splitlines()[-1] if nvcc else None
    found["actmem"] = first_line(os.path.join(TREE, "VERSION"))
    # A copy without git's files has what tests/gpu/pack wrote down.
    found["commit"] = said_by("git", "describe", "--always", "--dirty", "--abbrev=12") or \
        first_line(os.path.join(PACKED, "commit"))
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
    compiler = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda",
             compiler and os.path.dirname(os.path.dirname(os.path.realpath(compiler)))]
    packages = [os.path.join(place, "nvidia/cu13") for place in sys.path] + \
        glob.glob(os.path.join(TREE, "build/venv/lib/python3*/site-packages/nvidia/cu13"))
    places = [given, *(os.path.join(home, "include") for home in filter(None, homes)),
              *(os.path.join(home, "include") for home in packages if os.path.isdir(home)),
              os.path.join(PACKED, "cuda")]
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
    # A compiler of another version may warn of more; that is no reason to measure nothing.
    flags, arguments, told = ["-O2", "-g", "-Wno-error"], [f"B={BUILD}"], []
    packed = [f"-I{PACKED}/include", f"-L{PACKED}/lib"]
    has_packed = os.path.isdir(os.path.join(PACKED, "lib"))
    if not shutil.which("make"):
        raise Missing("make is neither installed nor in build/gpu; run tests/gpu/pack where it "
                      "is, and bring build/gpu along")
    missing = [package for package, header in (("liburing-dev", "liburing.h"),
                                               ("libxxhash-dev", "xxhash.h"))
               if not _compiles(header)]
    if missing:
        if not has_packed:
            raise Missing(f"{' and '.join(missing)} not installed; run tests/gpu/pack where it "
                          "is, and bring build/gpu along")
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
