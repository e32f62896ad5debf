# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The module in processes of its own: how memory is opened, what the
environment does, where libraries are found, what is said when there is none."""
import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings

import jax
import pytest

import actmem
import actmem.jax
from conftest import TREE

MODULE = os.path.join(TREE, "lib", "python")

TRAIN = """
    import json, os
    import jax, jax.numpy as jnp
    import actmem, actmem.jax
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0)
    def train():
        return jax.block_until_ready(jax.jit(jax.grad(
            lambda x: jnp.sum(f(x))))(jnp.ones((256, 256))))
"""


NAMED = """
    train()
    assert actmem.jax.reset() == 0 and len(actmem.regions()) == 1
    train()
    region, = actmem.regions()
    print(json.dumps([region, os.stat(region["path"]).st_ino,
                      os.stat(region["path"]).st_blocks]))
"""


def python(script, path=MODULE, **environment):
    """What `script` printed, as JSON, or its error output if it failed."""
    variables = {name: value for name, value in os.environ.items()
                 if not name.startswith("ACTMEM_")}
    variables.update(environment, PYTHONPATH=path)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRAIN) + textwrap.dedent(script)],
        env=variables, capture_output=True, text=True, check=False)
    if result.returncode:
        return result.stderr
    return json.loads(result.stdout)


def test_memory_that_the_handlers_open_meanwhile():
    """XLA's thread opens the memory after this thread has looked for it, and before it opens its
    own: both use the same."""
    seen = python("""
    look = actmem._adopted
    def look_early():
        actmem._adopted = look
        train()
        return None
    actmem._adopted = look_early
    memory = actmem.default()
    print(json.dumps([memory.counters()["regions"], actmem.jax.stats()["put_bytes_total"] > 0,
                      memory is actmem.default()]))
    """, ACTMEM_BACKEND="memfd", ACTMEM_ALLOW="any", ACTMEM_PAGES="4K")
    assert seen == [1, True, True]


def test_a_name_outlives_its_process():
    path = f"/dev/shm/actmem-jax-{os.getpid()}"
    environment = {"ACTMEM_BACKEND": "memfd", "ACTMEM_ALLOW": "any",
                   "ACTMEM_PAGES": "4K", "ACTMEM_HEAP_GROW": "6M"}
    try:
        first = python(NAMED, ACTMEM_NAME=path, **environment)
        second = python(f"\n    actmem.open(name={path!r})" + NAMED, **environment)
    finally:
        if os.path.exists(path + ".0"):
            os.unlink(path + ".0")
    region, inode, blocks = first
    assert region["named"] and region["path"] == path + ".0"
    assert region["length"] == 6 << 20 == blocks * 512
    assert second[0]["path"] == path + ".0" and second[1:] == [inode, blocks]


def test_the_environment_decides():
    result = python("""
        train()
        region, = actmem.regions()
        print(json.dumps([region, actmem.counters(), actmem.describe()]))
    """, ACTMEM_BACKEND="memfd", ACTMEM_ALLOW="any", ACTMEM_PAGES="4K",
        ACTMEM_HEAP_GROW="6M")
    region, counters, described = result
    assert region["length"] == counters["region_bytes"] == 6 << 20
    assert region["backend"] == "memfd" and region["pages"] == "4K"
    assert region["page_bytes"] == 4096
    assert counters["blocks"] == 0 and counters["block_bytes_peak"] == 256 * 1024
    assert described.startswith("memfd: ")


def test_open_decides_before_first_use():
    result = python("""
        memory = actmem.open(backend="memfd", pages="4K", allow="any",
                             heap_grow=4 << 20)
        train()
        try:
            actmem.open()
        except actmem.Error as error:
            again = str(error)
        try:
            memory.close()
        except actmem.Error as error:
            close = error.errno
        print(json.dumps([actmem.regions()[0]["length"], memory.backend,
                          again, close, repr(memory)]))
    """, ACTMEM_BACKEND="driver")
    length, backend, again, close, text = result
    assert length == 4 << 20 and backend == "memfd"
    assert "already open" in again and "before the first use" in again
    assert close == 16      # EBUSY: the handlers' heap
    assert text.startswith("<actmem.Memory memfd: ")


def test_closed_before_the_first_use():
    """The handlers use what is opened then, or open what they need."""
    described, length, opened = python("""
        actmem.open(backend="memfd", allow="any").close()
        memory = actmem.open(backend="memfd", allow="any", heap_grow=4 << 20)
        described = repr(memory)
        train()
        print(json.dumps([described, actmem.regions()[0]["length"],
                          actmem.default() is memory]))
    """)
    assert described.startswith("<actmem.Memory memfd: ")
    assert length == 4 << 20 and opened
    assert python("""
        actmem.open(backend="memfd", heap_grow=4 << 20).close()
        train()
        print(json.dumps(actmem.regions()[0]["length"]))
    """, ACTMEM_ALLOW="any", ACTMEM_HEAP_GROW="6M") == 6 << 20


def test_a_memory_that_cannot_be_closed_stays_that_of_the_handlers():
    """The region is the program's own, made through the C library."""
    errors, length, is_default = python("""
        import ctypes
        from actmem import _native
        class RegionOptions(ctypes.Structure):
            _fields_ = [("size", ctypes.c_size_t), ("length", ctypes.c_uint64),
                        ("pages", ctypes.c_int), ("policy", ctypes.c_int),
                        ("nodes", _native.Nodes), ("flags", ctypes.c_uint32),
                        ("allow", ctypes.c_uint32), ("name", ctypes.c_char_p)]
        memory = actmem.open(backend="memfd", pages="4K", allow="any", heap_grow=4 << 20)
        options = RegionOptions(size=ctypes.sizeof(RegionOptions), length=4096)
        region = ctypes.c_void_p()
        assert _native.library.actmem_region_create(
            memory.handle, ctypes.byref(options), ctypes.byref(region)) == 0
        errors = []
        for _ in range(2):
            try:
                memory.close()
            except actmem.Error as error:
                errors.append(error.errno)
        train()
        lengths = [region["length"] for region in actmem.regions()]
        print(json.dumps([errors, max(lengths), actmem.default() is memory]))
    """, ACTMEM_ALLOW="any", ACTMEM_HEAP_GROW="6M")
    assert errors == [16, 16]       # EBUSY
    assert length == 4 << 20 and is_default


def test_open_after_the_first_use_is_refused():
    error = python("train(); actmem.open()", ACTMEM_ALLOW="any")
    assert "already open" in error


def test_no_huge_pages_and_nothing_allowed():
    """Or there are some, and it works: nothing is used silently."""
    result = python("""
        train()
        print(json.dumps(actmem.regions()))
    """, ACTMEM_BACKEND="memfd", ACTMEM_PAGES="2M")
    if isinstance(result, str):
        assert "RESOURCE_EXHAUSTED: actmem: no memory for a block of 262144" in result
        assert "<lambda> (<string>)" in result
        assert "hugepages" in result and "ACTMEM_ALLOW" in result
        assert 'allow="thp,4k" (ACTMEM_ALLOW)' in result
    else:
        assert result[0]["pages"] == "2M"


def test_a_failed_put_leaves_nothing():
    live, blocks = python("""
        actmem.open(backend="memfd", allow="any", heap_grow=2 << 20,
                    heap_limit=4 << 20)
        step = jax.jit(jax.grad(lambda x: jnp.sum(f(x))))
        try:
            jax.block_until_ready(step(jnp.ones((2048, 1024))))
        except Exception:
            train()
            print(json.dumps([actmem.jax.stats()["live_blocks"],
                              actmem.counters()["blocks"]]))
    """)
    assert live == blocks == 0


@pytest.mark.parametrize("name,value", [
    ("ACTMEM_ALLOW", "all"), ("ACTMEM_BUDGET", "24MB"),
    ("ACTMEM_SPILL", ":".join(["/tmp"] * 65)), ("ACTMEM_JAX_GENERATIONS", "two"),
    ("ACTMEM_UPDATE_THREADS", "many")])
def test_wrong_environment(name, value):
    error = python("train()", **{"ACTMEM_ALLOW": "any", name: value})
    assert name in error and value in error


@pytest.mark.parametrize("options,words", [
    ({"backend": "disk"}, "backend='disk' must be one of auto, driver, memfd"),
    ({"pages": "1M"}, "pages='1M' must be one of"),
    ({"policy": "near"}, "policy='near' must be one of"),
    ({"allow": ("thp", "all")}, "allow='all' must be one of"),
    ({"heap_limit": -1}, "heap_limit=-1 is not a number of bytes"),
    ({"heap_grow": 1 << 64}, "heap_grow=18446744073709551616 is not a number"),
    ({"heap_grow": "64M"}, "heap_grow='64M' is not a number of bytes"),
    ({"budget": -1}, "budget=-1 is not a number of bytes"),
    ({"spill_limit": "1G"}, "spill_limit='1G' is not a number of bytes"),
    ({"budget": 1 << 24, "heap_limit": 1 << 24},
     "budget=16777216 and heap_limit=16777216 cannot be combined"),
    ({"spill": "/tmp"}, "spill= needs a budget"),
    ({"budget": 1 << 24, "spill_limit": 1 << 24}, "needs a directory to spill to"),
    ({"budget": 1 << 24, "spill_allow": "memory"},
     "spill_allow='memory' needs a directory to spill to"),
    ({"budget": 1 << 24, "spill": "/tmp", "spill_allow": "memory,swap"},
     "spill_allow='swap' must be one of memory, buffered"),
    ({"spill": ""}, "spill='' is not a valid name of a directory"),
    ({"spill": ["/tmp", "a\0b"]}, r"spill='a\\x00b' is not a valid name of a directory"),
    ({"spill": []}, "spill= names no directory"),
    ({"nodes": "0"}, "nodes='0' must be an integer or a sequence"),
    ({"nodes": 1024}, "nodes=1024 must be from 0 to 1023"),
    ({"nodes": [-1]}, "nodes=-1 must be from 0 to 1023")])
def test_wrong_options(options, words):
    with pytest.raises(ValueError, match=words):
        actmem.open(**options)


def test_generations_from_the_environment():
    assert python("print(json.dumps(actmem.jax.stats()['generations_max']))",
                  ACTMEM_JAX_GENERATIONS="7") == 7


def test_list_and_version():
    with open(os.path.join(TREE, "VERSION"), encoding="utf-8") as file:
        assert actmem.version() == file.read().strip()
    actmem.jax.reset()
    before = len(actmem.regions())
    other = python("""
        train()
        print(json.dumps([os.getpid(), actmem.list()]))
    """, ACTMEM_ALLOW="any")
    pid, regions = other
    assert [r["pid"] for r in regions].count(pid) == 1
    # Others may make regions meanwhile.
    listed = [r["pid"] for r in actmem.list()]
    assert listed.count(os.getpid()) == before and pid not in listed


def test_libraries_beside_the_module(tmp_path):
    """As they are installed."""
    shutil.copytree(os.path.join(MODULE, "actmem"), tmp_path / "actmem",
                    ignore=shutil.ignore_patterns("__pycache__"))
    missing = python("", path=str(tmp_path))
    assert "cannot find libactmem.so in" in missing
    assert "`make`" in missing and "ACTMEM_LIBDIR" in missing
    for name in ("libactmem.so.0", "libactmem_xla.so"):
        shutil.copy(os.path.join(TREE, "build", "lib", name),
                    tmp_path / "actmem")
    script = """
        train()
        with open("/proc/self/maps") as maps:
            print(json.dumps(sorted({line.split()[-1] for line in maps
                                     if "libactmem" in line})))
    """
    assert python(script, path=str(tmp_path), ACTMEM_ALLOW="any") == [
        str(tmp_path / "actmem" / name)
        for name in ("libactmem.so.0", "libactmem_xla.so")]
    assert python(script, path=MODULE, ACTMEM_ALLOW="any",
                  ACTMEM_LIBDIR=str(tmp_path / "actmem"))[0] == str(
        tmp_path / "actmem" / "libactmem.so.0")


def test_a_library_folder_without_libraries(tmp_path):
    assert f"cannot find libactmem.so in {tmp_path}" in python(
        "", ACTMEM_LIBDIR=str(tmp_path))


def test_a_version_that_computes_wrong_values_is_told(monkeypatch):
    monkeypatch.setattr(jax, "__version__", "0.10.2")
    with pytest.warns(UserWarning, match="wrong values.*use 0.10.1"):
        importlib.reload(actmem.jax)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(actmem.jax)
