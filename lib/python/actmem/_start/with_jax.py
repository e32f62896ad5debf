# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""`actmem run` starts this module in a program as soon as the program has imported jax. The module
warns of a flag with which JAX computes wrong values, and calls actmem.jax.patch() if ACTMEM_OFFLOAD
is 1. If the process compiles a function of the program, but keeps nothing in actmem, the module
prints a line when the process ends.

This module itself uses no private name of JAX, so a program without ACTMEM_OFFLOAD=1 can use any
version of JAX.
"""
from __future__ import annotations

import atexit
import os
import sys
from typing import Any

_OLDEST = (3, 11)       # the oldest Python that actmem.jax supports

_PIPELINED = "--xla_gpu_enable_pipelined_host_offloading"

# Launchers of jobs set one of these variables to the rank of the process.
_RANKS = ("RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def _is_on(variable: str) -> bool:
    value = os.environ.get(variable) or "0"
    if value not in ("0", "1"):
        _say(f"{variable} is '{value}', but must be 1 or 0")
        raise SystemExit(1)
    return value == "1"


def _is_first() -> bool:
    """Returns whether this is the one process of a job that prints messages, so that each message
    appears only once."""
    ranks = [os.environ[variable] for variable in _RANKS if variable in os.environ]
    return not ranks or ranks[0] == "0"


def _is_worker() -> bool:
    """Returns whether multiprocessing started this process. In that case, the parent process has
    printed the messages."""
    return any("from multiprocessing." in word for word in getattr(sys, "orig_argv", ()))


def _is_daemon() -> bool:
    """Returns whether this process is a daemon of multiprocessing, such as a data loader."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.current_process().daemon


def _say(line: str) -> None:
    sys.stderr.write(f"actmem: {line}\n")
    sys.stderr.flush()


def wrong_flag(version: str) -> str | None:
    """Returns a warning if this version of JAX computes wrong values with the current XLA_FLAGS.
    Otherwise, returns None."""
    values = [word.partition("=")[2] for word in os.environ.get("XLA_FLAGS", "").split()
              if word.partition("=")[0] == _PIPELINED]
    if version != "0.11.2" or not values or values[-1] in ("false", "0"):
        return None
    return (f"JAX {version} computes wrong gradients on GPUs with {_PIPELINED}: remove this flag "
            "from XLA_FLAGS, or use another version of JAX")


def _offload(version: str) -> None:
    try:
        if sys.version_info < _OLDEST:
            raise ImportError("actmem.jax needs Python {}.{}, but this is Python {}.{}".format(
                *_OLDEST, *sys.version_info[:2]))
        import actmem.jax
        actmem.jax.patch()
    except Exception as error:
        _say(f"--offload failed in {sys.executable} with JAX {version}: {error}; use a version of "
             "JAX that actmem supports, or set ACTMEM_OFFLOAD=0 to run without --offload")
        raise SystemExit(1) from None
    if not _is_on("ACTMEM_QUIET") and _is_first() and not _is_worker():
        _say("values that policies of jax.checkpoint offload to pinned_host go to actmem "
             "(ACTMEM_OFFLOAD=0 disables this)")


def begin(jax: Any) -> None:
    version = getattr(jax, "__version__", None)
    if version is None:         # another module is named jax
        return
    warning = wrong_flag(version)
    if warning and _is_first() and not _is_worker():
        _say(warning)
    if _is_on("ACTMEM_OFFLOAD"):
        _offload(version)
    if _is_on("ACTMEM_QUIET") and not _is_on("ACTMEM_JAX_REPORT"):
        return
    try:
        from jax.monitoring import register_event_duration_secs_listener as listen
    except ImportError:         # JAX is too old
        return
    compiled: list[str] = []

    def note(event: str, duration_secs: float, **named: Any) -> None:
        name = str(named.get("fun_name", ""))
        if not compiled and event.endswith("backend_compile_duration") and \
                not _is_operation(jax, name):
            compiled.append(name)
    listen(note)
    atexit.register(_end, jax, compiled, os.getpid())


def _is_operation(jax: Any, program: str) -> bool:
    """Returns whether a compiled program is one operation of JAX, called outside of jit.
    The caller ignores such programs, because processes that only prepare data, or only start other
    processes, also compile such programs."""
    name = program.replace("jit(", "").strip("_)")
    return name not in ("scan", "cond", "gradient") and ("threefry" in name or any(
        hasattr(module, name) for module in (jax.numpy, jax.lax, jax.random, jax.nn)))


def _end(jax: Any, compiled: list[str], process: int) -> None:
    """Prints a line if the process kept nothing in actmem. Prints nothing in forked children.
    Prints nothing after an exception, because the program may have ended before its first step."""
    if not compiled or os.getpid() != process or hasattr(sys, "last_value"):
        return
    if _is_daemon() or not _is_first() or jax.process_index() != 0:
        return
    if not _is_on("ACTMEM_OFFLOAD") and _offloads_itself(jax):
        return
    report = sys.modules.get("actmem.jax._report")
    if report is not None:
        report.tell_nothing()
    else:
        _say("this program kept no activation in actmem: `actmem run --offload` keeps values in "
             "actmem that a policy of jax.checkpoint offloads to pinned_host (ACTMEM_QUIET=1 "
             "omits this line)")


def _offloads_itself(jax: Any) -> bool:
    """Returns whether JAX itself uses pinned_host, for a live array or for temporaries of a
    compiled program. If XLA does not report temporaries, checks only live arrays."""
    if any(array.sharding.memory_kind == "pinned_host" for array in jax.live_arrays()):
        return True
    try:
        return any(program.get_compiled_memory_stats().host_temp_size_in_bytes
                   for program in jax.local_devices()[0].client.live_executables())
    except Exception:           # JAX does not guarantee this interface
        return False
