# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Processes that tests/gpu starts end with all that they have started, in whatever group
or session that is, and also if who started them is killed."""
import ctypes
import glob
import os
import signal
import subprocess
import time

# In the environment of all that is started: of which run it is.
MARK = "ACTMEM_GPU_RUN"
SET_CHILD_SUBREAPER = 36        # PR_SET_CHILD_SUBREAPER
END_SECONDS = 5


def adopt_orphans():
    """What a child of ours has started is ours when that child ends, not init's."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _parents():
    """{pid: parent's} of all that run and are no zombies."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:             # it has ended
            continue
        if state not in "ZX":
            found[int(path.split("/")[2])] = int(parent)
    return found


def _is_marked(pid, mark):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False


_guards = set()


def left(root, mark=None):
    """Processes that `root` or one of its children has started, or that have `mark`."""
    parents = _parents()
    ours, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours - _guards
        ours |= more
        grown = bool(more)
    marked = {pid for pid in parents if mark and _is_marked(pid, mark)}
    return (ours | marked) - {root, os.getpid()}


def _reap(pids):
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except (ChildProcessError, OSError):
            pass


def end(find, child=None, seconds=END_SECONDS):
    """Ends what find() gives; what even then is left, as one that waits for a device. The
    exit status of `child`, a Popen, stays to be asked for."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + seconds
        told = set()
        while (pids := find()) and time.monotonic() < deadline:
            for pid in pids - told:
                try:
                    os.kill(pid, number)
                except OSError:
                    pass
            told |= pids
            time.sleep(0.05)
            if child:
                child.poll()
            _reap(told - {child and child.pid})
    return find()


def run(argv, seconds, environment=None, stdout=None, stderr=None):
    """Its exit status, or None if it was ended, with what it had started, because it took
    too long. Outputs are files: of a pipe the end may never come."""
    process = subprocess.Popen(argv, env=environment, stdout=stdout, stderr=stderr,
                               stdin=subprocess.DEVNULL)
    try:
        return process.wait(max(seconds, 0.1))
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            end(lambda: left(process.pid) | (
                {process.pid} if process.poll() is None else set()), process, 2)


def guard(mark):
    """A process that ends what has the mark when this one is gone, however it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(reading)
        _guards.add(child)
        return writing              # open as long as this process is there
    try:
        os.setpgid(0, 0)
        os.close(writing)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with open(os.devnull, "r+b") as nothing:
            for fd in (0, 1, 2):    # a reader of ours waits for no one else
                os.dup2(nothing.fileno(), fd)
        while os.read(reading, 1):
            pass
        end(lambda: left(os.getpid(), mark), seconds=2)
    finally:
        os._exit(0)
