# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What of JAX the package uses that JAX does not promise to keep: all of it is there, and
in one file."""
import glob
import os
import re
import warnings

import jax
import pytest

import actmem.jax
from actmem.jax import _private, _versions

PACKAGE = os.path.dirname(actmem.jax.__file__)


@pytest.mark.parametrize("owner, name", _private.NAMES,
                         ids=lambda value: getattr(value, "__name__", value))
def test_private_names(owner, name):
    assert hasattr(owner, name)


def test_one_file_has_them():
    named = {(owner.__name__.rpartition(".")[2], name) for owner, name in _private.NAMES}
    for path in glob.glob(os.path.join(PACKAGE, "*.py")):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not path.endswith("_private.py"):
            assert "jax._src" not in text, path
            continue
        # Those of one version alone are where it is told from others.
        used = set(re.findall(r"\b(core|dtypes|dispatch|pxla|pe|sharding_impls|"
                              r"source_info_util)\.(\w+)", text))
        aliases = {"pe": "partial_eval"}
        missing = {(aliases.get(module, module), name) for module, name in used} - named
        assert missing <= {("dtypes", "register_canonicalize_value_handler"),
                           ("dtypes", "canonicalize_value_handlers")}, missing


@pytest.mark.parametrize("version, words", [
    ("0.10.1", None), ("0.12.0.1", None), ("0.10.2", "computes wrong values"),
    ("0.12.1", r"newer than .*0\.10\.1 to 0\.12\.0\.1"), ("0.13.0", "newer than")])
def test_versions(monkeypatch, version, words):
    monkeypatch.setattr(jax, "__version__", version)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _versions.warn()
    assert len(caught) == bool(words)
    if words:
        assert re.search(words, str(caught[0].message))
