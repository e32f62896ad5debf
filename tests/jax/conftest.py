# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Four CPU devices, whatever pages the machine has, TAP on request; and after
each test nothing may be left in actmem memory."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))

# XLA ends the process when devices wait for each other for 40 s, which they may beside
# virtual machines on two processors.
os.environ["XLA_FLAGS"] = ("--xla_force_host_platform_device_count=4 "
                           "--xla_backend_optimization_level=0 "
                           "--xla_llvm_disable_expensive_passes=true "
                           "--xla_cpu_collective_call_terminate_timeout_seconds=300")
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["ACTMEM_ALLOW"] = "any"
os.environ["ACTMEM_HEAP_GROW"] = "16M"
sys.path[:0] = [os.path.join(TREE, "lib", "python"), HERE]
sys.dont_write_bytecode = True

import pytest  # noqa: E402

import actmem  # noqa: E402
import actmem.jax  # noqa: E402
import models  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    actmem.jax.configure(generations=2, checksum=False)
    if models.REMAT3:
        actmem.jax.reset()
    stats = actmem.jax.stats()
    left = {name: stats[name]
            for name in ("live_blocks", "live_bytes", "generations")}
    left["device_bytes"] = sum(device["live_bytes"]
                               for device in stats["devices"].values())
    counters = actmem.counters()
    left.update({name: counters[name] for name in ("blocks", "block_bytes")})
    actmem.jax.reset()
    assert not any(left.values()), left


def pytest_addoption(parser):
    parser.addoption("--tap", action="store_true",
                     help="print the Test Anything Protocol")
    parser.addoption("--standin", default=os.path.join(
        TREE, "build", "tests", "cuda", "standin"),
        help="the folder of the stand-in for libcuda.so.1")


def pytest_collection_modifyitems(config, items):
    """What is otherwise by JAX itself with jax_remat3 is left out there."""
    if not models.REMAT3:
        return
    left_out = [item for item in items if item.get_closest_marker("without_remat3")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = {}
        self.skipped = {}

    @staticmethod
    def say(line):
        print(line, flush=True)

    def pytest_collection_finish(self, session):
        self.say(f"1..{len(session.items)}")

    def pytest_collectreport(self, report):
        if report.failed:
            self.say(f"not ok 1 - {report.nodeid}")
            self.comment(report.longreprtext)

    def comment(self, text):
        for line in text.splitlines():
            self.say(f"# {line}")

    def pytest_runtest_logreport(self, report):
        name = report.nodeid
        if report.failed:
            self.failed.setdefault(name, []).append(report.longreprtext)
        if report.skipped:
            self.skipped[name] = report.longrepr[-1]
        if report.when != "teardown":
            return
        self.count += 1
        result = "not ok" if name in self.failed else "ok"
        reason = f" # SKIP {self.skipped[name]}" if name in self.skipped else ""
        self.say(f"{result} {self.count} - {name}{reason}")
        for text in self.failed.get(name, []):
            self.comment(text)


def pytest_configure(config):
    config.addinivalue_line("markers", "without_remat3(why): not with jax_remat3")
    if config.getoption("--tap"):
        config.pluginmanager.register(Tap())
