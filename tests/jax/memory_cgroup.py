# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A memory cgroup of a test's own, of either version."""
import contextlib
import os
import time

LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}


def _own_paths():
    """Of this process: controllers ("": version 2) → path."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    return {name: path for _, names, path in lines for name in names.split(",")}


def _mounts():
    with open("/proc/self/mounts", encoding="ascii") as file:
        return [line.split()[1:4] for line in file]


def _parent():
    """Version and folder of the one that a cgroup can be made in, or None."""
    own = _own_paths()
    for folder, kind, options in _mounts():
        if kind == "cgroup" and "memory" in options.split(","):
            path = os.path.normpath(f"{folder}/{own.get('memory', '/')}")
            return 1, path if os.path.isdir(path) else folder
    for folder, kind, _ in _mounts():
        control = os.path.join(folder, "cgroup.subtree_control")
        if kind != "cgroup2" or not os.path.exists(control):
            continue
        with contextlib.suppress(OSError):
            with open(control, "w", encoding="ascii") as file:
                file.write("+memory")
            return 2, folder
    return None


def writable():
    """Whether this process can make one, and be in it."""
    with contextlib.suppress(OSError):
        with memory_cgroup(1 << 30):
            return True
    return False


class Cgroup:
    def __init__(self, version, folder):
        self.version, self.folder = version, folder

    def _number(self, name):
        with open(os.path.join(self.folder, name), encoding="ascii") as file:
            return int(file.read())

    def peak(self):
        """Bytes that it was charged with at most."""
        return self._number(PEAK[self.version])

    def remove(self):
        """Whoever was in it may take a moment to be gone."""
        for _ in range(1000):
            with contextlib.suppress(OSError):
                return os.rmdir(self.folder)
            time.sleep(0.01)
        return os.rmdir(self.folder)


@contextlib.contextmanager
def memory_cgroup(limit):
    found = _parent()
    if not found:
        raise OSError("no memory cgroup that another can be made in")
    version, parent = found
    cgroup = Cgroup(version, os.path.join(parent, f"actmem-test-{os.getpid()}"))
    os.mkdir(cgroup.folder)
    try:
        with open(os.path.join(cgroup.folder, LIMIT[version]), "w",
                  encoding="ascii") as file:
            file.write(str(limit))
        yield cgroup
    finally:
        cgroup.remove()
