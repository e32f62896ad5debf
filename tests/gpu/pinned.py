# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Pinned memory as PyTorch or CuPy make it: is it pinned, do copies keep its bytes, and,
with --in-region under `actmem run`, does it lie in a region of actmem? Prints TAP and
figures; exits with 77 where the module is not installed.
"""
import argparse
import json
import sys
import time

import host_memory

MIB = 1 << 20
REPEATS = 5

results = failures = 0


def check(passed, name, detail=""):
    global results, failures
    results += 1
    failures += not passed
    print(f"{'ok' if passed else 'not ok'} {results} - {name}", flush=True)
    if not passed and detail:
        print(f"# {detail}", flush=True)


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


def rate(function, size):
    best = 0.0
    for _ in range(REPEATS):
        began = time.perf_counter()
        function()
        best = max(best, size / (time.perf_counter() - began))
    return best


def in_region(address):
    name = host_memory.mapping_of(address)
    return host_memory.kind_of(name or "") == "actmem", name


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("module", choices=("torch", "cupy"))
    parser.add_argument("--in-region", action="store_true")
    parser.add_argument("--bytes", type=int, default=256 * MIB)
    options = parser.parse_args()
    try:
        library = {"torch": Torch, "cupy": Cupy}[options.module]()
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
    del memory, small
    print(f"1..{results}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
