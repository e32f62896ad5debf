# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Registers the handlers of libactmem_xla with XLA, reads the counters of this library, and changes
its settings.

Mirrors lib/xla/actmem_xla.h. PLATFORMS is the only list of the platforms that have handlers.
"""
from __future__ import annotations

import ctypes
import errno
import os
from ctypes import (POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8,
                    c_uint32, c_uint64, c_void_p)
from typing import Any

import jax

import actmem
from actmem import _native
from actmem.jax._tokens import drain, state_ids

# platform → target of a custom call → name of the library's function that handles the call
PLATFORMS = {
    "cpu": {"actmem_put": "actmem_xla_put", "actmem_take": "actmem_xla_take",
            "actmem_tie": "actmem_xla_tie", "actmem_hold": "actmem_xla_hold",
            "actmem_drop": "actmem_xla_drop", "actmem_ghost": "actmem_xla_ghost",
            "actmem_update": "actmem_xla_update"},
    "cuda": {"actmem_put": "actmem_xla_put_cuda", "actmem_take": "actmem_xla_take_cuda",
             "actmem_tie": "actmem_xla_tie_cuda", "actmem_hold": "actmem_xla_hold_cuda",
             "actmem_drop": "actmem_xla_drop_cuda", "actmem_ghost": "actmem_xla_ghost",
             "actmem_update": "actmem_xla_update_cuda"},
}
# XLA's name for a platform, if it differs from JAX's name.
_REGISTERED_AS = {"cuda": "CUDA"}


class Options(_native.Sized):
    grow_bytes: int
    limit_bytes: int
    budget_bytes: int
    spill_limit_bytes: int
    spill_paths: ctypes.Array[c_char_p]
    spill_path_count: int
    named: int
    ring_bytes: int
    placed: int
    spill_allow: int
    _fields_ = [("size", ctypes.c_size_t), ("grow_bytes", c_uint64),
                ("limit_bytes", c_uint64), ("budget_bytes", c_uint64),
                ("spill_limit_bytes", c_uint64),
                ("spill_paths", POINTER(c_char_p)),
                ("spill_path_count", c_uint32), ("named", c_uint32),
                ("ring_bytes", c_uint64), ("placed", c_uint32),
                ("spill_allow", c_uint32)]


class Stats(_native.Sized):
    checksum: int
    _fields_ = [("size", ctypes.c_size_t)] + [(name, c_uint64) for name in (
        "live_blocks", "live_bytes", "live_bytes_peak", "puts_total",
        "put_bytes_total", "takes_total", "take_bytes_total",
        "last_run_put_bytes", "last_run_take_bytes", "reclaimed_blocks_total",
        "reclaimed_bytes_total", "reset_blocks_total", "checksums_total",
        "generations", "generations_max", "checksum", "lost_blocks_total",
        "dropped_blocks_total", "own_bytes", "own_bytes_total")]


class DeviceStats(_native.Sized):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, c_uint64) for name in (
        "live_bytes", "live_bytes_peak", "put_bytes_total",
        "take_bytes_total")]


class TensorOptions(_native.Sized):
    address: int
    shape: ctypes.Array[c_int64]
    rank: int
    device_type: int
    device: int
    code: int
    bits: int
    _fields_ = [("size", ctypes.c_size_t), ("address", c_void_p),
                ("shape", POINTER(c_int64)), ("rank", c_uint32),
                ("device_type", c_int32), ("device", c_int32),
                ("code", c_uint8), ("bits", c_uint8)]


class ArrayStats(_native.Sized):
    cuda: int
    _fields_ = [("size", ctypes.c_size_t)] + [(name, c_uint64) for name in (
        "blocks", "bytes", "bytes_peak", "views", "region_bytes",
        "blocks_total", "views_total", "copied_bytes_total", "cuda")]


class TransferStats(_native.Sized):
    to_host_bytes_total: int
    _fields_ = [("size", ctypes.c_size_t)] + [(name, c_uint64) for name in (
        "ring_bytes", "to_host_bytes_total", "to_device_bytes_total",
        "ahead_bytes_total", "ahead_total", "late_total", "wasted_bytes_total",
        "token_wait_ns_total", "block_wait_ns_total", "unfinished",
        "staged_bytes", "token_waits_total", "host_waits_total")]


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, result, arguments in (
            ("actmem_xla_attach", c_int, [c_void_p, POINTER(Options)]),
            ("actmem_xla_close", c_int, [c_void_p]),
            ("actmem_xla_attached", c_void_p, []),
            ("actmem_xla_trim", c_int, []),
            ("actmem_xla_set_generations", c_int, [c_uint64]),
            ("actmem_xla_set_checksum", c_int, [c_int]),
            ("actmem_xla_stats", c_int, [POINTER(Stats)]),
            ("actmem_xla_device_stats", c_int,
             [c_uint32, POINTER(DeviceStats)]),
            ("actmem_xla_transfer_stats", c_int,
             [c_uint32, POINTER(TransferStats)]),
            ("actmem_xla_trim_devices", None, []),
            ("actmem_xla_store_stats", c_int, [POINTER(_native.StoreStats)]),
            ("actmem_xla_reset", c_uint64, [POINTER(c_uint64), ctypes.c_size_t]),
            ("actmem_xla_array_new", c_int,
             [c_uint64, c_uint32, c_uint32, POINTER(c_void_p),
              POINTER(c_void_p), c_char_p, ctypes.c_size_t]),
            ("actmem_xla_array_open", c_int,
             [c_char_p, POINTER(c_uint64), c_uint32, c_uint32,
              POINTER(c_void_p), POINTER(c_void_p), c_char_p,
              ctypes.c_size_t]),
            ("actmem_xla_array_drop", None, [c_void_p]),
            ("actmem_xla_tensor_new", c_int,
             [c_void_p, POINTER(TensorOptions), POINTER(c_void_p)]),
            ("actmem_xla_tensor_drop", None, [c_void_p]),
            ("actmem_xla_array_stats", c_int, [POINTER(ArrayStats)])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _declare(_native.load("libactmem_xla"))


def _check(status: int) -> None:
    if status == -errno.EOWNERDEAD:
        raise actmem.Error(errno.EOWNERDEAD, "this process was forked from one that uses "
                           "actmem.jax, and did not inherit the memory of its parent")
    actmem._check(status)


def _attach(memory: actmem.Memory) -> None:
    options = _native.initialized(Options)
    options.grow_bytes = memory.heap_grow
    options.limit_bytes = memory.heap_limit
    options.budget_bytes = memory.budget
    options.spill_limit_bytes = memory.spill_limit
    options.spill_paths = (c_char_p * len(memory.spill))(*memory.spill)
    options.spill_path_count = len(memory.spill)
    options.spill_allow = memory.spill_allow
    options.named = memory.named
    options.ring_bytes = memory.device_ring
    options.placed = memory.placed
    status = library.actmem_xla_attach(memory.handle, ctypes.byref(options))
    if status == -errno.EBUSY:
        raise actmem.Error(errno.EBUSY,
                           "actmem.jax already uses memory: call actmem.open() "
                           "before the first use")
    if status == -errno.EOWNERDEAD:
        _check(status)
    if status:
        raise actmem.Error(-status, f"spill= has {len(memory.spill)} directories, but "
                                    "at most 64 are possible")


def _close(memory: actmem.Memory) -> int:
    """Closes the memory. Afterwards, the handlers do not use it."""
    status: int = library.actmem_xla_close(memory.handle)
    return status


def _register() -> None:
    for platform, targets in PLATFORMS.items():
        for target, handler in targets.items():
            jax.ffi.register_ffi_target(
                target, jax.ffi.pycapsule(getattr(library, handler)),
                platform=_REGISTERED_AS.get(platform, platform))


def _from_environment() -> None:
    text = os.environ.get("ACTMEM_JAX_GENERATIONS")
    if text:
        if not text.isdigit():
            raise ValueError(f"ACTMEM_JAX_GENERATIONS is {text!r}, but must be "
                             "a number of forward passes (0: no limit)")
        configure(generations=int(text))


def configure(generations: int | None = None, checksum: bool | None = None) -> None:
    """Changes settings of the whole process. If an argument is None, its setting does not change.

    Args:
      generations: The maximum number of unfinished forward passes of each checkpointed call on one
        device. If one more pass begins, the values that the oldest pass saved are treated as
        abandoned, and their memory is reclaimed. 0: no limit. Default: the environment variable
        ACTMEM_JAX_GENERATIONS, or 2.
      checksum: Whether to compute a checksum of each value that programs put into actmem from now
        on, and to verify it when they take the value. This costs time.

    Raises:
      ValueError: `generations` is not a valid number.
      actmem.Error: The process is a forked child of a process that uses actmem.jax.

    Example:
      >>> import actmem.jax
      >>> actmem.jax.configure(generations=4)
    """
    if generations is not None:
        if not isinstance(generations, int) or not 0 <= generations < 1 << 63:
            raise ValueError(f"generations={generations!r} must be a number of "
                             "forward passes (0: no limit)")
        _check(library.actmem_xla_set_generations(generations))
    if checksum is not None:
        _check(library.actmem_xla_set_checksum(bool(checksum)))


def _transfers() -> dict[int, dict[str, int]]:
    result = {}
    for device in jax.local_devices():
        value = _native.initialized(TransferStats)
        index = device.local_hardware_id
        if device.platform == "cpu" or index is None:
            continue
        library.actmem_xla_transfer_stats(index, ctypes.byref(value))
        if value.to_host_bytes_total:
            result[index] = _native.as_dict(value)
    return result


def _memory() -> dict[str, Any]:
    memory = actmem.default()
    return {"backend": memory.backend, "why": memory.describe(), "pages": memory.pages,
            "fallbacks_total": memory.counters()["fallbacks_total"]}


def stats() -> dict[str, Any]:
    """Returns counters: bytes in actmem memory, and bytes that programs put into it, took from it,
    or copied. A put stores a value in a block of actmem memory, and a take returns the value.
    stats() first drops the values whose tokens Python no longer refers to, and waits until these
    values are dropped.

    memory                     the memory in use:
      backend, why             "driver" or "memfd", and the reason for this backend
      pages                    the requested page size
      fallbacks_total          how often actmem fell back to other pages, another node or
                               unlocked memory, as `allow` permits (actmem.regions()
                               shows the memory of each region)
    live_blocks, live_bytes    blocks that were stored and not yet freed
    live_bytes_peak            the maximum of live_bytes
    puts_total, put_bytes_total, takes_total, take_bytes_total
    last_run_put_bytes, last_run_take_bytes
                               bytes stored by the latest execution that stored any, and
                               bytes returned by the latest execution that took any. If
                               a step is one jitted call, an execution is one step
    reclaimed_blocks_total, reclaimed_bytes_total
                               blocks reclaimed from abandoned forward passes
    reset_blocks_total         blocks freed by reset()
    dropped_blocks_total       blocks that no program took, and that were dropped because
                               no program could take them any more
    own_bytes, own_bytes_total bytes of blocks and arrays in memory that the CUDA driver
                               allocated, because it refused to register a region
    lost_blocks_total          blocks that could not be read back from their files
    checksums_total            blocks whose checksum was verified
    generations, generations_max
                               unfinished forward passes of all checkpointed calls, and
                               their limit for each call and device
    devices                    live_bytes, live_bytes_peak, put_bytes_total and
                               take_bytes_total of each local device, by index
    store                      where the blocks are, and how long programs waited for
                               the store:
      budget_bytes, resident_bytes, spilled_bytes
                               the limit on memory, bytes in memory, and bytes that
                               are only in files
      hits_total, late_total, misses_total
                               blocks that were in memory when the program took them,
                               blocks that were being read or were next to be read, and
                               other blocks
      put_stall_ns_total, take_stall_ns_total
                               how long programs waited for memory to put a value into,
                               and for a block that they take
      spilled_bytes_total, filled_bytes_total
                               bytes written to files, and read from them
                               (others: see struct actmem_store_stats)
    arrays                     arrays of empty(), asarray() and load():
      blocks, bytes, bytes_peak
                               blocks and whole named regions that NumPy or JAX hold,
                               their bytes, and the maximum of these bytes
      views                    JAX arrays, counted per device, that use these blocks
                               through DLPack; arrays in the memory pinned_host of a CPU
                               do not use DLPack
      region_bytes             bytes of the regions that contain the blocks
      copied_bytes_total       bytes that asarray() copied
      blocks_total, views_total
      cuda                     whether the regions are registered with CUDA
    transfers                  copies from and to each GPU, by the GPU's index; omits
                               GPUs from which no bytes were copied:
      ring_bytes               memory on the GPU in which copies are staged
      to_host_bytes_total, to_device_bytes_total
                               bytes copied
      ahead_total, late_total  how often a block was on the device already when the
                               program took it, and how often the device waited for it
      wasted_bytes_total       bytes copied to the device in advance that no program took
      token_waits_total        how often the host waited for tokens; takes that the
                               program announces together count once
      token_wait_ns_total, block_wait_ns_total
                               duration of waits for tokens, and of waits for blocks
                               that the program takes and that are not in memory yet
      host_waits_total         how often the host waited for the device, to read tokens
                               or for another reason
      unfinished, staged_bytes copies in progress, and bytes on the device that the
                               program has not taken yet

    Raises:
      actmem.Error: The process is a forked child of a process that uses actmem.jax.
    """
    drain(wait=True)
    value = _native.initialized(Stats)
    _check(library.actmem_xla_stats(ctypes.byref(value)))
    result = _native.as_dict(value)
    result["checksum"] = bool(value.checksum)
    result["devices"] = {}
    for index in range(jax.local_device_count()):
        device = _native.initialized(DeviceStats)
        library.actmem_xla_device_stats(index, ctypes.byref(device))
        result["devices"][index] = _native.as_dict(device)
    result["transfers"] = _transfers()
    store = _native.initialized(_native.StoreStats)
    status = library.actmem_xla_store_stats(ctypes.byref(store))
    _check(status)
    result["store"] = _native.as_dict(store)
    arrays = _native.initialized(ArrayStats)
    status = library.actmem_xla_array_stats(ctypes.byref(arrays))
    _check(status)
    result["arrays"] = _native.as_dict(arrays)
    result["arrays"]["cuda"] = bool(arrays.cuda)
    result["memory"] = _memory()
    return result


def reset() -> int:
    """Frees all blocks, except those of optimizer states, stored weights and stored gradients to
    which Python still refers. Also releases empty regions, including those of arrays, and the
    staging memory of GPUs.

    Failed or abandoned steps leave blocks that no program takes, mainly outside of jit, where the
    limit on generations does not apply. Call reset() while no step runs: a running backward pass
    would not find its values.

    Returns:
      The number of blocks freed.

    Raises:
      actmem.Error: The process is a forked child of a process that uses actmem.jax.

    Example:
      >>> import actmem.jax
      >>> actmem.jax.reset()      # no block was left
      0
    """
    drain(wait=True)
    kept = state_ids()
    freed: int = library.actmem_xla_reset((c_uint64 * len(kept))(*kept), len(kept))
    library.actmem_xla_trim_devices()
    status = library.actmem_xla_trim()
    _check(status)
    return freed


_register()
_from_environment()
with actmem._lock:
    if actmem._default is not None:
        _attach(actmem._default)
    actmem._on_open = _attach
    actmem._close_handle = _close
    actmem._adopted = library.actmem_xla_attached
