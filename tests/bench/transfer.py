#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Fills and spills a preallocated file, in turns with fio doing the same.

    transfer.py [--smoke] PROGRAM DIRECTORY [--rounds N] [--file-bytes N]

Prints a line of JSON for each measurement, as parts.py wants it, with the ratio of each
two rounds. fio has fixed buffers, registered files, direct I/O, the same block size and
depth, and as much memory of the same kind of pages: of 2 MiB or, where too few of them are
free and no more can be reserved for the while, 4 KiB, unless ACTMEM_PAGES says which.
"""
import argparse
import contextlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
GIB = 1 << 30
# Requests of MiB, how many at a time, and how often the file is gone through. Longer ones
# take so little of the processor that it takes more of them to tell how little.
SHAPES = ((1, 16, 2), (4, 8, 2), (16, 4, 4), (80, 2, 6))
# Of the bandwidth; as to processor time, fio's is to be met.
BANDWIDTH_AIM = 0.98
# fio tells user and system time in whole milliseconds, rounded down: of each a half is
# missing on average.
ROUNDED_OFF = 0.001
# Seconds that the disk is left alone before each side begins: many a virtual one lets
# more through after a pause, and fio takes a second to start where ours takes none.
REST = 2
# What fio tells is of the thread that transfers, and so is ours: its main thread's looking
# whether that is all, every 10 ms, is not counted on either side. Where a transfer cannot
# be begun without waiting, threads of the kernel do it, which bear this name: counted.
KERNEL_THREAD = "iou-wrk-"
LOOK_AT_THREADS = "grep . /proc/$PPID/task/*/comm /proc/$PPID/task/*/schedstat"
HUGE_PAGES = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
# Seconds for the pages of a program that has ended to be free: the kernel ends its ring,
# whose fixed buffers they are, a while later.
FREED_LATE = 10

described = set()


def ours(program, mode, path, block, depth, total, pages, rest):
    begin = time.monotonic_ns() + int(rest * 1e9)
    done = subprocess.run([program, mode, path, str(block), str(depth), str(total), str(begin)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True,
                          env=os.environ | {"ACTMEM_PAGES": pages})
    # Each run says what it works with: once for each shape will do.
    if done.returncode or done.stderr not in described:
        sys.stderr.write(done.stderr)
    described.add(done.stderr)
    if done.returncode:
        raise SystemExit(f"transfer.py: exit status {done.returncode} of {program}")
    told = json.loads(done.stdout)
    gib = told["bytes"] / GIB
    return gib / told["seconds"], told["processor_seconds"] / gib


def kernel_seconds(text):
    """Of the kernel's threads, by what LOOK_AT_THREADS printed of all."""
    threads = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        threads.setdefault(os.path.dirname(name), {})[os.path.basename(name)] = value
    return sum(int(thread["schedstat"].split()[0]) for thread in threads.values()
               if thread["comm"].startswith(KERNEL_THREAD)) / 1e9


def peer(mode, path, block, depth, total, pages, rest):
    sleep = f"import time; time.sleep(max(0, {time.monotonic() + rest} - time.monotonic()))"
    command = [
        "fio", "--name=transfer", f"--filename={path}", "--ioengine=io_uring", "--fixedbufs=1",
        "--registerfiles=1", "--scramble_buffers=0", "--direct=1", f"--bs={block}",
        f"--iodepth={depth}",
        f"--rw={'read' if mode == 'fill' else 'write'}", f"--io_size={total}",
        f"--size={os.path.getsize(path) // block * block}", "--thread", "--output-format=json",
        f"--exec_prerun={shlex.quote(sys.executable)} -c '{sleep}'",
        f"--exec_postrun={LOOK_AT_THREADS}",
    ]
    # Shared memory, as ours is: how pages of 4 KiB follow each other decides how many go
    # into a request of the disk, and private ones are laid out otherwise.
    command.append("--iomem=mmaphuge" if pages == "2M" else "--iomem=shm")
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=place)
        with open(os.path.join(place, "transfer.postrun.txt"), encoding="ascii") as threads:
            kernel = kernel_seconds(threads.read())
    # A line before it says where the threads are told of.
    job = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]
    told = job["read" if mode == "fill" else "write"]
    seconds, gib = told["runtime"] / 1000, told["io_bytes"] / GIB
    if job["error"] or told["io_bytes"] != total:
        raise SystemExit(f"transfer.py: fio moved {told['io_bytes']} of {total} bytes")
    used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * seconds + ROUNDED_OFF + kernel
    return gib / seconds, used / gib


def report(bench, mine, theirs, unit, more_is_better, pages):
    ratios = [a / b if more_is_better else b / a for a, b in zip(mine, theirs)]
    print(json.dumps({
        "bench": bench, "ours": statistics.median(mine), "peer": statistics.median(theirs),
        "peer_name": f"fio with fixed buffers, {pages} pages",
        "ratios": ratios, "unit": unit,
        "aim": BANDWIDTH_AIM if more_is_better else 1}), flush=True)


def measure(args, path, mode, shape):
    mib, depth, times = shape
    block = mib * MIB
    total = args.file_bytes // block * block * times
    rounds = []
    pages = args.pages

    def turn(side, *program):
        if pages == "2M":
            wait_for_pages(pages_wanted(mib, depth))
        return side(*program, mode, path, block, depth, total, pages, args.rest)

    sides = [lambda: turn(ours, args.program), lambda: turn(peer)]
    for number in range(args.rounds):
        # Each is first as often as the other.
        if number % 2:
            rounds.append((sides[1](), sides[0]())[::-1])
        else:
            rounds.append((sides[0](), sides[1]()))
    report(f"{mode}_{mib}m", [a[0] for a, _ in rounds], [b[0] for _, b in rounds],
           "GiB/s", True, pages)
    report(f"{mode}_{mib}m_cpu", [a[1] for a, _ in rounds], [b[1] for _, b in rounds],
           "CPU s per GiB", False, pages)


def make_file(path, length):
    """Written once, so that no round pays for blocks that have never been."""
    chunk = bytes(range(256)) * (16 * MIB // 256)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, length)
        for _ in range(length // len(chunk)):
            file.write(chunk)
        os.fsync(file.fileno())


def huge_pages(name, number=None):
    """What the kernel says of pages of 2 MiB, or what it made of @number."""
    if number is not None:
        with open(HUGE_PAGES + name, "w", encoding="ascii") as file:
            file.write(str(number))
    with open(HUGE_PAGES + name, encoding="ascii") as file:
        return int(file.read())


def wait_for_pages(wanted):
    """Until so many of 2 MiB are free again; if they never are, who asks is told so."""
    end = time.monotonic() + FREED_LATE
    while huge_pages("free_hugepages") < wanted and time.monotonic() < end:
        time.sleep(0.01)


@contextlib.contextmanager
def reserved_pages(wanted):
    """The pages to use; those of 2 MiB that were reserved for it are given back."""
    had, reserved = None, False
    try:
        had = huge_pages("nr_hugepages")
        # Those that are there may be wanted by others.
        missing = wanted if huge_pages("free_hugepages") < wanted else 0
        if missing:
            huge_pages("nr_hugepages", had + missing)
        reserved = huge_pages("free_hugepages") >= wanted
        words = f"of which {huge_pages('free_hugepages')} are free"
    except OSError as error:
        words = f"of which none more can be reserved ({error.strerror})"
    try:
        if reserved and missing:
            print(f"# transfer: vm.nr_hugepages is {had + missing} for the while, then "
                  f"{had} again", file=sys.stderr)
        if not reserved:
            print(f"# transfer: pages of 4 KiB on both sides, as {wanted} of 2 MiB are "
                  f"wanted, {words} (vm.nr_hugepages)", file=sys.stderr)
        yield "2M" if reserved else "4K"
    finally:
        if had is not None and huge_pages("nr_hugepages") > had:
            huge_pages("nr_hugepages", had)


def pages_wanted(mib, depth):
    """Of 2 MiB, for one side at a time; fio aligns its memory within two more."""
    return mib * depth // 2 + 2


def pages_to_use(shapes, smoke):
    """Given, or what there are or can be enough of."""
    if os.environ.get("ACTMEM_PAGES"):
        return contextlib.nullcontext(os.environ["ACTMEM_PAGES"])
    if smoke:
        return contextlib.nullcontext("4K")
    return reserved_pages(max(pages_wanted(mib, depth) for mib, depth, *_ in shapes))


def leave_out(why):
    for mode in ("spill", "fill"):
        print(json.dumps({"bench": mode, "left_out": why}))
    return 0


def has_direct_io(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
    except OSError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("directory")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--file-bytes", type=int, default=2 * GIB)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    shapes = SHAPES[:1] if args.smoke else SHAPES
    if args.smoke:
        args.rounds, args.file_bytes = 1, 16 * MIB
    if not shutil.which("fio"):
        return leave_out("no fio is installed; `scripts/setup packages bench` installs it")
    args.rest = 0 if args.smoke else REST
    path = os.path.abspath(os.path.join(args.directory, f"transfer-{os.getpid()}"))
    try:
        make_file(path, args.file_bytes)
        if not has_direct_io(path):
            return leave_out(f"{args.directory} has no direct I/O; set BENCH_DIRECTORY")
        with pages_to_use(shapes, args.smoke) as args.pages:
            for mode in ("spill", "fill"):
                for shape in shapes:
                    measure(args, path, mode, shape)
    finally:
        if os.path.exists(path):
            os.unlink(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
