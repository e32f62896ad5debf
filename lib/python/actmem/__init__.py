# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Pinned, NUMA-local, huge-page host memory for accelerators.

    import actmem
    actmem.open(allow=("thp", "4k"))    # without arguments, the environment decides
    print(actmem.describe())

`actmem.jax` keeps the activations of a JAX training run in this memory.

A process has at most one open Memory, which open() creates. If the program does not call open(),
the first function that needs a Memory creates one, with the options of the environment
(ACTMEM_BACKEND, ACTMEM_PAGES, ..., which `actmem run` sets).
"""
from __future__ import annotations

import builtins
import ctypes
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from actmem import _native, _wheel

__all__ = ["Error", "Memory", "open", "default", "describe", "counters",
           "regions", "list", "version"]


StrOrBytesPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Error(OSError):
    """A call of libactmem failed. The exception has `errno`, and an error message that names the
    requested memory, the available memory and the setting that helps."""


def _check(status: int) -> None:
    if status:
        words = _native.library.actmem_error_in(_native.NAMES_PYTHON).decode(errors="replace")
        raise Error(-status, _wheel.complete(words) or os.strerror(-status))


def _choice(kind: str, value: str, names: Sequence[str]) -> int:
    wanted = str(value).lower()
    for number, name in enumerate(names):
        if name.lower() == wanted:
            return number
    raise ValueError(f"{kind}={value!r} must be one of {', '.join(names)}")


def _bits(kind: str, value: str | Iterable[str], known: Mapping[str, int]) -> int:
    bits = 0
    for name in value.split(",") if isinstance(value, str) else value:
        bit = known.get(name.strip().lower())
        if bit is None:
            raise ValueError(f"{kind}={name!r} must be one of {', '.join(known)}")
        bits |= bit
    return bits


def _node_mask(nodes: int | Iterable[int]) -> _native.Nodes:
    mask = _native.Nodes()
    for node in [nodes] if isinstance(nodes, (int, str)) else nodes:
        if isinstance(node, str):
            raise ValueError(f"nodes={node!r} must be an integer or a sequence of integers")
        if not 0 <= node < _native.NODES_MAX:
            raise ValueError(
                f"nodes={node!r} must be from 0 to {_native.NODES_MAX - 1}")
        mask.word[node // 64] |= 1 << node % 64
    return mask


def _options_of_environment() -> _native.Options:
    options = _native.initialized(_native.Options)
    _check(_native.library.actmem_options_from_environment(ctypes.byref(options)))
    return options


def _is_on(variable: str) -> bool:
    value = os.environ.get(variable) or "0"
    if value not in ("0", "1"):
        raise Error(errno.EINVAL, f"{variable} is '{value}', but must be 1 or 0")
    return value == "1"


def _check_spill(directories: tuple[bytes, ...], permitted: int, quiet: bool) -> None:
    """Raises Error, or prints a line on stderr, if a directory for spilled blocks is in memory
    (tmpfs)."""
    if not directories:
        directories = tuple(os.fsencode(os.environ.get("ACTMEM_SPILL", "")).split(b":"))
    if not permitted and "memory" in os.environ.get("ACTMEM_SPILL_ALLOW", "").lower().split(","):
        permitted = _native.SPILL_ALLOW["memory"]
    flags = permitted & _native.SPILL_ALLOW["memory"]
    if _is_on("ACTMEM_STRICT"):
        flags |= _native.STORE_STRICT
    _check(_native.library.actmem_store_check_paths(
        (ctypes.c_char_p * len(directories))(*directories), len(directories), flags))
    note = _native.library.actmem_error_in(_native.NAMES_PYTHON).decode(errors="replace")
    if note and not quiet:
        print(f"actmem: {note}; ACTMEM_QUIET=1 omits this line", file=sys.stderr)


_PAGES_UNLESS_SAID = "2M"


class Memory:
    """An open backend, with the options for its regions. `pages` is the requested page size.
    counters()["fallbacks_total"] counts the fallbacks to other pages, another node or unlocked
    memory."""

    def __init__(self, handle: ctypes.c_void_p, heap_grow: int = 0, heap_limit: int = 0,
                 budget: int = 0, spill: tuple[bytes, ...] = (), spill_limit: int = 0,
                 spill_allow: int = 0, named: bool = False, device_ring: int = 0,
                 placed: bool = False, pages: str = "default") -> None:
        self._handle: ctypes.c_void_p | None = handle
        self.pages = _PAGES_UNLESS_SAID if pages == "default" else pages
        self.heap_grow = heap_grow
        self.heap_limit = heap_limit
        self.budget = budget
        self.spill = spill
        self.spill_limit = spill_limit
        self.spill_allow = spill_allow
        self.named = named
        self.device_ring = device_ring
        self.placed = placed

    def __repr__(self) -> str:
        return f"<actmem.Memory {self.describe()}>"

    @property
    def handle(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise Error(errno.EBADF, "this memory is closed")
        return self._handle

    @property
    def backend(self) -> str:
        """The backend in use: "driver" or "memfd"."""
        return _native.BACKENDS[_native.library.actmem_get_backend(self.handle)]

    def describe(self) -> str:
        """Returns the backend in use and the reason, as text."""
        text: bytes = _native.library.actmem_describe(self.handle)
        return text.decode()

    def counters(self) -> dict[str, int]:
        """Returns counters of regions, heaps and blocks by name: see actmem.counters()."""
        value = _native.initialized(_native.Counters)
        _check(_native.library.actmem_get_counters(self.handle,
                                               ctypes.byref(value)))
        return _native.as_dict(value)

    def close(self) -> None:
        """Closes this memory. Other threads must not use the memory during or after the call. If a
        region or heap of this memory is open, raises actmem.Error, and the memory stays open."""
        global _default
        with _lock:
            try:
                _check(_close_handle(self))
            except Error as error:
                if error.errno != errno.EBUSY or _on_open is None:
                    raise
                raise Error(errno.EBUSY, f"{error.strerror}; actmem.jax.reset() "
                            "closes the unused regions of arrays and activations") from None
            self._handle = None
            if _default is self:
                _default = None


_lock = threading.RLock()
_default: Memory | None = None
def _close_handle(memory: Memory) -> int:
    status: int = _native.library.actmem_close(memory.handle)
    return status


# actmem.jax sets these two variables, and replaces _close_handle(). _on_open() is called after a
# Memory was opened. The XLA handlers (lib/xla) can open a Memory without this module. _adopted()
# returns the handle of such a Memory, or None if the handlers opened none.
_on_open: Callable[[Memory], None] | None = None
_adopted: Callable[[], int | None] | None = None


def _encoded(what: str, path: StrOrBytesPath) -> bytes:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError(f"{what}={os.fsdecode(encoded)!r} is not a valid name: it "
                         "contains a byte of 0")
    return encoded


def _directories(spill: StrOrBytesPath | Iterable[StrOrBytesPath] | None) -> tuple[bytes, ...]:
    """Returns the directories as a tuple of absolute paths, in bytes."""
    if spill is None:
        return ()
    if isinstance(spill, (str, bytes, os.PathLike)):
        spill = (spill,)
    try:
        directories = tuple(os.fsencode(path) for path in spill)
    except TypeError:
        raise TypeError(f"spill={spill!r} is neither a directory nor a "
                        "sequence of directories") from None
    if not directories:
        raise ValueError("spill= names no directory")
    for path in directories:
        if not path or b"\0" in path:
            raise ValueError(f"spill={os.fsdecode(path)!r} is not a valid name of a directory")
    return tuple(os.path.abspath(path) for path in directories)


def open(backend: str | None = None, pages: str | None = None, policy: str | None = None,
         nodes: int | Iterable[int] | None = None, allow: str | Iterable[str] | None = None,
         heap_grow: int = 0, heap_limit: int = 0, name: StrOrBytesPath | None = None,
         budget: int = 0, spill: StrOrBytesPath | Iterable[StrOrBytesPath] | None = None,
         spill_limit: int = 0, spill_allow: str | Iterable[str] | None = None,
         device_ring: int = 0) -> Memory:
    """Opens the memory of this process. The program must call open() before it first uses the
    memory. Thread-safe, unless another thread changes the environment meanwhile.

    Args:
      backend: "auto", "driver" or "memfd".
      pages: "1G", "2M", "thp" or "4K".
      policy: How pages are placed on `nodes`: "bind", "preferred" or "interleave".
      nodes: The number of a NUMA node, or a sequence of such numbers.
      allow: Fallbacks that actmem is allowed to use if the requested memory is not available:
        some of "2m", "thp", "4k", "node" and "unlocked", or "any" for all of them. () permits no
        fallback, regardless of the environment. Error messages name the values that would help.
      heap_grow: Usual length in bytes of the regions in which actmem allocates blocks. A block
        holds, for example, an activation. The length must be a multiple of 2 MiB, and is rounded up
        to whole pages if the pages are 1G. Default: 64 MiB.
      heap_limit: Maximum total bytes of the regions for blocks. Default: no limit. The arrays of
        actmem.jax.empty() use separate regions, with a separate limit of the same size.
      name: If set, the regions for blocks are files: name.0, name.1 and so on. The files stay,
        and the next process with that name reuses them with their contents. A name with "/" is a
        path on a mounted actmem, hugetlbfs or tmpfs file system. A name without "/" is a file on
        the first mounted actmem file system. Processes that run at the same time need different
        names.
      budget: Maximum bytes of memory for blocks. Cannot be combined with heap_limit. With `spill`,
        blocks beyond the budget are kept in files until they are needed.
      spill: A directory for the files of spilled blocks, or several directories, one per disk.
        The file system must support direct I/O, unless spill_allow has "buffered". Spilling to a
        directory in memory (tmpfs) frees no memory, so open() prints a warning on stderr. With
        ACTMEM_STRICT=1, open() raises an error for such a directory, unless spill_allow has
        "memory".
      spill_limit: Maximum total bytes of the files of spilled blocks. Default: no limit.
      spill_allow: Permitted fallbacks if the files of spilled blocks cannot be written, or if
        their file system does not support direct I/O.
        "memory" keeps blocks in memory, even beyond the budget, if the disk is full. "buffered"
        accepts directories without direct I/O. The caller can pass both. () permits no fallback,
        regardless of the environment. A call that needs a fallback fails if the fallback is not
        permitted.
      device_ring: Bytes of the staging buffer for transfers on each GPU. Default: 512 MiB.

      For options that are None or 0, the environment decides. If neither the caller nor the
      environment sets `allow`, actmem uses the best available memory. The pages can have any size
      if `pages` is not set. The memory can be on any node if `nodes` and `policy` are not set.
      Memory that cannot be locked stays unlocked. A line on stderr reports the first of these
      fallbacks in the process. With ACTMEM_STRICT=1 a fallback is an error.

    Returns:
      The memory, which default() returns from then on.

    Raises:
      ValueError: An option is invalid, or conflicts with another.
      actmem.Error: The memory is not available, or is already open. The error message names the
        requested memory, the available memory and the setting that helps.

    Example:
      memory = actmem.open(nodes=0, pages="2M", allow=("thp", "4k"), heap_limit=8 << 30)
      print(memory.describe())
    """
    global _default
    for what, size in (("heap_grow", heap_grow), ("heap_limit", heap_limit),
                       ("budget", budget), ("spill_limit", spill_limit),
                       ("device_ring", device_ring)):
        if not isinstance(size, int) or not 0 <= size < 1 << 64:
            raise ValueError(f"{what}={size!r} is not a number of bytes, such as 8 << 30")
    if budget and heap_limit:
        raise ValueError(f"budget={budget} and heap_limit={heap_limit} cannot be combined: "
                         "the budget also limits the heap; omit heap_limit")
    spill = _directories(spill)
    if spill and not budget and not os.environ.get("ACTMEM_BUDGET"):
        raise ValueError("spill= needs a budget: actmem spills only blocks beyond the "
                         "budget; set budget= or ACTMEM_BUDGET")
    if spill_limit and not spill and not os.environ.get("ACTMEM_SPILL"):
        raise ValueError(f"spill_limit={spill_limit} needs a directory to "
                         "spill to: set spill= or ACTMEM_SPILL")
    if spill_allow is not None and not spill and not os.environ.get("ACTMEM_SPILL"):
        raise ValueError(f"spill_allow={spill_allow!r} needs a directory to "
                         "spill to: set spill= or ACTMEM_SPILL")
    permitted = 0 if spill_allow is None else (
        _bits("spill_allow", spill_allow, _native.SPILL_ALLOW) or
        _native.SPILL_ALLOW_NOTHING)
    options = _options_of_environment()
    if backend is not None:
        options.backend = _choice("backend", backend, _native.BACKENDS)
    if pages is not None:
        options.pages = _choice("pages", pages, _native.PAGES)
    if policy is not None:
        options.policy = _choice("policy", policy, _native.POLICIES)
    if nodes is not None:
        options.nodes = _node_mask(nodes)
    if allow is not None:
        options.allow = _bits("allow", allow, _native.ALLOW) | _native.ALLOW_ONLY
    if name is not None:
        options.heap_name = _encoded("name", name)
    with _lock:
        there = _current()
        if there is not None:
            raise Error(errno.EBUSY,
                        "the memory of this process is already open "
                        f"({there.describe()}): call actmem.open() before "
                        "the first use of the memory, or close() the memory")
        # Read ACTMEM_QUIET first: a wrong value must raise an error before anything is open.
        quiet = _is_on("ACTMEM_QUIET")
        _check_spill(spill, permitted, quiet)
        handle = ctypes.c_void_p()
        _check(_native.library.actmem_open(ctypes.byref(handle),
                                           ctypes.byref(options)))
        memory = Memory(handle, heap_grow, heap_limit, budget, spill,
                        spill_limit, permitted, bool(options.heap_name),
                        device_ring,
                        any(options.nodes.word) or bool(options.policy),
                        _native.PAGES[options.pages])
        if _on_open is not None:
            try:
                _on_open(memory)
            except BaseException:
                _native.library.actmem_close(handle)
                raise
        _default = memory
        return memory


def _current() -> Memory | None:
    global _default
    if _default is None and _adopted is not None:
        handle = _adopted()
        if handle:
            _default = Memory(ctypes.c_void_p(handle),
                          pages=_native.PAGES[_options_of_environment().pages])
    return _default


def default() -> Memory:
    """Returns the memory of this process. If the memory is not open, opens it with the options of
    the environment. Raises the errors of open(). Thread-safe, like open()."""
    with _lock:
        memory = _current()
        if memory is not None:
            return memory
        try:
            return open()
        except Error:
            # A thread of XLA may have opened the memory since the check above.
            memory = _current()
            if memory is None:
                raise
            return memory


def describe() -> str:
    """Returns the backend in use and the reason, as text. Opens the memory as default() does.

    Example:
      >>> import actmem
      >>> actmem.describe().partition(": ")[0] in ("driver", "memfd")
      True
    """
    return default().describe()


def counters() -> dict[str, int]:
    """Returns counters of regions, heaps and blocks of this process, by name: "regions",
    "region_bytes", "heaps", "blocks", "block_bytes" and so on, as in struct actmem_counters.
    Opens the memory as default() does."""
    return default().counters()


def list() -> builtins.list[dict[str, Any]]:
    """Returns every region on this machine that the caller is allowed to see.

    Returns:
      A list of dicts with "id", "length", "pid", "uid", "command", "name", "path", "backend",
      "pages", "nodes" (bytes by node number), "mapped_bytes", "pinned_bytes" and so on, as in
      struct actmem_region_info.

    Raises:
      actmem.Error: The regions cannot be listed.

    Example:
      >>> import actmem
      >>> pids = {region["pid"] for region in actmem.list()}
    """
    array = ctypes.POINTER(_native.RegionInfo)()
    count = ctypes.c_size_t()
    _check(_native.library.actmem_region_list_sized(
        ctypes.byref(array), ctypes.byref(count),
        ctypes.sizeof(_native.RegionInfo)))
    try:
        return [_region(array[i]) for i in range(count.value)]
    finally:
        _native.free(array)


def _region(info: _native.RegionInfo) -> dict[str, Any]:
    region = _native.as_dict(info)
    region["backend"] = _native.BACKENDS[info.backend]
    region["pages"] = _native.PAGES[info.pages]
    region["nodes"] = {node: info.node_bytes[node] for node in range(info.node_count)
                       if info.node_bytes[node]}
    for name in ("node_bytes", "node_count", "reserved"):
        del region[name]
    region["name"] = info.name.decode(errors="replace")
    region["command"] = info.command.decode(errors="replace")
    region["path"] = os.fsdecode(info.path or b"")
    for name in ("lingering", "named"):
        region[name] = bool(region[name])
    return region


def regions() -> builtins.list[dict[str, Any]]:
    """Returns the regions of this process, as list() returns them."""
    return [region for region in list() if region["pid"] == os.getpid()]


def version() -> str:
    """Returns the version of libactmem, such as "0.1.0"."""
    text: bytes = _native.library.actmem_version()
    return text.decode()
