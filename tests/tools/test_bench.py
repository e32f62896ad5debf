# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem bench: what it measures, what it refuses, and that it leaves nothing."""
import contextlib
import json
import os
import signal
import subprocess

from harness import (ACTMEM, MEASURING, NO_CAPABILITIES, actmem, clean_environment, damage, expect,
                     mounted, scratch, spill_files, wait_for)
from tap import case, main

MIB = 1 << 20
SMALL = ("--memory", "4M", "--seconds", "0", "--allow", "any")


def bench(*arguments, **options):
    return actmem("bench", *SMALL, *arguments, **options)


def told(*arguments, **options):
    result = bench("--json", *arguments, **options)
    expect(result, 0)
    return json.loads(result.stdout)


@case
def it_measures_memory_without_a_disk():
    seen = told()
    assert seen["backend"] == "memfd" and seen["reason"].startswith("memfd: "), seen
    assert seen["spilling"] == [], seen
    copies = [row for row in seen["copying"] if row["from"] == row["to"] == 0]
    (copy,) = copies
    assert copy["bandwidth"] > 0 and copy["note"] is None and copy["rounds"] >= 3, copy
    assert copy["bytes"] == 4 * MIB, copy
    (small,) = (row for row in told("--pages", "4K")["copying"] if row["from"] == row["to"] == 0)
    assert small["pages"] == "4K" and copy["pages"] in ("2M", "thp", "4K"), (small, copy)
    assert " 4K " in bench("--pages", "4K", "--only", "copying").stdout


@case
def without_options_it_takes_the_best_memory():
    """It tells which, where no huge pages are reserved."""
    small = ("--memory", "4M", "--seconds", "0", "--only", "copying", "--json")
    result = actmem("bench", *small)
    expect(result, 0, None, ["memory is ", "actmem doctor", "ACTMEM_STRICT"])
    assert all(row["bandwidth"] > 0 for row in json.loads(result.stdout)["copying"]), result
    expect(actmem("bench", *small, environment=clean_environment(ACTMEM_STRICT="1")), 1, None,
           ["nr_hugepages"])


@case
def it_measures_each_disk_and_all_together():
    with scratch() as one, scratch() as other:
        rows = told("--spill", one, "--spill", other, "--block", "64K,1M",
                    "--file-bytes", "4M")["spilling"]
        assert not os.listdir(one) and not os.listdir(other)
    places = [[disk["path"] for disk in row["disks"]] for row in rows]
    assert places == [[one]] * 2 + [[other]] * 2 + [[one, other]] * 2, places
    assert [row["request_bytes"] for row in rows] == [64 << 10, MIB] * 3, rows
    for row in rows:
        assert row["spill_bandwidth"] > 0 and row["fill_bandwidth"] > 0, row
        assert row["direct"] is True and row["depth"] > 0 and row["note"] is None, row
        assert row["engine"].startswith(("io_uring", "workers")), row
        assert all(disk["device"] and disk["file_system"] for disk in row["disks"]), row


@case
def the_tables_tell_the_same():
    with scratch() as folder:
        result = bench("--spill", folder, "--block", "1M", "--file-bytes", "2M")
    expect(result, 0)
    first, *tables = result.stdout.split("\n\n")
    assert first.startswith("memfd: ") and len(tables) == 2, result.stdout
    for table, words in zip(tables, ("COPYING FROM TO", "SPILLING TO")):
        assert words in " ".join(table.splitlines()[0].split()), table
    assert folder in tables[1] and " yes " in tables[1], tables[1]


@case
def it_measures_only_what_it_is_told():
    with scratch() as folder:
        seen = told("--only", "spilling", "--spill", folder, "--block", "1M", "--file-bytes", "2M")
    assert [part for part in ("copying", "spilling") if seen[part]] == ["spilling"], seen
    result = bench("--only", "copying")
    expect(result, 0)
    assert "COPYING" in result.stdout and "SPILLING" not in result.stdout, result.stdout


@case
def it_measures_only_the_nodes_it_is_told():
    seen = told("--nodes", "0")
    assert {(row["from"], row["to"]) for row in seen["copying"]} == {(0, 0)}, seen
    for only in ((), ("--only", "copying")):
        expect(bench("--nodes", "1023", *only), 2, "", ["node 1023", "--nodes"])


@case
def values_that_are_wrong_are_named():
    for option, value in (("--memory", "1M"), ("--memory", "x"), ("--memory", "-1"),
                          ("--memory", ""), ("--seconds", "-1"), ("--seconds", "nan"),
                          ("--seconds", "1e3"), ("--block", "1000"), ("--block", "1M,"),
                          ("--block", "2G"), ("--file-bytes", "0"), ("--file-bytes", "9999999T")):
        expect(actmem("bench", option, value), 2, "", [option, "must be"])
    expect(actmem("bench", "--block", ",".join(["1M"] * 17)), 2, "", ["--block", "16"])
    for name in MEASURING:
        for option, value, variable in (("--backend", "disk", "ACTMEM_BACKEND"),
                                        ("--pages", "3M", "ACTMEM_PAGES"),
                                        ("--nodes", "0-", "ACTMEM_NODES"),
                                        ("--allow", "swap", "ACTMEM_ALLOW")):
            expect(actmem(name, option, value), 2, "", [variable, value])
        expect(actmem(name, "more"), 2, "", "'more'")
        expect(actmem(name, "--spill"), 2, "", "--spill")
    expect(actmem("bench", "--only", "all"), 2, "", ["--only", "all", "copying"])
    expect(actmem("bench", "--only", "spilling"), 2, "", "needs --spill")


@case
def a_folder_that_cannot_be_used_is_an_error():
    with scratch() as folder:
        missing = os.path.join(folder, "none")
        expect(bench("--spill", missing), 2, "", [missing, "No such file"])
    expect(bench("--spill", "/dev/null"), 2, "", "'/dev/null' is not a folder")
    expect(bench("--spill", "/proc", "--file-bytes", "2M"), 1, None, "/proc")


@case
def too_little_room_is_told():
    with mounted("size=8M") as folder:
        result = bench("--spill", folder, "--file-bytes", "32M", "--block", "1M", "--json",
                       "--allow-buffered")
        expect(result, 1, None, [folder, "no space for 32.0 MiB", "8.0 MiB free"])
        (row,) = json.loads(result.stdout)["spilling"]
        assert row["spill_bandwidth"] is None and "no space" in row["note"], row
        assert not os.listdir(folder)


@case
def the_limit_of_locked_memory_is_told():
    result = bench("--backend", "memfd", "--pages", "4K", "--allow", "node", "--json",
                   prefix=[*NO_CAPABILITIES, "prlimit", "--memlock=1048576:1048576"])
    expect(result, 1, None, ["copying", "RLIMIT_MEMLOCK"])
    (note,) = {row["note"] for row in json.loads(result.stdout)["copying"]}
    assert "RLIMIT_MEMLOCK" in note, note
    assert json.loads(result.stdout)["copying"][0]["pages"] is None


def whole_files(pid, folder, length):
    """Those that have been written: the first one only tells what its disk needs."""
    for path in spill_files(pid, folder):
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_size >= length:
                yield path


@case
def what_comes_back_wrong_is_told():
    with scratch() as folder:
        # It ends as soon as it sees that; on a busy machine that may be late.
        command = [ACTMEM, "bench", *SMALL, "--spill", folder, "--seconds", "10", "--block", "1M",
                   "--file-bytes", "64M", "--only", "spilling"]
        with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            found = []
            wait_for(lambda: found.extend(whole_files(process.pid, folder, 64 * MIB)) or found)
            damage(process, found[0])
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "is not what was written" in errors, errors
    assert errors.startswith("actmem bench: spilling: ") and folder in errors, errors


@case
def killed_it_leaves_no_file():
    with scratch() as folder:
        command = [ACTMEM, "bench", *SMALL, "--spill", folder, "--file-bytes", "2G"]
        with subprocess.Popen(command, env=clean_environment(), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE) as process:
            wait_for(lambda: spill_files(process.pid, folder))
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            assert process.stderr.read() == b""
        assert not os.listdir(folder)


if __name__ == "__main__":
    main()
