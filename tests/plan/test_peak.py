# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The memory that is foreseen is that of the compiled program, for many policies.

These keep or recompute. On a CPU a value that JAX offloads stays in the same memory, which
XLA's figures show no less of; what is offloaded to actmem leaves them, as the last test shows.
"""
import math
import random
import statistics

import jax
import pytest

import actmem.jax  # noqa: F401  (the destination of what is offloaded)
from actmem.plan import _trace, memory
from programs import PROGRAMS

SETS = 34
ERRORS = {}


def sets_of(names, seed=1):
    """Of names to keep: none, all, and by chance."""
    chance = random.Random(seed)
    sets = [(), tuple(names)]
    while len(sets) < min(SETS, 2 ** len(names)):
        chosen = tuple(name for name in names if chance.random() < 0.5)
        if chosen not in sets:
            sets.append(chosen)
    return sets


def compiled_bytes(step, program):
    compiled = jax.jit(step, donate_argnums=program.donate).lower(*program.args).compile()
    found = compiled.memory_analysis()
    return found.argument_size_in_bytes + found.output_size_in_bytes + \
        found.temp_size_in_bytes - found.alias_size_in_bytes


def donated_bytes(program):
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for i in program.donate
               for leaf in jax.tree.leaves(program.args[i]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_foreseen_is_what_xla_says(name, capsys):
    program = PROGRAMS[name]()
    errors = []
    for kept in sets_of(program.names):
        step = program.make(jax.checkpoint_policies.save_only_these_names(*kept))
        foreseen = memory.foresee(_trace.graph_of(step, *program.args), donated_bytes(program),
                                  memory.CPU)
        wanted = compiled_bytes(step, program)
        errors.append(foreseen.peak / wanted - 1)
    ERRORS[name] = sizes = sorted(map(abs, errors))
    told(capsys, name, sizes)
    assert sizes[-1] <= 0.1


def told(capsys, name, sizes):
    with capsys.disabled():
        print(f"# {name}: {len(sizes)} policies, median error {statistics.median(sizes):.1%}, "
              f"worst {max(sizes):.1%}")


def test_what_goes_to_actmem_leaves_the_device():
    """All of it, as on a CPU nothing is under way to the host."""
    program = PROGRAMS["dense scanned"]()
    names = ("mlpwi_0", "mlpwi_1")
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=names,
        offload_src="device", offload_dst="actmem")
    kept = jax.checkpoint_policies.save_only_these_names(*names)
    each = 4 * 128 * 352 * 4            # bytes of one of a layer
    foreseen = memory.foresee(_trace.graph_of(program.make(kept), *program.args), 0,
                              memory.CPU).peak - len(names) * 5 * each
    assert foreseen / compiled_bytes(program.make(policy), program) == pytest.approx(1, abs=0.1)


def test_of_all_programs_together(capsys):
    sizes = [size for each in ERRORS.values() for size in each]
    if len(ERRORS) < len(PROGRAMS):
        pytest.skip("not all programs were compared")
    assert len(sizes) >= 200
    told(capsys, "all", sizes)
    assert statistics.median(sizes) <= 0.03
