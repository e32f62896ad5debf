# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Processes that run cases, one for programs that spill and one for the others. A case that
ends its process or takes too long gets the verdict crash or hang, or is skipped if stock JAX
did that. The next case gets a new process."""
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# With a value of up to 512 KiB (see draw.py), most programs that spill are over it.
BUDGET = "4M"
# What compiles fastest; both sides of a comparison are compiled so.
FLAGS = ("--xla_backend_optimization_level=0 --xla_allow_excess_precision=false "
         # AVX has no fused multiply and add, which rounds otherwise where XLA fuses both.
         "--xla_cpu_max_isa=AVX --xla_force_host_platform_device_count=4 "
         # XLA ends the process when devices wait for each other for 40 s.
         "--xla_cpu_collective_call_terminate_timeout_seconds=300")
# On a GPU: sums in the same order in every run, and no search for the fastest kernels.
GPU_FLAGS = ("--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true "
             "--xla_allow_excess_precision=false")
# A GPU would round the operands of products to 10 bits. Several processes share its memory.
GPU_ENVIRONMENT = {"JAX_PLATFORMS": "cuda", "XLA_FLAGS": GPU_FLAGS,
                   "JAX_DEFAULT_MATMUL_PRECISION": "highest",
                   "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Worker:
    def __init__(self, python, spills, timeout, gpu=False):
        self.timeout = timeout
        self.folder = tempfile.TemporaryDirectory(prefix="programs-") if spills else None
        self.errors = tempfile.TemporaryFile("w+", errors="replace")
        environment = {name: value for name, value in os.environ.items()
                       if name == "ACTMEM_LIBDIR" or
                       not name.startswith(("ACTMEM_", "JAX_", "XLA_"))}
        environment.update({"JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS, "ACTMEM_QUIET": "1",
                            "ACTMEM_ALLOW": "any", "ACTMEM_HEAP_GROW": "16M",
                            "PYTHONDONTWRITEBYTECODE": "1", **(GPU_ENVIRONMENT if gpu else {})})
        if spills:
            environment.update(ACTMEM_BACKEND="memfd", ACTMEM_PAGES="4K",
                               ACTMEM_BUDGET=BUDGET, ACTMEM_SPILL=self.folder.name)
        self.process = subprocess.Popen(
            [python, os.path.join(HERE, "worker.py")], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0)
        self.buffer = b""
        ready = self._read()
        if "jax" not in ready:
            raise SystemExit(f"{python} does not start: {ready['detail']}")
        self.jax = ready["jax"]

    def _last_words(self):
        self.errors.seek(0)
        lines = [line for line in self.errors.read().splitlines() if line.strip()]
        at = next((i for i, line in enumerate(lines) if line.startswith("Fatal")), -8)
        return " | ".join(lines[at:][:12])

    def _read(self):
        """A line of its, as data; a verdict of our own if there is none."""
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0, deadline - time.monotonic()))
            if not ready:
                self.process.send_signal(signal.SIGABRT)    # Python prints where it is.
                time.sleep(1)
                self.process.kill()
                self.process.wait()
                return {"result": "hang", "reason": "hang", "detail":
                        f"no result after {self.timeout} s: {self._last_words()}"}
            data = self.process.stdout.read(1 << 16)
            if not data:
                status = self.process.wait()
                return {"result": "crash", "reason": f"status {status}",
                        "detail": f"status {status}: {self._last_words()}"}
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def run(self, case):
        try:
            self.process.stdin.write(json.dumps(case).encode() + b"\n")
        except BrokenPipeError:
            pass    # The read says how it ended.
        verdict = self._read()
        if verdict is None:
            return self._read()
        if verdict["result"] in ("hang", "crash"):
            verdict.update(result="skipped", reason=f"stock JAX: {verdict['reason']}")
        return verdict

    def is_alive(self):
        return self.process.poll() is None

    def close(self):
        if self.is_alive():
            self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()
        if self.folder:
            self.folder.cleanup()


class Workers:
    """run(case) by whatever process it needs."""

    def __init__(self, python=sys.executable, timeout=120, gpu=False):
        self.python = python
        self.timeout = timeout
        self.gpu = gpu
        self.started = {}
        self.jax = None

    def worker(self, spills):
        worker = self.started.get(spills)
        if worker and not worker.is_alive():
            worker.close()
            worker = None
        if worker is None:
            worker = self.started[spills] = Worker(self.python, spills, self.timeout,
                                                          self.gpu)
            self.jax = worker.jax
        return worker

    def version(self):
        self.worker(False)
        return self.jax

    def run(self, case):
        return self.worker(case["spills"]).run(case)

    def close(self):
        for worker in self.started.values():
            worker.close()
