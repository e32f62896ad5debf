# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Tests of libraries, in the surroundings of tests/jax: four CPU devices, TAP
on request, and nothing may be left in actmem memory after a test."""
import importlib.util
import os

_path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                     "jax", "conftest.py")
_spec = importlib.util.spec_from_file_location("jax_conftest", _path)
_jax = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_jax)

nothing_left = _jax.nothing_left
pytest_addoption = _jax.pytest_addoption
pytest_configure = _jax.pytest_configure
TREE = _jax.TREE
