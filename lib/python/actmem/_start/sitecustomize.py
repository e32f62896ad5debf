# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""`actmem run` puts this folder in front of PYTHONPATH, so Python imports this module when it
starts. The module runs the program's own sitecustomize. When the program imports jax, the module
loads with_jax.py. In a program that does not import jax, only this file is loaded. This file must
run in any Python 3, because the program may use an older Python than JAX needs.
"""
import os
import sys

TYPE_CHECKING = False       # importing the module typing takes longer than running this one
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class _Finder:
    """Finds jax by asking the other finders of sys.meta_path, and calls `then` with jax as soon as
    jax is completely imported. Ignores all modules other than jax."""

    def __init__(self, then: "Callable[[Any], None]") -> None:
        self.then = then

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "jax":
            return None
        for finder in [each for each in sys.meta_path if each is not self]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                self.watch(spec.loader)
                return spec
        return None

    def watch(self, loader: "Any") -> None:
        """Changes `loader` so that exec_module() calls `then` after it has run the module. The
        first call of exec_module() undoes the change."""
        run = loader.exec_module

        def exec_module(module: "Any") -> None:
            run(module)
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then(module)
        loader.exec_module = exec_module


def _begin(jax: "Any") -> None:
    from importlib.util import module_from_spec, spec_from_file_location
    spec = spec_from_file_location("actmem_with_jax", os.path.join(_FOLDER, "with_jax.py"))
    assert spec and spec.loader
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.begin(jax)


def _run_the_programs_own() -> None:
    """Imports the sitecustomize that Python would have found without this module."""
    path, this = sys.path[:], sys.modules.pop(__name__)
    sys.path[:] = [each for each in path if each != _FOLDER]
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules[__name__] = this
    finally:
        sys.path[:0] = [each for each in path if each == _FOLDER]


sys.meta_path.insert(0, _Finder(_begin))
_run_the_programs_own()
