# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The ResourceSlice of this node: a device for each memory node that has memory for regions,
of which claims take parts by size."""
import json

from . import DRIVER, Refusal, machine, say
from .api import RESOURCES

SLICES = f"{RESOURCES}/resourceslices"
# Of what the slice was made: the server writes what it stores in its own way.
MADE_OF = f"{DRIVER}/made-of"
STEP = "2Mi"


def devices_of(capacity, version):
    """A scheduler without DRAConsumableCapacity, before 1.36, gives a device to one claim."""
    policy = {"default": STEP, "validRange": {"min": STEP, "step": STEP}}
    attributes = {"pageBytes": {"int": machine.PAGE_BYTES}}
    if version:
        attributes["moduleVersion"] = {"version": version}
    return [{"name": f"node{node}",
             "attributes": {"resource.kubernetes.io/numaNode": {"int": node}, **attributes},
             "allowMultipleAllocations": True,
             "capacity": {"memory": {"value": str(size), "requestPolicy": policy}}}
            for node, size in sorted(capacity.items()) if size >= 2 * machine.PAGE_BYTES]


class Slice:
    """@capacity: bytes by memory node, or {} for what the pools have."""

    def __init__(self, api, node, capacity):
        self.api = api
        self.node = node
        self.given = capacity
        self.name = f"{node}-{DRIVER}"
        self.told = None

    def capacity(self):
        machine.check_module()
        return self.given or machine.pools()

    def devices(self):
        devices = []
        try:
            devices = devices_of(self.capacity(), machine.version())
            text = "nothing to offer, because no memory node has a pool: run `actmem pool " \
                "--nodes N SIZE --save` on the node, or start the driver with --capacity"
        except Refusal as refusal:
            text = f"nothing to offer: {refusal}"
        if devices:
            text = ", ".join(f"{device['name']} has {device['capacity']['memory']['value']} bytes"
                             for device in devices) + machine.too_little_to_lock()
        if text != self.told:
            say(f"node {self.node}: {text}")
        self.told = text
        return devices

    def publish(self):
        """Publishes the memory of this node. If nothing has changed, sends a single request."""
        devices = self.devices()
        made_of = json.dumps(devices, sort_keys=True)
        there = self.api.ask("GET", f"{SLICES}/{self.name}")
        if there and there["metadata"].get("annotations", {}).get(MADE_OF) == made_of:
            return
        node = self.api.ask("GET", f"/api/v1/nodes/{self.node}")
        if not node:
            raise Refusal(f"the cluster has no node {self.node}; pass its name with --node")
        wanted = self.object(devices, made_of, node["metadata"]["uid"])
        if there:
            wanted["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
            wanted["spec"]["pool"]["generation"] = there["spec"]["pool"]["generation"] + 1
            stored = self.api.ask("PUT", f"{SLICES}/{self.name}", wanted)
        else:
            stored = self.api.ask("POST", SLICES, wanted)
        if not stored:
            raise Refusal(f"the API server has no {RESOURCES}: use Kubernetes 1.34 or later")
        if not all(device.get("allowMultipleAllocations")
                   for device in stored["spec"].get("devices", [])):
            say("this cluster has no DRAConsumableCapacity (on since Kubernetes 1.36): one claim "
                "takes the whole pool of a memory node")

    def object(self, devices, made_of, node_uid):
        # With the node, the slice goes.
        owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node_uid,
                 "controller": True}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
                "metadata": {"name": self.name, "annotations": {MADE_OF: made_of},
                             "ownerReferences": [owner]},
                "spec": {"driver": DRIVER, "nodeName": self.node, "devices": devices,
                         "pool": {"name": self.node, "generation": 1, "resourceSliceCount": 1}}}
