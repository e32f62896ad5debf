# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""save() copies an array into a named region, and load() returns this array. Several processes can
load the array at the same time.

The region begins with the header of a .npy file, which states the array's type and shape. save()
writes the first bytes of the header last, so a region without these bytes is incomplete.
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
HEADER_MAX = 1 << 16    # length of the longest .npy header of version 1.0, with the magic bytes


class _Region(_arrays.Block):
    """A reference to a whole named region."""

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
    """Returns the shape, the type, and the offset of the elements."""
    file = io.BytesIO(memory[:HEADER_MAX].tobytes())
    try:
        if npy.read_magic(file) != (1, 0):
            raise ValueError("its version is not 1.0")
        shape, transposed, dtype = npy.read_array_header_1_0(file)
    except ValueError as error:
        raise actmem.Error(
            errno.EINVAL, f"{path} has no header of actmem.jax.save() ({error}): "
            "the save() still runs or was interrupted; wait for it to end, or "
            "remove the file and save the array again"
            ) from None
    begin = file.tell()
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if transposed or begin + size > memory.size:
        raise actmem.Error(
            errno.EINVAL, f"{path} is {memory.size} bytes long, but must have "
            f"{size} bytes of {dtype}{shape} in C order after byte {begin}: "
            "remove the file and save the array again")
    return shape, dtype, begin


def _what_is_there(path: StrPath) -> str:
    """Describes the existing file at `path` for the error message of save()."""
    try:
        shape, dtype, _ = _read_header(path, np.asarray(_Region(path, 0, 0, 0)))
    except actmem.Error as error:
        if error.errno != errno.EINVAL:
            return ""
        return (", and is not a complete array: its save() still runs or was "
                "interrupted; wait for it to end, or remove the file")
    return (f", and is a complete array, {dtype}{shape}: load() it, or remove "
            "the file and save the array again")


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
    """Creates a named region and copies an array into it, for load().

    Args:
      path: A file on a mounted actmem, hugetlbfs or tmpfs file system. If `path` has no "/",
        save() uses the first mounted actmem file system. The file must not exist.
      a: Anything that numpy.asarray() accepts, of any shape, and of a type that JAX supports.

    Raises:
      TypeError: JAX and NumPy store the elements of `a` differently.
      actmem.Error: The region cannot be created. The error message says why.

    The region outlives the process. The region's memory is freed when the file has been removed and
    no process has the file open. The file's initial permissions are 0600.

    If save() is interrupted (by ^C), save() removes the file. If the process is killed, the
    incomplete file stays, and load() refuses this file.

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
    """Returns the array that save() copied into a region. The returned JAX array uses the region's
    memory, without a copy. All processes that load the array share this memory, and none of them
    can write to it.

    Args:
      path: As for save().
      dtype: The type of the elements. Required for types that the header of a .npy file cannot
        name: bfloat16 and the 8-bit floats.
      device: As for asarray(), except that load() raises ValueError instead of copying.

    Returns:
      An array with the shape and type of the array that was passed to save(). The region's
      memory stays until the returned array is deleted, even if the file is removed.

    Raises:
      TypeError: `dtype` does not match the file, or is None although it is required.
      ValueError: A device cannot use its part of the array without a copy.
      actmem.Error: The file does not exist or is incomplete. The error message says which.

    Example: see save().
    """
    sharding = _arrays.as_sharding(device)
    memory = np.asarray(_Region(
        path, 0, *_arrays.memory_for(sharding.addressable_devices)))
    shape, there, begin = _read_header(path, memory)
    _arrays.check_order(there, path)
    if dtype is None and there.kind == "V":
        raise TypeError(f"{path} has elements of {there.itemsize} bytes, but its header "
                        "cannot name their type; pass dtype=")
    dtype = there if dtype is None else np.dtype(dtype)
    if dtype != there and (there.kind != "V" or
                           dtype.itemsize != there.itemsize):
        raise TypeError(f"dtype={dtype}, but the elements of {path} are {there}")
    array = np.ndarray(shape, _arrays.canonical(dtype), memory, begin)
    return _arrays.place(array, array.dtype, sharding, False)[0]
