# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The two sockets that the kubelet connects to: the one that makes the driver known, and the
one by which it has claims prepared."""
import os
import queue
from concurrent import futures

import grpc

from . import DRIVER, Refusal, dra_pb2, machine, registration_pb2, say
from .api import RESOURCES

THREADS = 4
GRACE_SECONDS = 5


def methods(descriptor, **functions):
    """A handler of a service of a .proto, with a function of request and context for each of
    its methods."""
    def handler(method):
        module = dra_pb2 if descriptor.file is dra_pb2.DESCRIPTOR else registration_pb2
        request, response = (getattr(module, kind.name)
                             for kind in (method.input_type, method.output_type))
        return grpc.unary_unary_rpc_method_handler(
            functions[method.name], request_deserializer=request.FromString,
            response_serializer=response.SerializeToString)
    return grpc.method_handlers_generic_handler(
        descriptor.full_name, {method.name: handler(method) for method in descriptor.methods})


class Plugin:
    """@kubelet: its folder. `changed` gets an item when the kubelet has answered to a
    registration: it may have removed the slice of this node before. A signal handler may put
    one, too, so it is no threading.Event: set() would deadlock with a wait() that the signal
    interrupts."""

    def __init__(self, api, kubelet, node, claims, capacity):
        self.api = api
        self.node = node
        self.claims = claims
        self.capacity = capacity
        self.changed = queue.SimpleQueue()
        self.refused = None
        self.endpoint = f"{kubelet}/plugins/{DRIVER}/dra.sock"
        self.registry = f"{kubelet}/plugins_registry/{DRIVER}-reg.sock"
        self.servers = []

    def start(self):
        """The kubelet connects to the endpoint as soon as it sees the other."""
        service = dra_pb2.DESCRIPTOR.services_by_name["DRAPlugin"]
        self.serve(self.endpoint, methods(service, NodePrepareResources=self.prepare_all,
                                          NodeUnprepareResources=self.unprepare_all))
        service = registration_pb2.DESCRIPTOR.services_by_name["Registration"]
        self.serve(self.registry, methods(service, GetInfo=self.info,
                                          NotifyRegistrationStatus=self.registered))

    def serve(self, path, handler):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(THREADS), handlers=[handler])
        server.add_insecure_port(f"unix:{path}")
        server.start()
        self.servers.append(server)

    def stop(self):
        """In reverse order, so that the kubelet sees the driver go. Each removes its socket, as
        it has removed one of a driver that was killed."""
        for server in reversed(self.servers):
            server.stop(GRACE_SECONDS).wait()

    def info(self, _request, _context):
        return registration_pb2.PluginInfo(type="DRAPlugin", name=DRIVER, endpoint=self.endpoint,
                                           supported_versions=["v1.DRAPlugin"])

    def registered(self, request, _context):
        if not request.plugin_registered:
            self.refused = f"the kubelet refused the driver: {request.error}"
        say(self.refused or "the kubelet accepted the driver")
        self.changed.put(None)
        return registration_pb2.RegistrationStatusResponse()

    def prepare_all(self, request, _context):
        response = dra_pb2.NodePrepareResourcesResponse()
        for claim in request.claims:
            answer = response.claims[claim.uid]
            answer.error = self.attempt(claim, lambda c=claim, a=answer: self.prepare(c, a))
        return response

    def unprepare_all(self, request, _context):
        response = dra_pb2.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            response.claims[claim.uid].error = self.attempt(
                claim, lambda c=claim: self.claims.unprepare(c.uid))
        return response

    def attempt(self, claim, step):
        """The error of one claim, which is none of the others'."""
        try:
            step()
        except Exception as error:
            say(f"claim {claim.namespace}/{claim.name}: {error}")
            return f"actmem: {error}"
        return ""

    def prepare(self, claim, answer):
        results = self.results(claim)
        sizes = [self.size_of(result) for result in results]
        ids = self.claims.prepare(claim.uid, sizes)
        say(f"claim {claim.namespace}/{claim.name} is claim-{claim.uid}")
        for result, cdi_id in zip(results, ids):
            answer.devices.add(request_names=[result["request"]], pool_name=result["pool"],
                               device_name=result["device"], cdi_device_ids=[cdi_id])

    def results(self, claim):
        """What the scheduler has given the claim of this node's devices."""
        path = f"{RESOURCES}/namespaces/{claim.namespace}/resourceclaims/{claim.name}"
        there = self.api.ask("GET", path)
        if not there or there["metadata"]["uid"] != claim.uid:
            raise Refusal(f"the cluster has no claim of this name with the UID {claim.uid}")
        devices = there.get("status", {}).get("allocation", {}).get("devices", {})
        results = [result for result in devices.get("results", [])
                   if result["driver"] == DRIVER and result["pool"] == self.node]
        if not results:
            raise Refusal(f"the claim has no allocated memory on node {self.node}")
        return results

    def size_of(self, result):
        """Bytes and node. A device that is not shared is the claim's as a whole."""
        node = int(result["device"].removeprefix("node"))
        consumed = result.get("consumedCapacity")
        if consumed:
            return machine.parse_quantity(consumed["memory"]), node
        try:
            return self.capacity()[node], node
        except KeyError:
            raise Refusal(f"node {node} of this machine has no memory for regions any more: set "
                          f"`actmem pool --nodes {node} SIZE` or --capacity") from None
