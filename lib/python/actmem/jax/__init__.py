# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The activations of a JAX training, and arrays, in actmem memory.

    import jax, actmem.jax

    layer = actmem.jax.checkpoint(
        layer, offload_argnums=(0,),
        policy=jax.checkpoint_policies.save_only_these_names("q", "k", "v"))

checkpoint   is jax.checkpoint whose saved values live in actmem regions
remat        is another name of checkpoint
patch        makes jax.checkpoint do so where a policy offloads
empty        an array of NumPy's in such a region, for a program to fill
asarray      an array of JAX's in such a region, without a copy of the former
save, load   the same in a region with a name, for several processes
report       a table of what becomes of each named value of a step
stats        what is there and what went through
reset        frees what failed or abandoned steps have left
configure    limits and checks
plan         what to keep, offload or recompute, foreseen: see actmem.plan
load_plan    that of a file, for the program of plan_key

A program that was made by jax.export (allow it the custom calls actmem_put, _take,
_tie, _hold and _drop) needs this module imported where it runs. TPUs cannot run it.
"""
from typing import TYPE_CHECKING, Any

from actmem.jax import _versions

_versions.check()

from actmem.jax._arrays import asarray, empty
from actmem.jax._checkpoint import checkpoint, patch, remat
from actmem.jax._files import load, save
from actmem.jax._handlers import configure, reset, stats
from actmem.jax._report import Report, Row, report

__all__ = ["Report", "Row", "asarray", "checkpoint", "configure", "empty", "load",
           "patch", "remat", "report", "reset", "save", "stats"]

if TYPE_CHECKING:
    from actmem.plan import load_plan as load_plan, plan as plan, plan_key as plan_key


def __getattr__(name: str) -> Any:
    # actmem.plan uses this module, and few programs that one.
    if name in ("plan", "load_plan", "plan_key"):
        from actmem import plan
        return getattr(plan, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
