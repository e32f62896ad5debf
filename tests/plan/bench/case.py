# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One case of `make bench-plan`, in a process of its own: plans, by foresight alone and with
measure=, and then really runs both plans, the best few and ten random policies in turns. Prints
a line of JSON.

    case.py NAME MACHINE FOLDER [--quick]
"""
import argparse
import itertools
import json
import math
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(TREE, "lib", "python")]
sys.dont_write_bytecode = True

# pylint: disable=wrong-import-position
import jax  # noqa: E402

import actmem  # noqa: E402
import actmem.jax  # noqa: E402
import cases  # noqa: E402
import here  # noqa: E402
from actmem.plan import KEEP, OFFLOAD, RECOMPUTE, Choice, machine, memory  # noqa: E402
from actmem.plan import names, search  # noqa: E402
from actmem.plan._graph import Graph  # noqa: E402
from actmem.plan._trace import Program  # noqa: E402
from actmem.plan.layers import Timeline  # noqa: E402

SHORTLIST, RANDOM = 5, 10
LEAST_BUDGET = 4 << 20  # two pages, which may be huge ones
RING = 1                # processors copy a layer, and then go on
STEPS = 10              # that plan(measure=) runs
STEADY = 0.01           # that far apart the two least rounds may be
POLICIES = jax.checkpoint_policies


class Looked:
    """A case's program, its budgets, and the search over its choices."""

    def __init__(self, case, found_here):
        self.case = case
        program = cases.PROGRAMS[case.program]()
        self.loss_of, self.args = program.loss_of, program.args
        traced = Program(self.loss_of(None), self.args)
        found = names.find(Graph.of(traced.jaxpr), traced.batch)

        def peak_of(saved):
            return memory.foresee(traced.graph_saving(saved), compiler=memory.CPU).peak
        timeline = Timeline(traced.graph_saving(), found_here, memory.CPU)
        self.search = search.Search(timeline, found, found_here, peak_of, ring=RING)
        least = self.search.peak(Choice())
        most = self.search.peak(Choice(frozenset(self.search.names)))
        self.device_bytes = int(least + case.device * (most - least))
        named = sum(self.search.sizes[name].bytes for name in self.search.names)
        self.host_bytes = math.inf if case.host >= 1 else \
            max(int(named * case.host) >> 21 << 21, LEAST_BUDGET)
        self.search.device_memory = self.device_bytes
        self.search.host_memory = self.host_bytes

    def plan(self, found_here, **options):
        return actmem.jax.plan(
            self.loss_of(None), *self.args, machine=found_here, device_memory=self.device_bytes,
            host_memory=self.host_bytes, compiler=memory.CPU, ring=RING,
            model=self.case.program, **options)

    def fits(self, choice):
        limit = self.device_bytes
        return self.search._least(choice) <= limit and self.search.peak(choice) <= limit

    def choices(self):
        for actions in itertools.product((RECOMPUTE, KEEP, OFFLOAD),
                                         repeat=len(self.search.names)):
            chosen = dict(zip(self.search.names, actions))
            yield Choice(*(frozenset(name for name, action in chosen.items() if action == which)
                           for which in (KEEP, OFFLOAD)))

    def best(self, count):
        """So many of those that fit, the fastest first."""
        ordered = sorted(self.choices(), key=lambda choice: self.search.time(choice).seconds)
        return list(itertools.islice(filter(self.fits, ordered), count))

    def random(self, count):
        found = [choice for choice in self.choices() if choice != Choice()]
        random.Random(self.case.program).shuffle(found)
        return list(itertools.islice(filter(self.fits, found), count))


def policy_of(choice):
    if not choice.offloaded:
        return POLICIES.save_only_these_names(*sorted(choice.kept))
    return POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=sorted(choice.kept),
        names_which_can_be_offloaded=sorted(choice.offloaded),
        offload_src="device", offload_dst="pinned_host")


def choice_of(plan):
    return Choice(frozenset(plan.with_action(KEEP)), frozenset(plan.with_action(OFFLOAD)))


class Running:
    """A policy, compiled, and its rounds."""

    def __init__(self, looked, choice, why, args):
        self.why, self.choice, self.args = [why], choice, args
        step = jax.jit(jax.value_and_grad(looked.loss_of(policy_of(choice))))
        self.step = step.lower(*args).compile()
        told = self.step.memory_analysis()
        self.peak = told.argument_size_in_bytes + told.output_size_in_bytes + \
            told.temp_size_in_bytes - told.alias_size_in_bytes
        self.foreseen = looked.search.time(choice)
        self.foreseen_peak = looked.search.peak(choice)
        self.rounds = []

    def run(self):
        begun = time.perf_counter()
        jax.block_until_ready(self.step(*self.args))
        return time.perf_counter() - begun

    @property
    def is_steady(self):
        least = sorted(self.rounds)[:2]
        return least[1] <= least[0] * (1 + STEADY)

    def told(self):
        return {"why": self.why, "kept": sorted(self.choice.kept),
                "offloaded": sorted(self.choice.offloaded), "foreseen_s": self.foreseen.seconds,
                "foreseen_peak": self.foreseen_peak, "peak_bytes": self.peak,
                "rounds": self.rounds}


def in_turns(running, rounds, seconds):
    """At least so many rounds, and more until all are steady or the time is over."""
    for one in running:
        one.run()
        one.run()
    begun = time.monotonic()
    order = list(running)
    with here.first():
        for number in itertools.count(1):
            random.Random(number).shuffle(order)
            for one in order:
                one.rounds.append(one.run())
            if number >= rounds and (all(one.is_steady for one in running) or
                                     time.monotonic() - begun > seconds):
                return


def opened(looked, folder):
    if looked.host_bytes == math.inf:
        actmem.open(allow="any", heap_grow=16 << 20)
    else:
        actmem.open(allow="any", heap_grow=16 << 20, budget=looked.host_bytes, spill=folder,
                    spill_allow="buffered")
    actmem.jax.patch()


def run_case(case, found_here, options):
    looked = Looked(case, found_here)
    plan = looked.plan(found_here)
    opened(looked, options.folder)
    args = cases.values(looked.args)
    measured = looked.plan(found_here, measure=1 if options.quick else STEPS)
    wanted = [("plan", choice_of(plan)), ("measured", choice_of(measured)),
              ("recompute", Choice())]
    wanted += [("shortlist", choice) for choice in looked.best(2 if options.quick else SHORTLIST)]
    wanted += [("random", choice) for choice in looked.random(2 if options.quick else RANDOM)]
    running = {}
    for why, choice in wanted:
        if choice in running:
            running[choice].why.append(why)
        else:
            running[choice] = Running(looked, choice, why, args)
    running = list(running.values())
    if options.quick:
        in_turns(running, 2, 0)
    else:
        in_turns(running, 400 if case.is_small else 8, 14)
    return {
        "case": case.name, "device_bytes": looked.device_bytes,
        "host_bytes": None if looked.host_bytes == math.inf else looked.host_bytes,
        "abstains": plan.abstains, "error": plan.error,
        "spilled_bytes": actmem.jax.stats()["store"]["spilled_bytes_total"],
        "policies": [one.told() for one in running]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case")
    parser.add_argument("machine")
    parser.add_argument("folder")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    case, = (one for one in cases.CASES if one.name == options.case)
    found_here = machine.find(options.machine)
    with here.first(-8):
        told = run_case(case, found_here, options)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
