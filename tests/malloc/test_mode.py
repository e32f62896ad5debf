# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem run --malloc itself: what it sets, tells and refuses, and where it does nothing."""
import json
import os
import signal
import subprocess
import sys

from harness import ACTMEM, BUILD, actmem, clean_environment, expect
from tap import Skip, case, main

PRELOAD = os.path.join(BUILD, "lib", "libactmem_preload.so")
TESTS = os.path.join(BUILD, "tests", "malloc")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
# Whether a large block of a Python is the preload's, as the kernel tells.
ALLOCATE = """
import ctypes
def allocate(size):
    block = ctypes.c_void_p()
    assert not ctypes.CDLL(None).posix_memalign(ctypes.byref(block), 64, ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    return block
"""
ASK = ALLOCATE + """
block = allocate(4 << 20)
print("actmem-malloc" in open("/proc/self/maps").read())
"""


def run(*arguments, environment=None, **variables):
    return actmem("run", *arguments,
                  environment=environment or clean_environment(**variables))


def python(*options, **variables):
    return run(*options, "--", sys.executable, "-c", ASK, **variables)


@case
def large_blocks_are_ours_by_option_and_by_variable():
    assert python("--malloc").stdout == "True\n"
    assert python("-m", ACTMEM_MALLOC_MIN="8M").stdout == "False\n"
    assert python(ACTMEM_MALLOC="1").stdout == "True\n"
    assert python("--allow", "any", ACTMEM_MALLOC="0").stdout == "False\n"


@case
def the_preload_alone_does_nothing():
    for wanted in ({}, {"ACTMEM_MALLOC": "0", "ACTMEM_NODES": "x"}):
        result = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True,
                                env=clean_environment(LD_PRELOAD=PRELOAD, **wanted), check=True)
        assert result.stdout == "False\n" and not result.stderr, result


@case
def other_preloads_stay():
    other = os.path.join(TESTS, "counting.so")
    result = python("--malloc", LD_PRELOAD=other)
    expect(result, 0, "True\nother preload\n")


@case
def no_region_is_tried_unless_it_is_asked_for():
    environment = {"ACTMEM_BACKEND": "driver"}
    result = run("--malloc", "--", "true", ACTMEM_MALLOC_MIN="1M")
    expect(result, 0, "")
    if not os.path.exists("/dev/actmem"):
        expect(run("--malloc", "--", "true", **environment), 1, "", "/dev/actmem")
    for option, variable in (("--budget", "ACTMEM_BUDGET"), ("--spill", "ACTMEM_SPILL"),
                             ("--spill-limit", "ACTMEM_SPILL_LIMIT")):
        expect(run("--malloc", option, "wrong", "--", "true"), 2, "", variable)


def make_cgroup(limit):
    """A memory cgroup of this test, of version 2 or 1, as a file to which a process writes 0."""
    for root, name in (("/sys/fs/cgroup", "memory.max"),
                       ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
        folder = os.path.join(root, f"actmem-test-{os.getpid()}")
        if not os.access(root, os.W_OK) or not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        os.mkdir(folder)
        if os.path.exists(os.path.join(folder, name)):
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write(str(limit))
            return os.path.join(folder, "cgroup.procs")
        os.rmdir(folder)
    raise Skip("this user cannot make a memory cgroup")


@case
def freed_memory_is_the_kernels_when_a_cgroup_runs_short():
    processes = make_cgroup(1 << 30)
    try:
        result = subprocess.run(
            ["sh", "-c", f"echo 0 >{processes} && exec \"$@\"", "sh", ACTMEM, "run", "--malloc",
             "--", os.path.join(TESTS, "decay"), "pressure"],
            capture_output=True, text=True, check=False,
            env=clean_environment(ACTMEM_MALLOC_DECAY="never", ACTMEM_MALLOC_MIN="1M"))
    finally:
        os.rmdir(os.path.dirname(processes))
    assert not result.returncode and "ok 2" in result.stdout, result


@case
def verbose_tells_what_the_machine_permits():
    result = run("--malloc", "--verbose", "--", "true")
    assert result.returncode == 0, result
    with open(THP, encoding="ascii") as file:
        enabled = file.read().split("[")[1].split("]")[0]
    assert "blocks of 262144 bytes and more" in result.stderr, result
    assert f"transparent huge pages: {enabled}" in result.stderr, result
    assert ("get small pages" in result.stderr) == (enabled == "never"), result


@case
def a_process_without_huge_pages_is_told():
    disable = "import ctypes, os, sys\n" \
              "assert not ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE\n" \
              "os.execvp(sys.argv[1], sys.argv[1:])"
    result = actmem("run", "--malloc", "--", sys.executable, "-c", ASK,
                    prefix=[sys.executable, "-c", disable], environment=clean_environment())
    assert result.stdout == "True\n" and result.returncode == 0, result
    assert "get small pages" in result.stderr, result


@case
def wrong_values_are_refused():
    for variable, value in (("MIN", "0"), ("DECAY", "1s")):
        name = f"ACTMEM_MALLOC_{variable}"
        expect(run("--malloc", "--", "true", **{name: value}), 2, "", [name, f"'{value}'"])
    expect(run("--malloc", "--", "true", ACTMEM_MALLOC="yes"), 0, "")
    expect(run("--", "true", ACTMEM_MALLOC="yes"), 2, "", "ACTMEM_MALLOC is 'yes'")
    expect(run("--malloc", "--nodes", "1000", "--", "true"), 2, "",
           ["ACTMEM_NODES", "'1000'", "node"])
    expect(run("--malloc", "--policy", "bind", "--", "true"), 2, "", "ACTMEM_POLICY")
    # Without the command, the program runs and a line tells.
    result = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True,
                            env=clean_environment(LD_PRELOAD=PRELOAD, ACTMEM_MALLOC="1",
                                                  ACTMEM_MALLOC_MIN="x"), check=True)
    assert result.stdout == "False\n", result
    assert "ACTMEM_MALLOC_MIN is 'x'" in result.stderr, result


@case
def memory_is_on_the_node_that_was_asked_for():
    asked = ALLOCATE + 'block = allocate(8 << 20)\n' \
            'print(*(l for l in open("/proc/self/numa_maps") if "N1=" in l or "bind" in l))'
    result = run("--malloc", "--nodes", "0", "--", sys.executable, "-c", asked)
    expect(result, 0)
    lines = [line for line in result.stdout.splitlines()
             if "bind:0" in line and "N0=" in line]
    assert lines and "N1=" not in lines[0], result


@case
def a_program_with_its_own_malloc_keeps_it():
    expect(run("--malloc", "--", os.path.join(TESTS, "own_malloc")), 0, "allocated\n")


@case
def a_program_at_a_fixed_address_has_it():
    program = os.path.join(TESTS, "fixed")
    expect(run("--malloc", "--", program), 0, "pooled\n")
    expect(run("--allow", "any", "--", program), 0, "not pooled\n")


@case
def to_load_it_late_and_unload_it_does_nothing():
    load = f"""
import ctypes, _ctypes
library = ctypes.CDLL({PRELOAD!r})
{ASK}
_ctypes.dlclose(library._handle)
{ASK}
"""
    result = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True,
                            env=clean_environment(ACTMEM_MALLOC="1"), check=True)
    assert result.stdout == "False\nFalse\n" and not result.stderr, result


@case
def list_tells_what_processes_have_and_killing_leaves_nothing():
    hold = ALLOCATE + """
blocks = [allocate(4 << 20) for _ in range(5)]
for block in blocks[2:]:
    ctypes.CDLL(None).free(block)
print("ready", flush=True)
input()
"""
    with subprocess.Popen([ACTMEM, "run", "-m", "--", sys.executable, "-c", hold], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=clean_environment(ACTMEM_MALLOC_MIN="1M")) as process:
        assert process.stdout.readline() == "ready\n"
        listed = json.loads(actmem("list", "--json").stdout)["malloc"]
        table = actmem("list").stdout
        process.send_signal(signal.SIGKILL)
    found = [one for one in listed if one["pid"] == process.pid]
    assert len(found) == 1, listed
    assert found[0]["blocks"] == 2 and found[0]["uid"] == os.getuid(), found
    assert found[0]["block_bytes"] >= 8 << 20 and found[0]["pooled_bytes"] >= 12 << 20, found
    assert found[0]["refused_total"] == 0, found
    assert any("MALLOC BLOCKS" in line for line in table.splitlines()), table
    listed = json.loads(actmem("list", "--json").stdout)["malloc"]
    assert not [one for one in listed if one["pid"] == process.pid], listed


main()
