# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The driver for Kubernetes between stand-ins of its cluster: what it tells the kubelet and the
API server. Runs as root in namespaces, or a machine, of its own, and prints TAP:

    python3 tests/kube/test_cluster.py BUILD
"""
import os
import stat
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv.pop(1))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "tools"), os.path.join(BUILD, "kube")]

from actmem_dra import DRIVER, dra_pb2, machine, registration_pb2  # noqa: E402
from api_server import MIB  # noqa: E402
from kubelet import wait_for  # noqa: E402
from node import (HAS_DRIVER, SYSFS, Node, claimed, mounts, nothing_left, read,  # noqa: E402
                  run_cases, with_module, without_module, write)
from tap import case  # noqa: E402


@without_module
def the_kubelet_learns_of_the_driver():
    with Node() as node:
        info = node.kubelet.find()
        assert info.type == "DRAPlugin" and info.name == DRIVER, info
        assert list(info.supported_versions) == ["v1.DRAPlugin"], info
        assert info.endpoint == f"{node.kubelet.folder}/plugins/{DRIVER}/dra.sock", info
        paths = [info.endpoint, node.kubelet.socket()]
        assert all(stat.S_ISSOCK(os.stat(path).st_mode) for path in paths)
    assert not any(os.path.exists(path) for path in paths), "a socket is left"


@without_module
def a_driver_takes_the_place_of_one_that_was_killed():
    node = Node().start()
    node.kubelet.find()
    node.process.kill()
    node.process.wait()
    assert os.path.exists(node.kubelet.socket()), "its socket went with it"
    with node:
        assert node.log().count("the kubelet accepted the driver\n") == 2, node.log()


@without_module
def a_driver_that_the_kubelet_refuses_ends_and_says_why():
    node = Node().start()
    node.kubelet.find(error="it has such a one")
    assert node.process.wait(60) == 1, node.log()
    assert "actmem: the kubelet refused the driver: it has such a one\n" in node.log()


@without_module
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


@without_module
def sizes_are_read_as_kubernetes_writes_them():
    for text, size in (("64Gi", 64 << 30), ("2097152", 2 << 20), ("3M", 3 * 10**6),
                       ("1Ki", 1024), ("5k", 5000)):
        assert machine.parse_quantity(text) == size, text
    for text in ("", "Gi", "-1Gi", "1.5Gi", "1g", "100m", "1Kii", "64ki"):
        try:
            raise AssertionError((text, machine.parse_quantity(text)))
        except machine.Refusal as refusal:
            assert f"'{text}'" in str(refusal) and "64Gi" in str(refusal), refusal
    assert machine.parse_capacity("0=1Gi,12=2Mi") == {0: 1 << 30, 12: 2 << 20}


@case
def an_api_server_that_refuses_is_named_and_asked_again():
    Node.api.failing["resourceslices"] = 403
    with Node() as node:
        node.says("/resourceslices/node-1-memory.actmem.internal with 403: not for")
        Node.api.failing.clear()
        wait_for(Node.api.slice)
        claim = Node.api.claim("forbidden", ("node0", "8Mi"))
        Node.api.failing["resourceclaims"] = 403
        error = node.kubelet.prepare(claim)[claim["uid"]].error
        assert "with 403: not for resourceclaims" in error, error
        Node.api.failing.clear()
        nothing_left(node, claim["uid"])


@without_module
def without_the_module_nothing_is_offered_and_claims_are_refused():
    with Node() as node:
        assert wait_for(Node.api.slice)["spec"]["devices"] == []
        node.says("node node-1: nothing to offer: this node has no actmem file system, because the "
                  "module is not loaded; install actmem-dkms on the node, then run `modprobe ")
        claim = Node.api.claim("early", ("node0", "8Mi"))
        error = node.kubelet.prepare(claim)[claim["uid"]].error
        assert "module is not loaded" in error, error
        nothing_left(node)
        assert node.kubelet.unprepare(claim) == {claim["uid"]: ""}


def sizes():
    return [(device["name"], device["capacity"]["memory"]["value"])
            for device in Node.api.slice()["spec"]["devices"]] if Node.api.slice() else []


@with_module
def the_slice_tells_of_the_pools_and_follows_them():
    with Node() as node:
        there = wait_for(Node.api.slice)
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
            wait_for(lambda: sizes()[1] == ("node1", str(32 * MIB)))
        finally:
            write(pool, size)
        assert Node.api.slice()["spec"]["pool"]["generation"] > before[1], Node.api.slice()
        # The kubelet removes it now and then.
        Node.api.remove_slice()
        wait_for(Node.api.slice)
        assert node.log().count("node node-1: node0 has ") <= 3, node.log()


@with_module
def what_has_not_changed_is_not_written_again():
    with Node() as node:
        first = wait_for(Node.api.slice)["metadata"]["resourceVersion"]
        asked = threading.Event()
        Node.api.failing = Watched(asked)
        assert asked.wait(60), "it does not look"
        Node.api.failing = {}
        assert Node.api.slice()["metadata"]["resourceVersion"] == first, node.log()


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
    with Node("--capacity", "0=2Mi,1=24Mi"):
        wait_for(lambda: sizes() == [("node1", str(24 * MIB))])


@with_module
def without_the_gate_a_claim_takes_the_device():
    Node.api.gate = False
    Node.api.remove_slice()
    try:
        with Node() as node:
            node.says("has no DRAConsumableCapacity")
            claim = Node.api.claim("whole", ("node1",))
            with claimed(node, claim):
                node.prepared(claim)
                size = int(read(f"{SYSFS}/node1/pool_bytes")) >> 20
                assert f",size={size}M," in mounts()[0] and ",node=1," in mounts()[0], mounts()
    finally:
        Node.api.gate = True


@case
def the_role_of_the_manifest_is_what_the_driver_uses():
    """It was answered all the time by that role; and here all of it has been used."""
    unused = Node.api.rights - Node.api.used - {("resource.k8s.io", "resourceslices", "update")}
    assert not unused and not Node.api.used - Node.api.rights, (unused, Node.api.used)
    assert not HAS_DRIVER or Node.api.rights == Node.api.used, Node.api.used


if __name__ == "__main__":
    run_cases(BUILD)
