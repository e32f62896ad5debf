# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The command on the driver, in a booted kernel of two nodes: 6.12, or the one
that ACTMEM_TEST_KERNEL names."""
import functools
import json
import os
import re
import subprocess

from fleet import FORMULAS
from harness import ACTMEM, ACTMEM_BENCH, BUILD, HOLDER, clean_environment
from tap import case, main

MIB = 1 << 20
KERNEL = os.environ.get("ACTMEM_TEST_KERNEL", "6.12")
LIBRARIES = os.path.join(BUILD, "lib")
HOLD = ["--", HOLDER, "held", str(8 * MIB), str(4 * MIB), "--"]
NAMED = "--name job --heap-grow 4M --nodes 1 --"
PROGRAMS = {
    "info": [ACTMEM, "info", "--json"],
    "list": [ACTMEM, "run", "--backend", "driver", "--nodes", "1", *HOLD, ACTMEM, "list", "--json"],
    "waits": [ACTMEM, "run", "--backend", "driver", "--nodes", "1", *HOLD, ACTMEM, "waits",
              "--json"],
    "doctor": ["/bin/sh", "-c",
               f"{ACTMEM} doctor --json; cd /sys/class/misc/actmem && echo 32M >user_limit_bytes && "
               f"echo {8 * MIB} >node1/pool_bytes && while read ready <node1/pool_free_bytes && "
               f"[ $ready != {8 * MIB} ]; do :; done; {ACTMEM} doctor --json; "
               "echo max >user_limit_bytes && echo 0 >node1/pool_bytes"],
    # Node 0 has no huge block but in its movable zone.
    "broken": ["/bin/sh", "-c",
               "{ echo 'Node 0, zone Normal 9 9 9 9 9 9 9 9 900 0 0'; "
               "echo 'Node 0, zone Movable 0 0 0 0 0 0 0 0 0 0 900'; "
               "echo 'Node 1, zone Normal 0 0 0 0 0 0 0 0 0 900 0'; } >/tmp/blocks; "
               f"{HOLDER} instead /tmp/blocks /proc/buddyinfo -- {ACTMEM} doctor --json; "
               "[ $? = 1 ]"],
    "older": ["/bin/sh", "-c",
              f"echo 0.0.9 >/tmp/version; {HOLDER} instead /tmp/version /sys/module/actmem/version "
              f"-- {ACTMEM} doctor --json || :"],
    "held": [ACTMEM, "run", "--nodes", "0,1", "--policy", "interleave", *HOLD, ACTMEM, "info",
             "--json"],
    # Lines that begin with # are the machine's.
    "exporter": ["/bin/sh", "-c",
                 f"{ACTMEM} run --backend driver --nodes 1 {' '.join(HOLD)} "
                 f"{ACTMEM} exporter --textfile /tmp/metrics && "
                 "while IFS= read -r line; do echo \"|$line\"; done </tmp/metrics"],
    "table": [ACTMEM, "run", "--verbose", "--nodes", "1", *HOLD, ACTMEM, "list"],
    "pool": ["/bin/sh", "-c",
             f"cd /sys/class/misc/actmem/node1 && echo {8 * MIB} >pool_bytes || exit; "
             f"while read ready <pool_free_bytes && [ $ready != {8 * MIB} ]; do :; done; "
             f"{ACTMEM} info --json && {ACTMEM} info && "
             f"{ACTMEM} run --nodes 1 -- {HOLDER} held {4 * MIB} -- {ACTMEM} info --json && "
             f"echo 0 >pool_bytes"],
    "limits": ["/bin/sh", "-c",
               "cd /sys/class/misc/actmem && echo 32M >user_limit_bytes && "
               "echo 64M >node1/limit_bytes && "
               f"{ACTMEM} run --backend driver --nodes 1 {' '.join(HOLD)} "
               f"/bin/sh -c '{ACTMEM} info --json && {ACTMEM} info --bytes' && "
               "echo max >user_limit_bytes && echo max >node1/limit_bytes"],
    # The pool's page is in hand, or not yet zero, for a moment.
    "settings": [HOLDER, "mount", "/act", "size=16M", "--", "/bin/sh", "-c",
                 f"{ACTMEM} pool --node 1 8M && {ACTMEM} limit --user 32M --nodes 1 64M && "
                 "cd /sys/class/misc/actmem && while read ready <node1/pool_free_bytes && "
                 f"[ $ready != {8 * MIB} ]; do :; done; "
                 f"{ACTMEM} run --nodes 1 -- {HOLDER} held {4 * MIB} -- "
                 f"/bin/sh -c '{ACTMEM} pool --json; {ACTMEM} pool; {ACTMEM} limit --json; "
                 f"{ACTMEM} limit'; {ACTMEM} pool --nodes 0,1 0 && "
                 f"{ACTMEM} limit --user max --nodes 1 max --json"],
    "agree": ["/bin/sh", "-c",
              f"{ACTMEM} run --backend driver --nodes 0,1 --policy interleave {' '.join(HOLD)} "
              f"/bin/sh -c '{ACTMEM} list --json && for file in /proc/$PPID/fdinfo/* "
              "/sys/class/misc/actmem/node*/region_bytes; do "
              "while read -r line; do echo \"$line\"; done <$file; done'"],
    "refused": ["/bin/sh", "-c",
                "cd /sys/class/misc/actmem && echo 0 >user_limit_bytes; "
                f"{HOLDER} limited {ACTMEM} run --backend driver -- {ACTMEM} --version; "
                "echo max >user_limit_bytes; echo 0 >node1/limit_bytes; "
                f"{ACTMEM} run --backend driver --nodes 1 -- {ACTMEM} --version; "
                "echo max >node1/limit_bytes"],
    "contained": ["/bin/sh", "-c",
                  f"contained='{HOLDER} contained {ACTMEM}'; run='--backend memfd --pages 4K'; "
                  f"$contained run -- {ACTMEM} --version; "
                  f"$contained run $run --allow node -- {ACTMEM} --version; "
                  f"for more in --strict '--allow any --nodes 1'; do "
                  f"$contained run $run $more -- {ACTMEM} --version; echo status $?; done; "
                  f"$contained doctor --json; [ $? = 1 ]"],
    "names": [HOLDER, "mount", "/act", "size=16M", "--", "/bin/sh", "-c",
              f"{ACTMEM} run {NAMED} {HOLDER} heap {MIB} -- /bin/sh -c 'kill -9 $PPID'; "
              f"{ACTMEM} list --json; "
              f"{ACTMEM} prune --json --older 1h; {ACTMEM} prune --json --dry-run; "
              f"{ACTMEM} run {NAMED} {HOLDER} heap {MIB} -- "
              f"/bin/sh -c '{ACTMEM} list --json; {ACTMEM} list; {ACTMEM} info --json; "
              f"{ACTMEM} info; {ACTMEM} run {NAMED} {ACTMEM} --version || echo refused'; "
              f"{ACTMEM} run --name job2 --heap-grow 64M -- {ACTMEM} --version || echo full; "
              f"{ACTMEM} run {NAMED} {HOLDER} heap {MIB} -- {ACTMEM} prune --json; "
              f"{ACTMEM} prune --json; {ACTMEM} prune; {ACTMEM} list --json"],
    # Standard error is a terminal there, which progress is shown on.
    "bench": ["/bin/sh", "-c", f"{ACTMEM} bench --json --backend driver --memory 4M --seconds 0 "
              "2>/dev/null"],
    "replay": ["/bin/sh", "-c", f"{ACTMEM} replay --json --backend driver --scale 1/512 --steps 2 "
               "--compute-ms-per-layer 0 --budget 4M --spill / --allow-buffered 2>/dev/null"],
    "after": [ACTMEM, "list", "--json"],
}


@functools.cache
def outputs():
    """What the programs print, all of them in one machine."""
    words = ["tests/vm/run", "--kernel", KERNEL, "--numa", "2", "--memory", "2G",
             "--parameter", "movablecore=256M",
             "--env", f"LD_LIBRARY_PATH={LIBRARIES}"]
    for file in (ACTMEM, ACTMEM_BENCH, HOLDER, os.path.join(LIBRARIES, "libactmem.so.0"),
                 os.path.join(LIBRARIES, "libactmem_preload.so")):
        words += ["--file", file]
    separator = "--"
    for program in PROGRAMS.values():
        words += [separator, *program]
        separator = "--and"
    result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False,
                            env=clean_environment(LD_LIBRARY_PATH=LIBRARIES))
    assert result.returncode == 0, result.stdout
    parts = re.split(r"^# (?:actmem|sh|holder)\n", result.stdout, flags=re.MULTILINE)[1:]
    assert len(parts) == len(PROGRAMS), result.stdout
    return {name: re.sub(r"^# .*\n", "", part, flags=re.MULTILINE)
            for name, part in zip(PROGRAMS, parts)}


def values(name):
    """The JSON values that a program prints, and the lines between them."""
    text, found, lines, decoder = outputs()[name].lstrip(), [], [], json.JSONDecoder()
    while text:
        if text.startswith(("{", "[")):
            value, end = decoder.raw_decode(text)
            found.append(value)
            text = text[end:]
        else:
            line, _, text = text.partition("\n")
            lines.append(line)
    return found, lines


@case
def info_on_the_driver():
    info = json.loads(outputs()["info"])
    assert info["backend"] == "driver", info
    driver = info["driver"]
    with open(os.path.join(os.path.dirname(BUILD), "VERSION"), encoding="ascii") as file:
        assert driver["version"] == file.read().strip(), info
    assert driver["error"] is None and driver["abi"] == info["library"]["abi"], info
    assert driver["regions"] == 0 and driver["lingering_regions"] == 0, info
    assert driver["cgroup_limits"] == (KERNEL == "dmem"), info
    assert [n["region_bytes"] for n in info["nodes"]] == [0, 0], info
    assert [n["poisoned_bytes"] for n in info["nodes"]] == [0, 0], info
    assert 0 < info["memory"]["available_bytes"] < info["memory"]["total_bytes"], info


@case
def list_on_the_driver():
    listed = json.loads(outputs()["list"])
    assert listed["all_users"] is True
    regions = listed["regions"]
    assert [r["bytes"] for r in regions] == [8 * MIB, 4 * MIB], regions
    for region in regions:
        assert region["backend"] == "driver" and region["pages"] == "2M", region
        assert region["page_bytes"] == 2 * MIB, region
        assert region["name"] == "held" and region["command"] == "holder", region
        assert region["nodes"] == [{"node": 1, "bytes": region["bytes"]}], region
        assert region["lingering"] is False and region["uid"] == 0, region


@case
def what_holds_regions_of_the_driver_waits_for_nothing():
    (told,) = json.loads(outputs()["waits"])["waits"]
    assert told["command"] == "holder" and told["for"] == "nothing", told
    assert told["seconds"] >= 0, told


@case
def the_doctor_finds_the_driver_and_its_settings():
    before, after = ({each["check"]: each for each in found} for found in values("doctor")[0])
    for found in (before, after):
        assert found["driver"]["state"] == "ok", found
        assert found["contiguous memory"]["state"] in ("ok", "fix"), found
        # 128 MiB of each node.
        assert found["movable memory"]["state"] == "note", found
        told = re.search(r"^node 1: regions cannot use ([0-9.]+)M of the free memory",
                         found["movable memory"]["finding"])
        assert 64 < float(told[1]) <= 128, found
        assert found["NUMA balancing"]["state"] in ("ok", "fix"), found
    assert before["pool"]["state"] == "fix" and "no warm pool" in before["pool"]["finding"]
    assert before["limit"]["state"] == "ok", before
    assert after["pool"]["state"] == "ok" and "8M are ready" in after["pool"]["finding"], after
    assert after["limit"]["state"] == "note" and "32M" in after["limit"]["finding"], after


@case
def the_doctor_finds_free_memory_without_huge_blocks():
    found = json.loads(outputs()["broken"])
    (told,) = [each for each in found if each["check"] == "contiguous memory"]
    assert told["state"] == "fix" and "compact_memory" in told["fix"], told
    assert told["finding"].startswith("node 0: only 0B are in blocks of 2 MiB"), told
    checks = [each["check"] for each in found]
    assert checks.index("contiguous memory") < checks.index("movable memory"), checks


@case
def the_doctor_finds_a_module_of_another_version():
    (findings,), _ = values("older")
    told, = (each for each in findings if each["check"] == "driver")
    assert told["state"] == "note" and "modprobe -r actmem" in told["fix"], told
    assert told["finding"].startswith("the loaded module is 0.0.9, the library is 0.1"), told


@case
def info_counts_what_is_held():
    info = json.loads(outputs()["held"])
    assert info["driver"]["regions"] == 2, info
    assert [n["region_bytes"] for n in info["nodes"]] == [6 * MIB, 6 * MIB], info


@case
def info_shows_the_pools():
    (info, lent), lines = values("pool")
    assert [n["pool"] for n in info["nodes"]] == [
        {"total_bytes": 0, "free_bytes": 0, "lent_bytes": 0},
        {"total_bytes": 8 * MIB, "free_bytes": 8 * MIB, "lent_bytes": 0}], info
    table = "\n".join(lines)
    assert "FREE/LENT/POOL" in table and "8M/0B/8M" in table, table
    assert "the driver has 0B in regions, 8M ready in pools, 0B that failed" in table, table
    pool = lent["nodes"][1]["pool"]
    assert pool["lent_bytes"] == 4 * MIB and pool["total_bytes"] == 8 * MIB, pool


@case
def info_shows_limits():
    (info,), lines = values("limits")
    assert info["driver"]["user_limit_bytes"] == 32 * MIB, info
    assert [(n["region_bytes"], n["limit_bytes"]) for n in info["nodes"]] == [
        (0, None), (12 * MIB, 64 * MIB)], info
    lines = [line.split() for line in lines]
    assert ["Driver's", "user", "limit", str(32 * MIB)] in lines, lines
    assert any(line[3:5] == [str(12 * MIB), str(64 * MIB)] for line in lines), lines


@case
def list_fdinfo_and_sysfs_agree():
    (listed,), lines = values("agree")
    rest = "\n".join(lines)
    allocated = [region["allocated_bytes"] for region in listed["regions"]]
    assert allocated == [8 * MIB, 4 * MIB], listed
    for region in listed["regions"]:
        assert sum(n["bytes"] for n in region["nodes"]) == region["allocated_bytes"], listed
    told = dict(re.findall(r"^actmem-id:\t(\d+)\n(?:actmem-(?!allocated).*\n)*"
                           r"actmem-allocated:\t(\d+)$", rest, flags=re.MULTILINE))
    assert told == {str(r["id"]): str(r["allocated_bytes"]) for r in listed["regions"]}, rest
    assert lines[-2:] == [str(6 * MIB)] * 2, rest


@case
def a_scrape_has_as_many_samples_as_the_formula_says():
    lines = [line[1:] for line in outputs()["exporter"].splitlines() if line.startswith("|")]
    samples = [line for line in lines if line.startswith("actmem_")]
    # This processor has no pages of 1G, of which each node would have two samples.
    assert len(samples) == FORMULAS["scrape_samples"](1, 2, 0) - 2 * 2, samples
    left = FORMULAS["scrape_bytes"](1, 2) - sum(len(line) + 1 for line in lines)
    assert 0 < left < 2000, (left, lines)


@case
def refusals_name_the_command_that_raises_the_limit():
    user, node = [line for line in outputs()["refused"].splitlines() if "actmem run" in line]
    assert "0 B left, but 2.0 MiB are needed" in user and "`actmem limit --user SIZE`" in user, user
    assert "node 1" in node and "`actmem limit --nodes 1 SIZE`" in node, node


@case
def the_table_on_the_driver():
    lines = outputs()["table"].splitlines()
    assert any("driver: " in line for line in lines), lines
    assert any("2M pages on node 1" in line for line in lines), lines
    rows = [line.split() for line in lines if line.rstrip().endswith(" driver")]
    assert [row[2:8] for row in rows] == [["holder", "held", "8M", "8M", "2M", "1:8M"],
                                          ["holder", "held", "4M", "4M", "2M", "1:4M"]], lines


@case
def pool_and_limit_set_and_show():
    (pools, limits, after), lines = values("settings")
    lines = [line.split() for line in lines]
    (node,) = [node for node in pools["nodes"] if node["node"] == 1]
    assert (node["pool_bytes"], node["ready_bytes"], node["lent_bytes"],
            node["region_bytes"]) == (8 * MIB, 4 * MIB, 4 * MIB, 4 * MIB), pools
    assert 0 < node["free_bytes"] < node["total_bytes"], pools
    assert 0 < pools["memory"]["available_bytes"] < pools["memory"]["total_bytes"], pools
    assert any(line[:1] == ["1"] and line[3:] == ["8M", "4M", "4M", "4M"] for line in lines), lines
    assert any("(MemAvailable):" in line for line in lines), lines
    assert limits["user_limit_bytes"] == 32 * MIB, limits
    assert limits["nodes"] == [{"node": 0, "limit_bytes": None, "used_bytes": 0},
                               {"node": 1, "limit_bytes": 64 * MIB, "used_bytes": 4 * MIB}]
    assert limits["mounts"] == [{"path": "/act", "size_bytes": 16 * MIB, "used_bytes": 0}], limits
    assert limits["cgroups"] == ([] if KERNEL == "dmem" else None), limits
    for row in (["each", "user", "32M", "-"], ["node", "0", "max", "0B"],
                ["node", "1", "64M", "4M"], ["mount", "/act", "16M", "0B"]):
        assert any(line[:4] == row for line in lines), (row, lines)
    assert after["user_limit_bytes"] is None, after
    assert [each["limit_bytes"] for each in after["nodes"]] == [None, None], after


@case
def a_container_may_leave_the_nodes_to_the_kernel():
    (doctor,), lines = values("contained")
    version = [number for number, line in enumerate(lines) if line.startswith("actmem 0")]
    assert len(version) == 2, lines
    assert "on nodes that the kernel chose" in lines[version[0] - 1], lines
    assert lines.count("status 1") == 2, lines
    assert sum("CAP_SYS_NICE" in line for line in lines[version[1]:]) == 2, lines
    placed, = (each for each in doctor if each["check"] == "placement")
    assert placed["state"] == "fix" and "SYS_NICE" in placed["fix"], placed


@case
def a_name_outlives_its_program():
    (ended, young, unused, running, info, used, removed, left), lines = values("names")
    ready = [line for line in lines if line.startswith("ready")]
    assert ready == ["ready wrote", "ready found", "ready found"], lines
    (before,), (now,) = ended["regions"], running["regions"]
    assert before["named"] is True and before["name"] == "job.0", before
    assert before["pid"] is None and before["path"] == "/act/job.0", before
    assert 0 <= before["age_seconds"] < 3600 and now["age_seconds"] is None, (before, now)
    assert now["path"] == "/act/job.0" and now["named"] is True, now
    assert now["pid"] is not None and now["command"] == "holder", now
    assert now["nodes"] == [{"node": 1, "bytes": 4 * MIB}], now
    assert now["id"] == before["id"] and now["demand_faults"] == 0, now
    assert info["mounts"] == [{"path": "/act", "size_bytes": 16 * MIB,
                               "used_bytes": 4 * MIB}], info["mounts"]
    assert any(line.split()[-2:] == ["/act/job.0", "driver"] for line in lines), lines
    assert ["/act", "16M", "4M"] in [line.split() for line in lines], lines
    # Only what no process has goes, and what is old enough.
    assert young == [] == used and left["regions"] == [], (young, used, left)
    for found in (unused, removed):
        assert [(row["path"], row["bytes"], row["uid"]) for row in found] == [
            ("/act/job.0", 4 * MIB, 0)], found
    assert ["FILE", "BYTES", "USER", "AGE"] in [line.split() for line in lines], lines


@case
def refusals_of_names_say_what_to_do():
    lines = values("names")[1]
    (locked, full) = [line for line in lines if line.startswith("actmem run: ")]
    assert "/act/job.0 is in use by process" in locked and "(holder)" in locked, locked
    assert "12.0 MiB left, but 64.0 MiB are needed" in full and "remount,size=" in full and "/act" in full, full
    assert "refused" in lines and "full" in lines, lines


@case
def nothing_is_left():
    assert json.loads(outputs()["after"])["regions"] == []


@case
def bench_measures_each_node_and_all_pairs():
    seen = json.loads(outputs()["bench"])
    assert seen["backend"] == "driver", seen
    pairs = [(row["from"], row["to"]) for row in seen["copying"]]
    assert pairs == [(0, 0), (0, 1), (1, 0), (1, 1)], pairs
    assert all(row["bandwidth"] > 0 for row in seen["copying"]), seen


@case
def replay_brings_every_byte_back():
    seen = json.loads(outputs()["replay"])
    assert seen["backend"].startswith("driver") and seen["wrong_blocks"] == 0, seen
    assert len(seen["steps"]) == 2 and seen["memory"]["overhead"] == 1, seen
    assert all(step["filled_bytes"] > 0 for step in seen["steps"]), seen


if __name__ == "__main__":
    main()
