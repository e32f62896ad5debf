# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Pinned, NUMA-local, huge-page host memory for accelerators.

    import actmem
    actmem.open(allow=("thp", "4k"))    # or nothing: the environment decides
    print(actmem.describe())

`actmem.jax` keeps the activations of a JAX training in such memory.

A process has one open memory, made by open() or, at the first use, as the
environment says (ACTMEM_BACKEND, ACTMEM_PAGES, ...: what `actmem run` sets).
"""
import ctypes
import errno
import os
import threading

from actmem import _native

__all__ = ["Error", "Memory", "open", "default", "describe", "counters",
           "regions", "list", "version"]


class Error(OSError):
    """A call of libactmem failed: `errno`, and in words what was wanted, what
    was there and which knob helps."""


def _check(status):
    if status:
        words = _native.library.actmem_error().decode(errors="replace")
        raise Error(-status, words or os.strerror(-status))


def _choice(kind, value, names):
    wanted = str(value).lower()
    for number, name in enumerate(names):
        if name.lower() == wanted:
            return number
    raise ValueError(f"{kind}={value!r} is none of {', '.join(names)}")


def _bits(kind, value, known):
    bits = 0
    for name in value.split(",") if isinstance(value, str) else value:
        bit = known.get(name.strip().lower())
        if bit is None:
            raise ValueError(f"{kind}={name!r} is none of {', '.join(known)}")
        bits |= bit
    return bits


def _node_mask(nodes):
    mask = _native.Nodes()
    for node in [nodes] if isinstance(nodes, (int, str)) else nodes:
        if isinstance(node, str):
            raise ValueError(f"nodes={node!r} is no node's number, nor several")
        if not 0 <= node < _native.NODES_MAX:
            raise ValueError(
                f"nodes={node!r} is not within 0 to {_native.NODES_MAX - 1}")
        mask.word[node // 64] |= 1 << node % 64
    return mask


class Memory:
    """An open backend, with the options that its regions get."""

    def __init__(self, handle, heap_grow=0, heap_limit=0, budget=0, spill=(),
                 spill_limit=0, spill_allow=0, named=False, device_ring=0,
                 placed=False):
        self._handle = handle
        self.heap_grow = heap_grow
        self.heap_limit = heap_limit
        self.budget = budget
        self.spill = spill
        self.spill_limit = spill_limit
        self.spill_allow = spill_allow
        self.named = named
        self.device_ring = device_ring
        self.placed = placed

    def __repr__(self):
        return f"<actmem.Memory {self.describe()}>"

    @property
    def handle(self):
        if self._handle is None:
            raise Error(errno.EBADF, "this memory is closed")
        return self._handle

    @property
    def backend(self):
        """"driver" or "memfd"."""
        return _native.BACKENDS[_native.library.actmem_backend(self.handle)]

    def describe(self):
        """Which backend is in use and why, in words."""
        return _native.library.actmem_describe(self.handle).decode()

    def counters(self):
        """Regions, heaps and blocks of this memory, by name."""
        value = _native.initialized(_native.Counters)
        _check(_native.library.actmem_counters(self.handle,
                                               ctypes.byref(value)))
        return _native.as_dict(value)

    def close(self):
        """Fails while regions or heaps of it are open."""
        global _default
        with _lock:
            if _on_close is not None:
                _on_close(self)
            try:
                _check(_native.library.actmem_close(self.handle))
            except Error as error:
                if error.errno != errno.EBUSY or _on_close is None:
                    raise
                raise Error(errno.EBUSY, f"{error.strerror}; actmem.jax.reset() "
                            "closes those of arrays and activations that "
                            "nothing is in any more") from None
            self._handle = None
            if _default is self:
                _default = None


_lock = threading.RLock()
_default = None
# Set by actmem.jax: told of a memory that is opened and of one that is to be
# closed, and asked for the one that its handlers opened themselves.
_on_open = None
_on_close = None
_adopted = None


def _encoded(what, path):
    path = os.fsencode(path)
    if b"\0" in path:
        raise ValueError(f"{what}={os.fsdecode(path)!r} is no name: it has a "
                         "byte of 0 in it")
    return path


def _directories(spill):
    """As a tuple of bytes, whatever way they were given."""
    if spill is None:
        return ()
    if isinstance(spill, (str, bytes, os.PathLike)):
        spill = (spill,)
    try:
        directories = tuple(os.fsencode(path) for path in spill)
    except TypeError:
        raise TypeError(f"spill={spill!r} is neither a directory nor a "
                        "sequence of them") from None
    if not directories:
        raise ValueError("spill= names no directory")
    for path in directories:
        if not path or b"\0" in path:
            raise ValueError(f"spill={os.fsdecode(path)!r} is no directory's name")
    return tuple(os.path.abspath(path) for path in directories)


def open(backend=None, pages=None, policy=None, nodes=None, allow=None,
         heap_grow=0, heap_limit=0, name=None, budget=0, spill=None,
         spill_limit=0, spill_allow=None, device_ring=0):
    """Opens the memory of this process, before its first use.

    backend     "auto", "driver" or "memfd"
    pages       "1G", "2M", "thp" or "4K"
    policy      "bind", "preferred" or "interleave", on
    nodes       a node's number or several
    allow       what may be used instead of what was asked for, some of
                "2m", "thp", "4k", "node", "unlocked", or "any"; a failure
                where it would be needed tells so
    heap_grow   bytes of each region that blocks are taken from (64 MiB;
                of 1G pages rounded up)
    heap_limit  bytes of all of them together (no limit); the arrays of
                actmem.jax.empty() have regions of their own, and as much again
    name        these regions are files name.0, name.1 and so on, which stay
                and are taken as they are by the next process with that name:
                a path on a mounted actmem, hugetlbfs or tmpfs, or without a
                "/" a name in the first mounted actmem; each process that runs
                at the same time needs its own
    budget      bytes of memory that blocks may take, instead of heap_limit;
                what is over it is in files until it is wanted, where there is
    spill       a directory to make them in, or several on a disk each; their
                file system must have direct I/O
    spill_limit bytes of these files (no limit)
    spill_allow what may be done where they cannot be written, or not by
                direct I/O: "memory" keeps in memory what the disk has no room
                for, beyond the budget if it must; "buffered" takes directories
                without direct I/O; or both. () permits neither, whatever the
                environment says. What is not permitted is an error
    device_ring bytes of each GPU's memory, to stage in what goes to and fro
                (512 MiB)

    What is None, or 0 bytes, is as the environment says.
    """
    global _default
    for what, size in (("heap_grow", heap_grow), ("heap_limit", heap_limit),
                       ("budget", budget), ("spill_limit", spill_limit),
                       ("device_ring", device_ring)):
        if not isinstance(size, int) or not 0 <= size < 1 << 64:
            raise ValueError(f"{what}={size!r} is no number of bytes, as 8 << 30")
    if budget and heap_limit:
        raise ValueError(f"budget={budget} and heap_limit={heap_limit}: the "
                         "budget is a limit by itself; leave the other out")
    spill = _directories(spill)
    if spill and not budget and not os.environ.get("ACTMEM_BUDGET"):
        raise ValueError("spill= without a budget beyond which to spill: set "
                         "budget= or ACTMEM_BUDGET")
    if spill_limit and not spill and not os.environ.get("ACTMEM_SPILL"):
        raise ValueError(f"spill_limit={spill_limit} without a directory to "
                         "spill to: set spill= or ACTMEM_SPILL")
    if spill_allow is not None and not spill and not os.environ.get("ACTMEM_SPILL"):
        raise ValueError(f"spill_allow={spill_allow!r} without a directory to "
                         "spill to: set spill= or ACTMEM_SPILL")
    spill_allow = 0 if spill_allow is None else (
        _bits("spill_allow", spill_allow, _native.SPILL_ALLOW) or
        _native.SPILL_ALLOW_NOTHING)
    options = _native.initialized(_native.Options)
    _check(_native.library.actmem_options_from_environment(
        ctypes.byref(options)))
    if backend is not None:
        options.backend = _choice("backend", backend, _native.BACKENDS)
    if pages is not None:
        options.pages = _choice("pages", pages, _native.PAGES)
    if policy is not None:
        options.policy = _choice("policy", policy, _native.POLICIES)
    if nodes is not None:
        options.nodes = _node_mask(nodes)
    if allow is not None:
        options.allow = _bits("allow", allow, _native.ALLOW)
    if name is not None:
        options.heap_name = _encoded("name", name)
    with _lock:
        if _current() is not None:
            raise Error(errno.EBUSY,
                        "the memory of this process is open already "
                        f"({_default.describe()}): call actmem.open() "
                        "before the first use, or close() it")
        handle = ctypes.c_void_p()
        _check(_native.library.actmem_open(ctypes.byref(handle),
                                           ctypes.byref(options)))
        memory = Memory(handle, heap_grow, heap_limit, budget, spill,
                        spill_limit, spill_allow, bool(options.heap_name),
                        device_ring,
                        any(options.nodes.word) or bool(options.policy))
        if _on_open is not None:
            try:
                _on_open(memory)
            except BaseException:
                _native.library.actmem_close(handle)
                raise
        _default = memory
        return memory


def _current():
    global _default
    if _default is None and _adopted is not None:
        handle = _adopted()
        if handle:
            _default = Memory(ctypes.c_void_p(handle))
    return _default


def default():
    """The memory of this process; opens it if that was not done yet."""
    with _lock:
        return _current() or open()


def describe():
    """Which backend is in use and why, in words."""
    return default().describe()


def counters():
    """Regions, heaps and blocks of this process, by name."""
    return default().counters()


def list():
    """Every region on this machine that the caller may see, as dicts."""
    array = ctypes.POINTER(_native.RegionInfo)()
    count = ctypes.c_size_t()
    _check(_native.library.actmem_list_sized(
        ctypes.byref(array), ctypes.byref(count),
        ctypes.sizeof(_native.RegionInfo)))
    try:
        return [_region(array[i]) for i in range(count.value)]
    finally:
        _native.free(array)


def _region(info):
    region = _native.as_dict(info)
    region["backend"] = _native.BACKENDS[info.backend]
    region["pages"] = _native.PAGES[info.pages]
    region["nodes"] = {node: size for node, size in enumerate(info.node_bytes)
                       if size}
    del region["node_bytes"]
    region["name"] = info.name.decode(errors="replace")
    region["command"] = info.command.decode(errors="replace")
    region["path"] = os.fsdecode(info.path)
    for name in ("lingering", "imported", "named", "sealed"):
        region[name] = bool(region[name])
    return region


def regions():
    """The regions of this process, as dicts."""
    return [region for region in list() if region["pid"] == os.getpid()]


def version():
    """Of libactmem."""
    return _native.library.actmem_version().decode()
