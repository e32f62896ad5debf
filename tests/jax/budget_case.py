# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The same training with and without a budget, in a memory cgroup: what must be
true of it, for whoever reports it."""
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


def spills(mib, budget_mib, spill, run, *cgroup):
    """A run with a budget that is too small; what it printed."""
    return result(train("actmem", mib, *cgroup, run=run, how=(
        "--budget", f"{budget_mib}M", "--spill", spill)))


def check_spilled(spilled, mib, budget_mib):
    """Yields what is to be true, its name, and what was seen."""
    activations, budget = mib * MIB, budget_mib * MIB
    stats, store = spilled["stats"], spilled["stats"]["store"]
    yield spilled["losses"][1] < spilled["losses"][0], "the loss falls", spilled
    yield (stats["last_run_put_bytes"] == activations and
           store["spilled_bytes_total"] >= 2 * (activations - budget),
           "what the budget does not hold was in a file", store)
    yield (store["memory_bytes_peak"] <= budget and
           spilled["region_bytes_peak"] <= budget,
           "the regions kept to the budget", store)
    yield (spilled["left"] == spilled["region_bytes"] == 0 and
           store["resident_bytes"] == store["spilled_bytes"] == 0,
           "nothing is left of it", spilled)


def check_bits(spilled, mib, run):
    """The same with a budget that holds everything."""
    everything = result(train("actmem", mib, how=("--budget", "1G"), run=run))
    yield (everything["stats"]["store"]["spilled_bytes_total"] == 0,
           "a budget that holds everything spills nothing", everything)
    yield (spilled["gradients"] == everything["gradients"] and
           spilled["losses"] == everything["losses"],
           "the gradients are those of a budget that holds everything, bit by bit",
           (spilled, everything))


def check_within(spill, run, mib, budget_mib, limit_mib, others=("actmem",)):
    """The same in a cgroup of so much for what the training needs, which ends
    the others: trainings without the budget. Returns what it printed."""
    with memory_cgroup(limit_mib * MIB) as cgroup:
        spilled = spills(mib, budget_mib, spill, run, cgroup.folder)
        peak = cgroup.peak()
    yield peak <= limit_mib * MIB, "a cgroup held the training", peak
    with memory_cgroup(limit_mib * MIB) as cgroup:
        for wrapper in others:
            other = train(wrapper, mib, cgroup.folder, how=(), run=run)
            yield (ended_by_the_limit(other),
                   f"which ends it without the budget ({wrapper})",
                   (other.returncode, other.stderr[-2000:]))
    yield from check_spilled(spilled, mib, budget_mib)
    return spilled
