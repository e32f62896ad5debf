# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""empty() and asarray(): arrays of NumPy and JAX whose memory is a block in a region. _files.py has
save() and load(), which use named regions.

NumPy arrays that are views of a block keep the block alive through Python's reference counts. Each
JAX array that uses the block also holds a reference to the block. When a thread of XLA frees the
JAX array, C code drops this reference in that thread (lib/xla/tensor.c).
"""
from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import c_char_p, c_int64, c_void_p, py_object
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding, SingleDeviceSharding
from jax.typing import DTypeLike
from numpy.typing import NDArray

import actmem
from actmem import _native
from actmem.jax._handlers import TensorOptions, library

ALIGNMENT = 64          # XLA copies arrays that are less aligned
ON_CUDA, COPY = 1, 2    # ACTMEM_XLA_ARRAY_*
DLPACK_CPU, DLPACK_CUDA_HOST = 1, 3
CAPSULE = b"dltensor"
WORDS = 1024
BYTES_MAX = (1 << 64) - 1

# Types whose elements have the same layout in JAX and NumPy, with the DLPack codes of the types.
_CODES = {name: code for code, names in enumerate((
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("float16", "float32", "float64"), (), ("bfloat16",),
    ("complex64", "complex128"), ("bool",), ("float8_e3m4",),
    ("float8_e4m3",), ("float8_e4m3b11fnuz",), ("float8_e4m3fn",),
    ("float8_e4m3fnuz",), ("float8_e5m2",), ("float8_e5m2fnuz",),
    ("float8_e8m0fnu",))) for name in names}

_PACKED = ("int2", "int4", "uint2", "uint4", "float4_e2m1fn")

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [py_object, c_char_p]


class Block:
    """A reference to a block, and the base of the NumPy arrays that are views of the block."""

    handle: c_void_p | None = None
    __array_interface__: dict[str, Any]

    def __init__(self, size: int, flags: int, gpu: int) -> None:
        self._begin(library.actmem_xla_array_new,
                    (min(max(size, 1), BYTES_MAX), flags, gpu), size)
        self.is_registered = bool(flags & ON_CUDA)

    def _begin(self, call: Callable[..., int], arguments: tuple[Any, ...], size: int,
               writable: bool = True) -> None:
        handle, address = c_void_p(), c_void_p()
        words = ctypes.create_string_buffer(WORDS)
        status = call(*arguments, ctypes.byref(handle), ctypes.byref(address),
                      words, WORDS)
        if status:
            raise actmem.Error(-status, words.value.decode(errors="replace"))
        self.handle = handle
        self.__array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (size,),
            "data": (address.value, not writable)}

    def __del__(self, drop: Callable[..., Any] = library.actmem_xla_array_drop) -> None:
        if self.handle is not None:
            drop(self.handle)


class _Exported:
    """Exports the elements of a block to jax.dlpack.from_dlpack(), with DLPack's device type for
    CPU memory or for CUDA's pinned host memory."""

    def __init__(self, array: NDArray[Any], device_type: int, device: int) -> None:
        self.array = array
        self.device_type = device_type
        self.device = device
        self.capsule: object = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.device

    def __dlpack__(self, **options: Any) -> object:
        array, block = self.array, _block_of(self.array)
        assert block is not None
        shape = (c_int64 * array.ndim)(*array.shape)
        tensor = _native.initialized(TensorOptions)
        tensor.address = address_of(array)
        tensor.shape = shape
        tensor.rank = array.ndim
        tensor.device_type, tensor.device = self.device_type, self.device
        tensor.code = _CODES[array.dtype.name]
        tensor.bits = 8 * array.dtype.itemsize
        managed = c_void_p()
        if library.actmem_xla_tensor_new(block.handle,
                                         ctypes.byref(tensor),
                                         ctypes.byref(managed)):
            raise MemoryError("no memory for bookkeeping")
        self.managed = managed
        self.capsule = _new_capsule(managed, CAPSULE, None)
        return self.capsule

    def close(self) -> None:
        """Drops the tensor, unless a consumer has taken the tensor out of the capsule."""
        if self.capsule is not None and _is_capsule(self.capsule, CAPSULE):
            library.actmem_xla_tensor_drop(self.managed)
            self.capsule = None


def address_of(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def element(dtype: Any) -> np.dtype[Any]:
    """Returns `dtype` in native byte order. Raises TypeError if JAX and NumPy cannot share arrays
    of this type."""
    if jax.numpy.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"dtype {dtype} exists only in JAX and has no layout in "
                        "memory; for random keys, use jax.random.key_data()")
    known: np.dtype[Any] = np.dtype(dtype)
    if known.name in _CODES:
        return known.newbyteorder("=")
    if known.name in _PACKED:
        raise TypeError(f"dtype {known}: XLA packs elements that are shorter "
                        "than a byte, but NumPy does not, so they cannot share "
                        "arrays; use int8 or uint8")
    raise TypeError(f"dtype {known}: JAX and NumPy cannot share arrays of this type")


def canonical(dtype: Any) -> np.dtype[Any]:
    """Returns `dtype` if JAX supports it with the current jax_enable_x64, or raises TypeError. For
    Python's own types, returns the type that JAX uses for them."""
    if any(dtype is own for own in (bool, int, float, complex)):
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    wanted = element(dtype)
    canonical = jax.dtypes.canonicalize_dtype(wanted)
    if wanted != canonical:
        raise TypeError(f"dtype {wanted}: JAX would use {canonical} instead; set "
                        f"jax_enable_x64, or pass dtype={canonical}")
    return wanted


def check_order(dtype: np.dtype[Any], what: object) -> None:
    """Raises TypeError if the bytes of `dtype` are not in native order."""
    if not dtype.isnative:
        raise TypeError(
            f"{what} has the type {dtype.str}, but JAX needs the byte order of this "
            f"machine ({dtype.newbyteorder('=').str})")


def _is_cuda(device: jax.Device) -> bool:
    return device.platform in ("gpu", "cuda") and \
        "rocm" not in device.client.platform_version.lower()


def _check_platform(device: jax.Device) -> None:
    if device.platform != "cpu" and not _is_cuda(device):
        raise NotImplementedError(
            f"actmem supports arrays only on CPUs and CUDA GPUs, not on {device.platform}; "
            f"use jax.device_put() for {device.platform}")


def memory_for(devices: Iterable[jax.Device]) -> tuple[int, int]:
    """Returns the flags and the GPU index with which to allocate memory for these devices and for
    JAX's default device. One GPU index is enough, because memory that is registered for one GPU can
    be used by all GPUs."""
    for device in (*devices, _default_device()):
        _check_platform(device)
        if _is_cuda(device):
            return ON_CUDA, device.local_hardware_id
    return 0, 0


def _new(shape: Sequence[int], dtype: np.dtype[Any], flags: int, gpu: int) -> NDArray[Any]:
    block = Block(math.prod(shape) * dtype.itemsize, flags, gpu)
    return np.ndarray(shape, dtype, np.asarray(block))


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = tuple(map(operator.index,
                            shape if np.iterable(shape) else (shape,)))
    except TypeError:
        raise TypeError(f"shape={shape!r} is neither an integer nor a sequence "
                        "of integers") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape={shape!r} has a negative length")
    return lengths


def empty(shape: int | Sequence[int], dtype: DTypeLike | None = None) -> NDArray[Any]:
    """Makes a NumPy array in a region. The program fills the array and passes it to asarray(),
    which uses the array without a copy.

    Args:
      shape: A length, or a sequence of lengths.
      dtype: Any type that NumPy or JAX accepts and whose elements have at least one byte.
        Default: JAX's float, which is float32 without jax_enable_x64.

    Returns:
      An array of that shape and type, with unspecified contents. Arrays of 4 KiB or more begin
      at a multiple of 4 KiB.

    Raises:
      TypeError: JAX does not support the type with the current jax_enable_x64, or `shape` is
        invalid.
      ValueError: A length is negative.
      NotImplementedError: JAX's default device is neither a CPU nor an NVIDIA GPU.
      actmem.Error: The memory is not available. The error message says why and which setting
        helps.

    The memory stays allocated while the array, a slice of it, or a JAX array that uses the
    memory exists. Afterwards, another array can use this memory of the region. A forked child does
    not inherit this memory and must not access it.

    Example:
      >>> import actmem.jax
      >>> batch = actmem.jax.empty((64, 4096), "int32")
      >>> batch[...] = 7
      >>> tokens = actmem.jax.asarray(batch)
      >>> tokens.unsafe_buffer_pointer() == batch.ctypes.data
      True
    """
    wanted = float if dtype is None else dtype
    dtype = canonical(wanted)
    check_order(np.dtype(wanted), f"empty(dtype={wanted!r})")
    return _new(_shape(shape), dtype, *memory_for(()))


def _block_of(array: Any) -> Block | None:
    """Returns the block that `array` is a view of, or None."""
    while array is not None and not isinstance(array, Block):
        array = getattr(array, "obj" if isinstance(array, memoryview)
                        else "base", None)
    return array


def _why_not_shared(array: NDArray[Any], dtype: np.dtype[Any], flags: int) -> str:
    """Returns an error message that says why XLA cannot use `array` in place, or "" if XLA can use
    it."""
    block = _block_of(array)
    if block is None:
        return "the array was not made by actmem.jax.empty()"
    if flags & ON_CUDA and not block.is_registered:
        return ("its memory is not registered with CUDA, because JAX's default device was a "
                "CPU; call empty() within jax.default_device() of the GPU")
    if array.dtype != dtype:
        return (f"its elements are of type {array.dtype} "
                f"({array.dtype.str}), not {dtype} ({dtype.str})")
    if not array.flags.c_contiguous:
        return (f"it is not contiguous: shape {array.shape}, strides "
                f"{array.strides}")
    beyond = address_of(array) % ALIGNMENT
    if beyond:
        return (f"it begins {beyond} bytes after a multiple of {ALIGNMENT}, but XLA needs "
                f"memory that begins at a multiple of {ALIGNMENT}")
    return ""


def _in_block(array: NDArray[Any], dtype: np.dtype[Any], copy: bool | None, whole: bool,
              memory: tuple[int, int]) -> NDArray[Any]:
    """Returns `array` if XLA can use it in place, otherwise a copy in a new block. `memory` is
    the result of memory_for()."""
    flags, gpu = memory
    why = copy or _why_not_shared(array, dtype, flags)
    if not why:
        return array
    if copy is False:
        raise ValueError(f"copy=False, but the {'array' if whole else 'part'} "
                         f"has to be copied: {why}")
    copied = _new(array.shape, dtype, flags | COPY, gpu)
    np.copyto(copied, array, casting="unsafe")
    return copied


def _by_dlpack(array: NDArray[Any], device: jax.Device, device_type: int) -> jax.Array:
    exported = _Exported(array, device_type, device.local_hardware_id)
    try:
        result: jax.Array = jax.dlpack.from_dlpack(exported, copy=False)
        return result
    except TypeError as error:
        if device_type != DLPACK_CUDA_HOST or "device type" not in str(error):
            raise
        raise NotImplementedError(
            f"JAX {jax.__version__} does not accept host memory as pinned_host "
            "(DLPack's kDLCUDAHost); use JAX 0.11 or later") from error
    finally:
        exported.close()


def on_device(array: NDArray[Any], device: jax.Device, memory_kind: str | None) -> jax.Array:
    """Makes a JAX array of `array` without a copy. `array` must be in a block."""
    if _is_cuda(device):
        return _by_dlpack(array, device, DLPACK_CUDA_HOST)
    if memory_kind in (None, device.default_memory().kind):
        return _by_dlpack(array, device, DLPACK_CPU)
    # DLPack does not distinguish the memory kinds of a CPU.
    result: jax.Array = jax.device_put(array, SingleDeviceSharding(
        device, memory_kind=memory_kind), may_alias=True)
    if array.size and result.unsafe_buffer_pointer() != address_of(array):
        raise RuntimeError(f"JAX {jax.__version__} copied the array to {memory_kind} of "
                           f"{device}, although no copy was necessary; omit the memory kind")
    return result


def _default_device() -> jax.Device:
    config: Any = jax.config
    device: jax.Device | str | None = config.jax_default_device
    if device is None or isinstance(device, str):
        return jax.local_devices(backend=device)[0]
    return device


def as_sharding(device: jax.Device | Sharding | None) -> Sharding:
    if device is None:
        device = _default_device()
    if isinstance(device, Sharding):
        sharding = device
    elif isinstance(device, jax.Device):
        sharding = SingleDeviceSharding(
            device, memory_kind="pinned_host" if _is_cuda(device) else None)
    else:
        raise TypeError(f"device={device!r} is neither a jax.Device nor a "
                        "jax.sharding.Sharding")
    for one in sharding.addressable_devices:
        _check_platform(one)
        if _is_cuda(one) and sharding.memory_kind != "pinned_host":
            raise ValueError(
                f"device={device!r} denotes GPU memory, but arrays of actmem are in host memory: "
                "use .with_memory_kind(\"pinned_host\"), then copy the array to the GPU with "
                "jax.device_put()")
    return sharding


def source(a: Any) -> NDArray[Any]:
    """Returns `a` as a NumPy array, which uses the memory of `a` if possible."""
    if isinstance(a, jax.core.Tracer):
        raise TypeError("actmem.jax.asarray() got a traced value: call it outside "
                        "of jax.jit, with a concrete array")
    if isinstance(a, jax.Array):
        element(a.dtype)
    return np.asarray(a)


def place(array: NDArray[Any], dtype: np.dtype[Any], sharding: Sharding,
          copy: bool | None) -> tuple[jax.Array, bool]:
    """Returns a JAX array of `array`, and whether any part of the JAX array uses the memory of
    `array`."""
    memory = memory_for(sharding.addressable_devices)
    indices: Mapping[jax.Device, Any] = sharding.addressable_devices_indices_map(array.shape)
    parts: dict[object, NDArray[Any]] = {}
    results = []
    taken = False
    for device, index in indices.items():
        # The ellipsis keeps an array without dimensions from becoming a scalar.
        part = array[(*index, ...)]
        key = address_of(part), part.shape
        if key not in parts:
            parts[key] = _in_block(part, dtype, copy,
                                   part.size == array.size, memory)
            taken = taken or parts[key] is part
        results.append(on_device(parts[key], device, sharding.memory_kind))
    if isinstance(sharding, SingleDeviceSharding):
        return results[0], taken
    return jax.make_array_from_single_device_arrays(
        array.shape, sharding, results), taken


def asarray(a: Any, dtype: DTypeLike | None = None, *,
            device: jax.Device | Sharding | None = None,
            copy: bool | None = None) -> jax.Array:
    """Makes a JAX array whose memory is in a region. On a GPU, the memory kind of this array is
    pinned_host; on a CPU, it can be any kind.

    Args:
      a: Anything that numpy.asarray() accepts, of any shape. asarray() uses an array that empty()
        returned in place, and makes it read-only. asarray() also uses a contiguous slice of such an
        array in place, if the slice begins at a multiple of 64 bytes. asarray() copies everything
        else once, into a region.
      dtype: The type of the result. Default: the type that jnp.asarray() would choose.
      device: A jax.Device or Sharding, as for jnp.asarray(). Each addressable device of a sharding
        gets its own part of the array. asarray() uses a part in place under the same conditions as
        a slice. Devices with the same part share one copy. On a GPU, the memory_kind must be
        pinned_host.
      copy: If True, always copies. If False, raises ValueError if a copy is necessary.

    Returns:
      An array of the shape of `a`. Its memory stays allocated until the array is deleted and all
      computations that use the array have finished. The array is immutable: use it for inputs and
      read-only data. If the array is donated, a program on a CPU leaves the array unchanged, but a
      program on a GPU can write a result into the array's memory.

    Raises:
      TypeError: `a` is traced, or elements of its type have different layouts in JAX and NumPy.
      ValueError: The array must be copied, and `copy` is False; or `device` denotes GPU memory.
      OverflowError: A Python integer does not fit the type.
      NotImplementedError: `device` is neither a CPU nor an NVIDIA GPU.
      actmem.Error: The memory is not available. The error message says why and which setting
        helps.

    Example:
      >>> import actmem.jax
      >>> actmem.jax.asarray([[1, 2, 3], [4, 5, 6]], "float32").shape
      (2, 3)
    """
    if copy not in (None, False, True):
        raise TypeError(f"copy={copy!r} must be None, False or True")
    copy = None if copy is None else bool(copy)
    sharding = as_sharding(device)
    array = source(a)
    dtype = canonical(dtype) if dtype is not None else \
        jax.dtypes.canonicalize_dtype(element(array.dtype))
    # Python integers that do not fit must raise OverflowError instead of being truncated.
    if array.dtype != dtype and not hasattr(a, "dtype") and \
            array.dtype.kind in "iu" and dtype.kind in "iu":
        array = np.asarray(a, dtype)
    result, taken = place(array, dtype, sharding, copy)
    if taken and isinstance(a, np.ndarray):
        a.flags.writeable = False
    return result
