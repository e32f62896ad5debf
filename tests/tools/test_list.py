# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem list: what processes hold, and what becomes of it."""
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import tempfile

from harness import (HOLDER, ISOLATED, NO_CAPABILITIES, actmem, clean_environment, expect,
                     forbidden_device, holder, mount, public_copy, stranger)
from tap import Skip, case, main

MIB = 1 << 20
IN_OPEN = 0x20
HEADINGS = ("PID USER COMMAND NAME SIZE ALLOCATED PAGE NODES MAPPED PINNED POISONED "
            "FILE BACKEND").split()


def regions(**options):
    result = actmem("list", "--json", **options)
    expect(result, 0)
    return json.loads(result.stdout)["regions"]


def rows(*arguments, **options):
    result = actmem("list", *arguments, **options)
    assert result.returncode == 0, result
    headings, *lines = result.stdout.splitlines()
    assert headings.split() == HEADINGS, headings
    return [line.split() for line in lines]


@case
def nothing_is_the_headings_alone():
    if not ISOLATED:
        raise Skip("needs a process namespace of its own")
    assert not rows()
    result = actmem("list", "--json")
    assert json.loads(result.stdout) == {"regions": [], "malloc": [],
                                         "all_users": False}, result.stdout


@case
def rows_are_chosen():
    with holder("left", 4 * MIB) as one, holder("right", 2 * MIB) as other:
        def chosen(*options):
            result = actmem("list", "--json", *options)
            expect(result, 0)
            told = json.loads(result.stdout)
            assert told["malloc"] == []
            return sorted(row["name"] for row in told["regions"]
                          if row["pid"] in (one.pid, other.pid))
        (left,) = [row for row in regions() if row["pid"] == one.pid]
        assert chosen("--pid", str(one.pid)) == ["left"]
        assert chosen("--name", "r*ght") == ["right"] and chosen("--name", "r") == []
        assert chosen("--user", str(os.getuid())) == ["left", "right"]
        assert chosen("-u", str(os.getuid() + 1)) == [] == chosen("--node", "1000")
        node = left["nodes"][0]["node"]
        assert chosen("--node", str(node), "--pid", str(other.pid)) == ["right"]
        if left["cgroup"] is not None:
            with open(f"/proc/{one.pid}/cgroup", encoding="utf-8") as file:
                assert left["cgroup"] in file.read()
            assert chosen("--cgroup", left["cgroup"]) == ["left", "right"]
            assert chosen("--cgroup", left["cgroup"] + "/") == ["left", "right"]
            assert chosen("--cgroup", os.path.dirname(left["cgroup"])) == ["left", "right"]
            assert chosen("--cgroup", left["cgroup"] + "x") == []
        assert chosen("--cgroup", "/nowhere") == []


@case
def columns_are_chosen():
    with holder("left", 4 * MIB) as process:
        (region,) = [row for row in regions() if row["pid"] == process.pid]
        result = actmem("list", "--output", "size,name,id,cgroup,age", "--pid", str(process.pid),
                        "--bytes")
    expect(result, 0)
    assert [line.split() for line in result.stdout.splitlines()] == [
        "SIZE NAME ID CGROUP AGE".split(),
        [str(4 * MIB), "left", str(region["id"]), region["cgroup"] or "-", "-"]], result.stdout


@case
def what_cannot_be_chosen_is_named():
    for words, said in ((("--pid", "x"), "'x' is not a number (--pid)"),
                        (("--node", "-1"), "'-1' is not a number (--node)"),
                        (("--user", "nobody here"), "no user 'nobody here' (--user)"),
                        (("--cgroup", ""), "--cgroup is empty"),
                        (("--output", "pid,what"), "'what' is not a column"),
                        (("--output", ""), "'' is not a column")):
        expect(actmem("list", *words), 2, "", said)


@case
def json_tells_all_of_each_region():
    with holder("left", 4 * MIB, 2 * MIB) as process:
        found = [r for r in regions() if r["pid"] == process.pid]
    assert [r["bytes"] for r in sorted(found, key=lambda r: r["bytes"])] == [2 * MIB, 4 * MIB]
    for region in found:
        assert region["name"] == "left" and region["command"] == "holder", region
        assert region["uid"] == os.getuid(), region
        assert region["backend"] in ("driver", "memfd"), region
        assert region["pages"] in ("2M", "thp", "4K"), region
        assert region["page_bytes"] in (4096, 2 * MIB), region
        assert sum(n["bytes"] for n in region["nodes"]) == region["bytes"], region
        assert region["mapped_bytes"] == (4 * MIB if region["bytes"] == 4 * MIB else 0), region
        assert 0 <= region["pinned_bytes"] <= region["bytes"], region
        assert region["allocated_bytes"] == region["bytes"], region
        assert region["demand_faults"] == 0, region
        assert region["poisoned_bytes"] == 0, region
        assert region["exported_bytes"] == region["surplus_bytes"] == 0, region
        assert region["lingering"] is False, region
        assert region["named"] is False and region["path"] is None, region


@case
def the_table_tells_the_same():
    environment = clean_environment(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="4K",
                                    ACTMEM_ALLOW="unlocked", ACTMEM_NODES="0")
    with holder("table", 3 * MIB, environment=environment) as process:
        table = [r for r in rows() if r[0] == str(process.pid)]
        exact = [r for r in rows("--bytes") if r[0] == str(process.pid)]
        (region,) = [r for r in regions() if r["pid"] == process.pid]
    mapped, pinned = region["mapped_bytes"], region["pinned_bytes"]
    assert exact == [[str(process.pid), exact[0][1], "holder", "table", str(3 * MIB),
                      str(3 * MIB), "4096",
                      f"0:{3 * MIB}", str(mapped), str(pinned), "0", "-", "memfd"]], exact
    assert table[0][2:8] == ["holder", "table", "3M", "3M", "4K", "0:3M"], table


@case
def a_lazy_region_is_told_against_its_length():
    with holder("lazy", f"lazy:{8 * MIB}") as process:
        (region,) = [r for r in regions() if r["pid"] == process.pid]
        (row,) = [r for r in rows() if r[0] == str(process.pid)]
    assert region["bytes"] == 8 * MIB and region["allocated_bytes"] == 4 * MIB, region
    assert sum(n["bytes"] for n in region["nodes"]) == 4 * MIB, region
    assert region["pinned_bytes"] <= 4 * MIB, region
    assert row[3:6] == ["lazy", "8M", "4M"], row


@case
def processes_come_in_order_and_go_when_killed():
    with holder("first", 2 * MIB) as first, holder("second", 2 * MIB, 2 * MIB) as second:
        pids = [r["pid"] for r in regions()]
        assert pids == sorted(pids), pids
        assert pids.count(first.pid) == 1 and pids.count(second.pid) == 2, pids
        assert regions() == regions()
        second.send_signal(signal.SIGKILL)
        second.wait()
        pids = [r["pid"] for r in regions()]
        assert first.pid in pids and second.pid not in pids, pids


@case
def a_command_cannot_write_to_the_terminal():
    """Anybody may call a process as they like."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(os.fsencode(folder), b"\033[31m\xffx")
        os.symlink(HOLDER, program)
        with holder("evil", 2 * MIB, program=program) as process:
            result = actmem("list")
            expect(result, 0)
            assert "\033" not in result.stdout, ascii(result.stdout)
            told = [r.split() for r in result.stdout.splitlines() if str(process.pid) in r]
            assert len(told) == 1 and "evil" in told[0], told
            (region,) = [r for r in regions() if r["pid"] == process.pid]
            assert region["command"].startswith("\033[31m?"), region


@contextlib.contextmanager
def opened(path):
    """Tells whether somebody has opened that file meanwhile."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(path), IN_OPEN) >= 0

    def was_opened():
        try:
            return bool(os.read(watch, 4096))
        except BlockingIOError:
            return False
    try:
        yield was_opened
    finally:
        os.close(watch)


@case
def what_only_bears_the_name_is_not_opened():
    """The root of a file system that is mounted nowhere can be called like a memfd."""
    if not ISOLATED:
        raise Skip("needs a mount namespace of its own")
    name = "memfd:actmem-stats (deleted)"
    with tempfile.TemporaryDirectory() as folder:
        mount("-t", "tmpfs", "tmpfs", folder)
        path = os.path.join(folder, name)
        os.mkfifo(path)
        place = os.open(path, os.O_PATH)
        with opened(path) as was_opened:
            subprocess.run(["umount", "--lazy", folder], check=True)
            assert os.readlink(f"/proc/self/fd/{place}") == "/" + name
            rows()
            assert not was_opened()
            os.close(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK))
            assert was_opened()
        os.close(place)


@case
def too_few_descriptors_are_an_error():
    with holder("hidden", 2 * MIB):
        for name in ("list", "waits"):
            result = actmem(name, prefix=["prlimit", "--nofile=5"])
            expect(result, 1, "", ["publishes", "Too many open files"])


@case
def without_capabilities_it_says_what_it_leaves_out():
    result = actmem("list", prefix=NO_CAPABILITIES)
    expect(result, 0, None, "other users' regions")
    result = actmem("list", "--json", prefix=NO_CAPABILITIES)
    expect(result, 0)
    assert json.loads(result.stdout)["all_users"] is False


@case
def other_users_see_nothing_of_it():
    with holder("secret", 2 * MIB) as process, public_copy() as program:
        assert process.pid in [r["pid"] for r in regions()]
        theirs = regions(prefix=stranger(), program=program, cwd="/")
        assert process.pid not in [r["pid"] for r in theirs]


@case
def a_forbidden_driver_is_told_of():
    with forbidden_device():
        result = actmem("list", prefix=NO_CAPABILITIES)
        expect(result, 0, None, ["regions of the driver are not shown", "/dev/actmem"])


if __name__ == "__main__":
    main()
