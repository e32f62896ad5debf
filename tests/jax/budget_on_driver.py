# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A budget on the driver: a JAX training whose activations are many times what
its memory cgroup may have, on a disk of the machine's own; and trainings that return
memory when a limit falls. Runs in a booted kernel and prints TAP.
"""
import os
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import budget_case  # noqa: E402
import reclaim_case  # noqa: E402

DISK, FOLDER, CGROUPS = "/dev/nvme0n1", "/dev/shm/spill", "/dev/shm/cgroup"


RUN = ("--backend", "driver")
MIB = 1 << 20
LIMIT = "/sys/class/misc/actmem/user_limit_bytes"


def held():
    """Bytes of regions, by the driver's own counts."""
    folder = os.path.dirname(LIMIT)
    return sum(int(open(f"{folder}/{node}/region_bytes", encoding="ascii").read())
               for node in os.listdir(folder) if node.startswith("node"))


def check_two():
    """Two trainings share one limit, beside a third one that cannot return memory."""
    jobs = [reclaim_case.Training(RUN, FOLDER) for _ in range(2)]
    fixed = reclaim_case.Training(RUN, None)
    each, kept = reclaim_case.BUDGET * MIB, reclaim_case.SAVED * MIB
    for job in jobs:
        job.steps_until(lambda step: step["bytes"] == each)
    fixed.steps_until(lambda step: step["bytes"] == kept)
    total = reclaim_case.BUDGET * MIB + kept
    code, out, err = reclaim_case.limit("--user", f"{total // MIB}M")
    yield (code == 0 and not err and all(f"{job.pid} " in out for job in (*jobs, fixed)),
           "a limit of the user concerns all three", (code, out, err))
    yield held() <= total, "the usage falls to the limit", held()
    steps = [job.step() for job in (*jobs, fixed, *jobs)][-2:]
    yield (all(4 * MIB <= step["bytes"] <= each - 4 * MIB for step in steps),
           "two trainings return about as much", steps)
    yield fixed.step()["bytes"] == kept, "the third one keeps its memory", fixed.seen[-1]
    code, out, err = reclaim_case.limit("--user", "max")
    yield code == 0 and not out, "the limit rises", (code, out, err)
    for job in jobs:
        job.steps_until(lambda step: step["bytes"] == each)
    seen = [job.end() for job in (*jobs, fixed)]
    wanted = reclaim_case.losses(RUN, max(map(len, seen)))
    yield (all(losses == wanted[:len(losses)] for losses in seen),
           "all losses are those without a limit, bit by bit", seen)
    yield held() == 0, "and nothing is left", held()


def cases():
    yield from budget_case.check_within(FOLDER, RUN, mib=96, budget_mib=8, limit_mib=56)
    yield from check_two()


def main():
    subprocess.run(["/sbin/mke2fs", "-q", "-F", "-t", "ext4", DISK], check=True)
    for folder in (FOLDER, CGROUPS):
        os.makedirs(folder)
    subprocess.run(["/bin/mount", "-t", "ext4", DISK, FOLDER], check=True)
    subprocess.run(["/bin/mount", "-t", "cgroup2", "none", CGROUPS], check=True)
    number = 0
    for good, name, seen in cases():
        number += 1
        print(f"{'ok' if good else 'not ok'} {number} - {name}", flush=True)
        if not good:
            print(f"# {seen}", flush=True)
    print(f"1..{number}")
    for folder in (CGROUPS, FOLDER):
        subprocess.run(["/bin/umount", folder], check=True)


if __name__ == "__main__":
    main()
