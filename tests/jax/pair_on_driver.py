# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Two JAX processes that jax.distributed joins on one machine, each under

    actmem run --backend driver

share a limit: RLIMIT_MEMLOCK, the administrator's of their user, and size= of a mount
in which their regions have names. Runs as root in a booted kernel and prints TAP.
"""
import fcntl
import os
import resource
import socket
import struct
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

from pair import Pair, check, finish  # noqa: E402

MIB = 1 << 20
MOUNT = "/dev/shm/act"
DEVICE = "/sys/class/misc/actmem"
SAVED = 12                      # MiB that a training saves in each process
LIMIT = 2 * SAVED
EXTRA = 4                       # MiB of an array, for which there is room beside one of them
# Root without its rights is bound by RLIMIT_MEMLOCK as every user.
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
GROW = ("--heap-grow", "4M")


def read(path):
    with open(f"{DEVICE}/{path}", encoding="ascii") as file:
        return int(file.read())


def write(path, value):
    with open(f"{DEVICE}/{path}", "w", encoding="ascii") as file:
        file.write(str(value))


def held():
    """Bytes of regions, by the driver's own counts."""
    return sum(read(f"{node}/region_bytes") for node in os.listdir(DEVICE)
               if node.startswith("node"))


def bring_up_loopback():
    """For jax.distributed and gloo, which asks for the address of the host's name."""
    socket.sethostname("localhost")
    up = struct.pack("16sh14x", b"lo", 0x1 | 0x40)      # IFF_UP, IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, up)             # SIOCSIFFLAGS


class Job:
    """The pair, and what its trainings come to without actmem."""

    def __init__(self, options_of, prefix=(), stock=None):
        self.pair = Pair(options_of, prefix)
        check(all(told == {"devices": 2, "backend": "driver"} for told in self.pair.started),
              "two processes are one job, on the driver", self.pair.started)
        told = self.pair.do("prepare together")
        if not stock:
            told += [self.pair[0].do("stock alone"), *self.pair.do("stock together")]
            stock = {"alone": told[2]["losses"], "together": told[3]["losses"]}
        self.stock = stock
        check(all(losses and losses[-1] < losses[0] for losses in stock.values()),
              f"whose losses fall: {stock}", told)

    def is_same(self, told, kind="alone"):
        return told["losses"] == self.stock[kind]


def fit(job, limit):
    """Both have what is exactly theirs, alone and together."""
    told = job.pair.do("actmem alone")
    check(all(map(job.is_same, told)) and held() == LIMIT * MIB,
          f"{limit}: both train in {LIMIT} MiB exactly, with the losses of JAX alone",
          told, held())
    told = job.pair.do("actmem together")
    check(all(job.is_same(one, "together") for one in told),
          f"{limit}: and so does the job of both", told)


def do_not_fit(job, limit, *words):
    """The one that wants more than is left is told, and the other one goes on."""
    modest, greedy = job.pair
    greedy.do("reset")
    told = greedy.do(f"array {EXTRA}")
    check(told["error"] is None, f"{limit}: an array takes {EXTRA} MiB", told)
    modest.ask("actmem alone")
    told = greedy.do("actmem alone")
    other = modest.answer()
    check(told["error"] is not None and all(word in told["error"] for word in words),
          f"{limit}: who wants too much is told: {told['error']}", told)
    check(job.is_same(other), f"{limit}: the other one goes on, with the same losses", other)
    told = greedy.do("reset")
    check(held() == SAVED * MIB and not told["region_bytes"],
          f"{limit}: what it had got is given back", told, held())
    told = job.pair.do("actmem together")
    check(all(job.is_same(one, "together") for one in told),
          f"{limit}: it then takes part as before", told)


def killed(job, limit):
    """kill -9 of one, while it trains."""
    job.pair[1].ask("actmem alone")
    job.pair[1].kill()
    told = job.pair[0].do("actmem alone")
    check(job.is_same(told), f"{limit}: after kill -9 of one the other one goes on", told)
    check(held() == told["region_bytes"] == SAVED * MIB,
          f"{limit}: and has its own memory alone", told, held())
    told = job.pair[0].do(f"array {SAVED}")
    check(told["error"] is None and held() == LIMIT * MIB,
          f"{limit}: what the killed one had is its to take", told, held())
    status = job.pair[0].end()
    check(held() == 0 and read("regions") == 0,
          f"{limit}: everything is at 0 after its end (jax.distributed's status {status})",
          held())


def limits_of_the_user():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (LIMIT * MIB,) * 2)
    job = Job(lambda rank: ("--backend", "driver", *GROW), UNPRIVILEGED)
    fit(job, "RLIMIT_MEMLOCK")
    do_not_fit(job, "RLIMIT_MEMLOCK", "RLIMIT_MEMLOCK has 0 B left, but 2.0 MiB are needed",
               "ulimit -l", "24.0 MiB of the limit of 24.0 MiB are in use")
    job.pair.do("reset")
    write("user_limit_bytes", LIMIT * MIB)
    fit(job, "the user's limit")
    do_not_fit(job, "the user's limit", "has 0 B left, but 2.0 MiB are needed",
               "actmem limit --user SIZE", "24.0 MiB of the limit of 24.0 MiB are in use")
    killed(job, "the user's limit")
    write("user_limit_bytes", "max")
    return job.stock


def size_of_a_mount(stock):
    """Where the first takes more than it needs, the second one has what it needs."""
    size, grow, first, limit = 28, 8, 16, "size="
    os.mkdir(MOUNT)
    subprocess.run(["/bin/mount", "-t", "actmem", "-o", f"size={size}M", "none", MOUNT],
                   check=True)
    job = Job(lambda rank: ("--name", f"{MOUNT}/job-{rank}", "--heap-grow", f"{grow}M"),
              stock=stock)
    told = [job.pair[rank].do("actmem alone") for rank in range(2)]
    check(all(map(job.is_same, told)) and held() == size * MIB and
          [one["region_bytes"] for one in told] == [first * MIB, SAVED * MIB],
          f"{limit}: both train in files of {first} and {SAVED} MiB", told, held())
    told = job.pair.do("actmem together")
    check(all(job.is_same(one, "together") for one in told),
          f"{limit}: and so does the job of both", told)
    told = job.pair[1].do(f"array {EXTRA}")
    check(told["error"] is not None and all(word in told["error"] for word in (
        "0 B left, but", "remount,size=", f"mounted at {MOUNT}",
        f"its files use {size}.0 MiB of {size}.0 MiB")),
        f"{limit}: who wants too much is told: {told['error']}", told)

    for worker in job.pair:
        worker.ask("actmem together")
    job.pair[1].kill()
    told = job.pair[0].answer()
    check(told["error"] is not None or job.is_same(told, "together"),
          f"{limit}: kill -9 of one is told to the other one: {told['error']}", told)
    job.pair[0].do("reset")
    told = job.pair[0].do("actmem alone")
    check(job.is_same(told), f"{limit}: which goes on alone", told)
    check(held() == size * MIB, f"{limit}: the files of both are there", held())
    for file in os.listdir(MOUNT):
        if file.startswith("job-1"):
            os.unlink(f"{MOUNT}/{file}")
    check(held() == first * MIB, f"{limit}: and those of the killed one go by rm", held())
    status = job.pair[0].end()
    check(held() == first * MIB,
          f"{limit}: those of the other one stay after its end (status {status})", held())
    for file in os.listdir(MOUNT):
        os.unlink(f"{MOUNT}/{file}")
    check(held() == 0 and read("regions") == 0, f"{limit}: and rm gives them back", held())
    subprocess.run(["/bin/umount", MOUNT], check=True)


def main():
    bring_up_loopback()
    size_of_a_mount(limits_of_the_user())
    finish()


if __name__ == "__main__":
    main()
