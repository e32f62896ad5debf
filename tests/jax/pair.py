# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Processes of pair_worker.py, each under `actmem run`, for pair_on_driver.py and share.py;
and how these and on_driver.py tell results, in TAP."""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
ACTMEM = os.path.join(TREE, "build", "bin", "actmem")


results = 0


def check(good, name, *seen):
    global results
    results += 1
    print(f"{'ok' if good else 'not ok'} {results} - {name}", flush=True)
    for value in seen if not good else ():
        print(f"# {value}", flush=True)


def finish():
    print(f"1..{results}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Worker:
    def __init__(self, rank, port, options, prefix, count):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ACTMEM_", "XLA_", "PYTHONPATH"))}
        # As torchrun has it, for --share.
        environment.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
                           JAX_PLATFORMS="cpu")
        self.complaints = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [*prefix, ACTMEM, "run", *options, "--", sys.executable,
             os.path.join(HERE, "pair_worker.py"), str(rank), str(port),
             str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True,
            env=environment)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        """The next answer; what is not JSON is gloo's."""
        while line := self.process.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        status = self.process.wait()
        raise EOFError(f"a worker has ended with {status}: {self.told()[-3000:]}")

    def told(self):
        """What is on its standard error."""
        self.complaints.seek(0)
        return self.complaints.read()

    def do(self, line):
        self.ask(line)
        return self.answer()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """No more lines; the exit status is jax.distributed's affair if the other one
        was killed."""
        self.process.stdin.close()
        return self.process.wait()


class Pair(list):
    """The two, or as many as they are, started."""

    def __init__(self, options_of, prefix=(), count=2):
        port = free_port()
        super().__init__(Worker(rank, port, options_of(rank), prefix, count)
                         for rank in range(count))
        self.started = [worker.answer() for worker in self]

    def do(self, *lines):
        """A line for each, at the same time, or one for all."""
        for worker, line in zip(self, lines * (len(self) // len(lines))):
            worker.ask(line)
        return [worker.answer() for worker in self]

    def end(self):
        for worker in self:
            worker.process.stdin.close()
        return [worker.process.wait() for worker in self]
