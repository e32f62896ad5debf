# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A plugin of pytest that runs JAX's tests of jax.checkpoint with a mode in force.

The mode has to come before the tests are imported, as their decorators call
jax.checkpoint then. What becomes of each test goes to a file, a line each.
"""
import functools
import json
import re

import jax
import pytest
from jax import ad_checkpoint

MODES = ("plain", "plain-forced", "patch", "forced", "drop-in", "drop-in-all")
NAMES = ("checkpoint", "remat")
CHOSEN = re.compile(r"api_test.py::Remat3?Test::|"
                    r"memories_test.py::(ActivationOffloadingTest::|.*remat)")


@functools.cache
def offloading(policy):
    """`policy`, but what it saves it offloads. One for each, as JAX caches
    traces by the policy."""
    offloaded = ad_checkpoint.Offloadable(src="device", dst="pinned_host")

    def forced(*args, **params):
        verdict = policy(*args, **params)
        saves = verdict is True or verdict is ad_checkpoint.Saveable
        return offloaded if saves else verdict
    return forced


def force(original):
    nothing = jax.checkpoint_policies.nothing_saveable

    @functools.wraps(original)
    def checkpoint(*args, policy=None, **others):
        if policy is not None and policy is not nothing:
            policy = offloading(policy)
        return original(*args, policy=policy, **others)
    return checkpoint


def apply(mode):
    if mode in ("patch", "forced"):
        import actmem.jax
        actmem.jax.patch(min_bytes=0)
    for name in NAMES:
        if mode.endswith("forced"):
            setattr(jax, name, force(getattr(jax, name)))
        elif mode.startswith("drop-in"):
            import actmem.jax
            setattr(jax, name, actmem.jax.checkpoint if mode == "drop-in" else
                    functools.partial(actmem.jax.checkpoint, min_bytes=0))


def pytest_addoption(parser):
    parser.addoption("--mode", choices=MODES, required=True)
    parser.addoption("--results", required=True)


def pytest_configure(config):
    apply(config.getoption("--mode"))
    config.pluginmanager.register(Results(config))


def pytest_collection_modifyitems(config, items):
    kept = []
    for item in items:
        sets = getattr(item.cls, "_default_thread_local_config", {})
        # A class that sets the flag by itself runs once.
        again = jax.config.values.get("jax_remat3") and "jax_remat3" in sets
        if CHOSEN.search(item.nodeid) and not again:
            kept.append(item)
        # It skips them all on CPUs, where compiled code shows no kinds of memory.
        # Until they look for these they run, and that is what is compared.
        if item.cls.__name__ == "ActivationOffloadingTest":
            item.cls.setUp = item.cls.__base__.setUp
    items[:] = kept


class Results:
    def __init__(self, config):
        self.mode = config.getoption("--mode")
        self.file = open(config.getoption("--results"), "w", encoding="utf-8")
        self.failures = {}
        self.skipped = set()

    def say(self, **fields):
        print(json.dumps(fields), file=self.file, flush=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed:
            lines = [entry.lineno + 1 for entry in call.excinfo.traceback
                     if entry.path == item.path]
            words = str(call.excinfo.value).strip().splitlines() or [""]
            self.failures.setdefault(item.nodeid, {
                # Of the test's own statement, not of what that has called.
                "line": lines[0] if lines else 0,
                "type": call.excinfo.type.__name__, "words": words[0]})
        return report

    def pytest_runtest_logreport(self, report):
        name = report.nodeid
        if report.skipped:
            self.skipped.add(name)
        if report.when == "teardown":
            result = ("failed" if name in self.failures else
                      "skipped" if name in self.skipped else "passed")
            self.say(test=name, result=result, **self.failures.get(name, {}))

    def pytest_runtest_teardown(self, nextitem):
        if not self.mode.startswith("plain"):
            import actmem.jax
            # What a test has put and never taken is not the next one's.
            actmem.jax.reset()

    def pytest_sessionfinish(self):
        puts = 0
        if not self.mode.startswith("plain"):
            import actmem.jax
            puts = actmem.jax.stats()["puts_total"]
        self.say(puts=puts)
