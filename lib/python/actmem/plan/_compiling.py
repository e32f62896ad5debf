# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Compiles one program for a target. This module runs in a process of its own, because only one
process at a time can use libtpu, and an error in a compiler can end the process. compiled.py starts
this module:

    python3 -m actmem.plan._compiling PARENT REQUEST RESULT

PARENT is the number of the process that starts this module. REQUEST is a file that compiled.py
writes. It contains, as a pickle: the target, the jax.export.Exported, the axes of the mesh, and the
donated arguments. This process writes RESULT as JSON: the sizes in bytes of the program's buffers,
and the numbers that _schedule.py counts in the program's schedule. If the program does not fit into
the target's memory, RESULT contains only the first line of XLA's error message, under the key
"exhausted".
"""
from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies

import actmem.jax           # registers the handlers that programs may call  # noqa: F401
from actmem.jax import _private
from actmem.plan import _schedule
from actmem.plan.targets import Target

SIZES = ("argument", "output", "temp", "alias", "host_temp")
PR_SET_PDEATHSIG = 1            # linux/prctl.h


def _topology(target: Target) -> Any:
    if target.platform == "tpu":
        return topologies.get_topology_desc(platform="tpu", topology_name=target.topology)
    return topologies.get_topology_desc(platform="cuda", target_config=target.config,
                                        topology=target.topology)


def _placed(device: Any, avals: Sequence[Any]) -> list[Any]:
    """Returns shardings that place values on one device, or in the host's memory. The devices of a
    topology have no memories, so JAX accepts a memory kind only on an abstract mesh."""
    mesh = jax.sharding.Mesh(np.array([device]), ("device",))
    spec = jax.sharding.PartitionSpec()
    return [jax.sharding.NamedSharding(mesh.abstract_mesh, spec, memory_kind="pinned_host")
            if _private.is_on_host(aval) else jax.sharding.NamedSharding(mesh, spec)
            for aval in avals]


def compile_for(target: Target, exported: Any, axes: Sequence[tuple[str, int, Any]],
                donated: Sequence[int] = ()) -> Any:
    """Returns the program, compiled for the target, as a jax.stages.Compiled."""
    devices = _topology(target).devices
    if exported.nr_devices == 1:
        shardings: Any = [jax.sharding.SingleDeviceSharding(devices[0])] * len(exported.in_avals)
        if any(map(_private.is_on_host, exported.in_avals)):
            shardings = _placed(devices[0], exported.in_avals)
    else:
        names, sizes, types = zip(*(axes or [("devices", len(devices), None)]))
        mesh = jax.sharding.Mesh(np.array(devices).reshape(sizes), names,
                                 **({"axis_types": types} if axes else {}))
        shardings = [each or jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
                     for each in exported.in_shardings_jax(mesh)]
    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
              for aval, sharding in zip(exported.in_avals, shardings)]

    def program(*leaves: Any) -> Any:
        positional, named = jax.tree.unflatten(exported.in_tree, leaves)
        return jax.tree.leaves(exported.call(*positional, **named))
    return jax.jit(program, donate_argnums=tuple(donated)).trace(*shapes).lower(
        lowering_platforms=(target.platform,)).compile()


def measured(target: Target, exported: Any, axes: Sequence[tuple[str, int, Any]],
             donated: Sequence[int]) -> dict[str, Any]:
    try:
        program = compile_for(target, exported, axes, donated)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"exhausted": str(error).partition("\n")[0]}
    memory = program.memory_analysis()
    return {**{name: getattr(memory, f"{name}_size_in_bytes") for name in SIZES},
            "schedule": dataclasses.asdict(_schedule.read(program.as_text()))}


def end_with(parent: int) -> None:
    """Makes the kernel end this process when its parent ends, even by SIGKILL. Otherwise, this
    process would keep libtpu locked for minutes. Exits if the parent has already ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this compiler has ended")


def main() -> None:
    parent, request, result = sys.argv[1:]
    end_with(int(parent))
    with open(request, "rb") as file:
        found = measured(*pickle.load(file))
    with open(result, "w", encoding="utf-8") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
