# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The same training four ways, in one memory cgroup: what must be true of it,
for whoever reports it."""
import json
import os
import subprocess
import sys

from conftest import HERE, TREE
from memory_cgroup import memory_cgroup

MIB = 1 << 20
ACTIVATIONS = 384 * MIB         # of budget_train.py
BUDGET = 24 * MIB
LIMIT = 160 * MIB               # of what a training may take; less than half of them
ACTMEM = os.path.join(TREE, "build", "bin", "actmem")
TRAIN = os.path.join(HERE, "budget_train.py")


def train(*arguments, how, run):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("ACTMEM_", "XLA_", "PYTHONPATH"))}
    return subprocess.run(
        [ACTMEM, "run", *run, *how, "--", sys.executable, TRAIN, *arguments],
        env=environment, capture_output=True, text=True, check=False)


def result(process):
    assert process.returncode == 0, (process.returncode, process.stderr[-3000:])
    return json.loads(process.stdout)


def ended_by_the_limit(process):
    """Killed, or told in words by whoever asked for memory first."""
    return process.returncode == -9 or (process.returncode == 1 and (
        "cgroup" in process.stderr or "RESOURCE_EXHAUSTED" in process.stderr or
        "ENOMEM" in process.stderr))


def compare(spill, run):
    """Yields what is to be true, its name, and what was seen."""
    within = ("--budget", f"{BUDGET}", "--spill", spill)
    everything = result(train(how=("--budget", "1G"), run=run))
    with memory_cgroup(LIMIT) as cgroup:
        spilled = result(train("actmem", cgroup.folder, how=within, run=run))
        peak = cgroup.peak()
    with memory_cgroup(LIMIT) as cgroup:
        held = train("actmem", cgroup.folder, how=(), run=run)
        stock = train("stock", cgroup.folder, how=(), run=run)

    yield (everything["stats"]["store"]["spilled_bytes_total"] == 0,
           "a budget that holds everything spills nothing", everything)
    store = spilled["stats"]["store"]
    yield (spilled["gradients"] == everything["gradients"] and
           spilled["losses"] == everything["losses"],
           "with 1/16 of the budget the gradients are the same bits", spilled)
    yield (spilled["losses"][1] < spilled["losses"][0],
           "and the loss falls", spilled["losses"])
    yield (spilled["stats"]["last_run_put_bytes"] == ACTIVATIONS and
           store["spilled_bytes_total"] >= 2 * (ACTIVATIONS - BUDGET),
           "what the budget does not hold was in a file", store)
    yield (store["memory_bytes_peak"] <= BUDGET and
           spilled["region_bytes_peak"] <= BUDGET,
           "the regions kept to the budget", store)
    yield (spilled["left"] == spilled["region_bytes"] == 0 and
           store["resident_bytes"] == store["spilled_bytes"] == 0,
           "nothing is left of it", spilled)
    yield (peak <= LIMIT, "its cgroup held it", peak)
    yield (ended_by_the_limit(held),
           "which ends the same training without the budget",
           (held.returncode, held.stderr[-2000:]))
    yield (ended_by_the_limit(stock), "and the one without actmem",
           (stock.returncode, stock.stderr[-2000:]))
