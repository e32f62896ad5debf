# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""When results have the same bits with and without patch(), in bfloat16: what docs/recipes.md
says of XLA's excess precision."""
import json
import os
import subprocess
import sys

import pytest

from conftest import TREE

# As those of tests/jax, but for one device.
FLAGS = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@pytest.fixture(name="compared", scope="module")
def fixture_compared(tmp_path_factory):
    """What gemma.py finds with excess precision, and without it."""
    paths = [os.path.join(TREE, *path) for path in (("lib", "python"), ("tests", "jax"))]
    result = subprocess.run(
        [sys.executable, os.path.join(os.path.dirname(__file__), "gemma.py"),
         tmp_path_factory.mktemp("gemma"), FLAGS, f"{FLAGS} --xla_allow_excess_precision=false"],
        env=os.environ | {"PYTHONPATH": ":".join([*paths, os.environ["PYTHONPATH"]])},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 2 and all(one["puts"] > 0 for one in found), result.stdout
    return found


def test_bits_are_those_of_values_that_are_kept(compared):
    found = compared[0]
    assert found["kept"] and not found["stock"], found
    # Of 16 roundings to bfloat16.
    assert found["difference"] < 16 * 2 ** -8, found


def test_bits_are_the_same_without_excess_precision(compared):
    found = compared[1]
    assert found["kept"] and found["stock"], found
