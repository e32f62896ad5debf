# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Two JAX processes with jax.distributed on loopback, each under `actmem run`, whose
memory is files of one mount with a limit: with as much as both need, with less and files
to spill to, and with too little. Both get on, or are told what is missing; their
losses are those of one process. Prints TAP.

The mount is a tmpfs that these processes alone see, where that can be had.
"""
import argparse
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

from telling import check, end

HERE = os.path.dirname(os.path.abspath(__file__))
INSIDE = "ACTMEM_TWO_PROCESSES"
GROW = 2 << 20
# Of one process and step: as two_train.py says, checked against what it tells.
STEP_BYTES = 6 << 20
BUDGET = 4 << 20
LEAST_SECONDS = 10


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    def __init__(self, options, number, count, port, run_options, method, environment):
        program = [sys.executable, os.path.join(HERE, "two_train.py"),
                   f"--processes={count}", f"--process={number}", f"--port={port}",
                   f"--method={method}"]
        program = [options.actmem, "run", f"--heap-grow={GROW}", *run_options, "--", *program]
        self.output = tempfile.TemporaryFile("w+")
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(program, stdout=self.output, stderr=self.errors,
                                        env={**os.environ, **environment})

    def end(self, deadline):
        """True if it ended by itself."""
        try:
            self.process.wait(max(0.1, deadline - time.monotonic()))
            return True
        except subprocess.TimeoutExpired:
            self.kill()
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def read(self, file):
        file.seek(0)
        return file.read()

    def told(self):
        """What two_train.py told, or None."""
        lines = [line for line in self.read(self.output).splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if not self.process.returncode and lines else None

    def words(self):
        return self.read(self.errors)


def run(options, count, method="actmem", named=None, more=()):
    """`count` processes together; whether they ended, and they."""
    port = free_port()
    environment = {"ACTMEM_BACKEND": options.backend, "ACTMEM_PAGES": "4K",
                   "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if os.environ.get("JAX_PLATFORMS") not in ("cpu", None):
        environment["JAX_PLATFORMS"] = os.environ["JAX_PLATFORMS"] + ",cpu"
    processes = []
    deadline = min(time.monotonic() + options.case_seconds, options.deadline)
    try:
        for number in range(count):
            run_options = [*more]
            if named:       # else what XLA pins itself would lie in the mount, too
                run_options += [f"--name={os.path.join(named, f'p{number}')}", "--no-cuda"]
            processes.append(Process(options, number, count, port, run_options, method,
                                     environment))
        return all([process.end(deadline) for process in processes]), processes
    except BaseException:
        for process in processes:
            process.kill()
        raise


class Mount:
    """A tmpfs of so many bytes."""

    def __init__(self, size):
        self.folder = tempfile.mkdtemp()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none",
                        self.folder], check=True)

    def __enter__(self):
        return self.folder

    def __exit__(self, *error):
        subprocess.run(["umount", self.folder], check=True)
        os.rmdir(self.folder)


def same(losses, wanted):
    return len(losses) == len(wanted) and all(
        abs(a - b) <= 1e-5 * abs(b) for a, b in zip(losses, wanted))


def get_on(name, ended, processes, wanted):
    """Both have trained, to the same; what they told."""
    told = [process.told() for process in processes]
    if not check(ended and all(told), f"{name}: both end well",
                 *[process.words() for process in processes]):
        return None
    check(all(same(each["losses"], wanted) for each in told),
          f"{name}: losses are those of one process",
          *[each["losses"] for each in told], wanted)
    return told


def all_was_used(name, told):
    steps = len(told[0]["losses"])
    check(all(each["stats"]["put_bytes_total"] == each["stats"]["take_bytes_total"] ==
              steps * STEP_BYTES for each in told),
          f"{name}: {steps} times {STEP_BYTES} bytes of each went in and out",
          *[each["stats"] for each in told])
    check(all(each["stats"]["live_bytes"] == 0 for each in told), f"{name}: nothing is left")


def as_much_as_both_need(options, wanted, ahead):
    name = "as much as both need"
    with Mount(2 * (STEP_BYTES + ahead)) as folder:
        told = get_on(name, *run(options, 2, named=folder), wanted)
        if told:
            all_was_used(name, told)
            check(all(region["path"].startswith(folder) for each in told
                      for region in each["regions"]), f"{name}: in files of the mount",
                  *[each["regions"] for each in told])


def less(options, wanted):
    name = "two thirds of it, and files"
    with Mount(2 * BUDGET) as folder, \
            tempfile.TemporaryDirectory(dir=options.spill) as spill:
        told = get_on(name, *run(options, 2, named=folder, more=[
            f"--budget={BUDGET}", f"--spill={spill}"]), wanted)
        if told:
            all_was_used(name, told)
            check(all(each["spilled_bytes_total"] > 0 for each in told),
                  f"{name}: both have spilled", *[each["spilled_bytes_total"] for each in told])


def too_little(options):
    name = "too little"
    with Mount(STEP_BYTES + GROW) as folder:
        ended, processes = run(options, 2, named=folder)
        check(ended, f"{name}: no one waits for ever", *[process.words() for process in processes])
        failed = [process.words() for process in processes if process.process.returncode]
        check(len(failed) > 0, f"{name}: it fails")
        telling = [words for words in failed if "RESOURCE_EXHAUSTED: actmem" in words and
                   folder in words]
        check(len(telling) > 0, f"{name}: who has no memory is told where and how much", *failed)
        for words in telling[:1]:
            lines = [line for line in words.splitlines() if "RESOURCE_EXHAUSTED" in line]
            print(f"# {lines[0][:400]}")
        # Files with names stay, as they should; those of the other one are removed, as told.
        for path in glob.glob(os.path.join(folder, "p1.*")):
            os.unlink(path)
        _, alone = run(options, 1, named=folder)
        check(not alone[0].process.returncode, f"{name}: for one alone it is enough then",
              alone[0].words())


def jax_alone(options, wanted):
    """JAX's own pinned_host, which `actmem run` takes into its memory on a GPU."""
    get_on("JAX's own, under actmem run", *run(options, 2, method="stock"), wanted)


def isolate():
    """Again, where mounts are this process's own; nothing if that is so already."""
    if os.environ.get(INSIDE):
        return
    command = ["unshare", "--mount"]
    if os.getuid():
        command += ["--user", "--map-root-user"]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        if os.getuid():
            print("1..0 # SKIP no mount namespace of its own can be had")
            sys.exit(0)
        print("# no mount namespace of its own can be had (in a chroot, say): mounts are seen "
              "by all while this runs")
        return
    os.environ[INSIDE] = "1"
    os.execvp(command[0], [*command, sys.executable, *sys.argv])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":", maxsplit=1)[0])
    parser.add_argument("--actmem", required=True, metavar="FILE", help="the command")
    parser.add_argument("--backend", default="memfd")
    parser.add_argument("--spill", metavar="FOLDER", help="on a file system with direct I/O")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--case-seconds", type=float, default=200)
    options = parser.parse_args()
    isolate()
    # Mounts and processes do not outlive this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.deadline = time.monotonic() + options.seconds
    ended, processes = run(options, 1)
    told = processes[0].told()
    if not check(ended and told is not None, "one process alone", processes[0].words()):
        return end()
    wanted = told["losses"]
    check(wanted[-1] < wanted[0], f"its loss falls from {wanted[0]:.4f} to {wanted[-1]:.4f}")
    check(told["stats"]["live_bytes_peak"] == STEP_BYTES, "it needs what is said here",
          told["stats"])
    on_gpu = any("cuda" in device for device in told["devices"])
    ahead = GROW if on_gpu else 0       # half of it at least is made before it is wanted
    cases = {"as much as both need": lambda: as_much_as_both_need(options, wanted, ahead),
             "less": lambda: less(options, wanted), "too little": lambda: too_little(options)}
    if on_gpu:
        cases["JAX's own"] = lambda: jax_alone(options, wanted)
    for name, case in cases.items():
        if time.monotonic() > options.deadline - LEAST_SECONDS:
            check(True, f"{name} # SKIP no time left")
            continue
        try:
            case()
        except (OSError, subprocess.SubprocessError) as error:      # no mount can be had, say
            check(False, f"{name}: {error}")
    return end()


if __name__ == "__main__":
    sys.exit(main())
