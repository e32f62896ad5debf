# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Stand-ins of what the driver for Kubernetes talks to: an API server that has nodes, claims
and slices, over HTTPS with a token; a kubelet, by gRPC; and a container runtime that reads
CDI files. What is written by either side is held against the published schemas."""
import glob
import http.server
import json
import os
import ssl
import subprocess
import threading
import time

import grpc
import kubernetes_validate
import yaml

NEWEST = "1.37"
MANIFEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging",
                        "kubernetes", "driver.yaml")
VERBS = {"GET": "get", "POST": "create", "PUT": "update"}
TOKEN = "a-token-of-this-test"
RESOURCES = "/apis/resource.k8s.io/v1"
MIB = 1 << 20


def wait_for(happens, seconds=60):
    end = time.monotonic() + seconds
    while True:
        result = happens()
        if result:
            return result
        assert time.monotonic() < end, f"never happened: {happens}"
        time.sleep(0.05)


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
    """@gate: whether DRAConsumableCapacity is on. What is in `failing` is answered with that
    status; what the manifest's role does not allow, with 403. `used` is what was asked of it."""

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
        return self.objects.get(f"{RESOURCES}/resourceslices/node-1-memory.actmem.internal")

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


class Kubelet:
    """@messages: the modules of both .proto files."""

    def __init__(self, folder, registration, dra):
        self.folder = folder
        self.registration = registration
        self.dra = dra
        self.channel = None

    def call(self, channel, method, request, answer):
        return channel.unary_unary(method, request_serializer=type(request).SerializeToString,
                                   response_deserializer=answer.FromString)(request, timeout=120)

    def socket(self):
        sockets = glob.glob(f"{self.folder}/plugins_registry/*.sock")
        return sockets[0] if sockets else None

    def find(self, error=""):
        """Registers the driver, as the kubelet does with each socket that it finds, or refuses
        it. Returns how the driver has introduced itself."""
        path = wait_for(self.socket)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            grpc.channel_ready_future(channel).result(60)
            info = self.call(channel, "/pluginregistration.Registration/GetInfo",
                             self.registration.InfoRequest(), self.registration.PluginInfo)
            self.call(channel, "/pluginregistration.Registration/NotifyRegistrationStatus",
                      self.registration.RegistrationStatus(plugin_registered=not error,
                                                           error=error),
                      self.registration.RegistrationStatusResponse)
        if self.channel:
            self.channel.close()
        self.channel = grpc.insecure_channel(f"unix:{info.endpoint}")
        return info

    def ask(self, what, claims):
        request = getattr(self.dra, f"Node{what}ResourcesRequest")(
            claims=[self.dra.Claim(**claim) for claim in claims])
        answer = getattr(self.dra, f"Node{what}ResourcesResponse")
        answers = self.call(self.channel,
                            f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{what}Resources",
                            request, answer).claims
        assert sorted(answers) == sorted(claim["uid"] for claim in claims), answers
        return answers

    def prepare(self, *claims):
        return self.ask("Prepare", claims)

    def unprepare(self, *claims):
        return {uid: answer.error for uid, answer in self.ask("Unprepare", claims).items()}


# As a runtime does it, but for its own root: what is in /dev and /run/actmem of the container is
# what it is given.
CONTAINER = """set -e
root=$(mktemp -d /run/container.XXXXXX)
mount -t tmpfs none $root
mkdir $root/dev $root/source
for name in null zero urandom $DEVICES; do
    touch $root/dev/$name
    mount --bind /dev/$name $root/dev/$name
done
mount --bind $SOURCE $root/source
umount -l $(dirname $SOURCE)/*
mount -t tmpfs none /run/actmem
mkdir $TARGET
mount --move $root/source $TARGET
mount -o remount,bind,nosuid,nodev,noexec $TARGET
mount --rbind $root/dev /dev
umount -l $root
exec setpriv --reuid=65534 --regid=65534 --groups=65534$GIDS prlimit --memlock=65536 "$@"
"""
CDI_KEYS = {"cdiVersion", "kind", "containerEdits", "devices"}
EDIT_KEYS = {"env", "mounts", "deviceNodes", "additionalGids"}


def edits_of(cdi, ids):
    """What a container with these devices gets, once for each file."""
    edits = []
    for path in glob.glob(f"{cdi}/*.json"):
        with open(path, encoding="ascii") as file:
            spec = json.load(file)
        gids = "additionalGids" in spec["containerEdits"]
        assert set(spec) == CDI_KEYS and spec["cdiVersion"] == ("0.7.0" if gids else "0.5.0"), spec
        names = [name for kind, name in (text.split("=") for text in ids)
                 if kind == spec["kind"]]
        chosen = [device for device in spec["devices"] if device["name"] in names]
        if chosen:
            edits += [spec["containerEdits"], *(device["containerEdits"] for device in chosen)]
    assert all(edit and set(edit) <= EDIT_KEYS for edit in edits), edits
    assert edits, f"no file in {cdi} has {ids}"
    return edits


def container(cdi, ids, *command, **options):
    """Starts a process in one, as an unprivileged user with little memory to lock."""
    edits = edits_of(cdi, ids)
    mount, = [mount for edit in edits for mount in edit.get("mounts", [])]
    assert {"bind", "rw"} <= set(mount["options"]), mount
    environment = dict(text.split("=", 1) for edit in edits for text in edit.get("env", []))
    environment.update(
        PATH="/usr/sbin:/usr/bin:/sbin:/bin", SOURCE=mount["hostPath"],
        TARGET=mount["containerPath"],
        DEVICES=" ".join(os.path.basename(node["path"]) for edit in edits
                         for node in edit.get("deviceNodes", [])),
        GIDS="".join(f",{gid}" for edit in edits for gid in edit.get("additionalGids", [])))
    return subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c",
                             CONTAINER, "container", *command], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, **options)


def podman(ids, folder, programs, *command):
    """Runs it in a container of podman's, which reads CDI files in /run/cdi, as the same user
    with as little memory to lock. @folder: for what podman keeps, and the container's root, in
    which are this machine's /usr and the folder with the @programs. Returns what it says, and
    its status."""
    root = f"{folder}/root"
    for name in ("usr", "etc", "proc", "sys", "dev", "run", "tmp"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        os.symlink(f"usr/{name}", f"{root}/{name}")
    result = subprocess.run(
        ["podman", "--root", f"{folder}/containers", "--runroot", f"{folder}/running",
         "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none",
         "--runtime", "crun", "run", "--rm", "--network=none", "--cgroups=disabled",
         "--log-driver=none", "--user=65534:65534", "--ulimit=memlock=65536:65536",
         "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
         "-v=/usr:/usr:ro", f"-v={programs}:{programs}:ro",
         *(f"--device={name}" for name in ids), "--rootfs", root, *command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": folder, "HOME": folder},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=300, check=False)
    return result.stdout, result.returncode
