# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""save and load: an array in a region with a name, for several processes and
for the next ones.

The region begins as a .npy file does, so that it says what is in it. These
first bytes are written last: a region without them is not complete.
"""
from __future__ import annotations

import ctypes
import errno
import io
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding
from jax.typing import DTypeLike
from numpy.lib import format as npy
from numpy.typing import NDArray

import actmem
from actmem.jax import _arrays
from actmem.jax._handlers import library

StrPath = str | os.PathLike[str]

CREATE = 4              # ACTMEM_XLA_ARRAY_CREATE
HEADER_MAX = 1 << 16    # of version 1.0, and the bytes before it


class _Region(_arrays.Block):
    """All of a region with a name, as a hold on it."""

    def __init__(self, path: StrPath, size: int, flags: int, gpu: int) -> None:
        length = ctypes.c_uint64(size)
        self._begin(library.actmem_xla_array_open,
                    (actmem._encoded("path", path), ctypes.byref(length),
                     flags, gpu), 0,
                    writable=bool(flags & CREATE))
        self.__array_interface__["shape"] = (length.value,)
        self.is_registered = bool(flags & _arrays.ON_CUDA)


def _header(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {
        "descr": npy.dtype_to_descr(array.dtype) if array.dtype.kind != "V"
        else f"|V{array.dtype.itemsize}",
        "fortran_order": False, "shape": array.shape})
    return file.getvalue()


def _read_header(path: StrPath,
                 memory: NDArray[Any]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, type, and where the elements begin."""
    file = io.BytesIO(memory[:HEADER_MAX].tobytes())
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("its version is not 1.0")
        shape, transposed, dtype = npy.read_array_header_1_0(file)
    except ValueError as error:
        raise actmem.Error(
            errno.EINVAL, f"{path} does not begin as an array of "
            f"actmem.jax.save() ({error}): that was interrupted or has not "
            "ended yet; wait for it, or remove the file and save anew"
            ) from None
    begin = file.tell()
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if transposed or begin + size > memory.size:
        raise actmem.Error(
            errno.EINVAL, f"{path} is {memory.size} bytes long, and should "
            f"have {size} bytes of {dtype}{shape} behind {begin}, row by row: "
            "remove the file and save anew")
    return shape, dtype, begin


def _what_is_there(path: StrPath) -> str:
    """Tells in words about a file that is in the way of save()."""
    try:
        shape, dtype, _ = _read_header(path, np.asarray(_Region(path, 0, 0, 0)))
    except actmem.Error as error:
        if error.errno != errno.EINVAL:
            return ""
        return (", and is no array that is complete: its save() was "
                "interrupted, and then it may be removed, or has not ended yet")
    return (f", an array that is complete, {dtype}{shape}: load() it, or remove "
            "the file and save anew")


def _make(path: StrPath, size: int) -> _Region:
    flags, gpu = _arrays.memory_for(())
    try:
        return _Region(path, size, flags | CREATE, gpu)
    except actmem.Error as error:
        if error.errno != errno.EEXIST:
            raise
        raise actmem.Error(errno.EEXIST,
                           f"{error.strerror}{_what_is_there(path)}") from None


def _remove(path: StrPath) -> None:
    path = os.fspath(path)
    if os.path.basename(path) == path:
        path = next((region["path"] for region in actmem.regions() if
                     region["named"] and
                     os.path.basename(region["path"]) == path), path)
    os.unlink(path)


def _fill(memory: NDArray[Any], header: bytes, array: NDArray[Any]) -> None:
    np.copyto(np.ndarray(array.shape, array.dtype, memory, len(header)), array)
    magic = npy.MAGIC_LEN
    memory[magic:len(header)] = np.frombuffer(header, np.uint8)[magic:]
    memory[:magic] = np.frombuffer(header, np.uint8)[:magic]


def save(path: StrPath, a: Any) -> None:
    """Makes a region with a name and copies an array into it, for load().

    Args:
      path: On a mounted actmem, hugetlbfs or tmpfs; without a "/" a name in the first
        mounted actmem. It must not be there.
      a: Anything that numpy.asarray() takes, of any shape, and of types that JAX has.

    Raises:
      TypeError: JAX and NumPy do not have the type of `a` alike.
      actmem.Error: It says in words what is in the way.

    The region stays when the process ends; who removes the file gives its memory back, once
    nobody has it open any more. Its permissions are 0600 to begin with.

    What is interrupted (by ^C) is removed; a process that is killed leaves a file that
    load() refuses.

    Example:
      >>> import os, numpy, actmem.jax
      >>> path = f"/dev/shm/table-{os.getpid()}"
      >>> actmem.jax.save(path, numpy.ones((1000, 64), "float32"))
      >>> table = actmem.jax.load(path)
      >>> table.shape, float(table[999, 63])
      ((1000, 64), 1.0)
      >>> os.unlink(path)
    """
    array = _arrays.source(a)
    array = array.astype(_arrays.element(array.dtype), copy=False)
    header = _header(array)
    region = _make(path, len(header) + array.nbytes)
    try:
        _fill(np.asarray(region), header, array)
    except BaseException:
        _remove(path)
        raise


def load(path: StrPath, dtype: DTypeLike | None = None, *,
         device: jax.Device | Sharding | None = None) -> jax.Array:
    """The array that save() put into a region, as one of JAX's, whose memory it is: every
    process that loads it has the same memory, and none can write to it.

    Args:
      path: As for save().
      dtype: Of types that NumPy has no name of its own for in a file, as bfloat16 and those
        of 8 bits: which it is.
      device: As for asarray(); what would have to be copied for it is refused.

    Returns:
      An array of the shape and type that save() was given. It holds the region until it is
      gone, whatever becomes of the file.

    Raises:
      TypeError: `dtype` is not what is there, or it is missing.
      ValueError: A device's part would have to be copied.
      actmem.Error: There is no such file, or its save() has not ended; it says so in words.

    Example: see save().
    """
    sharding = _arrays.as_sharding(device)
    memory = np.asarray(_Region(
        path, 0, *_arrays.memory_for(sharding.addressable_devices)))
    shape, there, begin = _read_header(path, memory)
    _arrays.check_order(there, path)
    if dtype is None and there.kind == "V":
        raise TypeError(f"{path} has elements of {there.itemsize} bytes of a "
                        "type that its header cannot name; pass dtype=")
    dtype = there if dtype is None else np.dtype(dtype)
    if dtype != there and (there.kind != "V" or
                           dtype.itemsize != there.itemsize):
        raise TypeError(f"dtype={dtype}, but {path} has {there}")
    array = np.ndarray(shape, _arrays.canonical(dtype), memory, begin)
    return _arrays.place(array, array.dtype, sharding, False)[0]
