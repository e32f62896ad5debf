# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""As the tests of the JAX binding: TAP on request, and nothing is left behind."""
import importlib.util
import os

_path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                     "jax", "conftest.py")
_spec = importlib.util.spec_from_file_location("jax_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

pytest_addoption = _module.pytest_addoption
pytest_configure = _module.pytest_configure
nothing_left = _module.nothing_left
