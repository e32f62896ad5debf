# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A budget on the driver: a JAX training whose activations are many times what
its memory cgroup may have, on a disk of the machine's own. Runs in a booted
kernel and prints TAP.
"""
import os
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import budget_case  # noqa: E402

DISK, FOLDER, CGROUPS = "/dev/nvme0n1", "/dev/shm/spill", "/dev/shm/cgroup"


def main():
    subprocess.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", DISK], check=True)
    for folder in (FOLDER, CGROUPS):
        os.makedirs(folder)
    subprocess.run(["/bin/mount", "-t", "ext4", DISK, FOLDER], check=True)
    subprocess.run(["/bin/mount", "-t", "cgroup2", "none", CGROUPS], check=True)
    number = 0
    for good, name, seen in budget_case.check_within(
            FOLDER, ("--backend", "driver"), mib=96, budget_mib=8, limit_mib=56):
        number += 1
        print(f"{'ok' if good else 'not ok'} {number} - {name}", flush=True)
        if not good:
            print(f"# {seen}", flush=True)
    print(f"1..{number}")
    for folder in (CGROUPS, FOLDER):
        subprocess.run(["/bin/umount", folder], check=True)


if __name__ == "__main__":
    main()
