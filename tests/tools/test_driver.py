# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The command on the driver, in a booted kernel of two nodes."""
import functools
import json
import os
import re
import subprocess

from harness import ACTMEM, BUILD, HOLDER, clean_environment
from tap import case, main

MIB = 1 << 20
LIBRARIES = os.path.join(BUILD, "lib")
HOLD = ["--", HOLDER, "held", str(8 * MIB), str(4 * MIB), "--"]
PROGRAMS = {
    "info": [ACTMEM, "info", "--json"],
    "list": [ACTMEM, "run", "--backend", "driver", "--nodes", "1", *HOLD, ACTMEM, "list", "--json"],
    "held": [ACTMEM, "run", "--nodes", "0,1", "--policy", "interleave", *HOLD, ACTMEM, "info",
             "--json"],
    "table": [ACTMEM, "run", "--verbose", "--nodes", "1", *HOLD, ACTMEM, "list"],
    "pool": ["/bin/sh", "-c",
             f"cd /sys/class/misc/actmem/node1 && echo {8 * MIB} >pool_bytes || exit; "
             f"while read ready <pool_free_bytes && [ $ready != {8 * MIB} ]; do :; done; "
             f"{ACTMEM} info --json && {ACTMEM} info && echo 0 >pool_bytes"],
    "after": [ACTMEM, "list", "--json"],
}


@functools.cache
def outputs():
    """What the programs print, all of them in one machine."""
    words = ["tests/vm/run", "--numa", "2", "--env", f"LD_LIBRARY_PATH={LIBRARIES}"]
    for file in (ACTMEM, HOLDER, os.path.join(LIBRARIES, "libactmem.so.0")):
        words += ["--file", file]
    separator = "--"
    for program in PROGRAMS.values():
        words += [separator, *program]
        separator = "--and"
    result = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, check=False,
                            env=clean_environment(LD_LIBRARY_PATH=LIBRARIES))
    assert result.returncode == 0, result.stdout
    parts = re.split(r"^# (?:actmem|sh)\n", result.stdout, flags=re.MULTILINE)[1:]
    assert len(parts) == len(PROGRAMS), result.stdout
    return {name: re.sub(r"^# .*\n", "", part, flags=re.MULTILINE)
            for name, part in zip(PROGRAMS, parts)}


@case
def info_on_the_driver():
    info = json.loads(outputs()["info"])
    assert info["backend"] == "driver", info
    driver = info["driver"]
    assert driver["error"] is None and driver["abi"] == info["library"]["abi"], info
    assert driver["regions"] == 0 and driver["lingering_regions"] == 0, info
    assert [n["region_bytes"] for n in info["nodes"]] == [0, 0], info


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
def info_counts_what_is_held():
    info = json.loads(outputs()["held"])
    assert info["driver"]["regions"] == 2, info
    assert [n["region_bytes"] for n in info["nodes"]] == [6 * MIB, 6 * MIB], info


@case
def info_shows_the_pools():
    info, end = json.JSONDecoder().raw_decode(outputs()["pool"].lstrip())
    assert [n["pool"] for n in info["nodes"]] == [
        {"total_bytes": 0, "free_bytes": 0},
        {"total_bytes": 8 * MIB, "free_bytes": 8 * MIB}], info
    table = outputs()["pool"].lstrip()[end:]
    assert "FREE/POOL" in table and "8M/8M" in table, table


@case
def the_table_on_the_driver():
    lines = outputs()["table"].splitlines()
    assert any("driver: " in line for line in lines), lines
    assert any("2M pages on node 1" in line for line in lines), lines
    rows = [line.split() for line in lines if line.rstrip().endswith(" driver")]
    assert [row[2:7] for row in rows] == [["holder", "held", "8M", "2M", "1:8M"],
                                          ["holder", "held", "4M", "2M", "1:4M"]], lines


@case
def nothing_is_left():
    assert json.loads(outputs()["after"])["regions"] == []


if __name__ == "__main__":
    main()
