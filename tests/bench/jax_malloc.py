# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measures a JAX training step on the CPU under `actmem run --malloc` and its peers.

    jax_malloc.py [--smoke] BUILD [--rounds N] [--steps N] [--only NAME,...] [--memory]

One process for each allocator trains the same model; they take turns, so that
whatever else slows the machine down slows all of them. Prints two lines of JSON for
each peer, of the time and of the processors' time (_cpu): medians in milliseconds,
and the median of each round's own ratio, which is above 1 where ours is better. A
loss that differs by a bit is a failure.
"""
import argparse
import ctypes.util
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
OURS = "actmem"
LIBRARIES = {"mimalloc": "mimalloc", "jemalloc": "jemalloc", "tcmalloc": "tcmalloc_minimal"}
PEERS = {
    "glibc": {},
    # The threshold is as high as glibc takes; without mmap, it keeps all blocks there are.
    "glibc_tuned": {"MALLOC_TOP_PAD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
                    "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_MMAP_MAX_": "0"},
    "glibc_hugetlb": {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"},
    **dict.fromkeys(LIBRARIES, {}),
}


def command(build, name):
    python = os.path.join(build, "venv", "bin", "python")
    words = [python, os.path.join(HERE, "jax_step.py")]
    return [os.path.join(build, "bin", "actmem"), "run", "--malloc", *words] if name == OURS \
        else words


def environment(name):
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("LD_", "MALLOC_", "GLIBC_"))}
    added = dict(PEERS.get(name, {}))
    if name in LIBRARIES:
        added["LD_PRELOAD"] = ctypes.util.find_library(LIBRARIES[name])
        if not added["LD_PRELOAD"]:
            sys.exit(f"jax_malloc: no {name} is installed; "
                     "`scripts/setup packages bench` installs it")
    return kept | added | {"JAX_PLATFORMS": "cpu"}


class Training:
    """A process that trains when it is told to."""

    def __init__(self, build, name):
        self.name = name
        self.times = {"seconds": [], "cpu_seconds": []}
        self.losses = []
        self.process = subprocess.Popen(command(build, name), env=environment(name), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, line):
        try:
            print(line, file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            sys.exit(f"jax_malloc: the training with {self.name} has ended: "
                     f"{self.process.wait()}")

    def train(self, steps, timed=True):
        answer = self.ask(steps)
        self.losses += answer["losses"]
        for kind, times in self.times.items():
            times += [statistics.median(answer[kind])] if timed else []

    def end(self):
        self.process.stdin.close()
        if self.process.wait():
            sys.exit(f"jax_malloc: the training with {self.name}: {self.process.returncode}")


def measure(trainings, rounds, steps):
    for training in trainings:
        training.train(3, timed=False)
    for number in range(rounds):
        for i in range(len(trainings)):
            trainings[(number + i) % len(trainings)].train(steps)
    for training in trainings:
        training.memory = training.ask("memory")
        if training.losses != trainings[0].losses:
            sys.exit(f"jax_malloc: losses with {training.name} are not those with {OURS}")


def compared(ours, peer, kind, bench):
    ours_times, peer_times = ours.times[kind], peer.times[kind]
    return {"bench": bench, "ours": round(1e3 * statistics.median(ours_times), 3),
            "peer": round(1e3 * statistics.median(peer_times), 3), "peer_name": peer.name,
            "ratios": [p / o for o, p in zip(ours_times, peer_times)], "unit": "ms"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="do little of everything")
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--only", default=",".join(PEERS))
    parser.add_argument("--memory", action="store_true",
                        help="tell on standard error what memory each had")
    arguments = parser.parse_args()

    build = os.path.abspath(arguments.build)
    trainings = [Training(build, name) for name in [OURS, *arguments.only.split(",")]]
    if arguments.smoke:
        measure(trainings, 1, 1)
    else:
        measure(trainings, arguments.rounds, arguments.steps)
    for training in trainings:
        training.end()
        if arguments.memory:
            print(training.name, training.memory, file=sys.stderr)
    for peer in trainings[1:]:
        print(json.dumps(compared(trainings[0], peer, "seconds", "jax_malloc_step")))
        print(json.dumps(compared(trainings[0], peer, "cpu_seconds", "jax_malloc_step_cpu")))


if __name__ == "__main__":
    main()
