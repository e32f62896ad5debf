# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A stand-in of an API server that has nodes, claims and slices, over HTTPS with a token. What
is written to it is held against the published schemas, and who asks it against the role of the
manifest."""
import http.server
import json
import os
import ssl
import subprocess
import threading

import kubernetes_validate
import yaml

NEWEST = "1.37"
MANIFEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging",
                        "contrib", "kubernetes", "driver.yaml")
VERBS = {"GET": "get", "POST": "create", "PUT": "update"}
TOKEN = "a-token-of-this-test"
RESOURCES = "/apis/resource.k8s.io/v1"
SLICE = f"{RESOURCES}/resourceslices/node-1-memory.actmem.internal"
MIB = 1 << 20


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=kubernetes",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                    "-keyout", f"{folder}/key", "-out", f"{folder}/ca.crt"],
                   check=True, capture_output=True)


def rights():
    """(group, resource, verb) that the manifest's role gives."""
    with open(MANIFEST, encoding="utf-8") as file:
        role, = [body for body in yaml.safe_load_all(file) if body["kind"] == "ClusterRole"]
    return {(group, resource, verb) for rule in role["rules"] for group in rule["apiGroups"]
            for resource in rule["resources"] for verb in rule["verbs"]}


class ApiServer(http.server.ThreadingHTTPServer):
    """@gate: whether DRAConsumableCapacity is on. It answers requests of `failing` with that
    status, and those that the manifest's role does not allow with 403. `used` is what was asked of it."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        os.mkdir(folder)
        self.account = folder
        make_certificate(folder)
        with open(f"{folder}/token", "w", encoding="ascii") as file:
            file.write(f"{TOKEN}\n")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/ca.crt", f"{folder}/key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.objects = {}
        self.failing = {}
        self.gate = True
        self.version = 0
        self.rights = rights()
        self.used = set()
        self.add("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node",
                                   "metadata": {"name": "node-1", "uid": "uid-of-node-1"}})
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def add(self, path, body):
        kubernetes_validate.validate(body, NEWEST, strict=True)
        if body["kind"] == "ResourceSlice":
            self.check_slice(body)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[f"{path}/{body['metadata']['name']}"] = body
        return body

    def check_slice(self, body):
        """What the real one checks besides the schema, as the API's reference tells."""
        assert not self.gate or body["spec"]["pool"]["generation"] >= 1
        for device in body["spec"]["devices"]:
            if not self.gate:
                device.pop("allowMultipleAllocations", None)
            for capacity in device["capacity"].values():
                if not self.gate:
                    capacity.pop("requestPolicy", None)
                    continue
                policy = capacity["requestPolicy"]
                assert device["allowMultipleAllocations"] is True
                low, step, default = (int(text.removesuffix("Mi")) for text in (
                    policy["validRange"]["min"], policy["validRange"]["step"],
                    policy["default"]))
                assert default >= low and default % step == 0
                assert (low + step) * MIB <= int(capacity["value"])

    def claim(self, name, *results, uid=None):
        """Allocates devices to a claim: each NODE, or NODE and a size, as the scheduler does.
        Returns the claim as the kubelet knows it."""
        uid = uid or f"0000-{name}"
        allocated = []
        for number, (device, *size) in enumerate(results):
            allocated.append({"request": f"memory-{number}", "driver": "memory.actmem.internal",
                              "pool": "node-1", "device": device})
            if size:
                allocated[-1].update(shareID=f"00000000-0000-0000-0000-00000000000{number}",
                                     consumedCapacity={"memory": size[0]})
        # Of another driver, as a claim may have them, too, and of another node.
        for driver, pool, device in (("gpu.nvidia.com", "node-1", "gpu-0"),
                                     ("memory.actmem.internal", "node-2", "node0")):
            allocated.append({"request": "else", "driver": driver, "pool": pool,
                              "device": device})
        self.add(f"{RESOURCES}/namespaces/default/resourceclaims", {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": {"devices": {}},
            "status": {"allocation": {"devices": {"results": allocated}}}})
        return {"namespace": "default", "name": name, "uid": uid}

    def slice(self):
        return self.objects.get(SLICE)

    def remove_slice(self):
        self.objects.pop(SLICE, None)

    def environment(self):
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(self.server_address[1])}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, text):
        self.answer(status, {"kind": "Status", "message": text, "code": status})

    def take(self):
        body = None
        if self.headers["Content-Length"]:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        there = self.server.objects.get(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.refuse(401, "Unauthorized")
        if not self.allowed():
            return self.refuse(403, f"{self.command} {self.path} is not in the role")
        for part, status in self.server.failing.items():
            if part in f"{self.command} {self.path}":
                return self.refuse(status, f"not for {part}")
        if self.command == "POST" and self.path == f"{RESOURCES}/resourceslices":
            return self.store(self.path, body, 201)
        if not there:
            return self.refuse(404, f"{self.path} not found")
        if self.command == "PUT":
            if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
                return self.refuse(409, "the object has been modified")
            assert body["spec"]["pool"]["generation"] == there["spec"]["pool"]["generation"] + 1
            return self.store(os.path.dirname(self.path), body, 200)
        return self.answer(200, there)

    def allowed(self):
        words = self.path.split("/")[1:]
        group = words[1] if words[0] == "apis" else ""
        resource, = {"nodes", "resourceslices", "resourceclaims"} & set(words)
        right = group, resource, VERBS[self.command]
        self.server.used.add(right)
        return right in self.server.rights

    def store(self, path, body, status):
        try:
            self.answer(status, self.server.add(path, body))
        except (AssertionError, kubernetes_validate.ValidationError) as error:
            self.refuse(422, f"invalid: {error!r}")

    do_GET = do_POST = do_PUT = take
