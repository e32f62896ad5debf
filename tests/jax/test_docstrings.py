# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What help() shows of the public functions: every argument, and examples that run."""
import doctest
import inspect
import re

import pytest

import actmem
import actmem.jax
import actmem.optax

FUNCTIONS = [getattr(module, name) for module in (actmem, actmem.jax)
             for name in module.__all__ if not inspect.isclass(getattr(module, name))] + \
    [actmem.optax.offload, actmem.optax.value]
# open() is for the beginning of a process.
WITH_EXAMPLES = [function for function in FUNCTIONS if function.__module__ != "actmem" and
                 function.__name__ not in ("load", "restore_state", "stats")] + [
                     actmem.describe, actmem.list, actmem.optax.delayed]


def called(function):
    return f"{function.__module__}.{function.__name__}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=called)
def test_every_argument_is_told_of(function):
    arguments = {str(argument).partition(":")[0]
                 for argument in inspect.signature(function).parameters.values()}
    said = re.findall(r"^  ([*\w]+): ", inspect.getdoc(function).partition("Args:\n")[2], re.M)
    assert arguments <= set(said), arguments - set(said)


@pytest.mark.parametrize("function", WITH_EXAMPLES, ids=called)
def test_the_example_runs(function):
    test, = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs={})
    assert test.examples
    told = []
    assert doctest.DocTestRunner().run(test, out=told.append).failed == 0, "".join(told)
