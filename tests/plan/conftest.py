# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""As for the tests of actmem.jax: four CPU devices, TAP on request,
and nothing is left behind."""
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "jax")]

_spec = importlib.util.spec_from_file_location(
    "jax_conftest", os.path.join(os.path.dirname(HERE), "jax", "conftest.py"))
_jax = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_jax)

pytest_addoption = _jax.pytest_addoption
pytest_configure = _jax.pytest_configure
nothing_left = _jax.nothing_left

from actmem.plan import _trace  # noqa: E402

_graphs = {}
_graph_saving = _trace.Program.graph_saving


def graph_saving(program, names=()):
    """A search traces its program up to a hundred times. Tests that plan the same program share
    these graphs, which nothing changes."""
    if program.is_step:
        return _graph_saving(program, names)
    key = str(program.jaxpr), program.layout.text(), program.weights, frozenset(names)
    if key not in _graphs:
        _graphs[key] = _graph_saving(program, names)
    return _graphs[key]


_trace.Program.graph_saving = graph_saving
