# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The module on this node: whether it is loaded, and how much memory each memory node has for
regions."""
import os
import re
import resource

from . import Refusal

SYSFS = "/sys/class/misc/actmem"
PAGE_BYTES = 2 << 20
# Of quantities, as Kubernetes writes them.
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
         "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}


def read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def parse_quantity(text):
    match = re.fullmatch(r"(\d+)([kMGTPE]|[KMGTPE]i)?", text)
    if not match:
        raise Refusal(f"'{text}' is not a size; write a size such as 64Gi or 512Mi, or a number "
                      "of bytes")
    return int(match[1]) * UNITS[match[2] or ""]


def parse_capacity(text):
    """By node, from "0=448Gi,1=448Gi"."""
    capacity = {}
    for part in filter(None, text.split(",")):
        node, equals, size = part.partition("=")
        if not equals or not node.isdigit():
            raise Refusal(f"'{part}' is not a capacity; write NODE=SIZE, such as 0=448Gi,1=448Gi")
        capacity[int(node)] = parse_quantity(size)
    return capacity


def check_module():
    kinds = read("/proc/filesystems").split()
    if "actmem" not in kinds:
        raise Refusal("this node has no actmem file system, because the module is not loaded; "
                      "install actmem-dkms on the node, then run `modprobe actmem` as root")


def version():
    """Of the module, as the cluster wants versions, with three numbers; or none."""
    match = re.match(r"\d+\.\d+\.\d+", read("/sys/module/actmem/version"))
    return match[0] if match else ""


def pools():
    """By node, of those that have one."""
    try:
        nodes = [int(name[4:]) for name in os.listdir(SYSFS) if re.fullmatch(r"node\d+", name)]
    except FileNotFoundError:
        nodes = []
    sizes = {node: int(read(f"{SYSFS}/node{node}/pool_bytes") or 0) for node in sorted(nodes)}
    return {node: size for node, size in sizes.items() if size}


def too_little_to_lock():
    """Returns an error message, or an empty string. A container's limit of locked memory comes from
    the container runtime, and a pod cannot set it. This container's limit is that of the others."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit == resource.RLIM_INFINITY or read(f"{SYSFS}/user_limit_bytes") != "max":
        return ""
    return f"; but containers may lock only {limit >> 10} KiB of memory, so pods cannot have " \
        "larger regions: on the node, run `actmem limit --user SIZE --save`, which replaces that " \
        "limit, or set LimitMEMLOCK=infinity for the container runtime"
