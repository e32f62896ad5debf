# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The driver for Kubernetes between stand-ins of its cluster: what it tells the cluster, and
claims from their preparation to their end. Where the module is loaded, claims are mounts that
containers use; elsewhere they are refused. Runs as root in namespaces, or a machine, of its
own, and prints TAP:

    python3 tests/kube/test_claims.py BUILD
"""
import contextlib
import glob
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(sys.argv.pop(1))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "tools"), os.path.join(BUILD, "kube")]

from actmem_dra import DRIVER, dra_pb2, machine, registration_pb2  # noqa: E402
from actmem_dra.claims import Claims  # noqa: E402
from cluster import MIB, ApiServer, Kubelet, container, podman, wait_for  # noqa: E402
from tap import case, main  # noqa: E402

HAS_DRIVER = os.path.exists("/dev/actmem")
SYSFS = "/sys/class/misc/actmem"
USER_LIMIT = f"{SYSFS}/user_limit_bytes"
MOUNTS = "/run/actmem/kubernetes"
HOLDER = f"{BUILD}/tests/tools/holder"
# Of the driver's file system, as the kernel names it.
RUN = (f"{BUILD}/bin/actmem", "run", "--heap-grow", "4M", "--")
folder = None
api = None


def with_module(function):
    return case(function) if HAS_DRIVER else function


def without_module(function):
    return function if HAS_DRIVER else case(function)


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Node:
    """A kubelet, and the driver as a process."""

    def __init__(self, *arguments, path="/usr/sbin:/usr/bin:/sbin:/bin"):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.cdi = f"{self.folder}/cdi"
        self.arguments = arguments
        self.path = path
        self.kubelet = Kubelet(f"{self.folder}/kubelet", registration_pb2, dra_pb2)
        self.process = None

    def start(self, path=None):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "actmem_dra", "--account", api.account, "--node", "node-1",
                 "--kubelet", self.kubelet.folder, "--cdi", self.cdi, "--interval", "0.2",
                 *self.arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PYTHONPATH": f"{BUILD}/kube", "PATH": path or self.path,
                     **api.environment()})
        return self

    def log(self):
        return read(f"{self.folder}/log")

    def says(self, text):
        wait_for(lambda: text in self.log() or self.process.poll() is not None)
        assert text in self.log(), self.log()

    def __enter__(self):
        self.start()
        self.kubelet.find()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log()

    def prepared(self, claim):
        """The names of its devices for the container runtime."""
        answer = self.kubelet.prepare(claim)[claim["uid"]]
        assert not answer.error, (answer, self.log())
        return [cdi_id for device in answer.devices for cdi_id in device.cdi_device_ids]

    def run(self, claim, *command, size=8):
        """What a container with the claim says that has a heap, and its status."""
        process = container(self.cdi, self.prepared(claim), *RUN, HOLDER, "heap",
                            str(size * MIB), "--", *command)
        told = process.communicate(timeout=200)[0]
        return told, process.returncode


def mounts():
    return [line for line in read("/proc/self/mounts").splitlines() if f" {MOUNTS}/" in line]


def nothing_left(node, uid=""):
    assert not [line for line in mounts() if uid in line], mounts()
    assert not glob.glob(f"{MOUNTS}/*{uid}*") and not glob.glob(f"{node.cdi}/*{uid}*"), \
        (os.listdir(MOUNTS), os.listdir(node.cdi))


@contextlib.contextmanager
def claimed(node, *claims):
    """Has them end."""
    try:
        yield
    finally:
        errors = node.kubelet.unprepare(*claims)
        assert not any(errors.values()), (errors, node.log())
        for claim in claims:
            nothing_left(node, claim["uid"])


@contextlib.contextmanager
def limit(text):
    write(USER_LIMIT, text)
    try:
        yield
    finally:
        write(USER_LIMIT, "max")


@case
def the_kubelet_learns_of_the_driver():
    with Node() as node:
        info = node.kubelet.find()
        assert info.type == "DRAPlugin" and info.name == DRIVER, info
        assert list(info.supported_versions) == ["v1.DRAPlugin"], info
        assert info.endpoint == f"{node.kubelet.folder}/plugins/{DRIVER}/dra.sock", info
        paths = [info.endpoint, node.kubelet.socket()]
        assert all(stat.S_ISSOCK(os.stat(path).st_mode) for path in paths)
    assert not any(os.path.exists(path) for path in paths), "a socket is left"


@case
def a_driver_takes_the_place_of_one_that_was_killed():
    node = Node().start()
    node.kubelet.find()
    node.process.kill()
    node.process.wait()
    assert os.path.exists(node.kubelet.socket()), "its socket went with it"
    with node:
        assert node.log().count("the kubelet knows the driver\n") == 2, node.log()


@case
def a_driver_that_the_kubelet_refuses_ends_and_says_why():
    node = Node().start()
    node.kubelet.find(error="it has such a one")
    assert node.process.wait(60) == 1, node.log()
    assert "actmem: the kubelet does not take the driver: it has such a one\n" in node.log()


@case
def fields_have_the_numbers_of_kubernetes():
    """Messages by hand, byte for byte: 0x0a is field 1 and a length, 0x12 is 2, 0x1a is 3."""
    message = b"\x0a\x07default\x12\x03u-1\x1a\x05claim"
    claim = dra_pb2.Claim(namespace="default", uid="u-1", name="claim")
    for kind in (dra_pb2.NodePrepareResourcesRequest, dra_pb2.NodeUnprepareResourcesRequest):
        request = kind.FromString(b"\x0a" + bytes([len(message)]) + message)
        assert list(request.claims) == [claim], request
    device = b"\x0a\x06memory\x12\x04pool\x1a\x05node0\x22\x06a/b=c1"
    result = b"\x0a" + bytes([len(device)]) + device + b"\x12\x03bad"
    entry = b"\x0a\x03u-1\x12" + bytes([len(result)]) + result
    answer = dra_pb2.NodePrepareResourcesResponse()
    answer.claims["u-1"].error = "bad"
    answer.claims["u-1"].devices.add(request_names=["memory"], pool_name="pool",
                                     device_name="node0", cdi_device_ids=["a/b=c1"])
    assert answer.SerializeToString() == b"\x0a" + bytes([len(entry)]) + entry, answer
    answer = dra_pb2.NodeUnprepareResourcesResponse()
    answer.claims["u-1"].error = "bad"
    assert answer.SerializeToString() == b"\x0a\x0c\x0a\x03u-1\x12\x05\x0a\x03bad", answer
    info = registration_pb2.PluginInfo(type="t", name="n", endpoint="e", supported_versions=["v"])
    assert info.SerializeToString() == b"\x0a\x01t\x12\x01n\x1a\x01e\x22\x01v", info
    status = registration_pb2.RegistrationStatus.FromString(b"\x08\x01\x12\x01e")
    assert status.plugin_registered and status.error == "e", status


@case
def sizes_are_read_as_kubernetes_writes_them():
    for text, size in (("64Gi", 64 << 30), ("2097152", 2 << 20), ("3M", 3 * 10**6),
                       ("1Ki", 1024), ("5k", 5000)):
        assert machine.parse_quantity(text) == size, text
    for text in ("", "Gi", "-1Gi", "1.5Gi", "1g", "100m", "1Kii"):
        try:
            assert False, (text, machine.parse_quantity(text))
        except machine.Refusal as refusal:
            assert f"'{text}'" in str(refusal) and "64Gi" in str(refusal), refusal
    assert machine.parse_capacity("0=1Gi,12=2Mi") == {0: 1 << 30, 12: 2 << 20}


@case
def an_api_server_that_refuses_is_named_and_asked_again():
    api.failing["resourceslices"] = 403
    with Node() as node:
        node.says("/resourceslices/node-1-memory.actmem.internal with 403: not for")
        api.failing.clear()
        wait_for(api.slice)
        claim = api.claim("forbidden", ("node0", "8Mi"))
        api.failing["resourceclaims"] = 403
        error = node.kubelet.prepare(claim)[claim["uid"]].error
        assert "with 403: not for resourceclaims" in error, error
        api.failing.clear()
        nothing_left(node, claim["uid"])


@case
def a_claim_of_another_uid_or_of_nothing_here_is_refused():
    with Node() as node:
        claim = api.claim("other", ("node0", "8Mi"))
        empty = api.claim("empty")
        for asked, words in ((dict(claim, uid="0000-else"), "no such claim with the UID 0000-else"),
                             (dict(claim, name="nowhere"), "no such claim"),
                             (empty, "nothing of node node-1 is allocated to the claim")):
            error = node.kubelet.prepare(asked)[asked["uid"]].error
            assert words in error, error
        for uid in ("../../etc", "", "a/b"):
            assert "is no UID" in node.kubelet.unprepare(dict(claim, uid=uid))[uid]
        nothing_left(node)


@without_module
def without_the_module_nothing_is_offered_and_claims_are_refused():
    with Node() as node:
        assert wait_for(api.slice)["spec"]["devices"] == []
        node.says("node node-1: nothing to give: this node has no actmem file system (module not "
                  "loaded: on the node, as root, `modprobe actmem`")
        claim = api.claim("early", ("node0", "8Mi"))
        error = node.kubelet.prepare(claim)[claim["uid"]].error
        assert "module not loaded" in error, error
        nothing_left(node)
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}


@with_module
def the_slice_tells_of_the_pools_and_follows_them():
    with Node() as node:
        there = wait_for(api.slice)
        devices = there["spec"]["devices"]
        assert [device["name"] for device in devices] == ["node0", "node1"], devices
        for number, device in enumerate(devices):
            size = read(f"{SYSFS}/node{number}/pool_bytes").strip()
            assert device["capacity"]["memory"]["value"] == size, device
            assert device["attributes"]["resource.kubernetes.io/numaNode"] == {"int": number}
            assert device["attributes"]["pageBytes"] == {"int": 2 * MIB}
            version = read("/sys/module/actmem/version").strip()
            assert device["attributes"]["moduleVersion"] == {"version": version}, device
        assert there["metadata"]["ownerReferences"][0]["uid"] == "uid-of-node-1", there
        before = there["metadata"]["resourceVersion"], there["spec"]["pool"]["generation"]
        pool = f"{SYSFS}/node1/pool_bytes"
        size = read(pool)
        write(pool, "32M")
        try:
            wait_for(lambda: [device["capacity"]["memory"]["value"]
                              for device in api.slice()["spec"]["devices"]][1] == str(32 * MIB))
        finally:
            write(pool, size)
        assert api.slice()["spec"]["pool"]["generation"] > before[1], api.slice()
        # The kubelet removes it now and then.
        del api.objects["/apis/resource.k8s.io/v1/resourceslices/node-1-memory.actmem.internal"]
        wait_for(api.slice)
        assert node.log().count("node node-1: node0 has ") <= 3, node.log()


@with_module
def what_has_not_changed_is_not_written_again():
    with Node() as node:
        first = wait_for(api.slice)["metadata"]["resourceVersion"]
        asked = threading.Event()
        api.failing = Watched(asked)
        assert asked.wait(60), "it does not look"
        api.failing = {}
        assert api.slice()["metadata"]["resourceVersion"] == first, node.log()


class Watched(dict):
    """Of what is failing nothing; tells when it has been asked of the slice five times."""

    def __init__(self, event):
        super().__init__()
        self.event = event
        self.count = 0

    def items(self):
        self.count += 1
        if self.count == 5:
            self.event.set()
        return ()


@with_module
def a_capacity_that_is_given_takes_the_place_of_the_pools():
    with Node("--capacity", "1=24Mi"):
        wait_for(lambda: api.slice() and [
            (device["name"], device["capacity"]["memory"]["value"])
            for device in api.slice()["spec"]["devices"]] == [("node1", str(24 * MIB))])


@with_module
def without_the_gate_a_claim_takes_the_device():
    api.gate = False
    api.objects.pop("/apis/resource.k8s.io/v1/resourceslices/node-1-memory.actmem.internal", None)
    try:
        with Node() as node:
            node.says("has no DRAConsumableCapacity")
            claim = api.claim("whole", ("node1",))
            with claimed(node, claim):
                node.prepared(claim)
                size = int(read(f"{SYSFS}/node1/pool_bytes")) >> 20
                assert f",size={size}M," in mounts()[0] and ",node=1," in mounts()[0], mounts()
    finally:
        api.gate = True


@with_module
def a_container_has_a_region_in_its_claim_and_no_device():
    with Node() as node, limit("512M"):
        claim = api.claim("one", ("node1", "64Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "sh", "-c", "ls /dev /run/actmem; env; stat -f "
                                    "-c '%b %S' /run/actmem/claim-*; ls -l /run/actmem/claim-*; "
                                    "grep actmem /proc/self/mounts")
            uid = claim["uid"]
            inside = f"/run/actmem/claim-{uid}"
            assert status == 0 and "ready wrote" in told, told
            for line in (f"ACTMEM_NAME={inside}/heap", "ACTMEM_STRICT=1", f"claim-{uid}",
                         "32 2097152"):
                assert line in told.splitlines(), (line, told)
            assert "\nactmem\n" not in told and "heap.0" in told, told
            assert f" {inside} actmem rw,nosuid,nodev,noexec" in told, told
            assert ",size=64M,mode=1777,uid=0,gid=0,node=1,policy=bind" in mounts()[0], mounts()
            assert stat.S_IMODE(os.stat(MOUNTS).st_mode) == 0o700
        node.says(f"{MOUNTS}/claim-{uid}: files left: 2; removed")


SHOW = "env; grep actmem /proc/self/mounts; cd ${ACTMEM_NAME%/heap} && touch file && ls"


def in_podman(uid, ids, *command):
    told, status = podman(ids, tempfile.mkdtemp(dir=folder), BUILD, *command)
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
        claim = api.claim("podman", ("node0", "64Mi"))
        with claimed(node, claim):
            told = in_podman(claim["uid"], node.prepared(claim), *RUN, HOLDER, "heap",
                             str(8 * MIB), "--", "sh", "-c", SHOW)
            assert "ready wrote" in told and " actmem rw," in told and "heap.1" in told, told


@with_module
def without_a_limit_of_users_the_limit_of_locked_memory_holds():
    with Node() as node:
        node.says(f"KiB of memory, and pods can have no larger regions: on the node, write "
                  f"{USER_LIMIT}")
        claim = api.claim("locked", ("node0", "64Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "true")
            assert status and "RLIMIT_MEMLOCK" in told, told
            with limit("512M"):
                told, status = node.run(claim, "true")
            assert status == 0 and "ready wrote" in told, told


@with_module
def a_container_over_its_size_fails_in_words():
    with Node() as node, limit("512M"):
        claim = api.claim("over", ("node0", "16Mi"))
        with claimed(node, claim):
            told, status = node.run(claim, "true", size=24)
            assert status and "ready" not in told, told
            assert "size=" in told and f"/run/actmem/claim-{claim['uid']}" in told, told


@with_module
def a_claim_of_two_nodes_is_one_mount_and_of_several_devices():
    with Node() as node:
        claim = api.claim("both", ("node0", "16Mi"), ("node1", "33Mi"), ("node1", "1Gi"))
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
    with Node() as node:
        claims = [api.claim(f"at-once-{number}", ("node0", "8Mi")) for number in range(4)]
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
    with Node() as node, limit("512M"):
        claim = api.claim("again", ("node0", "64Mi"))
        names = node.prepared(claim)
        before = mounts()
        process = container(node.cdi, names, *RUN, HOLDER, "heap", str(8 * MIB))
        assert process.stdout.readline() == "ready wrote\n"
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
    path = tempfile.mkdtemp(dir=folder)
    real = f"/usr/bin/{command}"
    lines = {"before": ["kill -9 $PPID"], "after": [f'{real} "$@"', "kill -9 $PPID"]}[when]
    write(f"{path}/{command}", "\n".join(["#!/bin/sh", *lines, ""]))
    os.chmod(f"{path}/{command}", 0o755)
    return f"{path}:/usr/sbin:/usr/bin:/sbin:/bin"


def killed(node, step, claim):
    try:
        step(claim)
        assert False, f"it lives: {node.log()}"
    except grpc.RpcError:
        assert node.process.wait(60) == -signal.SIGKILL, node.log()
    node.start()
    node.kubelet.find()


@with_module
def a_driver_that_is_killed_in_between_completes_it_later():
    for command, when in (("mount", "before"), ("mount", "after")):
        node = Node().start(path=killing(command, when))
        node.kubelet.find()
        claim = api.claim(f"killed-{command}-{when}", ("node0", "8Mi"))
        killed(node, node.kubelet.prepare, claim)
        assert len(mounts()) == (when == "after"), mounts()
        assert not glob.glob(f"{node.cdi}/*.json")
        with node_that_runs(node), claimed(node, claim):
            names = node.prepared(claim)
            assert names == node.prepared(claim) and len(mounts()) == 1, mounts()
    for command, when in (("umount", "before"), ("umount", "after")):
        node = Node().start(path=killing(command, when))
        node.kubelet.find()
        claim = api.claim(f"killed-{command}-{when}", ("node0", "8Mi"))
        node.prepared(claim)
        killed(node, node.kubelet.unprepare, claim)
        with node_that_runs(node):
            assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
            nothing_left(node)


@contextlib.contextmanager
def node_that_runs(node):
    try:
        yield
    finally:
        node.__exit__()


@with_module
def what_a_process_still_has_is_told_and_goes_with_it():
    with Node() as node, limit("512M"):
        claim = api.claim("held", ("node0", "64Mi"))
        process = container(node.cdi, node.prepared(claim), *RUN, HOLDER, "heap", str(8 * MIB))
        assert process.stdout.readline() == "ready wrote\n"
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        nothing_left(node)
        node.says("files left: 2; removed; some process still has 12288 KiB of them (actmem list)")
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
    with Node() as node, limit("512M"):
        claim = api.claim("idle", ("node0", "64Mi"))
        process = container(node.cdi, node.prepared(claim), "sh", "-c",
                            f"{' '.join(RUN)} {HOLDER} heap {8 * MIB} -- true; cat")
        assert process.stdout.readline() == "ready wrote\n"
        wait_for(lambda: b"cat" in read(f"/proc/{process.pid}/cmdline").encode() and
                 int(read(f"{SYSFS}/node0/region_bytes")) == 12 * MIB)
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}, node.log()
        wait_for(lambda: int(read(f"{SYSFS}/node0/region_bytes")) == 0)
        process.communicate()
        nothing_left(node)


@with_module
def a_second_end_and_an_unknown_one_are_no_errors():
    with Node() as node:
        claim = api.claim("twice", ("node0", "8Mi"))
        node.prepared(claim)
        # Even where the cluster has forgotten it.
        api.objects.pop("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/twice")
        os.makedirs(f"{MOUNTS}/claim-{claim['uid']}/a/folder")
        for _ in range(2):
            assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}
            nothing_left(node)


@with_module
def another_allocation_of_a_claim_takes_the_place_of_the_first():
    with Node() as node:
        claim = api.claim("moved", ("node0", "8Mi"))
        with claimed(node, claim):
            node.prepared(claim)
            write(f"{MOUNTS}/claim-{claim['uid']}/file", "")
            api.claim("moved", ("node1", "16Mi"))
            node.prepared(claim)
            line, = mounts()
            assert ",size=16M," in line and ",node=1," in line, line
            assert not os.listdir(f"{MOUNTS}/claim-{claim['uid']}")


@with_module
def what_cannot_be_mounted_is_an_error_with_the_options():
    with Node() as node:
        for device, size, words in (("node7", "8Mi", "size=8M,node=7"),
                                    ("node0", "1Mi", "less than 2Mi"),
                                    ("node7", None, "node 7 of this machine has no memory")):
            claim = api.claim("bad", (device, size) if size else (device,))
            error = node.kubelet.prepare(claim)[claim["uid"]].error
            assert words in error, error
            nothing_left(node)


@with_module
def the_device_is_there_where_the_administrator_wants_it():
    os.chown("/dev/actmem", 0, 4711)
    with Node("--device") as node, limit("512M"):
        claim = api.claim("device", ("node0", "8Mi"))
        with claimed(node, claim):
            process = container(node.cdi, node.prepared(claim), HOLDER, "held", str(32 * MIB), "--",
                                "true")
            told = process.communicate(timeout=100)[0]
            assert process.returncode == 0, told
            process = container(node.cdi, node.prepared(claim), "sh", "-c", "id; ls /dev")
            told = process.communicate(timeout=100)[0]
            assert "4711" in told and "actmem" in told.split(), told
    os.chown("/dev/actmem", 0, 0)


@case
def the_role_of_the_manifest_is_what_the_driver_uses():
    """It was answered all the time by that role; and here all of it has been used."""
    unused = api.rights - api.used - {("resource.k8s.io", "resourceslices", "update")}
    assert not unused and (not HAS_DRIVER or api.rights == api.used), (api.rights, api.used)


def reserve(size):
    for number in range(2):
        write(f"{SYSFS}/node{number}/pool_bytes", size)


def on_node():
    global api, folder
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run"], check=True)
    # What crun wants to find there, though it is told to leave cgroups alone.
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    if HAS_DRIVER:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        reserve("128M")
    try:
        with tempfile.TemporaryDirectory(dir="/run") as folder:
            api = ApiServer(f"{folder}/account")
            main()
    finally:
        if HAS_DRIVER:
            reserve("0")


if __name__ == "__main__":
    on_node()
