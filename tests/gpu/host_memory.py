# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measure the host memory of a process by kind, from /proc/PID/smaps, and ask CUDA whether
an address is pinned."""
import ctypes
import pathlib
import re

import driver

MEMORY_TYPE, HOST = 2, 1            # CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST
HEADER = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$")


def kind_of(name):
    if name.startswith(("/memfd:actmem:", "/actmem:")):
        return "actmem"
    if name.startswith(("/dev/nvidia", "/dev/zero")):
        return "driver"                 # memory of cuMemHostAlloc()
    return "anonymous" if not name or name.startswith(("[heap]", "[anon")) else "files"


def _lines():
    return pathlib.Path("/proc/self/smaps").read_text(errors="replace").splitlines()


def mapped():
    """Return bytes by kind: the resident bytes, or the length of a mapping of the driver,
    because smaps counts no resident pages there."""
    total, kind = dict.fromkeys(("actmem", "driver", "anonymous", "files"), 0), "files"
    for line in _lines():
        header = HEADER.match(line)
        if header:
            kind = kind_of(header[3])
        elif line.startswith("Size:" if kind == "driver" else "Rss:") or \
                kind == "actmem" and line.startswith(("Shared_Hugetlb:", "Private_Hugetlb:")):
            total[kind] += int(line.split()[1]) * 1024
    return total


def in_region(address):
    """Return whether the address lies in a region of actmem, and its mapping's name."""
    name = next((header[3] for header in map(HEADER.match, _lines()) if header and
                 int(header[1], 16) <= address < int(header[2], 16)), "")
    return kind_of(name) == "actmem", name


def is_pinned(address):
    """Return whether CUDA allocated or registered the address as host memory."""
    kind = ctypes.c_uint()
    found = driver.Cuda().result("cuPointerGetAttribute", ctypes.byref(kind), MEMORY_TYPE,
                                 ctypes.c_uint64(address))
    return found == "CUDA_SUCCESS" and kind.value == HOST
