# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What of JAX the package uses that JAX does not promise to keep: all of it is there, and
in one file."""
import ast
import glob
import importlib.util
import os
import re
import sys
import types
import warnings

import jax
import pytest

import actmem
from actmem._start import with_jax
from actmem.jax import _private, _versions

PACKAGE = os.path.dirname(actmem.__file__)


@pytest.mark.parametrize("owner, name", _private.NAMES,
                         ids=lambda value: getattr(value, "__name__", value))
def test_private_names(owner, name):
    assert hasattr(owner, name)


def test_one_file_has_them():
    for path in glob.glob(os.path.join(PACKAGE, "**/*.py"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if not path.endswith("jax/_private.py"):
            assert "jax._src" not in text, path
            continue
        tree = ast.parse(text)
        modules = {alias.asname or alias.name
                   for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
                   for alias in node.names if node.module.startswith("jax._src")}
        used = {(getattr(_private, node.value.id), node.attr) for node in ast.walk(tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and
                node.value.id in modules} - {(_private.ad_checkpoint, "__name__")}
        named = set(_private.NAMES)
        assert named <= used, named - used
        assert {name for _, name in used - named} == _private.SOME


@pytest.mark.parametrize("version, words", [
    ("0.10.1", None), ("0.12.0.1", None), ("0.10.2", "computes wrong values"),
    ("0.12.1", r"newer than .*0\.10\.1 to 0\.12\.0\.1"), ("0.13.0", "newer than")])
def test_versions(monkeypatch, version, words):
    monkeypatch.setattr(jax, "__version__", version)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _versions.check()
    assert len(caught) == bool(words)
    if words:
        assert re.search(words, str(caught[0].message))


@pytest.mark.parametrize("version", ["0.10.0", "0.9.2", "0.4.35"])
def test_too_old(monkeypatch, version):
    """tests/python/test_versions.py has those of PyPI."""
    monkeypatch.setattr(jax, "__version__", version)
    with pytest.raises(ImportError, match=f"JAX {version}, .*0.10.1 to 0.12.0.1; pip install"):
        _versions.check()


@pytest.mark.parametrize("version, flags, is_wrong", [
    ("0.11.2", "--a=1 --xla_gpu_enable_pipelined_host_offloading=true", True),
    ("0.11.2", "--xla_gpu_enable_pipelined_host_offloading", True),
    ("0.12.0.1", "--xla_gpu_enable_pipelined_host_offloading=true", False),
    ("0.11.2", "--xla_gpu_enable_pipelined_host_offloading=true "
               "--xla_gpu_enable_pipelined_host_offloading=false", False),
    ("0.11.2", "--xla_gpu_enable_pipelined_host_offloading_more=true", False)])
def test_a_flag_that_computes_wrong_gradients(monkeypatch, version, flags, is_wrong):
    monkeypatch.setattr(jax, "__version__", version)
    monkeypatch.setenv("XLA_FLAGS", flags)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _versions.check()
        monkeypatch.setitem(sys.modules, "actmem_with_jax", with_jax)   # under `actmem run`
        _versions.check()
    assert ["pipelined" in str(warning.message) for warning in told] == [True] * is_wrong


def test_run_tells_that_flag(monkeypatch, capsys):
    monkeypatch.setenv("ACTMEM_QUIET", "1")     # begin() ends after the warning
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_pipelined_host_offloading=true")
    with_jax.begin(types.SimpleNamespace(__version__="0.12.0.1"))
    assert capsys.readouterr().err == ""
    with_jax.begin(types.SimpleNamespace(__version__="0.11.2"))
    assert "actmem: JAX 0.11.2 computes wrong gradients" in capsys.readouterr().err


def test_run_refuses_a_wrong_switch(monkeypatch, capsys):
    monkeypatch.setenv("ACTMEM_OFFLOAD", "yes")
    with pytest.raises(SystemExit):
        with_jax.begin(types.SimpleNamespace(__version__="0.11.2"))
    assert "actmem: ACTMEM_OFFLOAD is 'yes', but must be 1 or 0" in capsys.readouterr().err


@pytest.mark.parametrize("major, minor, refused", [
    (0, 2, True), (0, 3, False), (0, 9, False), (1, 3, True)])
def test_interface_for_handlers(monkeypatch, tmp_path, major, minor, refused):
    assert _versions._ffi() >= (_versions.FFI_MAJOR, _versions.FFI_MINOR)
    header = tmp_path / "include/xla/ffi/api/c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text(f"#define XLA_FFI_API_MAJOR {major}\n#define XLA_FFI_API_MINOR {minor}\n")
    monkeypatch.setattr(_versions, "find_spec", lambda name: importlib.util.spec_from_loader(
        name, None, origin=str(tmp_path / "__init__.py")))
    if refused:
        with pytest.raises(ImportError, match=rf"0\.3 of XLA's FFI, .* has {major}\.{minor}:"):
            _versions.check()
    else:
        _versions.check()
    header.unlink()
    _versions.check()
