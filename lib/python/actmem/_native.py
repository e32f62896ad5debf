# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Finds libactmem, and declares its structs and functions for ctypes.

Mirrors actmem.h, actmem_region.h and the statistics of actmem_store.h, in lib/include. No other
module of the package declares C types of these headers.
"""
import ctypes
import os
from ctypes import (POINTER, c_char, c_char_p, c_int, c_int32, c_size_t,
                    c_uint, c_uint32, c_uint64, c_void_p)
from typing import Any, TypeVar

NODES_MAX = 1024
NAME_MAX = 64

BACKENDS = ("auto", "driver", "memfd")
POLICIES = ("default", "bind", "preferred", "interleave")
PAGES = ("default", "2M", "thp", "4K", "1G")
ALLOW = {"2m": 16, "thp": 1, "4k": 2, "node": 4, "unlocked": 8, "any": 31}
ALLOW_ONLY = 1 << 31
NAMES_PYTHON = 3
SPILL_ALLOW = {"memory": 2, "buffered": 4}
SPILL_ALLOW_NOTHING = 1 << 31
STORE_STRICT = 16


class Nodes(ctypes.Structure):
    word: "ctypes.Array[c_uint64]"
    _fields_ = [("word", c_uint64 * (NODES_MAX // 64))]


class Sized(ctypes.Structure):
    """A struct that begins with its size."""

    size: int


class Options(Sized):
    backend: int
    pages: int
    policy: int
    nodes: Nodes
    allow: int
    heap_name: bytes | None
    _fields_ = [("size", c_size_t), ("backend", c_int), ("pages", c_int),
                ("policy", c_int), ("nodes", Nodes), ("allow", c_uint32),
                ("reserved", c_uint32), ("heap_name", c_char_p)]


class RegionInfo(Sized):
    backend: int
    pages: int
    node_bytes: "ctypes._Pointer[c_uint64]"
    node_count: int
    path: bytes | None
    name: bytes
    command: bytes
    _fields_ = [("size", c_size_t), ("id", c_uint64), ("length", c_uint64),
                ("page_bytes", c_uint64), ("backend", c_int), ("pages", c_int),
                ("mapped_bytes", c_uint64), ("pinned_bytes", c_uint64),
                ("allocated_bytes", c_uint64), ("demand_faults", c_uint64),
                ("poisoned_bytes", c_uint64), ("exported_bytes", c_uint64),
                ("surplus_bytes", c_uint64),
                ("node_bytes", POINTER(c_uint64)), ("node_count", c_uint32),
                ("uid", c_uint32), ("pid", c_int32), ("lingering", c_uint32),
                ("named", c_uint32), ("reserved", c_uint32), ("path", c_char_p),
                ("name", c_char * NAME_MAX), ("command", c_char * 16)]


class Counters(Sized):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "regions", "region_bytes", "regions_mapped", "heaps", "blocks",
        "block_bytes", "block_bytes_peak", "region_bytes_peak",
        "regions_total", "blocks_total", "fallbacks_total", "stores",
        "spilled_bytes")]


class StoreStats(Sized):
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "budget_bytes", "blocks", "block_bytes", "block_bytes_peak",
        "memory_bytes", "memory_bytes_peak", "resident_bytes",
        "spilled_bytes", "spilled_bytes_peak", "file_bytes", "window_bytes",
        "write_bandwidth", "read_bandwidth", "puts_total", "takes_total",
        "hits_total", "handed_over_total", "late_total", "misses_total",
        "put_stall_ns_total", "take_stall_ns_total", "spilled_bytes_total",
        "filled_bytes_total", "wasted_bytes_total", "failed_spills_total",
        "failed_fills_total", "beyond_budget_bytes", "checksums_total",
        "file_bytes_peak", "given_back_bytes_total", "refused_bytes")]


_Struct = TypeVar("_Struct", bound=Sized)


def initialized(struct: type[_Struct]) -> _Struct:
    """Returns a struct with its size set and 0 in all other fields, like ACTMEM_INIT()."""
    value = struct()
    value.size = ctypes.sizeof(struct)
    return value


def as_dict(value: Sized) -> dict[str, Any]:
    """Returns the fields of a struct, without its size."""
    return {name: getattr(value, name) for name, *_ in value._fields_
            if name != "size"}


def _folders() -> list[str]:
    chosen = os.environ.get("ACTMEM_LIBDIR")
    if chosen:
        return [chosen]
    package = os.path.dirname(os.path.abspath(__file__))
    tree = os.path.dirname(os.path.dirname(os.path.dirname(package)))
    return [package, os.path.join(tree, "build", "lib")]


def load(name: str) -> ctypes.CDLL:
    """Loads the shared library `name`. If no folder has the library, raises an ImportError that
    names the searched folders."""
    tried = []
    for folder in _folders():
        for file in (f"{name}.so", f"{name}.so.0"):
            path = os.path.join(folder, file)
            if os.path.exists(path):
                try:
                    return ctypes.CDLL(path)
                except OSError as error:
                    raise ImportError(f"cannot load {path}: {error}") from None
        tried.append(folder)
    target = " jax" if name == "libactmem_xla" else ""
    raise ImportError(
        f"cannot find {name}.so in {' or '.join(tried)}: build it with `make{target}`, "
        "or set ACTMEM_LIBDIR to its folder")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    handle, options = c_void_p, POINTER(Options)
    for name, result, arguments in (
            ("actmem_error_in", c_char_p, [c_uint]),
            ("actmem_version", c_char_p, []),
            ("actmem_options_from_environment", c_int, [options]),
            ("actmem_open", c_int, [POINTER(handle), options]),
            ("actmem_close", c_int, [handle]),
            ("actmem_store_check_paths", c_int,
             [POINTER(c_char_p), ctypes.c_uint32, ctypes.c_uint32]),
            ("actmem_get_backend", c_int, [handle]),
            ("actmem_describe", c_char_p, [handle]),
            ("actmem_get_counters", c_int, [handle, POINTER(Counters)]),
            ("actmem_region_list_sized", c_int, [POINTER(POINTER(RegionInfo)),
                                          POINTER(c_size_t), c_size_t])):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _declare(load("libactmem"))

free = ctypes.CDLL(None).free
free.restype, free.argtypes = None, [c_void_p]
