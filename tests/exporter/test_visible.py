# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Whether the exporter and `actmem list` say that they see all users. It runs in the namespaces of
the machine, because in others nobody does."""
import json
import os
import re
import shutil
import subprocess

from harness import (BUILD, HOLDER, actmem, clean_environment, expect, holder, public_copy,
                     stranger)
from metrics import parse, printed, value
from tap import Skip, case, main

MIB = 1 << 20
SERVICE = os.path.join(os.path.dirname(BUILD), "packaging", "actmem-exporter.service")
# Inode numbers of the initial namespaces.
FIRST = {"pid": 4026531836, "user": 4026531837}


def in_first_namespaces():
    for name, number in FIRST.items():
        if os.stat(f"/proc/self/ns/{name}").st_ino != number:
            raise Skip(f"needs the {name} namespace of the machine")


@case
def the_capabilities_of_the_service_show_all_users():
    in_first_namespaces()
    with open(SERVICE, encoding="utf-8") as file:
        service = file.read()
    (line,) = re.findall(r"^CapabilityBoundingSet=(.+)", service, re.MULTILINE)
    kept = [f",+{name.removeprefix('CAP_').lower()}" for name in line.split()]

    def printed_with(capabilities):
        return parse(printed(prefix=["setpriv", "--bounding-set=-all" + "".join(capabilities),
                                     "--inh-caps=-all", "--no-new-privs"]))
    with public_copy() as program:
        folder = os.path.dirname(program)
        shutil.copy(HOLDER, folder)
        with subprocess.Popen([*stranger(), os.path.join(folder, "holder"), "his", str(2 * MIB)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env=clean_environment(
                                  ACTMEM_ALLOW="any",
                                  LD_LIBRARY_PATH=os.path.join(folder, "..", "lib"))) as process:
            assert process.stdout.readline() == "ready\n"
            samples = printed_with(kept)
            process.kill()
    assert value(samples, "actmem_region_bytes", pid=str(process.pid), uid="65534") == 2 * MIB
    assert value(samples, "actmem_all_users_visible") == 1
    for one in kept:
        fewer = printed_with(name for name in kept if name != one)
        assert value(fewer, "actmem_all_users_visible") == 0, one


@case
def a_user_sees_only_his_own():
    in_first_namespaces()
    assert value(parse(printed()), "actmem_all_users_visible") == 1
    with holder("secret", 2 * MIB) as process, public_copy() as program:
        result = actmem("exporter", "-t", "-", prefix=stranger(), program=program, cwd="/")
        expect(result, 0)
        samples = parse(result.stdout)
    assert value(samples, "actmem_all_users_visible") == 0
    assert str(process.pid) not in {labels.get("pid") for _, labels, _ in samples}
    value(samples, "actmem_node_memory_bytes", node="0")


@case
def a_container_does_not_see_all():
    in_first_namespaces()
    for options in (["--user", "--map-root-user"], ["--pid", "--fork", "--mount-proc"]):
        prefix = ["unshare", "--mount", *options]
        assert value(parse(printed(prefix=prefix)), "actmem_all_users_visible") == 0, options
        listed = actmem("list", "--json", prefix=prefix)
        expect(listed, 0)
        assert json.loads(listed.stdout)["all_users"] is False, options


if __name__ == "__main__":
    main()
