# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Claims of Kubernetes from their preparation to their end. Where the module is loaded, they are
mounts that containers use. Runs as root in namespaces, or a machine, of its own, and prints TAP:

    python3 tests/kube/test_claims.py BUILD
"""
import glob
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv.pop(1))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tools"), os.path.join(BUILD, "kube")]

from actmem_dra.claims import Claims  # noqa: E402
import busy  # noqa: E402
from api_server import MIB  # noqa: E402
from containers import container, podman  # noqa: E402
from kubelet import wait_for  # noqa: E402
from node import (COMMANDS, MOUNTS, SYSFS, Node, claimed, limit,  # noqa: E402
                  mounts, nothing_left, read, run_cases, usual_node, with_module,
                  without_module, write)
from tap import case  # noqa: E402


@case
def a_claim_of_another_uid_or_of_nothing_here_is_refused():
    with usual_node() as node:
        claim = Node.api.claim("other", ("node0", "8Mi"))
        empty = Node.api.claim("empty")
        for asked, words in ((dict(claim, uid="0000-else"), "no claim of this name with the UID 0000-else"),
                             (dict(claim, name="nowhere"), "no claim of this name"),
                             (empty, "the claim has no allocated memory on node node-1")):
            error = node.kubelet.prepare(asked)[asked["uid"]].error
            assert words in error, error
        for uid in ("../../etc", "", "a/b"):
            assert "is not a UID" in node.kubelet.unprepare(dict(claim, uid=uid))[uid]
        nothing_left(node)


@with_module
def a_container_has_a_region_in_its_claim_and_no_device():
    with usual_node() as node, limit("512M"):
        claim = Node.api.claim("one", ("node1", "64Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "sh", "-c", "ls /dev /run/actmem; env; stat -f "
                                    "-c '%b %S' /run/actmem/claim-*; ls -l /run/actmem/claim-*; "
                                    "grep actmem /proc/self/mounts; "
                                    f"cat {SYSFS}/node1/region_bytes")
            uid = claim["uid"]
            inside = f"/run/actmem/claim-{uid}"
            assert status == 0 and "ready wrote" in told, told
            for line in (f"ACTMEM_NAME={inside}/heap", "ACTMEM_STRICT=1", f"claim-{uid}",
                         "32 2097152", str(12 * MIB)):
                assert line in told.splitlines(), (line, told)
            assert "\nactmem\n" not in told and "heap.0" in told, told
            assert f" {inside} actmem rw,nosuid,nodev,noexec" in told, told
            assert ",size=64M,mode=1777,uid=0,gid=0,node=1,policy=bind" in mounts()[0], mounts()
            assert stat.S_IMODE(os.stat(MOUNTS).st_mode) == 0o700
        node.says(f"{MOUNTS}/claim-{uid}: files left: 2; removed")


SHOW = "env; grep actmem /proc/self/mounts; cd ${ACTMEM_NAME%/heap} && touch file && ls"


def in_podman(uid, ids, *command):
    told, status = podman(ids, tempfile.mkdtemp(dir=Node.where), Node.build, *command)
    lines = told.splitlines()
    assert status == 0 and f"ACTMEM_NAME=/run/actmem/claim-{uid}/heap" in lines, told
    assert "ACTMEM_STRICT=1" in lines and "file" in lines, told
    line, = [line for line in lines if f" /run/actmem/claim-{uid} " in line]
    assert "rw,nosuid,nodev,noexec" in line, told
    return told


@without_module
def podman_takes_a_claims_file():
    claims = Claims(MOUNTS, "/run/cdi", False)
    mount, spec = claims.paths("0000-a")
    os.mkdir(mount)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "none", mount], check=True)
    try:
        ids = claims.write_spec("0000-a", spec, mount, 2)
        for some in (ids, ids[:1]):
            assert " tmpfs " in in_podman("0000-a", some, "sh", "-c", SHOW)
            os.remove(f"{mount}/file")
    finally:
        claims.unprepare("0000-a")
    assert not os.path.exists(spec) and not os.path.exists(mount)


@with_module
def podman_runs_a_program_with_a_claim():
    node = Node()
    node.cdi = "/run/cdi"
    with node, limit("512M"):
        claim = Node.api.claim("podman", ("node0", "64Mi"))
        with claimed(node, claim):
            told = in_podman(claim["uid"], node.prepared(claim),
                             *node.heap(8, "sh", "-c", SHOW))
            assert "ready wrote" in told and " actmem rw," in told and "heap.1" in told, told


@with_module
def without_a_limit_of_users_the_limit_of_locked_memory_holds():
    with usual_node() as node:
        node.says("KiB of memory, so pods cannot have larger regions: on the node, run `actmem limit "
                  "--user SIZE")
        claim = Node.api.claim("locked", ("node0", "64Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "true")
            assert status and "RLIMIT_MEMLOCK" in told, told
            with limit("512M"):
                told, status = node.run(claim, "true")
            assert status == 0 and "ready wrote" in told, told


@with_module
def a_container_over_its_size_fails_in_words():
    with usual_node() as node, limit("512M"):
        claim = Node.api.claim("over", ("node0", "16Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "true", size=24)
            assert status and "ready" not in told, told
            assert "size=" in told and f"/run/actmem/claim-{claim['uid']}" in told, told


@with_module
def a_claim_of_two_nodes_is_one_mount_and_of_several_devices():
    with usual_node() as node:
        claim = Node.api.claim("both", ("node0", "16Mi"), ("node1", "33Mi"), ("node1", "1Gi"))
        with claimed(node, claim):
            answer = node.kubelet.prepare(claim)[claim["uid"]]
            assert [(list(device.request_names), device.pool_name, device.device_name)
                    for device in answer.devices] == [
                (["memory-0"], "node-1", "node0"), (["memory-1"], "node-1", "node1"),
                (["memory-2"], "node-1", "node1")], answer
            line, = mounts()
            assert f",size={16 + 32 + 1024}M," in line and ",node=0:1," in line, line
            ids = [cdi_id for device in answer.devices for cdi_id in device.cdi_device_ids]
            assert len(set(ids)) == 3, ids
            # All of them, and one: the same mount.
            for some in (ids, ids[1:2]):
                process = container(node.cdi, some, "cat", "/proc/self/mounts")
                told = process.communicate(timeout=60)[0]
                assert told.count(" /run/actmem/claim-") == 1, told


@with_module
def claims_at_once_do_not_depend_on_each_other():
    with usual_node() as node:
        claims = [Node.api.claim(f"at-once-{number}", ("node0", "8Mi")) for number in range(4)]
        bad = dict(claims[0], uid="0000-bad", name="no-such")
        with claimed(node, *claims):
            answers = node.kubelet.prepare(claims[0], bad, claims[1])
            assert [bool(answers[claim["uid"]].error) for claim in (claims[0], bad, claims[1])] \
                == [False, True, False], answers
            done = []
            threads = [threading.Thread(target=lambda c=claim: done.append(node.prepared(c)))
                       for claim in claims * 2]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(done) == 8 and len({names[0] for names in done}) == 4, done
            assert len(mounts()) == 4, mounts()


@with_module
def a_restart_finds_what_there_is():
    with usual_node() as node, limit("512M"):
        claim = Node.api.claim("again", ("node0", "64Mi"))
        names = node.prepared(claim)
        before = mounts()
        process = node.ready(claim)
        node.process.send_signal(signal.SIGKILL)
        node.process.wait()
        node.start()
        node.kubelet.find()
        assert node.prepared(claim) == names and mounts() == before, (mounts(), before)
        process.communicate()
        told, status = node.run(claim, "true")
        assert status == 0 and "ready found" in told, told
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        nothing_left(node)


def killing(command, when):
    """A folder with a command that kills the driver before or after it has run."""
    path = tempfile.mkdtemp(dir=Node.where)
    real = f"/usr/bin/{command}"
    lines = {"before": ["kill -9 $PPID"], "after": [f'{real} "$@"', "kill -9 $PPID"]}[when]
    write(f"{path}/{command}", "\n".join(["#!/bin/sh", *lines, ""]))
    os.chmod(f"{path}/{command}", 0o755)
    return f"{path}:{COMMANDS}"


def killed(node, step, claim):
    try:
        step(claim)
        raise AssertionError(f"it lives: {node.log()}")
    except grpc.RpcError:
        assert node.process.wait(60) == -signal.SIGKILL, node.log()


def killed_at(node, step, command, when, claim):
    """The next driver, which is killed when it runs this command; then @step."""
    node.start(path=killing(command, when))
    node.kubelet.find()
    step(claim)
    killed(node, node.kubelet.prepare if command == "mount" else node.kubelet.unprepare, claim)


@with_module
def a_driver_that_is_killed_while_it_mounts_or_unmounts_completes_it_later():
    """Each driver completes what the one before it has left, until it is killed itself."""
    node, ended = Node(), None

    def end(claim):
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        nothing_left(node)

    def complete_end(_):
        if ended:
            end(ended)

    def complete(claim):
        names = node.prepared(claim)
        assert names == node.prepared(claim) and len(mounts()) == 1, mounts()

    for when in ("before", "after"):
        claim = Node.api.claim(f"killed-{when}", ("node0", "8Mi"))
        killed_at(node, complete_end, "mount", when, claim)
        assert len(mounts()) == (when == "after"), mounts()
        assert not glob.glob(f"{node.cdi}/*.json")
        killed_at(node, complete, "umount", when, claim)
        ended = claim
    with node:
        end(ended)


@with_module
def what_a_process_still_has_is_told_and_goes_with_it():
    with usual_node() as node, limit("512M"):
        claim = Node.api.claim("held", ("node0", "64Mi"))
        process = node.ready(claim)
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        nothing_left(node)
        node.says("files left: 2; removed; a process still uses 12288 KiB of them (actmem list)")
        assert int(read(f"{SYSFS}/node0/region_bytes")) == 12 * MIB
        process.communicate()
        wait_for(lambda: int(read(f"{SYSFS}/node0/region_bytes")) == 0)
        # And of the same machine's mount namespace, where unmounting fails.
        node.prepared(claim)
        with open(f"{MOUNTS}/claim-{claim['uid']}/open", "wb"):
            assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        nothing_left(node)


@with_module
def what_nobody_has_open_goes_though_a_container_is_there_still():
    with usual_node() as node, limit("512M"):
        claim = Node.api.claim("idle", ("node0", "64Mi"))
        process = container(node.cdi, node.prepared(claim), "sh", "-c",
                            '"$@"; mkdir ${ACTMEM_NAME%/heap}/a; '
                            'ACTMEM_NAME=${ACTMEM_NAME%/heap}/a/heap "$@"; echo; cat', "sh",
                            *node.heap(8, "true"))
        told = [process.stdout.readline() for _ in range(3)]
        assert told == ["ready wrote\n"] * 2 + ["\n"], told
        assert int(read(f"{SYSFS}/node0/region_bytes")) == 24 * MIB
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        wait_for(lambda: int(read(f"{SYSFS}/node0/region_bytes")) == 0)
        process.communicate()
        nothing_left(node)


@with_module
def somebody_who_makes_files_meanwhile_keeps_no_claim():
    with usual_node() as node:
        claim = Node.api.claim("busy", ("node0", "8Mi"))
        node.prepared(claim)
        with subprocess.Popen([sys.executable, "-c", busy.PROGRAM],
                              cwd=f"{MOUNTS}/claim-{claim['uid']}", stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as writer:
            writer.stdout.readline()
            assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
            writer.kill()
        nothing_left(node)


@with_module
def a_second_end_and_an_unknown_one_are_no_errors():
    with usual_node() as node:
        claim = Node.api.claim("twice", ("node0", "8Mi"))
        node.prepared(claim)
        # Even where the cluster has forgotten it.
        Node.api.objects.pop("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/twice")
        # Deeper than Python's recursion; a shell would look for its path at each level.
        subprocess.run([sys.executable, "-c", "import os\nfor _ in range(1100):\n"
                        "    os.mkdir('d')\n    os.chdir('d')"],
                       cwd=f"{MOUNTS}/claim-{claim['uid']}", check=True)
        for _ in range(2):
            assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}
            nothing_left(node)


@with_module
def another_allocation_of_a_claim_keeps_its_files_on_the_same_node():
    for name, device, kept in (("moved", "node1", []), ("grown", "node0", ["file"])):
        with usual_node() as node:
            claim = Node.api.claim(name, ("node0", "8Mi"))
            with claimed(node, claim):
                node.prepared(claim)
                write(f"{MOUNTS}/claim-{claim['uid']}/file", "")
                Node.api.claim(name, (device, "16Mi"))
                node.prepared(claim)
                line, = mounts()
                assert ",size=16M," in line and f",node={device[4:]}," in line, line
                assert os.listdir(f"{MOUNTS}/claim-{claim['uid']}") == kept


@with_module
def what_cannot_be_mounted_is_an_error_with_the_options():
    with usual_node() as node:
        for device, size, words in (("node7", "8Mi", "size=8M,node=7"),
                                    ("node0", "1Mi", "less than 2Mi"),
                                    ("node7", None, "node 7 of this machine has no memory")):
            claim = Node.api.claim("bad", (device, size) if size else (device,))
            error = node.kubelet.prepare(claim)[claim["uid"]].error
            assert words in error, error
            nothing_left(node)


@with_module
def the_device_is_there_where_the_administrator_wants_it():
    os.chown("/dev/actmem", 0, 4711)
    with Node("--device") as node, limit("512M"):
        claim = Node.api.claim("device", ("node0", "8Mi"))
        with claimed(node, claim):
            process = container(node.cdi, node.prepared(claim), f"{Node.build}/tests/tools/holder",
                                "held", str(32 * MIB), "--", "true")
            told = process.communicate(timeout=100)[0]
            assert process.returncode == 0, told
            process = container(node.cdi, node.prepared(claim), "sh", "-c", "id; ls /dev")
            told = process.communicate(timeout=100)[0]
            assert "4711" in told and "actmem" in told.split(), told
    os.chown("/dev/actmem", 0, 0)


if __name__ == "__main__":
    run_cases(BUILD)
