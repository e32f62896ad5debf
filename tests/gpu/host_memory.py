# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Host memory of a process, by what /proc/PID/smaps says it is, and by CUDA's word."""
import ctypes
import re

MEMORY_TYPE, HOST = 2, 1            # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST
HEADER = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


def kind_of(name):
    if name.startswith("/memfd:actmem") or "/dev/actmem" in name:
        return "actmem"
    if name.startswith(("/dev/nvidia", "/dev/zero")):
        return "driver"                 # cuMemHostAlloc's, as the driver maps it
    if not name or name.startswith(("[heap]", "[anon")):
        return "anonymous"
    return "files"


def mapped(pid="self", named=()):
    """Bytes by kind: resident, but of the driver's mappings, which have no pages of their
    own, the length. `named` are files of regions that have names."""
    total = dict.fromkeys(("actmem", "driver", "anonymous", "files"), 0)
    kind = "files"
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            header = HEADER.match(line)
            if header:
                name = header[1]
                kind = "actmem" if any(name.startswith(path) for path in named) else \
                    kind_of(name)
            elif line.startswith("Size:" if kind == "driver" else "Rss:") or \
                    (kind == "actmem" and line.startswith(("Shared_Hugetlb:",
                                                           "Private_Hugetlb:"))):
                total[kind] += int(line.split()[1]) * 1024
    return total


def mapping_of(address, pid="self"):
    """The name of the mapping that an address lies in, or None."""
    with open(f"/proc/{pid}/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            header = HEADER.match(line)
            if header:
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                if start <= address < end:
                    return header[1]
    return None


def is_pinned(address):
    """Whether CUDA has it as host memory, allocated or registered. Flags it tells of what it
    has allocated; of other memory by chance."""
    cuda = ctypes.CDLL("libcuda.so.1")
    kind, context = ctypes.c_uint(), ctypes.c_void_p()
    if cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0):
        return False
    try:
        cuda.cuCtxPushCurrent_v2(context)
        wrong = cuda.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE,
                                           ctypes.c_uint64(address))
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
        return not wrong and kind.value == HOST
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(0)


def growth(before, after):
    return {kind: after[kind] - before[kind] for kind in after}
