# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A node of the stand-ins' cluster: a kubelet, and the driver as a process."""
import contextlib
import glob
import os
import subprocess
import sys
import tempfile

from actmem_dra import dra_pb2, registration_pb2
from api_server import MIB, ApiServer
from containers import container
from kubelet import Kubelet, wait_for
from tap import case, main

HAS_DRIVER = os.path.exists("/dev/actmem")
SYSFS = "/sys/class/misc/actmem"
USER_LIMIT = f"{SYSFS}/user_limit_bytes"
MOUNTS = "/run/actmem/kubernetes"
COMMANDS = "/usr/sbin:/usr/bin:/sbin:/bin"
# Seconds. A look at the pools takes a good part of a second in an emulated machine.
INTERVAL = "2" if HAS_DRIVER else "0.2"


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
    """@build: the folder with what is tested; @where: for files; @api: the ApiServer; all set
    by run_cases(). @usual: that of usual_node()."""
    build = where = api = usual = None

    def __init__(self, *arguments):
        self.folder = tempfile.mkdtemp(dir=self.where)
        self.cdi = f"{self.folder}/cdi"
        self.arguments = arguments
        self.kubelet = Kubelet(f"{self.folder}/kubelet", registration_pb2, dra_pb2)
        self.process = None

    def start(self, path=COMMANDS):
        with open(f"{self.folder}/log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "actmem_dra", "--account", self.api.account,
                 "--node", "node-1", "--kubelet", self.kubelet.folder, "--cdi", self.cdi,
                 "--interval", INTERVAL, *self.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PYTHONPATH": f"{self.build}/kube", "PATH": path,
                     **self.api.environment()})
        return self

    def log(self):
        return read(f"{self.folder}/log")

    def says(self, text):
        wait_for(lambda: text in self.log() or self.process.poll() is not None)
        assert text in self.log(), self.log()

    def __enter__(self):
        self.start()
        try:
            self.kubelet.find()
        except Exception as error:
            raise AssertionError(f"the driver cannot be found: {self.log()}") from error
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0, self.log()

    def prepared(self, claim):
        """The names of its devices for the container runtime."""
        answer = self.kubelet.prepare(claim)[claim["uid"]]
        assert not answer.error, (answer, self.log())
        return [cdi_id for device in answer.devices for cdi_id in device.cdi_device_ids]

    def heap(self, size, *command):
        """A command that has a block of a heap of so many MiB, and runs another or waits."""
        return (f"{self.build}/bin/actmem", "run", "--heap-grow", "4M", "--",
                f"{self.build}/tests/tools/holder", "heap", str(size * MIB),
                *(("--", *command) if command else ()))

    def run(self, claim, *command, size=8):
        """What a container with the claim says that has a heap, and its status."""
        process = container(self.cdi, self.prepared(claim), *self.heap(size, *command))
        told = process.communicate(timeout=200)[0]
        return told, process.returncode

    def ready(self, claim, *command):
        """A container with the claim that has its heap and waits for the end of its input."""
        process = container(self.cdi, self.prepared(claim), *self.heap(8, *command))
        told = process.stdout.readline()
        assert told == "ready wrote\n", told + process.communicate()[0]
        return process


@contextlib.contextmanager
def usual_node():
    """One for all cases that want nothing special, as a start takes seconds in a machine."""
    if Node.usual is None:
        node = Node()
        Node.usual = node.__enter__()
    yield Node.usual


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


def reserve(size):
    for number in range(2):
        write(f"{SYSFS}/node{number}/pool_bytes", size)


def run_cases(build):
    """With a /run of their own, and pools."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run"], check=True)
    # The user of a container may not reach the build itself, such as below a home of mode 0700.
    public = "/run/build"
    os.mkdir(public)
    subprocess.run(["mount", "--bind", build, public], check=True)
    # What crun wants to find there, though it is told to leave cgroups alone.
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    if HAS_DRIVER:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        reserve("128M")
    try:
        with tempfile.TemporaryDirectory(dir="/run") as folder:
            Node.build, Node.where = public, folder
            Node.api = ApiServer(f"{folder}/account")
            try:
                main()
            finally:
                if Node.usual:
                    Node.usual.__exit__()
    finally:
        if HAS_DRIVER:
            reserve("0")
