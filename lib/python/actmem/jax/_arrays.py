# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""empty and asarray: arrays of JAX's whose memory is a region's; the named
regions of save and load are _files.py's.

A block of a region is held by the NumPy arrays that show it, by Python's
counting, and by each array of JAX's, which hands its hold back in C from
whatever thread of XLA's is last (lib/xla/tensor.c).
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

ALIGNMENT = 64          # of what XLA takes without a copy
ON_CUDA, COPY = 1, 2    # ACTMEM_XLA_ARRAY_*
DLPACK_CPU, DLPACK_CUDA_HOST = 1, 3
CAPSULE = b"dltensor"
WORDS = 1024
BYTES_MAX = (1 << 64) - 1

# Types that JAX and NumPy have alike in memory, by their code in DLPack.
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
    """A hold on a block: what the NumPy arrays that show it are based on."""

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
    """Elements of a block, for jax.dlpack.from_dlpack(): as they are, or as of a device's
    host memory."""

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
        """Nobody may have taken it out of its capsule."""
        if self.capsule is not None and _is_capsule(self.capsule, CAPSULE):
            library.actmem_xla_tensor_drop(self.managed)
            self.capsule = None


def address_of(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def element(dtype: Any) -> np.dtype[Any]:
    """`dtype` in the order of this machine's bytes, or TypeError."""
    if jax.numpy.issubdtype(dtype, jax.dtypes.extended):
        raise TypeError(f"dtype {dtype} is JAX's own and has no form in "
                        "memory; of random keys take jax.random.key_data()")
    known: np.dtype[Any] = np.dtype(dtype)
    if known.name in _CODES:
        return known.newbyteorder("=")
    if known.name in _PACKED:
        raise TypeError(f"dtype {known}: XLA packs elements that are shorter "
                        "than a byte, NumPy does not, so that they cannot be "
                        "shared; use int8 or uint8")
    raise TypeError(f"dtype {known} is none that JAX can share with NumPy")


def canonical(dtype: Any) -> np.dtype[Any]:
    """`dtype`, if JAX has it with the present jax_enable_x64; of Python's own
    types what JAX takes for them."""
    if any(dtype is own for own in (bool, int, float, complex)):
        return np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    wanted = element(dtype)
    canonical = jax.dtypes.canonicalize_dtype(wanted)
    if wanted != canonical:
        raise TypeError(f"dtype {wanted}: JAX has {canonical} in its place; set "
                        "jax_enable_x64, or ask for that one")
    return wanted


def check_order(dtype: np.dtype[Any], what: object) -> None:
    """An array that is read as it is must be in this machine's order of bytes."""
    if not dtype.isnative:
        raise TypeError(
            f"{what} has the type {dtype.str}, whose bytes are in the other "
            f"order than this machine's and JAX's ({dtype.newbyteorder('=').str})")


def _is_cuda(device: jax.Device) -> bool:
    return device.platform in ("gpu", "cuda") and \
        "rocm" not in device.client.platform_version.lower()


def _check_platform(device: jax.Device) -> None:
    if device.platform != "cpu" and not _is_cuda(device):
        raise NotImplementedError(
            f"arrays of actmem are not for {device.platform}, only for CPUs "
            "and CUDA; use jax.device_put() there")


def memory_for(devices: Iterable[jax.Device]) -> tuple[int, int]:
    """Flags and the GPU of memory for these devices, and for where JAX
    computes by default: what one of them is registered with, all can use."""
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
                        "of them") from None
    if any(length < 0 for length in lengths):
        raise ValueError(f"shape={shape!r} has a negative length")
    return lengths


def empty(shape: int | Sequence[int], dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A NumPy array in a region, for a program to fill and to hand over to JAX by
    asarray(), which does not copy it then.

    Args:
      shape: A length or several.
      dtype: Anything that NumPy or JAX call a type, of a byte or more. Default: JAX's
        float, which is float32 without jax_enable_x64.

    Returns:
      An array of that shape and type. Its contents are unspecified. It begins at a multiple
      of 4 KiB, if it is as long.

    Raises:
      TypeError: JAX has no such type, or not with the present jax_enable_x64; or `shape` is
        none.
      ValueError: A length is negative.
      NotImplementedError: JAX computes on something else than CPUs and CUDA by default.
      actmem.Error: There is no memory; it says in words why, and which knob helps.

    Its memory, and that of every slice of it, goes back to the region, for the next array,
    when the last array of NumPy's and of JAX's that has it is gone. A forked process does
    not have it: there it must not be touched.

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
    """The block that `array` shows, or None."""
    while array is not None and not isinstance(array, Block):
        array = getattr(array, "obj" if isinstance(array, memoryview)
                        else "base", None)
    return array


def _why_not_shared(array: NDArray[Any], dtype: np.dtype[Any], flags: int) -> str:
    """Why XLA cannot have `array` as it is, in words; "" if it can."""
    block = _block_of(array)
    if block is None:
        return "it is not in memory of actmem.jax.empty()"
    if flags & ON_CUDA and not block.is_registered:
        return ("it is for a GPU, and was made where JAX computes on CPUs by "
                "default; make it within jax.default_device() of that GPU")
    if array.dtype != dtype:
        return (f"its elements are of type {array.dtype} "
                f"({array.dtype.str}), not {dtype} ({dtype.str})")
    if not array.flags.c_contiguous:
        return (f"it is not contiguous: shape {array.shape}, strides "
                f"{array.strides}")
    beyond = address_of(array) % ALIGNMENT
    if beyond:
        return (f"it begins {beyond} bytes behind a multiple of {ALIGNMENT}, "
                "which is what XLA takes")
    return ""


def _in_block(array: NDArray[Any], dtype: np.dtype[Any], copy: bool | None, whole: bool,
              memory: tuple[int, int]) -> NDArray[Any]:
    """`array`, if XLA can have it as it is, or a copy in a block of its own,
    of such `memory`."""
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
            f"JAX {jax.__version__} takes no host memory as pinned_host "
            "(kDLCUDAHost of DLPack); JAX 0.11 does") from error
    finally:
        exported.close()


def on_device(array: NDArray[Any], device: jax.Device, memory_kind: str | None) -> jax.Array:
    """`array`, which is in a block, as an array of JAX's, without a copy."""
    if _is_cuda(device):
        return _by_dlpack(array, device, DLPACK_CUDA_HOST)
    if memory_kind in (None, device.default_memory().kind):
        return _by_dlpack(array, device, DLPACK_CPU)
    # DLPack knows no kinds of a CPU's memory.
    result: jax.Array = jax.device_put(array, SingleDeviceSharding(
        device, memory_kind=memory_kind), may_alias=True)
    if array.size and result.unsafe_buffer_pointer() != address_of(array):
        raise RuntimeError(f"JAX {jax.__version__} has copied an array to "
                           f"{memory_kind} of {device} that it could have taken "
                           "as it is; leave the memory kind out")
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
                f"device={device!r} is in the memory of a GPU, and arrays of "
                "actmem are in the host's: use "
                ".with_memory_kind(\"pinned_host\"), and jax.device_put() to "
                "bring them to the GPU")
    return sharding


def source(a: Any) -> NDArray[Any]:
    """`a` as an array of NumPy's, which shows the same memory if it can."""
    if isinstance(a, jax.core.Tracer):
        raise TypeError("actmem.jax.asarray() of a value that is being traced: "
                        "call it outside of jax.jit, with an array that is there")
    if isinstance(a, jax.Array):
        element(a.dtype)
    return np.asarray(a)


def place(array: NDArray[Any], dtype: np.dtype[Any], sharding: Sharding,
          copy: bool | None) -> tuple[jax.Array, bool]:
    """An array of JAX's of `array`, and whether any of it is as it was."""
    memory = memory_for(sharding.addressable_devices)
    indices: Mapping[jax.Device, Any] = sharding.addressable_devices_indices_map(array.shape)
    parts: dict[object, NDArray[Any]] = {}
    results = []
    taken = False
    for device, index in indices.items():
        # Not a scalar, if it has no dimensions.
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
    """An array of JAX's whose memory is a region's: of a GPU in its memory kind
    pinned_host, of a CPU in any.

    Args:
      a: Anything that numpy.asarray() takes, of any shape. An array of empty(), or a
        contiguous slice of it that begins at a multiple of 64 bytes, becomes the array as
        it is, and is read-only from then on; everything else is copied into a region once.
      dtype: That of the result. Default: that of `a`, as jnp.asarray() has it.
      device: A jax.Device or Sharding (see jnp.asarray()). Of a sharding each addressable
        device gets its own part, and parts that are equal, or lie in one block, are not
        copied either. On a GPU its memory_kind must be pinned_host.
      copy: False: ValueError instead of a copy. True: always a copy.

    Returns:
      An array of the shape of `a`. It holds its memory until it is gone and all that runs
      with it has ended. It is immutable: use it for inputs and data that are only read. If
      it is donated, a CPU leaves it as it is, and a GPU may write a result into it.

    Raises:
      TypeError: `a` is traced, or JAX and NumPy do not have its type alike.
      ValueError: It would have to be copied, and `copy` is False; or `device` is in the
        memory of a GPU.
      OverflowError: One of Python's integers is none of that type.
      NotImplementedError: `device` is neither a CPU nor CUDA's.
      actmem.Error: There is no memory; it says in words why, and which knob helps.

    Example:
      >>> import actmem.jax
      >>> actmem.jax.asarray([[1, 2, 3], [4, 5, 6]], "float32").shape
      (2, 3)
    """
    if copy not in (None, False, True):
        raise TypeError(f"copy={copy!r} is none of None, False, True")
    copy = None if copy is None else bool(copy)
    sharding = as_sharding(device)
    array = source(a)
    dtype = canonical(dtype) if dtype is not None else \
        jax.dtypes.canonicalize_dtype(element(array.dtype))
    # A value that has no type yet must not be cut off.
    if array.dtype != dtype and not hasattr(a, "dtype") and \
            array.dtype.kind in "iu" and dtype.kind in "iu":
        array = np.asarray(a, dtype)
    result, taken = place(array, dtype, sharding, copy)
    if taken and isinstance(a, np.ndarray):
        a.flags.writeable = False
    return result
