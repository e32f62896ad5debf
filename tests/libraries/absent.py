# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Stands in for modules that MaxText imports at its start and that a training
of a small decoder on synthetic data does not call: tokenizers, kernels for
other hardware, readers of data, writers of checkpoints."""
import importlib.abc
import importlib.machinery
import sys
import types

ABSENT = {"PIL", "aqt", "drjax", "etils", "grain", "huggingface_hub",
          "jinja2", "ml_collections", "orbax", "pathwaysutils", "psutil", "qwix",
          "sentencepiece", "sympy", "tiktoken", "tokamax", "tokenizers",
          "transformers"}


def _made(self, *args, **kwargs):
    pass


class _Class(type):
    """A class whose every attribute is one more."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Class(name, (), {"__init__": _made})
        setattr(cls, name, value)
        return value


class _Module(types.ModuleType):
    __path__ = []
    __version__ = "0"
    __getattr__ = _Class.__getattr__


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ABSENT:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Module(spec.name)

    def exec_module(self, module):
        pass


def stand_in():
    sys.meta_path.insert(0, _Finder())
