# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The same training four ways, in one memory cgroup: what must be true of it,
for whoever reports it."""
import json
import os
import subprocess
import sys

from memory_cgroup import memory_cgroup

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
ACTMEM = os.path.join(TREE, "build", "bin", "actmem")
TRAIN = os.path.join(HERE, "budget_train.py")


def train(wrapper, mib, *cgroup, how, run):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("ACTMEM_", "XLA_", "PYTHONPATH"))}
    return subprocess.run(
        [ACTMEM, "run", *run, *how, "--", sys.executable, TRAIN, wrapper,
         str(mib), *cgroup],
        env=environment, capture_output=True, text=True, check=False)


def result(process):
    assert process.returncode == 0, (process.returncode, process.stderr[-3000:])
    return json.loads(process.stdout)


def ended_by_the_limit(process):
    """Killed, or told in words by whoever asked for memory first."""
    return process.returncode == -9 or (process.returncode == 1 and (
        "cgroup" in process.stderr or "RESOURCE_EXHAUSTED" in process.stderr or
        "ENOMEM" in process.stderr))


def compare(spill, run, mib, budget_mib, limit_mib):
    """Trains with activations of `mib`, in a cgroup of `limit_mib` for what the
    training needs. Yields what is to be true, its name, and what was seen."""
    within = ("--budget", f"{budget_mib}M", "--spill", spill)
    activations, budget, limit = mib * MIB, budget_mib * MIB, limit_mib * MIB
    everything = result(train("actmem", mib, how=("--budget", "1G"), run=run))
    with memory_cgroup(limit) as cgroup:
        spilled = result(train("actmem", mib, cgroup.folder, how=within, run=run))
        peak = cgroup.peak()
    with memory_cgroup(limit) as cgroup:
        held = train("actmem", mib, cgroup.folder, how=(), run=run)
        stock = train("stock", mib, cgroup.folder, how=(), run=run)

    yield (everything["stats"]["store"]["spilled_bytes_total"] == 0,
           "a budget that holds everything spills nothing", everything)
    store = spilled["stats"]["store"]
    yield (spilled["gradients"] == everything["gradients"] and
           spilled["losses"] == everything["losses"],
           "with a part of that budget the gradients are the same bits", spilled)
    yield (spilled["losses"][1] < spilled["losses"][0],
           "and the loss falls", spilled["losses"])
    yield (spilled["stats"]["last_run_put_bytes"] == activations and
           store["spilled_bytes_total"] >= 2 * (activations - budget),
           "what the budget does not hold was in a file", store)
    yield (store["memory_bytes_peak"] <= budget and
           spilled["region_bytes_peak"] <= budget,
           "the regions kept to the budget", store)
    yield (spilled["left"] == spilled["region_bytes"] == 0 and
           store["resident_bytes"] == store["spilled_bytes"] == 0,
           "nothing is left of it", spilled)
    yield (peak <= limit, "its cgroup held it", peak)
    yield (ended_by_the_limit(held),
           "which ends the same training without the budget",
           (held.returncode, held.stderr[-2000:]))
    yield (ended_by_the_limit(stock), "and the one without actmem",
           (stock.returncode, stock.stderr[-2000:]))
