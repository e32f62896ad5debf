# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""save_state() writes a tree of arrays to one file, and restore_state() reads the file. The arrays
can be stored in actmem memory (_state.py).

The file is a ZIP archive without compression. The archive has the elements of each array, in C
order, and then "arrays.json" with the name, shape, dtype and sharding of each array. For random
keys, the archive has the arrays of jax.random.key_data(). The archive has a CRC-32 of each array,
so that restore_state() detects damage. save_state() writes the file under another name, and renames
the file to `path` only when the file is complete and on the disk.
"""
from __future__ import annotations

import errno
import fcntl
import json
import math
import mmap
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import (AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding,
                          SingleDeviceSharding)
from numpy.typing import NDArray

import actmem
from actmem.jax._arrays import element
from actmem.jax._state import (groups_of, is_stored, kind_of, named_leaves, store_group,
                               values_of)

StrPath = str | os.PathLike[str]

INDEX = "arrays.json"
COPY_BYTES = 16 << 20


def _values(group: list[tuple[str, Any]]) -> list[Any]:
    """Returns the leaves as JAX or NumPy arrays."""
    stored = [leaf for _, leaf in group if is_stored(leaf)]
    taken = iter(values_of(stored) if stored else [])
    return [_checked(name, next(taken) if is_stored(leaf) else leaf) for name, leaf in group]


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"actmem.jax.save_state(): {name} is traced: call save_state() outside "
                        "of jax.jit")
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        raise ValueError(f"actmem.jax.save_state(): {name} has parts on other hosts: use "
                         "orbax-checkpoint for jobs with several hosts")
    if not hasattr(value, "dtype"):
        value = np.asarray(value)
    if not _is_key(value):
        element(value.dtype)
    return value


def _is_key(value: Any) -> bool:
    """Returns whether `value`, an array or a jax.ShapeDtypeStruct, has typed random keys."""
    return bool(jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key))


def _placement(value: Any) -> dict[str, Any]:
    """Describes the sharding and the memory kind of an array."""
    sharding = getattr(value, "sharding", None)
    if sharding is None:
        return {}
    placement: dict[str, Any] = {"memory_kind": sharding.memory_kind}
    if isinstance(sharding, NamedSharding):
        placement["axes"] = list(sharding.mesh.shape.items())
        placement["types"] = [kind.name for kind in sharding.mesh.axis_types]
        placement["devices"] = [device.id for device in sharding.mesh.devices.flat]
        placement["spec"] = [list(part) if isinstance(part, tuple) else part
                             for part in sharding.spec]
    return placement


def _sharding(name: str, placement: Mapping[str, Any]) -> Sharding | None:
    """Returns the sharding that _placement() described, or None for the default device."""
    if not placement:
        return None
    kind = placement["memory_kind"]
    if "axes" not in placement:
        device = jax.config.jax_default_device or jax.local_devices()[0]   # type: ignore[attr-defined]
        return SingleDeviceSharding(device, memory_kind=kind)
    known = {device.id: device for device in jax.devices()}
    missing = [number for number in placement["devices"] if number not in known]
    if missing:
        raise ValueError(
            f"{name} was saved from {len(placement['devices'])} devices, but this process has "
            f"{len(known)}: pass arrays or jax.ShapeDtypeStructs with shardings in `like`")
    names = [axis for axis, _ in placement["axes"]]
    devices = np.array([known[number] for number in placement["devices"]], object)
    mesh = Mesh(devices.reshape([size for _, size in placement["axes"]]), names,
                axis_types=tuple(AxisType[kind] for kind in placement["types"]))
    spec = PartitionSpec(*(tuple(part) if isinstance(part, list) else part
                           for part in placement["spec"]))
    return NamedSharding(mesh, spec, memory_kind=kind)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    words: Any = array.reshape(-1).view(np.uint8)
    return memoryview(words)


def _write(archive: zipfile.ZipFile, number: int, value: Any) -> dict[str, Any]:
    """Writes the elements of an array, and returns the array's entry in the index."""
    entry = {"shape": list(value.shape), "dtype": value.dtype.name, "placement": _placement(value)}
    if _is_key(value):
        value = jax.random.key_data(value)
        entry["data"] = {"shape": list(value.shape), "dtype": value.dtype.name}
    array = np.ascontiguousarray(np.asarray(value))
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    words = _bytes_of(array)
    with archive.open(str(number), "w", force_zip64=True) as file:
        for begin in range(0, len(words), COPY_BYTES):
            file.write(words[begin:begin + COPY_BYTES])
    return entry


def _write_all(file: Any, tree: Any) -> None:
    index: list[dict[str, Any]] = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for group in groups_of(named_leaves(tree)):
            for (name, _), value in zip(group, _values(group)):
                index.append({"name": name, **_write(archive, len(index), value)})
        archive.writestr(INDEX, json.dumps(index))


def save_state(path: StrPath, tree: Any) -> None:
    """Writes a tree of arrays to a file. The tree can have a model's parameters and an optimizer's
    stored state. If the process is killed at any point, `path` has either the old or the new
    content.

    Args:
      path: The file. An existing file is replaced.
      tree: A pytree of arrays, random keys, numbers and Stored arrays. In the file, the name of
        each leaf is its path in the tree.

    Raises:
      TypeError: A leaf is traced, or JAX and NumPy store its dtype differently.
      ValueError: An array has parts on other hosts.
      OSError: The file cannot be written, or another save_state() is writing the file. `path` is
        unchanged. But if only the fsync() of its folder failed, `path` has the new content, which
        a power failure can still undo.

    save_state() copies stored arrays to the device and then to the host, about 1/32 of the tree at
    a time. Until the file is complete, its name is `path` with ".partial" appended. After an error,
    save_state() removes the partial file. If the process is killed, the next save_state()
    overwrites the partial file.

    Example:
      >>> import os, tempfile, jax.numpy as jnp, actmem.jax
      >>> path = os.path.join(tempfile.mkdtemp(), "state")
      >>> actmem.jax.save_state(path, {"w": jnp.ones((2, 3))})
      >>> actmem.jax.restore_state(path, {"w": jnp.zeros((2, 3))})["w"].sum().item()
      6.0
    """
    path = os.fspath(path)
    partial = f"{path}.partial"
    with open(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another actmem.jax.save_state() is writing this file",
                          partial) from None
        try:
            file.truncate(0)
            _write_all(file, tree)
            file.flush()
            os.fsync(file.fileno())
            os.rename(partial, path)
        except BaseException:
            os.unlink(partial)
            raise
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _new_array(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns an array in a mapping of its own, so that deleting the array frees the memory. An
    array from malloc() would lie between allocations of XLA's compiler, so free() could not return
    its memory to the kernel."""
    size = math.prod(shape) * dtype.itemsize
    words = np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)
    return words.view(dtype).reshape(shape)


def _read(archive: zipfile.ZipFile, number: int, what: str,
          entry: Mapping[str, Any]) -> NDArray[Any]:
    data = entry.get("data", entry)
    array = _new_array(data["shape"], jax.numpy.dtype(data["dtype"]))
    words, begin = _bytes_of(array), 0
    try:
        with archive.open(str(number)) as file:
            while begin < len(words):
                count = file.readinto(words[begin:begin + COPY_BYTES])  # type: ignore[attr-defined]
                if not count:
                    break
                begin += count
            is_whole = begin == len(words) and not file.read(1)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise actmem.Error(errno.EBADMSG, f"{what} is damaged: {error}") from None
    if not is_whole:
        raise actmem.Error(errno.EBADMSG, f"{what} is damaged: it has {begin} bytes or more, but "
                           f"must have {len(words)}")
    return array


def _opened(path: str) -> tuple[zipfile.ZipFile, list[dict[str, Any]]]:
    """Opens a file that save_state() wrote, and reads the index."""
    try:
        archive = zipfile.ZipFile(path)
        try:
            return archive, json.loads(archive.read(INDEX))
        except BaseException:
            archive.close()
            raise
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise actmem.Error(errno.EBADMSG, f"{path} was not written by actmem.jax.save_state(), or "
                           f"is damaged: {error}") from None


def _check(path: str, index: list[dict[str, Any]], leaves: list[tuple[str, Any]]) -> None:
    """Raises an error unless the file has exactly the arrays of `leaves`."""
    saved = {entry["name"]: entry for entry in index}
    wanted = dict(leaves)
    for name in [*wanted, *saved]:
        if name not in saved or name not in wanted:
            where = "`like`, but not " + path if name in wanted else path + ", but not `like`"
            raise ValueError(f"actmem.jax.restore_state(): {where} has {name}; both must have the "
                             f"same arrays ({len(saved)} in the file, {len(wanted)} in `like`)")
    for name, leaf in leaves:
        entry = saved[name]
        shape, dtype = kind_of(leaf)
        if list(shape) != entry["shape"] or dtype.name != entry["dtype"]:
            raise ValueError(
                f"actmem.jax.restore_state(): {name} is {entry['dtype']}{entry['shape']} in "
                f"{path}, but {dtype.name}{list(shape)} in `like`")


def _on_saved_devices(name: str, wanted: NamedSharding, saved: Sharding | None) -> Sharding:
    """Returns the sharding `wanted` on the devices of the saved array. `wanted` has an abstract
    mesh, without devices, as in the results of jax.eval_shape()."""
    def axes(mesh: Any) -> Any:
        return mesh.axis_names, mesh.axis_sizes, mesh.axis_types
    if not isinstance(saved, NamedSharding) or axes(saved.mesh) != axes(wanted.mesh):
        raise ValueError(
            f"{name} in `like` is on the mesh {wanted.mesh}, whose devices are not known, because it "
            f"was saved as {saved}: pass arrays or jax.ShapeDtypeStructs with a jax.sharding.Mesh")
    return NamedSharding(saved.mesh, wanted.spec, memory_kind=wanted.memory_kind)


def _placed(name: str, leaf: Any, array: NDArray[Any], placement: Mapping[str, Any]) -> Any:
    if not hasattr(leaf, "sharding"):
        return array if isinstance(leaf, np.ndarray) else array[()]
    sharding = leaf.sharding
    if sharding is None:
        sharding = _sharding(name, placement)
    elif isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        sharding = _on_saved_devices(name, sharding, _sharding(name, placement))
    if _is_key(leaf):
        impl = jax.random.key_impl(jax.numpy.empty((), leaf.dtype))
        return jax.device_put(jax.random.wrap_key_data(jax.numpy.asarray(array), impl=impl), sharding)
    return jax.device_put(array, sharding)


def restore_state(path: StrPath, like: Any) -> Any:
    """Reads the tree that save_state() wrote.

    Args:
      path: The file.
      like: A tree of the same structure, with arrays or jax.ShapeDtypeStructs of the same shapes
        and dtypes, such as jax.eval_shape(optimizer.init, params). An array is restored to actmem
        memory if its leaf in `like` is a Stored, even if the saved array was not stored.

    Returns:
      A tree with the structure of `like`. Each array has the sharding and the memory kind of its
      leaf in `like`. If the leaf's sharding is None, the array has the saved sharding.

    Raises:
      ValueError: `like` has other names, shapes or dtypes than the file, or an array was saved
        from more devices than the process has. The error message names the array.
      actmem.Error: The file is damaged. The error message names the array.
      OSError: The file cannot be read.

    restore_state() needs memory for the tree, and for copies of at most about 1/32 of the tree.

    Example: see save_state().
    """
    path = os.fspath(path)
    named = named_leaves(like)
    archive, index = _opened(path)
    with archive:
        _check(path, index, named)
        numbers = {entry["name"]: (number, entry) for number, entry in enumerate(index)}
        restored: list[Any] = []
        for group in groups_of(named):
            values = []
            for name, leaf in group:
                number, entry = numbers[name]
                array = _read(archive, number, f"{name} in {path}", entry)
                values.append(_placed(name, leaf, array, entry["placement"]))
            restored += store_group(group, values)
    return jax.tree.unflatten(jax.tree.structure(like, is_leaf=is_stored), restored)

