# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Makes the initramfs that tests/vm/run boots: a cpio archive in memory."""
import lzma
import os
import re
import stat
import subprocess

MODULE_SUFFIXES = (".ko", ".ko.xz")


class Archive:
    """A cpio archive of the "newc" kind, as the kernel unpacks it."""

    def __init__(self):
        self.entries = {}

    def add_bytes(self, data, guest, mode):
        folder = os.path.dirname(guest)
        if folder != "/":
            self.add_bytes(b"", folder, stat.S_IFDIR | 0o755)
        if not stat.S_IFMT(mode):
            mode |= stat.S_IFREG
        self.entries.setdefault(guest, (data, mode))

    def add(self, host, guest):
        with open(host, "rb") as file:
            self.add_bytes(file.read(), guest,
                           stat.S_IMODE(os.fstat(file.fileno()).st_mode))

    def add_program(self, host, guest):
        self.add(host, guest)
        for library in libraries(host):
            self.add(library, library)

    def write(self, path):
        with open(path, "wb") as out:
            for number, (guest, (data, mode)) in enumerate(self.entries.items(), 1):
                out.write(record(number, guest.lstrip("/"), data, mode))
            out.write(record(0, "TRAILER!!!", b"", 0))


def record(number, name, data, mode):
    name = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def libraries(program):
    """The shared libraries of a program and its dynamic linker, as paths."""
    with open(program, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    result = subprocess.run(["ldd", program], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, check=False)
    if "not found" in result.stdout:
        raise SystemExit(f"{program}: a library is missing:\n{result.stdout}")
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", result.stdout, re.MULTILINE)


def read_module(path):
    with open(path, "rb") as file:
        data = file.read()
    return lzma.decompress(data) if path.endswith(".xz") else data


def modules(folder, wanted):
    """Paths and parameters of modules and all they need, in loading order.

    The packages bring no modules.dep, so each module is asked what it needs.
    """
    if not wanted:
        return []
    found = {}
    for at, _, files in os.walk(os.path.realpath(folder)):
        for file in files:
            if file.endswith(MODULE_SUFFIXES):
                name = file.split(".ko")[0].replace("-", "_")
                found[name] = os.path.join(at, file)
    order = {}

    def visit(name, parameters):
        name = name.replace("-", "_")
        path = found.get(name)
        if not path:
            return  # built into the kernel
        needs = re.search(rb"\0depends=([^\0]*)\0", read_module(path))
        for need in needs[1].decode().split(",") if needs else []:
            if need:
                visit(need, "")
        order[path] = order.get(path) or parameters

    for words in wanted:
        name, _, parameters = words.partition(" ")
        visit(name, parameters)
    return list(order.items())
