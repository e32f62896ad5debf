# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Pinned memory as programs of CUDA's driver make it, XLA among them, of CUDA's runtime,
PyTorch or CuPy: is it pinned, do copies keep its bytes, and, with --in-region under
`actmem run`, does it lie in a region of actmem? Prints TAP and figures; exits with 77 where
the module is not installed, or there is no GPU.
"""
import argparse
import ctypes
import glob
import json
import mmap
import os
import sys
import time

import host_memory
import link
import machine
from telling import check, end, rate

MIB = 1 << 20


class Driver:
    """libcuda.so.1 alone, whose functions are looked up as XLA does."""

    def __init__(self):
        try:
            self.cuda = link.Cuda()
        except OSError as error:
            raise ImportError(error) from None
        self.stream = ctypes.c_void_p()
        self.cuda.call("cuStreamCreate", ctypes.byref(self.stream), link.NON_BLOCKING)

    def pinned(self, size):
        pointer = self.cuda.allocate_host(size)
        return (pointer.value, size), pointer.value

    def is_pinned(self, memory):
        return host_memory.is_pinned(memory[0])

    def fill(self, memory, value):
        ctypes.memset(memory[0], value, memory[1])

    def holds(self, memory, value):
        data = ctypes.create_string_buffer(memory[1])
        if len(memory) > 2:
            self.copy((ctypes.addressof(data), memory[1]), memory)
        else:
            ctypes.memmove(data, *memory)
        return data.raw == bytes([value]) * memory[1]

    def on_device(self, size, value):
        pointer = ctypes.c_uint64()
        self.cuda.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.cuda.call("cuMemsetD8Async", pointer, ctypes.c_ubyte(value), ctypes.c_size_t(size),
                       self.stream)
        return pointer.value, size, "device"

    def copy(self, to, source):
        name = "cuMemcpyHtoDAsync_v2" if len(to) > 2 else "cuMemcpyDtoHAsync_v2"
        self.cuda.call(name, ctypes.c_void_p(to[0]), ctypes.c_void_p(source[0]),
                       ctypes.c_size_t(to[1]), self.stream)
        self.cuda.call("cuStreamSynchronize", self.stream)

    def version(self):
        version = ctypes.c_int()
        self.cuda.call("cuDriverGetVersion", ctypes.byref(version))
        return f"CUDA's driver {version.value}"


class Cudart:
    """libcudart.so.13 alone, of a toolkit or of a wheel."""
    PORTABLE, TO_HOST, TO_DEVICE, HOST = 1, 2, 1, 1

    def __init__(self):
        found = None
        for name in ("libcudart.so.13", *self.places()):
            try:
                self.library = ctypes.CDLL(name)
                break
            except OSError as error:
                found = found or error
        else:
            raise ImportError(found)
        self.library.cudaGetErrorName.restype = ctypes.c_char_p
        self.call("cudaSetDevice", 0)
        self.call("cudaFree", None)

    @staticmethod
    def places():
        homes = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), "/usr/local/cuda",
                 *(os.path.join(place, "nvidia/cu13") for place in sys.path)]
        return [path for home in homes for path in
                sorted(glob.glob(os.path.join(home, "lib*", "libcudart.so.13")))]

    def result(self, name, *arguments):
        return getattr(self.library, name)(*arguments)

    def call(self, name, *arguments):
        error = self.result(name, *arguments)
        if error:
            raise RuntimeError(f"{name}: {self.library.cudaGetErrorName(error).decode()}")

    def pinned(self, size):
        pointer = ctypes.c_void_p()
        self.call("cudaHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), self.PORTABLE)
        return (pointer.value, size), pointer.value

    def free(self, memory):
        return self.result("cudaFreeHost", ctypes.c_void_p(memory[0]))

    def is_pinned(self, memory):
        return host_memory.is_pinned(memory[0])

    def fill(self, memory, value):
        ctypes.memset(memory[0], value, memory[1])

    def holds(self, memory, value):
        address, size, on_device = *memory[:2], len(memory) > 2
        data = ctypes.create_string_buffer(size)
        if on_device:
            self.call("cudaMemcpy", data, ctypes.c_void_p(address), ctypes.c_size_t(size),
                      self.TO_HOST)
        else:
            ctypes.memmove(data, address, size)
        return data.raw == bytes([value]) * size

    def on_device(self, size, value):
        pointer = ctypes.c_void_p()
        self.call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        self.call("cudaMemset", pointer, value, ctypes.c_size_t(size))
        return pointer.value, size, "device"

    def copy(self, to, source):
        kind = self.TO_DEVICE if len(to) > 2 else self.TO_HOST
        self.call("cudaMemcpyAsync", ctypes.c_void_p(to[0]), ctypes.c_void_p(source[0]),
                  ctypes.c_size_t(to[1]), kind, None)
        self.call("cudaDeviceSynchronize")

    def version(self):
        version = ctypes.c_int()
        self.call("cudaRuntimeGetVersion", ctypes.byref(version))
        return f"cudart {version.value}"

    def more(self, in_regions):
        """What the others leave to their libraries: registering, and what is refused."""
        size = 8 * MIB
        allocated = ctypes.c_void_p()
        self.call("cudaMallocHost", ctypes.byref(allocated), ctypes.c_size_t(size))
        check(in_region(allocated.value)[0] == in_regions and
              not self.result("cudaFreeHost", allocated), "cudart: cudaMallocHost() likewise")
        own = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        own.write(b"\5" * size)
        view = ctypes.c_char.from_buffer(own)
        address = ctypes.addressof(view)
        self.call("cudaHostRegister", ctypes.c_void_p(address), ctypes.c_size_t(size),
                  self.PORTABLE)
        check(self.is_pinned((address, size)) and not in_region(address)[0],
              "cudart: cudaHostRegister() of memory with data leaves it where it is")
        device = self.on_device(size, 0)
        self.copy(device, (address, size))
        check(self.holds(device, 5), "cudart: what is registered is copied in")
        self.call("cudaHostUnregister", ctypes.c_void_p(address))
        check(own[:size] == b"\5" * size, "cudart: it has its data when it is unregistered")
        check(self.result("cudaFreeHost", ctypes.c_void_p(address)) != 0,
              "cudart: cudaFreeHost() of what is not CUDA's is refused")
        self.result("cudaGetLastError")
        self.call("cudaFree", ctypes.c_void_p(device[0]))
        del view
        own.close()


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        self.torch.cuda.init()

    def pinned(self, size):
        tensor = self.torch.empty(size, dtype=self.torch.uint8, pin_memory=True)
        return tensor, tensor.data_ptr()

    def is_pinned(self, tensor):
        return tensor.is_pinned()

    def fill(self, tensor, value):
        tensor.fill_(value)

    def holds(self, tensor, value):
        return bool((tensor == value).all())

    def on_device(self, size, value):
        return self.torch.full((size,), value, dtype=self.torch.uint8, device="cuda")

    def copy(self, to, source):
        to.copy_(source, non_blocking=True)
        self.torch.cuda.synchronize()

    def version(self):
        return f"PyTorch {self.torch.__version__}"


class Cupy:
    def __init__(self):
        import cupy
        import numpy
        self.cupy, self.numpy = cupy, numpy
        self.cupy.cuda.Device(0).use()

    def pinned(self, size):
        memory = self.cupy.cuda.alloc_pinned_memory(size)
        array = self.numpy.frombuffer(memory, self.numpy.uint8, size)
        return array, array.ctypes.data

    def is_pinned(self, array):
        flags = self.cupy.cuda.runtime.pointerGetAttributes(array.ctypes.data)
        return flags.type == 1              # cudaMemoryTypeHost

    def fill(self, array, value):
        array[:] = value

    def holds(self, array, value):
        if isinstance(array, self.cupy.ndarray):
            array = array.get()
        return bool((array == value).all())

    def on_device(self, size, value):
        return self.cupy.full(size, value, self.numpy.uint8)

    def copy(self, to, source):
        if isinstance(to, self.cupy.ndarray):
            to.set(source)
        else:
            source.get(out=to)
        self.cupy.cuda.Device(0).synchronize()

    def version(self):
        return f"CuPy {self.cupy.__version__}"


def in_region(address):
    name = host_memory.mapping_of(address)
    return host_memory.kind_of(name or "") == "actmem", name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("module", choices=("driver", "cudart", "torch", "cupy"))
    parser.add_argument("--in-region", action="store_true")
    parser.add_argument("--bytes", type=int, default=256 * MIB)
    parser.add_argument("--standin", action="store_true", help="libcuda.so.1 is no GPU's")
    options = parser.parse_args()
    if not options.standin and not machine.has_gpu():
        print("1..0 # SKIP no GPU here")
        return 77
    try:
        library = {"driver": Driver, "cudart": Cudart, "torch": Torch,
                   "cupy": Cupy}[options.module]()
    except ImportError as error:
        print(f"1..0 # SKIP {options.module} is not installed ({error})")
        return 77
    where = "under actmem run" if options.in_region else "alone"
    print(f"# {library.version()} {where}", flush=True)
    size = options.bytes
    began = time.perf_counter()
    memory, address = library.pinned(size)
    took = time.perf_counter() - began
    check(library.is_pinned(memory), f"{options.module}: it is pinned")
    inside, name = in_region(address)
    check(inside == options.in_region,
          f"{options.module}: it is {'' if options.in_region else 'not '}in a region",
          f"it lies in {name!r}")
    device = library.on_device(size, 7)
    library.fill(memory, 3)
    library.copy(memory, device)
    check(library.holds(memory, 7), f"{options.module}: what is copied out arrives")
    library.fill(memory, 9)
    library.copy(device, memory)
    check(library.holds(device, 9), f"{options.module}: what is copied in arrives")
    for name, value in (("pin", size / took),
                        ("copy out", rate(lambda: library.copy(memory, device), size)),
                        ("copy in", rate(lambda: library.copy(device, memory), size))):
        print(json.dumps({"figure": f"{options.module} {name}, {where}",
                          "value": value / 1e9, "unit": "GB/s"}), flush=True)
    small, address = library.pinned(8192)
    check(not in_region(address)[0], f"{options.module}: 8 KiB are the driver's own")
    if options.module == "cudart":
        check(not library.free(small) and not library.free(memory), "cudart: both are freed")
        library.more(options.in_region)
    del memory, small
    return end()


if __name__ == "__main__":
    sys.exit(main())
