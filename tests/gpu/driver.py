# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Call CUDA's driver without a framework, and make memory of each kind to give to it."""
import ctypes
import mmap
import os

PORTABLE = 1                        # CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MAP_HUGETLB, MAP_FIXED_NOREPLACE = 14, 15, 0x40000, 0x100000
HUGE_BYTES = 2 << 20
KINDS = ("private 4K", "private THP", "private hugetlb 2M",
         "memfd 4K", "memfd THP", "memfd hugetlb 2M")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                      ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Cuda:
    """libcuda.so.1, with the primary context of device 0. Raises OSError without it."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def result(self, name, *arguments):
        """Return the name of the call's CUresult: "CUDA_SUCCESS", or that of an error."""
        function = getattr(self.library, name, None)
        if function is None:
            raise OSError(f"libcuda.so.1 has no {name}")
        text, result = ctypes.c_char_p(), function(*arguments)
        if self.library.cuGetErrorName(result, ctypes.byref(text)) or not text.value:
            return f"CUDA error {result}"
        return text.value.decode()

    def call(self, name, *arguments):
        result = self.result(name, *arguments)
        if result != "CUDA_SUCCESS":
            raise OSError(f"{name}: {result}")

    def allocate_host(self, size, flags=PORTABLE):
        pointer = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), flags)
        return pointer

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)      # NON_BLOCKING
        return stream


class Memory:
    """Memory of one of KINDS, aligned to 2 MiB and not touched. Raises OSError."""

    def __init__(self, kind, size):
        self.size = size
        flags, file = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1
        if not kind.startswith("private"):
            flags = mmap.MAP_SHARED
            file = os.memfd_create("probe", os.MFD_HUGETLB if "hugetlb" in kind else 0)
            os.ftruncate(file, size)
        elif "hugetlb" in kind:
            flags |= MAP_HUGETLB
        start = libc.mmap(None, size + HUGE_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        libc.munmap(start, size + HUGE_BYTES)
        self.address = -(-start // HUGE_BYTES) * HUGE_BYTES
        at = libc.mmap(self.address, size, mmap.PROT_READ | mmap.PROT_WRITE,
                       flags | MAP_FIXED_NOREPLACE, file, 0)
        error = ctypes.get_errno()
        if file >= 0:
            os.close(file)
        if at != self.address:
            raise OSError(error, os.strerror(error))
        if "hugetlb" not in kind:
            libc.madvise(at, size, MADV_HUGEPAGE if "THP" in kind else MADV_NOHUGEPAGE)

    def touch(self):
        ctypes.memset(self.address, 1, self.size)
        return self

    def unmap(self):
        libc.munmap(self.address, self.size)
