#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Fills and spills a preallocated file, in turns with fio doing the same.

    transfer.py PROGRAM DIRECTORY [--rounds N] [--file-bytes N]

Prints a line of JSON for each measurement: bench, ours, peer, peer_name, ratio and
unit, as bench-vm does; the ratio is the median of each two rounds' own, and above 1
where ours is better. fio has fixed buffers, registered files, direct I/O, the same
block size and depth, and memory of the same kind of pages.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

MIB = 1 << 20
GIB = 1 << 30
# Requests of MiB, and how many at a time.
SHAPES = ((1, 16), (4, 8), (16, 4), (80, 2))
PEER = "fio, io_uring with fixed buffers, direct"


def ours(program, mode, path, block, depth, total):
    done = subprocess.run([program, mode, path, str(block), str(depth), str(total)],
                          stdout=subprocess.PIPE, check=True, text=True)
    told = json.loads(done.stdout)
    gib = told["bytes"] / GIB
    return gib / told["seconds"], told["processor_seconds"] / gib


def peer(mode, path, block, depth, total, pages):
    command = [
        "fio", "--name=transfer", f"--filename={path}", "--ioengine=io_uring", "--fixedbufs=1",
        "--registerfiles=1", "--scramble_buffers=0", "--direct=1", f"--bs={block}", f"--iodepth={depth}",
        f"--rw={'read' if mode == 'fill' else 'write'}", f"--io_size={total}",
        f"--size={os.path.getsize(path) // block * block}", "--thread", "--output-format=json",
    ]
    if pages == "2M":
        command.append("--iomem=mmaphuge")
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    job = json.loads(done.stdout)["jobs"][0]
    told = job["read" if mode == "fill" else "write"]
    seconds, gib = told["runtime"] / 1000, told["io_bytes"] / GIB
    if job["error"] or told["io_bytes"] != total:
        raise SystemExit(f"transfer.py: fio moved {told['io_bytes']} of {total} bytes")
    return gib / seconds, (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds / gib


def report(bench, mine, theirs, unit, more_is_better):
    ratios = [a / b if more_is_better else b / a for a, b in zip(mine, theirs)]
    print(json.dumps({
        "bench": bench, "ours": round(statistics.median(mine), 4),
        "peer": round(statistics.median(theirs), 4), "peer_name": PEER,
        "ratio": round(statistics.median(ratios), 3), "unit": unit}), flush=True)


def measure(args, path, mode, mib, depth):
    block = mib * MIB
    total = args.file_bytes // block * block
    rounds = []
    pages = os.environ.get("ACTMEM_PAGES", "2M")
    for number in range(args.rounds):
        turn = [lambda: ours(args.program, mode, path, block, depth, total),
                lambda: peer(mode, path, block, depth, total, pages)]
        # Each is first as often as the other.
        if number % 2:
            rounds.append((turn[1](), turn[0]())[::-1])
        else:
            rounds.append((turn[0](), turn[1]()))
    report(f"{mode}_{mib}m", [a[0] for a, _ in rounds], [b[0] for _, b in rounds],
           "GiB/s", True)
    report(f"{mode}_{mib}m_cpu", [a[1] for a, _ in rounds], [b[1] for _, b in rounds],
           "CPU s/GiB", False)


def make_file(path, length):
    """Written once, so that no round pays for blocks that have never been."""
    chunk = bytes(range(256)) * (16 * MIB // 256)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, length)
        for _ in range(length // len(chunk)):
            file.write(chunk)
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--file-bytes", type=int, default=2 * GIB)
    args = parser.parse_args()
    path = os.path.join(args.directory, f"transfer-{os.getpid()}")
    try:
        make_file(path, args.file_bytes)
        for mode in ("spill", "fill"):
            for mib, depth in SHAPES:
                measure(args, path, mode, mib, depth)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
