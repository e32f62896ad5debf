# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Targets are accelerators that XLA can compile a program for, even on a machine without such an
accelerator.

    targets.find("h200x8")          # eight GPUs that target_h200.txtpb describes
    targets.find("v5p:2x2x1")       # a slice of four TPUs, which libtpu knows
"""
from __future__ import annotations

import dataclasses
import glob
import importlib.util
import math
import os
import re
from collections.abc import Mapping

import jax
from jaxlib.version import __version__ as jaxlib_version

HERE = os.path.dirname(os.path.abspath(__file__))
TPUS = ("v5p", "v6e", "v5e")    # the TPUs of machines.csv
# With this flag, XLA for TPUs keeps the order of its list scheduler: see _list_order.py.
LIST = "--xla_memory_scheduler=list"
# MaxText's flags for programs that offload (HOST_OFFLOAD_FLAGS).
MAXTEXT = " ".join(f"--xla_{flag}" for flag in (
    "tpu_enable_all_experimental_scheduler_features=true",
    "tpu_enable_scheduler_memory_pressure_tracking=true",
    "tpu_host_transfer_overlap_limit=24",
    "tpu_aggressive_opt_barrier_removal=ENABLED",
    "lhs_prioritize_async_depth_over_stall=ENABLED",
    "tpu_enable_ag_backward_pipelining=true",
    "should_allow_loop_variant_parameter_in_chain=ENABLED",
    "should_add_loop_invariant_op_in_chain=ENABLED",
    "max_concurrent_host_send_recv=100",
    "tpu_scheduler_percent_shared_memory_limit=100",
    "latency_hiding_scheduler_rerun=2"))
# Environment variables with flags for programs that offload, by platform. Each set of flags lets XLA
# overlap more computation with copies to and from the host. The first set shortened waits most.
OFFLOAD_FLAGS: dict[str, tuple[Mapping[str, str], ...]] = {
    "tpu": ({"LIBTPU_INIT_ARGS": MAXTEXT}, {"LIBTPU_INIT_ARGS": LIST})}


class TargetError(ValueError):
    """The target is unknown."""


@dataclasses.dataclass(frozen=True)
class Target:
    name: str
    machine: str                # the machine's name in machines.csv
    platform: str               # "cuda" or "tpu"
    topology: str               # as JAX's get_topology_desc() expects it
    devices: int
    config: str = ""            # XLA's description of the GPU; "" for TPUs


def gpus() -> list[str]:
    return sorted(os.path.basename(path)[len("target_"):-len(".txtpb")]
                  for path in glob.glob(os.path.join(HERE, "target_*.txtpb")))


def find(name: str) -> Target:
    """Returns the target of this name.

    Raises:
      TargetError: No target has this name.
    """
    found = re.fullmatch(r"([a-z][a-z0-9]*?)(?:x([1-9]\d{0,3}))?", name)
    if found and found[1] in gpus():
        with open(os.path.join(HERE, f"target_{found[1]}.txtpb"), encoding="utf-8") as file:
            config = file.read()
        devices = int(found[2] or 1)
        return Target(name, found[1], "cuda", f"1x1x{devices}", devices, config)
    found = re.fullmatch(r"(\w+):([1-9]\d{0,3}(?:x[1-9]\d{0,3}){1,2})", name)
    if found and found[1] in TPUS:
        return Target(name, found[1], "tpu", name, math.prod(map(int, found[2].split("x"))))
    raise TargetError(f"unknown target {name!r}: use {', '.join(gpus())}, one of these with a "
                      f"number of GPUs such as h200x8, or {' or '.join(TPUS)} with a topology "
                      "such as v5p:2x2x1")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:         # the module's package is not installed
        return False


def _has_libdevice() -> bool:
    """Returns whether XLA finds libdevice. Without libdevice, XLA's compiler for GPUs crashes. XLA
    searches CUDA's toolkit, and the wheels beside JAX's plugin."""
    folders = ["/usr/local/cuda", "/opt/cuda",
               *re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", os.environ.get("XLA_FLAGS", ""))]
    wheels = importlib.util.find_spec("nvidia")
    for folder in (wheels and wheels.submodule_search_locations) or ():
        folders += [os.path.join(folder, name) for name in ("cu13", "cuda_nvcc")]
    return any(os.path.isfile(os.path.join(folder, "nvvm", "libdevice", "libdevice.10.bc"))
               for folder in folders)


def check_compiler(target: Target) -> None:
    """Raises ImportError if the target's compiler is not installed. The message has the command
    that installs the compiler."""
    if target.platform == "tpu":
        if not _is_installed("libtpu"):
            raise ImportError(f"compiling for {target.name} needs libtpu: pip install "
                              f"'jax[tpu]=={jax.__version__}'")
        return
    missing = []
    if not any(map(_is_installed, ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12"))):
        missing += [f"jax-cuda13-plugin=={jaxlib_version}", f"jax-cuda13-pjrt=={jaxlib_version}"]
    if not _has_libdevice():
        missing += ["nvidia-cuda-nvcc", "nvidia-nvvm"]
    if missing:
        raise ImportError(f"compiling for {target.name} needs JAX's plugin for CUDA, and ptxas and "
                          f"libdevice of CUDA: pip install --no-deps {' '.join(missing)}")
