# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Claims on this node. A prepared claim is a mounted file system and a file of the Container
Device Interface (CDI) that tells the container runtime of it."""
import json
import os
import re
import subprocess
import threading

from . import DRIVER, Refusal, machine, say

DEVICE = "/dev/actmem"
KIND = f"{DRIVER}/claim"
# Where containers find a claim's folder, wherever it is mounted on the node.
IN_CONTAINERS = "/run/actmem"


def mounted(path):
    """The options of what is mounted there last, or None."""
    options = None
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if before.split()[4] == path:
                options = after.split()[2].split(",")
    return options


def remove_below(folder):
    """Removes all files and folders below, and returns the number of files. Uses find, which
    handles folders of any depth. Files that others add or remove meanwhile do not count."""
    return len(subprocess.run(["find", folder, "-xdev", "-mindepth", "1", "-type", "f", "-printf",
                               ".", ",", "-delete"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False).stdout)


class Claims:
    """@mounts: the folder for mounts, root's alone, as each user may write to a claim's.
    @with_device: have containers open /dev/actmem, too."""

    def __init__(self, mounts, cdi, with_device):
        self.mounts = os.path.realpath(mounts)
        self.cdi = cdi
        self.with_device = with_device
        self.lock = threading.Lock()
        os.makedirs(self.mounts, exist_ok=True)
        os.chmod(self.mounts, 0o700)
        os.makedirs(cdi, exist_ok=True)

    def paths(self, uid):
        if not re.fullmatch(r"[0-9A-Za-z-]+", uid):
            raise Refusal(f"'{uid}' is not a UID of a claim")
        return f"{self.mounts}/claim-{uid}", f"{self.cdi}/{DRIVER}-{uid}.json"

    def prepare(self, uid, sizes):
        """@sizes: bytes and memory node of each device of the claim. Returns their names for
        the container runtime. Does what is missing, of the second time nothing."""
        machine.check_module()
        folder, spec = self.paths(uid)
        pages = sum(size // machine.PAGE_BYTES for size, _ in sizes)
        if not pages:
            raise Refusal("the claim has less than 2Mi of memory; set capacity.requests.memory "
                          "of its request")
        nodes = ":".join(str(node) for node in sorted({node for _, node in sizes}))
        with self.lock:
            self.mount(folder, f"size={pages * machine.PAGE_BYTES >> 20}M", f"node={nodes}")
            return self.write_spec(uid, spec, folder, len(sizes))

    def mount(self, folder, size, nodes):
        there = mounted(folder)
        if there is not None and nodes in there:
            if size not in there:
                # Of a whole memory node, which has another size now; pods may have files there.
                self.run_mount("-o", f"remount,{size}", folder)
                say(f"{folder}: now with {size}")
            return
        if there is not None:
            say(f"{folder} is still mounted from an earlier allocation, with {','.join(there)}")
            self.clear(folder)
        os.makedirs(folder, exist_ok=True)
        text = f"{size},{nodes},mode=1777"
        try:
            self.run_mount("-t", "actmem", "-o", f"{text},nosuid,nodev", "none", folder)
        except Refusal:
            os.rmdir(folder)
            raise
        say(f"{folder}: mounted with {text}")

    def run_mount(self, *words):
        result = subprocess.run(["mount", *words], text=True, capture_output=True, check=False)
        if result.returncode:
            raise Refusal(f"cannot mount actmem ({' '.join(words)}): {result.stderr.strip()}")

    def write_spec(self, uid, spec, folder, count):
        """What concerns the claim is once in the file: a container may have all its devices."""
        inside = f"{IN_CONTAINERS}/claim-{uid}"
        edits = {"env": [f"ACTMEM_NAME={inside}/heap"],
                 "mounts": [{"hostPath": folder, "containerPath": inside,
                             "options": ["rw", "bind", "rprivate", "nosuid", "nodev", "noexec"]}]}
        if self.with_device:
            edits["deviceNodes"] = [{"path": DEVICE}]
            group = os.stat(DEVICE).st_gid
            if group:
                edits["additionalGids"] = [group]
        names = [f"{uid}-{number}" for number in range(count)]
        # The oldest that has what is in there, as a runtime refuses later ones than its own.
        version = "0.7.0" if edits.get("additionalGids") else "0.5.0"
        content = {"cdiVersion": version, "kind": KIND, "containerEdits": edits,
                   "devices": [{"name": name, "containerEdits": {"env": ["ACTMEM_STRICT=1"]}}
                               for name in names]}
        # The runtime reads each .json as soon as it appears.
        with open(f"{spec}.new", "w", encoding="ascii") as file:
            json.dump(content, file, indent=1)
        os.rename(f"{spec}.new", spec)
        return [f"{KIND}={name}" for name in names]

    def unprepare(self, uid):
        folder, spec = self.paths(uid)
        with self.lock:
            for path in (spec, f"{spec}.new"):
                if os.path.exists(path):
                    os.remove(path)
            if os.path.isdir(folder):
                self.clear(folder)
                os.rmdir(folder)

    def clear(self, folder):
        """Removes the files and unmounts. What some process, or device, still has keeps its
        memory until it ends, and no unmounting would fail of it: a container has mounts of
        its own."""
        while mounted(folder) is not None:
            files = remove_below(folder)
            left = os.statvfs(folder)
            kib = (left.f_blocks - left.f_bfree) * left.f_frsize >> 10
            say(f"{folder}: files left: {files}; removed" + (
                f"; a process still uses {kib} KiB of them (actmem list), which are freed when it "
                "ends" if kib else ""))
            if subprocess.run(["umount", folder], stderr=subprocess.DEVNULL,
                              check=False).returncode:
                subprocess.run(["umount", "-l", folder], check=True)
