# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Memory that tests/gpu/run makes ready once, before all cases: huge pages, reserved and
touched by all cores, and transparent ones of shared memory. In a virtual machine the first
touch of each page may be slow, whatever is measured.
"""
import ctypes
import mmap
import os
import threading
import time

import machine
from machine import first_line

RESERVED = "/proc/sys/vm/nr_hugepages"
SHARED = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
HUGE_BYTES = 2 << 20
MADV_HUGEPAGE, MADV_POPULATE_WRITE, MAP_HUGETLB = 14, 23, 0x40000
PART_BYTES = 64 << 20
TOUCH_SECONDS = 30


def _write(path, value):
    """Why it could not be written, or None."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(value))
    except OSError as error:
        return error
    return None


def touch(size, is_huge, seconds=TOUCH_SECONDS):
    """How many bytes of new memory all cores could touch in that time. It is given back, to
    hugetlb's pages if it is of those."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS |
                           (MAP_HUGETLB if is_huge else 0))
    except (OSError, ValueError):
        return 0
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    if not is_huge:
        libc.madvise(start, size, MADV_HUGEPAGE)
    parts, touched = iter(range(0, size, PART_BYTES)), []
    deadline = time.monotonic() + seconds

    def work():
        for offset in parts:
            length = min(PART_BYTES, size - offset)
            if time.monotonic() > deadline or \
                    libc.madvise(start + offset, length, MADV_POPULATE_WRITE):
                return
            touched.append(length)

    threads = [threading.Thread(target=work) for _ in os.sched_getaffinity(0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del view
    memory.close()
    return sum(touched)


def _room():
    """Half of the memory that is free, and of what the cgroup allows."""
    available = first_line("/proc/meminfo", "MemAvailable")
    limits = [int(available.split()[0]) * 1024 if available else None, machine.memory_limit()]
    return min((limit // 2 for limit in limits if limit), default=0)


class Ready:
    """What was changed for it; undo() changes it back."""

    def __init__(self):
        self.before = {}
        self.told = []

    def reserve(self, count):
        """Raises the number of 2 MiB pages to that, by half of the memory that is free at
        most, and touches as much memory as is wanted, of whatever pages there are."""
        before = int(first_line(RESERVED) or 0)
        room = _room()
        allowed = min(count, before + room // HUGE_BYTES)
        error = _write(RESERVED, allowed)
        got = int(first_line(RESERVED) or 0)
        if error:
            self.told.append(f"no huge pages were reserved: {error}")
        else:
            self.before[RESERVED] = before
            why = "memory has no more in one piece" if got < allowed else \
                "that is half of the memory that was free"
            self.told.append(f"{got} huge pages are reserved" +
                             (f", not {count}: {why}" if got < count else ""))
        began = time.monotonic()
        is_huge = got > 0
        size = min(count, got) * HUGE_BYTES if is_huge else min(count * HUGE_BYTES, room)
        touched = touch(size, is_huge) if size else 0
        took = time.monotonic() - began
        self.told.append(f"{touched >> 20} MiB of {size >> 20} were touched in {took:.1f} s, "
                         f"{touched / took / 1e9:.2f} GB/s by all cores")

    def allow_shared(self):
        """Transparent huge pages of shared memory, for who asks for them."""
        words = (first_line(SHARED) or "").split()
        now = next((word.strip("[]") for word in words if word.startswith("[")), None)
        if now != "never":
            return
        error = _write(SHARED, "advise")
        if error:
            self.told.append(f"no transparent huge pages of shared memory: {SHARED}: {error}")
        else:
            self.before[SHARED] = now
            self.told.append(f"{SHARED} is advise, and was {now}")

    def undo(self):
        while self.before:
            _write(*self.before.popitem())
