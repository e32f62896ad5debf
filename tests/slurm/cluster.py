# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A cluster of Slurm's of one node, which is this machine, with files in one folder: its
daemons end with it. For namespaces, or a machine, of its own."""
import fcntl
import os
import socket
import struct
import subprocess
import time

CONF = """\
ClusterName=one
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
NodeName=localhost CPUs=4 RealMemory={memory} Gres=actmem:{gres}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
{more}
"""


def bring_up_loopback():
    """With an address besides: getaddrinfo() finds none for Slurm if it has 127.0.0.1 alone."""
    address = struct.pack("16sH2x4s8x", b"lo:0", socket.AF_INET, socket.inet_aton("192.0.2.1"))
    up = struct.pack("16sh14x", b"lo", 0x1 | 0x40)      # IFF_UP, IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, up)             # SIOCSIFFLAGS
        fcntl.ioctl(any_socket, 0x8916, address)        # SIOCSIFADDR


class Cluster:
    """@more: lines of slurm.conf, and of gres.conf what it says of actmem."""

    def __init__(self, folder, more, memory, gres):
        self.folder = folder
        self.daemons = []
        for name in ("state", "spool"):
            os.mkdir(os.path.join(folder, name))
        self.write("slurm.conf", CONF.format(folder=folder, memory=memory, gres=gres, more=more))
        self.write("gres.conf", f"Name=actmem Count={gres} Flags=CountOnly\n")
        # Of which nothing is used; to find out, slurmd wants to see some mounted.
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        self.write("munge.key", "k" * 64, 0o600)
        self.environment = {"SLURM_CONF": os.path.join(folder, "slurm.conf"), "LC_ALL": "C.UTF-8",
                            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, mode)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def __enter__(self):
        socket_path = os.path.join(self.folder, "munge.socket")
        self.start("/usr/sbin/munged", "--foreground", "--force", f"--socket={socket_path}",
                   f"--key-file={self.folder}/munge.key", f"--pid-file={self.folder}/munged.pid",
                   f"--seed-file={self.folder}/munged.seed",
                   f"--log-file={self.folder}/munged.log")
        self.wait_for(lambda: os.path.exists(socket_path))
        self.start("/usr/sbin/slurmctld", "-D")
        self.start("/usr/sbin/slurmd", "-D", "-N", "localhost")
        self.wait_for(lambda: "idle" in self.call("sinfo", "-h", "-o", "%T").stdout)
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def start(self, *command):
        with open(os.path.join(self.folder, "daemons.log"), "ab") as log:
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, env=self.environment))

    def wait_for(self, happens, seconds=60):
        end = time.monotonic() + seconds
        while not happens():
            assert time.monotonic() < end and all(d.poll() is None for d in self.daemons), \
                "\n".join(self.read(name)[-2000:] for name in os.listdir(self.folder)
                          if name.endswith(".log"))
            time.sleep(0.2)

    def call(self, *command, prefix=()):
        return subprocess.run([*prefix, *command], env=self.environment, text=True, timeout=300,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
