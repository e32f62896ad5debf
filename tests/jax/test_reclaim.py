# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A training returns memory while it runs, when its limit falls. tests/store/store_reclaim.c has
the limits of the driver, and several processes that share one."""
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
RUN = ("--backend", "memfd", "--pages", "4K", "--allow", "unlocked")
SAVED, BUDGET, LESS = 24, 16, 8         # MiB
SECONDS = 120
# A thread looks at the limits ten times a second; a busy machine may delay it.
LATE = 30.0
AFTER = 20                              # steps


class Training:
    """A training that runs beside this process."""

    def __init__(self, spill, count=100000):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ACTMEM_", "XLA_", "PYTHONPATH"))}
        how = ["--budget", f"{BUDGET}M", "--spill", spill] if spill else []
        self.process = subprocess.Popen(
            [ACTMEM, "run", *RUN, *how, "--heap-grow", "2M", "--", sys.executable, TRAIN,
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


def losses(count):
    """The losses of a training that has all the memory that it wants."""
    return Training(None, count).losses()


def limit(*how):
    done = subprocess.run([ACTMEM, "limit", *how], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_limit_that_falls_and_rises(tmp_path):
    training = Training(str(tmp_path))
    training.steps_until(lambda step: step["bytes"] == BUDGET * MIB)
    since = time.monotonic()
    code, out, err = limit("--pid", str(training.pid), f"{LESS}M")
    assert code == 0 and not err, (code, out, err)
    # Unless it has returned everything before the command looks.
    assert not out or (str(training.pid) in out and out.rstrip().endswith("yes")), out
    steps = training.steps_until(lambda step: step["bytes"] <= LESS * MIB)
    assert len(steps) <= 2 or training.seen[-1]["time"] - since < LATE, steps
    after = [training.step() for _ in range(AFTER)]
    assert all(step["bytes"] <= LESS * MIB for step in after), after
    assert limit("--pid", str(training.pid), "max") == (0, "", "")
    training.steps_until(lambda step: step["bytes"] == BUDGET * MIB)
    seen = training.end()
    assert seen == losses(len(seen)), seen


def test_a_training_that_cannot_return_anything():
    """It keeps its memory and runs on, and the command says so."""
    job = Training(None)
    full = job.step()["bytes"]
    code, out, err = limit("--pid", str(job.pid), f"{LESS}M")
    assert code == 0 and "no: none of its stores spills" in out, (code, out)
    assert "were not returned" in err, err
    assert job.step()["bytes"] == full
    doctor = subprocess.run([ACTMEM, "doctor"], capture_output=True, text=True,
                            check=False).stdout
    assert f"process {job.pid} (python) has" in doctor and "none of its stores spills" in doctor
    scrape = subprocess.run([ACTMEM, "exporter", "--textfile", "-"],
                            capture_output=True, text=True, check=True).stdout
    assert (f'actmem_process_surplus_bytes{{pid="{job.pid}",uid="{os.getuid()}",command="python",'
            'can_return="false"}') in scrape, scrape
    seen = job.end()
    assert seen == losses(len(seen))
