# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Test pinned memory as programs get it from CUDA's driver (as XLA does), CUDA's runtime
(as CuPy does), or PyTorch: is it pinned, do copies keep its bytes, and, with --in-region under
`actmem run`, does it lie in a region? Prints TAP and figures. Exits with 77 if the module is
not installed.
"""
import argparse
import ctypes
import glob
import mmap
import os
import sys
import time

from host_memory import in_region, is_pinned
from telling import check, end, figure, rate

import driver


class Driver:
    """libcuda.so.1 alone. Its functions are looked up as XLA looks them up."""

    def __init__(self):
        self.cuda = driver.Cuda()
        self.stream = self.cuda.stream()

    def pinned(self, size):
        address = self.cuda.allocate_host(size).value
        return address, address

    def on_device(self, size):
        return self.cuda.allocate(size).value

    def copy(self, device, host, size, out):
        name, ends = ("cuMemcpyDtoHAsync_v2", (host, device)) if out else \
            ("cuMemcpyHtoDAsync_v2", (device, host))
        self.cuda.call(name, *map(ctypes.c_void_p, ends), ctypes.c_size_t(size), self.stream)
        self.cuda.call("cuStreamSynchronize", self.stream)


class Cudart(Driver):
    """libcudart.so.13, of a toolkit or of a wheel. It has the same context as the driver."""

    def __init__(self):
        homes = [os.environ.get("CUDA_HOME", "/usr/local/cuda"),
                 *(os.path.join(place, "nvidia/cu13") for place in sys.path)]
        found = [path for home in homes for path in
                 glob.glob(os.path.join(home, "lib*", "libcudart.so.13"))]
        self.library = ctypes.CDLL(found[0] if found else "libcudart.so.13")
        super().__init__()
        self.runtime("cudaSetDevice", 0)

    def runtime(self, name, *arguments):
        error = getattr(self.library, name)(*arguments)
        if error:
            raise RuntimeError(f"{name}: error {error}")

    def pinned(self, size):
        pointer = ctypes.c_void_p()
        self.runtime("cudaHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size),
                     driver.PORTABLE)
        return pointer.value, pointer.value

    def register(self, size=8 << 20):
        """Test memory that a program registers itself, which has data."""
        own = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        own.write(b"\5" * size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(own))
        self.runtime("cudaHostRegister", ctypes.c_void_p(address), ctypes.c_size_t(size),
                  driver.PORTABLE)
        check(is_pinned(address) and not in_region(address)[0],
              "cudart: cudaHostRegister() of memory with data leaves it where it is")
        device = self.on_device(size)
        self.copy(device, address, size, out=False)
        ctypes.memset(address, 0, size)
        self.copy(device, address, size, out=True)
        self.runtime("cudaHostUnregister", ctypes.c_void_p(address))
        check(own[:size] == b"\5" * size, "cudart: copies of registered memory keep its bytes")


class Torch:
    def __init__(self):
        import torch
        self.torch = torch

    def pinned(self, size):
        tensor = self.torch.empty(size, dtype=self.torch.uint8, pin_memory=True)
        return tensor, tensor.data_ptr()

    def on_device(self, size):
        return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")

    def copy(self, device, host, size, out):
        to, source = (host, device) if out else (device, host)
        to.copy_(source, non_blocking=True)
        self.torch.cuda.synchronize()


LIBRARIES = {"driver": Driver, "cudart": Cudart, "torch": Torch}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("module", choices=LIBRARIES)
    parser.add_argument("--in-region", action="store_true")
    parser.add_argument("--bytes", type=int, default=256 << 20)
    options = parser.parse_args()
    size, name = options.bytes, options.module
    try:
        library = LIBRARIES[name]()
    except (ImportError, OSError) as error:
        print(f"1..0 # SKIP {name}: {error}")
        return 77
    where = "under actmem run" if options.in_region else "alone"
    began = time.perf_counter()
    memory, address = library.pinned(size)
    figure(f"{name} pin, {where}", size / (time.perf_counter() - began) / 1e9)
    check(is_pinned(address), f"{name}: it is pinned")
    inside, mapping = in_region(address)
    check(inside == options.in_region, f"{name}: it lies {'' if options.in_region else 'not '}"
          "in a region", f"its mapping is {mapping!r}")
    device = library.on_device(size)
    ctypes.memset(address, 7, size)
    library.copy(device, memory, size, out=False)
    ctypes.memset(address, 9, size)
    library.copy(device, memory, size, out=True)
    check(ctypes.string_at(address, size) == b"\7" * size, f"{name}: copies keep its bytes")
    for way in ("out", "in"):
        figure(f"{name} copy {way}, {where}", rate(lambda way=way: library.copy(
            device, memory, size, out=way == "out"), size) / 1e9)
    _, address = library.pinned(8192)
    check(not in_region(address)[0], f"{name}: 8 KiB are the driver's own")
    if name == "cudart":
        library.register()
    return end()


if __name__ == "__main__":
    sys.exit(main())
