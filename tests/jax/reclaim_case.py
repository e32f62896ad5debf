# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Trainings whose limit falls and rises while they run: what must be true of them."""
import json
import os
import subprocess
import sys
import time

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
ACTMEM = os.path.join(TREE, "build", "bin", "actmem")
TRAIN = os.path.join(HERE, "reclaim_train.py")
SAVED, BUDGET, LESS = 24, 16, 8         # MiB
SECONDS = 120
# A thread looks at the limits ten times a second; a busy machine may delay it.
LATE = 2.0
AFTER = 20                              # steps


class Training:
    """A training that runs beside this process."""

    def __init__(self, run, spill, count=100000):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ACTMEM_", "XLA_", "PYTHONPATH"))}
        how = ["--budget", f"{BUDGET}M", "--spill", spill] if spill else []
        self.process = subprocess.Popen(
            [ACTMEM, "run", *run, *how, "--heap-grow", "2M", "--", sys.executable, TRAIN,
             str(SAVED), str(count)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seen = []

    @property
    def pid(self):
        return self.process.pid

    def step(self):
        line = self.process.stdout.readline()
        assert line, f"the training ended: {self.process.wait()}"
        self.seen.append(json.loads(line))
        return self.seen[-1]

    def steps_until(self, condition):
        """The steps until one fulfils the condition."""
        end, first = time.monotonic() + SECONDS, len(self.seen)
        while not condition(self.step()):
            assert time.monotonic() < end, self.seen[-3:]
        return self.seen[first:]

    def end(self):
        """Ends the training after a further step, and returns all losses."""
        self.process.stdin.close()
        return self.losses()

    def losses(self):
        """Returns all losses when the training has ended."""
        for line in self.process.stdout:
            self.seen.append(json.loads(line))
        assert self.process.wait() == 0, self.process.returncode
        return [step["loss"] for step in self.seen]


def losses(run, count):
    """The losses of a training that has all the memory that it wants."""
    return Training(run, None, count).losses()


def limit(*how):
    done = subprocess.run([ACTMEM, "limit", *how], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def check_one(run, spill, lower, lift):
    """Halves the limit of one training, and lifts it again. @lower and @lift return the arguments
    of `actmem limit`. Yields what must be true, its name, and what was seen."""
    training = Training(run, spill)
    training.steps_until(lambda step: step["bytes"] == BUDGET * MIB)
    since = time.monotonic()
    code, out, err = limit(*lower(training))
    yield code == 0 and not err, "the limit can fall below the usage", (code, out, err)
    yield (str(training.pid) in out and "TO RETURN" in out and out.rstrip().endswith("yes"),
           "the command names who returns how much", out)
    steps = training.steps_until(lambda step: step["bytes"] <= LESS * MIB)
    yield (len(steps) <= 2 or training.seen[-1]["time"] - since < LATE,
           "the training returns the excess at once", steps)
    after = [training.step() for _ in range(AFTER)]
    yield all(step["bytes"] <= LESS * MIB for step in after), "and stays below the limit", after
    code, out, err = limit(*lift(training))
    yield code == 0 and not out and not err, "the limit can rise", (code, out, err)
    training.steps_until(lambda step: step["bytes"] == BUDGET * MIB)
    yield True, "the training uses its budget again", None
    seen = training.end()
    yield (seen == losses(run, len(seen)),
           f"the losses of {len(seen)} steps are those without a limit, bit by bit", seen)
