# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs the command under test, and gives it a /dev to find or not to find."""

import contextlib
import ctypes
import fcntl
import glob
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tap
import tempfile
import termios
import time

BUILD = os.path.abspath(sys.argv.pop(1))
ACTMEM = os.path.join(BUILD, "bin", "actmem")
ACTMEM_BENCH = os.path.join(BUILD, "bin", "actmem-bench")
HOLDER = os.path.join(BUILD, "tests", "tools", "holder")
ISOLATED = "ACTMEM_TEST_ISOLATED" in os.environ

# For root too: no capability survives an exec.
NO_CAPABILITIES = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
INOTIFY_CLOSE, INOTIFY_OPEN = 0x10, 0x20
SHMEM_ENABLED = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
SUBCOMMANDS = ("run", "list", "waits", "prune", "info", "pool", "limit", "doctor", "exporter",
               "bench", "replay", "plan", "probe")
# Those of actmem-bench, which actmem becomes for them.
MEASURING = ("bench", "replay")
# Those of the Python module.
PLANNING = ("plan", "probe")


def clean_environment(**variables):
    """The environment without any ACTMEM_*, and what is given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ACTMEM_")}
    kept.pop("PYTHONPATH", None)
    kept["LC_ALL"] = "C.UTF-8"
    kept["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    return kept | variables


def actmem(*arguments, prefix=(), program=ACTMEM, environment=None, **options):
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([*prefix, program, *arguments], stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, timeout=600, check=False,
                          env=environment or clean_environment(), **options)


@contextlib.contextmanager
def public_copy():
    """The command, alone, where every user may run it, wherever the tree lies."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        for kind, file in (("bin", "actmem"), ("lib", "libactmem.so.0")):
            os.mkdir(os.path.join(folder, kind))
            shutil.copy(os.path.join(BUILD, kind, file), os.path.join(folder, kind))
        yield os.path.join(folder, "bin", "actmem")


def expect(result, status, stdout=None, stderr=None):
    """The status, exactly that standard output, and those words in one line."""
    told = f"{result.args}: {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert result.returncode == status, told
    if stdout is not None:
        assert result.stdout == stdout, told
    if stderr is None:
        assert result.stderr == "", told
        return
    line, *hint = result.stderr.splitlines()
    name = line.split(":")[0]
    assert name in ("actmem", *(f"actmem {n}" for n in SUBCOMMANDS),
                    "actmem-bench", *(f"actmem-bench {n}" for n in MEASURING)), told
    assert hint == ([f"Try '{name} --help'."] if status == 2 else []), told
    for word in [stderr] if isinstance(stderr, str) else stderr:
        assert word in line, told


@contextlib.contextmanager
def transparent_pages():
    """Whether shared memory may have them: as root it is lent them for the while.

    The knob is the whole machine's: who else lends it waits for his turn.
    """
    with open(SHMEM_ENABLED, encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mode = file.read().partition("[")[2].partition("]")[0]
        if mode in ("advise", "always", "force", "within_size"):
            yield True
        elif not os.access(SHMEM_ENABLED, os.W_OK):
            yield False
        else:
            with open(SHMEM_ENABLED, "w", encoding="ascii") as knob:
                knob.write("advise")
            try:
                yield True
            finally:
                with open(SHMEM_ENABLED, "w", encoding="ascii") as knob:
                    knob.write(mode)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def private_dev():
    """A /dev of the usual few files, without actmem."""
    if not ISOLATED:
        raise tap.Skip("needs a mount namespace of its own")
    if os.path.ismount("/dev/null"):
        return
    with tempfile.TemporaryDirectory() as folder:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            with open(os.path.join(folder, name), "w", encoding="ascii"):
                pass
            mount("--bind", f"/dev/{name}", os.path.join(folder, name))
        mount("--rbind", folder, "/dev")
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def mounted(options, kind="tmpfs", folder=None):
    """A file system of that kind: at a folder of its own, or at the one that is given."""
    if not ISOLATED:
        raise tap.Skip("needs a mount namespace of its own")
    with contextlib.ExitStack() as stack:
        folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
        mount("-t", kind, "-o", options, "none", folder)
        stack.callback(subprocess.run, ["umount", folder], check=True)
        yield folder


@contextlib.contextmanager
def module_files(**contents):
    """What a module shows in sysfs: these files with these lines."""
    with mounted("mode=755", folder="/sys/class/misc"):
        os.mkdir("/sys/class/misc/actmem")
        for name, line in contents.items():
            os.makedirs(os.path.dirname(f"/sys/class/misc/actmem/{name}"), exist_ok=True)
            with open(f"/sys/class/misc/actmem/{name}", "w", encoding="ascii") as file:
                print(line, file=file)
        yield


def opens(path, run):
    """How often a file is opened while that runs."""
    system = ctypes.CDLL(None, use_errno=True)
    watch = system.inotify_init1(os.O_CLOEXEC)
    # Closing, too, as events that are the same as the one before are made one.
    added = system.inotify_add_watch(watch, path.encode(), INOTIFY_OPEN | INOTIFY_CLOSE)
    assert watch >= 0 and added >= 0, os.strerror(ctypes.get_errno())
    run()
    with open(path, encoding="ascii"):          # one at least, which ends the wait for them
        pass
    events = os.read(watch, 1 << 16)
    os.close(watch)
    # Of one file alone, an event has no name behind it.
    masks = [mask for _, mask, _, _ in struct.iter_unpack("iIII", events)]
    return masks.count(INOTIFY_OPEN) - 1


@contextlib.contextmanager
def forbidden_device():
    """A /dev/actmem that nobody without capabilities may open."""
    private_dev()
    with open("/dev/actmem", "w", encoding="ascii"):
        pass
    os.chmod("/dev/actmem", 0)
    try:
        yield
    finally:
        os.unlink("/dev/actmem")


def stranger():
    """What begins a command of another user."""
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise tap.Skip("needs root, to become another user")
    return words


@contextlib.contextmanager
def holder(name, *sizes, environment=None, program=HOLDER):
    """A process that holds regions of these sizes, the first one mapped."""
    environment = environment or clean_environment(ACTMEM_ALLOW="any")
    with subprocess.Popen([program, name, *map(str, sizes)], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=environment) as process:
        try:
            assert process.stdout.readline() == "ready\n", "the holder has no regions"
            yield process
        finally:
            process.kill()


def scratch():
    """A folder to spill to: beside the build, as /tmp may be memory, or lack direct I/O."""
    return tempfile.TemporaryDirectory(dir=BUILD)


def wait_for(happens):
    """Returns when it is true, or fails after a minute."""
    end = time.monotonic() + 60
    while not happens():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.002)


def spill_files(pid, folder):
    """The descriptors of files without a name there that the process has."""
    place = os.path.realpath(folder) + "/#"
    found = []
    for path in glob.glob(f"/proc/{pid}/fd/*"):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path).startswith(place):
                found.append(path)
    return found


def damage(process, path):
    """Overwrites bytes of a file, on page after page, as long as the process runs."""
    with open(path, "r+b", buffering=0) as file:
        while process.poll() is None:
            for offset in range(0, os.fstat(file.fileno()).st_size, 65536):
                os.pwrite(file.fileno(), b"damage", offset)
            time.sleep(0.01)


def on_terminal(*arguments, columns=0, status=0):
    """What the command tells on a standard error that is a terminal; with columns, on an
    output of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with subprocess.Popen([ACTMEM, *arguments], stdin=subprocess.DEVNULL,
                          stdout=theirs if columns else subprocess.DEVNULL, stderr=theirs,
                          env=clean_environment()) as process:
        os.close(theirs)
        told = b""
        # Until it is closed there, which reads as EIO.
        with contextlib.suppress(OSError):
            while select.select([ours], [], [], 60)[0]:
                told += os.read(ours, 65536)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            with open(f"/proc/{process.pid}/stack", encoding="ascii") as file:
                told += b"\nit does not end: " + file.read().encode()
            process.kill()
    os.close(ours)
    assert process.returncode == status, told
    return told.decode()
