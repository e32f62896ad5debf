# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem waits: what a process waits for that goes no further."""
import contextlib
import json
import os
import signal
import subprocess

from harness import (BUILD, NO_CAPABILITIES, actmem, clean_environment, expect, holder,
                     public_copy, scratch, stranger, wait_for)
from tap import case, main

MIB = 1 << 20
HEADINGS = "PID USER COMMAND THREAD WAITS FOR SECONDS REQUESTS BYTES WHAT".split()
WAITER = os.path.join(BUILD, "tests", "tools", "waiter")
CUDA = os.path.join(BUILD, "tests", "cuda", "standin")


def waits(process, **options):
    result = actmem("waits", "--json", **options)
    expect(result, 0)
    return [w for w in json.loads(result.stdout)["waits"] if w["pid"] == process.pid]


def threads(process):
    return {int(thread) for thread in os.listdir(f"/proc/{process.pid}/task")}


@contextlib.contextmanager
def waiter(what, folder):
    """A process that waits for it, and goes on when its input is closed."""
    environment = clean_environment(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="4K",
                                    ACTMEM_ALLOW="unlocked", LD_LIBRARY_PATH=CUDA)
    with subprocess.Popen([WAITER, what, folder], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def seen(what, folder, process):
    """The line of that kind, when it is there."""
    def found():
        return [w for w in waits(process) if w["for"] == what]
    wait_for(found)
    (line,) = found()
    assert line["command"] == "waiter" and line["uid"] == os.getuid(), line
    if what in ("read", "write"):
        assert line["thread"] is None and line["requests"] >= 1, line
        assert line["what"] == folder, line
    else:
        assert line["thread"] in threads(process) and line["requests"] is None, line
    assert line["bytes"] >= MIB, line
    return line


def goes_on(process):
    process.stdin.close()
    assert process.stdout.readline() == "done\n"
    wait_for(lambda: [w["for"] for w in waits(process)] == ["nothing"])
    (line,) = waits(process)
    assert line["for"] == "nothing" and line["seconds"] >= 0, line
    assert [line[k] for k in ("thread", "requests", "bytes", "what")] == [None] * 4, line


@case
def a_read_that_does_not_end():
    with scratch() as folder, waiter("read", folder) as process:
        first = seen("read", folder, process)
        block = seen("block", folder, process)
        assert block["what"].startswith("block ") and block["bytes"] == MIB, block
        assert seen("read", folder, process)["seconds"] > first["seconds"]
        goes_on(process)


@case
def a_write_that_does_not_end_and_who_waits_for_its_memory():
    with scratch() as folder, waiter("write", folder) as process:
        seen("write", folder, process)
        assert seen("memory", folder, process)["what"].startswith("block ")
        goes_on(process)


@case
def memory_that_another_thread_has():
    with scratch() as folder, waiter("memory", folder) as process:
        line = seen("memory", folder, process)
        assert line["what"] == "block 4" and line["bytes"] == MIB, line
        assert [w["for"] for w in waits(process)] == ["memory"]
        goes_on(process)


@case
def whatever_else_does_not_end():
    """CUDA's calls that register a region and let go of it, pages, what the program itself waits
    for, and a file that is allocated."""
    for mode, wanted, what in (("region", "region", "store"), ("register", "register", "store"),
                               ("unregister", "register", "store"),
                               ("device", "device", "GPU 7"), ("file", "file", None)):
        with scratch() as folder, waiter(mode, folder) as process:
            assert seen(wanted, folder, process)["what"] == (what or folder), mode
            goes_on(process)


@case
def a_process_that_is_stopped_is_seen_as_it_was():
    with scratch() as folder, waiter("read", folder) as process:
        seen("block", folder, process)
        process.send_signal(signal.SIGSTOP)
        seen("block", folder, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not waits(process)


@case
def the_table_tells_the_same():
    with scratch() as folder, waiter("memory", folder) as process:
        line = seen("memory", folder, process)
        result = actmem("waits")
        expect(result, 0)
        headings, *rows = result.stdout.splitlines()
        assert headings.split() == HEADINGS, headings
        (row,) = [r.split() for r in rows if r.split()[0] == str(process.pid)]
        assert row[2:5] == ["waiter", str(line["thread"]), "memory"], row
        assert row[6:] == ["-", "1M", "block", "4"], row


@case
def who_cannot_return_memory_is_told():
    with scratch() as folder, waiter("memory", folder) as process:
        seen("memory", folder, process)
        for limit, words in (("max", None), ("2M", "no: none of its stores spills")):
            expect(actmem("limit", "--json", "--pid", str(process.pid), limit), 0)
            told = json.loads(actmem("waits", "--json").stdout)["surplus"]
            lines = actmem("waits", "--bytes").stdout.split("The usage exceeds a limit.")[1:]
            assert len(told) == len(lines) == bool(words), (limit, told, lines)
        assert told[0]["pid"] == process.pid and told[0]["surplus_bytes"] == 2 * MIB, told
        assert told[0]["can_return"] is False, told
        row = lines[0].splitlines()[-1].split(maxsplit=5)
        assert row[0] == str(process.pid) and row[3:] == [str(4 * MIB), str(2 * MIB), words], row
        goes_on(process)


@case
def other_users_see_nothing_of_it():
    with holder("secret", 2 * MIB) as process, public_copy() as program:
        assert waits(process)
        assert not waits(process, prefix=stranger(), program=program, cwd="/")
    result = actmem("waits", prefix=NO_CAPABILITIES)
    expect(result, 0, None, "other users' processes")


if __name__ == "__main__":
    main()
