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
