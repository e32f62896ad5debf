# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Keeps arrays, and the activations of a training run in JAX, in actmem memory.

    import jax, actmem.jax

    layer = actmem.jax.checkpoint(
        layer, offload_argnums=(0,),
        policy=jax.checkpoint_policies.save_only_these_names("q", "k", "v"))

checkpoint   is jax.checkpoint, but keeps the saved values in actmem regions
remat        is another name of checkpoint
patch        makes jax.checkpoint keep in actmem the values that a policy offloads
empty        makes a NumPy array in a region, for a program to fill
asarray      makes a JAX array in a region; does not copy an array of empty()
save         copies an array into a named region
load         returns the array of a named region as a JAX array, in any process
offload_params
             stores the weights of stacked layers, so that a scan reads them layer by layer
value_and_grad
             differentiates a function of stored weights
value        returns copies of stored arrays on the device
Stored       is a weight in actmem memory, or an array of an optimizer's state: see actmem.optax
save_state   writes an optimizer's state and other arrays to a file
restore_state
             returns the arrays in a file of save_state
report       shows where each named value of a step goes
stats        returns counters
reset        frees values that failed or abandoned steps have left
configure    limits unfinished forward passes, and switches checksums on and off
plan         predicts which values to keep, offload or recompute: see actmem.plan
load_plan    reads a saved plan, and can compare the plan's key with the result of plan_key

A process that runs a program from jax.export must import this module. The export must allow the
program's custom calls: some of actmem_put, actmem_take, actmem_tie, actmem_hold, actmem_drop,
actmem_ghost and actmem_update. TPUs cannot run such a program.
"""
from typing import TYPE_CHECKING, Any

from actmem.jax import _versions

_versions.check()

from actmem.jax._arrays import asarray, empty
from actmem.jax._checkpoint import checkpoint, patch, remat
from actmem.jax._files import load, save
from actmem.jax._handlers import configure, reset, stats
from actmem.jax._params import offload_params, value_and_grad
from actmem.jax._report import Report, Row, report
from actmem.jax._state import Stored, value
from actmem.jax._state_files import restore_state, save_state

__all__ = ["Report", "Row", "Stored", "asarray", "checkpoint", "configure", "empty", "load",
           "offload_params", "patch", "remat", "report", "reset", "restore_state", "save",
           "save_state", "stats", "value", "value_and_grad"]

if TYPE_CHECKING:
    from actmem.plan import load_plan as load_plan, plan as plan, plan_key as plan_key


def __getattr__(name: str) -> Any:
    # Imported on first use: few programs use actmem.plan, and actmem.plan imports this module.
    if name in ("plan", "load_plan", "plan_key"):
        from actmem import plan
        return getattr(plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
