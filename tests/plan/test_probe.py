# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""actmem probe: what it measures, that it does so once, and what it refuses."""
import json
import os

import jax
import pytest

from actmem import _command
from actmem.plan import machine, probe

COMMAND = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), "build", "bin", "actmem")
SMALL = ("--memory", "2M", "--seconds", "0", "--products", "8x16x32", "--dtypes", "float32",
         "--command", COMMAND)


@pytest.fixture(name="cache", autouse=True)
def fixture_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def command(*arguments):
    return _command.run(["probe", *arguments])


def told(capsys, *arguments):
    assert command(*SMALL, "--json", *arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_it_measures(capsys):
    seen = told(capsys)
    assert seen["machine"] == probe.identity() and seen["machine"]["platform"] == "cpu"
    (product,) = seen["products"]
    assert (product["m"], product["k"], product["n"], product["dtype"]) == (8, 16, 32, "float32")
    wanted = {name for name in machine.FIGURES
              if name.startswith(("link", "host", "hbm_bandwidth", "devices", "trans",
                                  "strided", "interconnect"))}
    assert seen["figures"].keys() == wanted
    assert all(value > 0 for value in seen["figures"].values())
    assert {(row["from"], row["to"]) for row in seen["nodes"]} >= {(0, 0)}
    one = machine.find("here")
    assert one.platform == "cpu"
    assert one.products("float32") == product["flops"]
    assert one.link("out", both=True) <= one.link("out") == seen["figures"]["link_out"]
    assert one.rates().share == 1       # processors copy themselves
    assert not one.assumptions()


def test_it_measures_once(capsys, cache, monkeypatch):
    with pytest.raises(machine.MachineError, match="not been measured: run actmem probe"):
        machine.find("here")
    first = told(capsys)
    for name in ("measure_product", "measure_memory", "measure_link", "measure_nodes",
                 "measure_interconnect"):
        monkeypatch.setattr(probe, name, None)
    assert told(capsys) == first
    # Another shape is added.
    monkeypatch.setattr(probe, "measure_product", lambda m, k, n, dtype, limit, batch: {
        "m": m, "k": k, "n": n, "dtype": dtype, "batch": batch, "flops": 1.0})
    second = told(capsys, "--products", "8x16x32,4x4x4")
    assert second["products"] == first["products"] + [
        {"m": 4, "k": 4, "n": 4, "dtype": "float32", "batch": 1, "flops": 1.0}]
    assert second["figures"] == first["figures"]
    monkeypatch.setattr(probe, "identity", lambda: {**first["machine"], "jax": "0"})
    assert probe.kept() is None
    with open(probe.cache_path(), "w", encoding="utf-8") as file:
        json.dump(first, file)
    assert command(*SMALL) == 1
    assert "has the results of another machine or version: remove the file" in capsys.readouterr().err
    with pytest.raises(machine.MachineError, match="another machine or version"):
        machine.find("here")


def test_it_measures_files(capsys, cache):
    spill = str(cache)
    arguments = ("--spill", spill, "--file-bytes", "4M", "--allow-buffered")
    seen = told(capsys, *arguments)
    assert seen["figures"]["disk_write"] > 0 and seen["figures"]["disk_read"] > 0
    assert {disk["path"] for row in seen["spill"] for disk in row["disks"]} == {spill}
    assert seen["spill_folders"] == [spill]
    assert command(*SMALL) == 0
    text = capsys.readouterr().out
    assert "8x16x32 float32" in text and "disk_write" in text and "GB/s" in text


def test_transfers_of_devices():
    """The way that is taken where devices have memory of their own."""
    moved = probe._Transfers(1 << 20, jax.local_devices())
    moved.run("out", "in")
    assert {x.sharding.memory_kind for x in moved.host} == {"pinned_host"}
    assert {x.sharding.memory_kind for x in moved.device} != {"pinned_host"}
    assert [x.devices() for x in moved.device] == [{d} for d in jax.local_devices()]


def test_what_cannot_be_measured(capsys, cache, monkeypatch):
    missing = str(cache / "none")
    assert command(*SMALL, "--spill", missing) == 1
    assert missing in capsys.readouterr().err
    assert command(*SMALL, "--again", "--command", "no-such-actmem") == 1
    assert "cannot find the command 'no-such-actmem'" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(probe, "measure_elements", lambda limit: open(missing, encoding="ascii"))
        assert command(*SMALL, "--again") == 1
    error = capsys.readouterr().err
    assert error.startswith("actmem probe: [Errno 2]") and missing in error
    (cache / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert command(*SMALL, "--again") == 1
    assert "XDG_CACHE_HOME" in capsys.readouterr().err


@pytest.mark.parametrize("option, value, words", [
    ("--products", "8x8", "'8x8' is not a product such as"), ("--products", "0x8x8", "is not a product"),
    ("--products", "8x8x8,", "'' is not a product"), ("--dtypes", "int4", "'int4' must be one of bfl"),
    ("--memory", "0", "'0' is not a number of bytes"),
    ("--memory", "1M", "'1M' is less than 2M"),
    ("--file-bytes", "4K", "'4K' is less than 1M"),
    ("--memory", "2MB", "is not a number of bytes"),
    ("--file-bytes", "-1", "is not a number of bytes"),
    ("--seconds", "nan", "not a number of seconds"),
    ("--seconds", "x", "not a number of seconds")])
def test_values_that_are_wrong(capsys, option, value, words):
    with pytest.raises(SystemExit) as exit_:
        command(f"{option}={value}")
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert option in error and words in error
