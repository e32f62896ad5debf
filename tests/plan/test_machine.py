# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Machines: the table, files like it, and what a missing figure says."""
import csv
import json

import pytest

from actmem.plan import defaults, machine, memory
from actmem.plan.machine import MachineError

DEVICES = ("v5p", "v6e", "v5e", "a6000", "a100", "h100", "h200", "gh200", "b200", "b300", "gb200")
HOSTS = ("xeon-8480c-2s", "xeon-8570-2s", "xeon-6776p-2s", "xeon-6980p-2s")
# What a machine does without, or nobody publishes.
MEASURED = ("transfer_share", "transfers", "transcendentals", "strided", "clock")
OF_DEVICES = [name for name in machine.FIGURES
              if name not in ("flops_fp8", "flops_f32", "disk_write", "disk_read", "error",
                              "stock_waits", "unsure", "dram_efficiency", "disk_bytes", *MEASURED)]


def test_the_table():
    assert tuple(machine.names()) == DEVICES + HOSTS
    for name in DEVICES:
        one = machine.find(name)
        one.check(OF_DEVICES)
        assert 1e14 < one.products("bfloat16") < one.need("flops_bf16")
        assert one.products("bfloat16") == one.need("flops_bf16") * one.need(
            "product_efficiency")
        assert 6e11 < one.memory() < one.need("hbm_bandwidth")
        for direction in ("out", "in"):
            alone = one.link(direction)
            assert one.link(direction, both=True, devices=8) <= \
                one.link(direction, both=True) <= alone
            assert one.link(direction, devices=8) <= alone
        # Nothing is said without its source, nor an efficiency that is not an assumption.
        assert all(figure.source and figure.basis in ("published", "reckoned", "assumed")
                   for figure in one.figures.values())
        assert one.figures["product_efficiency"].basis == "assumed"
        assert any("product_efficiency" in words for words in one.assumptions())
    for name in HOSTS:
        machine.find(name).check(("host_nodes", "host_bandwidth", "host_bytes"))


def test_what_was_published():
    """A few that are easily looked up."""
    for name, figure, value in (("v5p", "flops_bf16", 4.59e14), ("h100", "hbm_bandwidth", 3.35e12),
                                ("h200", "hbm_bytes", 141e9), ("h200", "link_in", 55.4e9),
                                ("a100", "flops_bf16", 312e12), ("v6e", "flops_bf16", 918e12)):
        assert machine.find(name).need(figure) == pytest.approx(value)


def test_a_missing_figure_is_named():
    with pytest.raises(MachineError, match="'xeon-8480c-2s' has no figure 'hbm_bandwidth' "
                                           r"\(bytes a second that a device reads.*probe"):
        machine.find("xeon-8480c-2s").memory()
    with pytest.raises(MachineError, match="'v5p' has no figure 'flops_fp8'"):
        machine.find("v5p").products("float8_e4m3fn")
    with pytest.raises(MachineError, match="products of int4: supported types are bfloat16"):
        machine.find("v5p").products("int4")
    with pytest.raises(MachineError, match="'h200' has no figure 'disk_write'.*--spill DIR"):
        machine.find("h200").check(["link_out", "disk_write"])
    with pytest.raises(MachineError, match="'xeon-8480c-2s' has no figure 'interconnect'.*save "
                                           "the output of actmem probe --json to a file"):
        machine.find("xeon-8480c-2s").need("interconnect")
    with pytest.raises(MachineError, match="unknown figure 'speed'"):
        machine.find("h200").need("speed")
    with pytest.raises(ValueError, match="direction='up' must be"):
        machine.find("h200").link("up")
    with pytest.raises(MachineError, match="unknown machine 'h2000': use one of v5p, "):
        machine.find("h2000")


def test_figures_that_are_given():
    one = machine.find("h200").replace(disk_write=11e9, link_out=1e9)
    assert (one.error, one.replace(error=0.05).error) == (machine.ERROR, 0.05)
    assert one.need("disk_write") == 11e9 and one.figures["disk_write"].basis == "given"
    assert one.link("out") == 1e9 and one.link("in") == machine.find("h200").link("in")
    for values, words in (({"disk": 1}, "unknown figure 'disk'"),
                          ({"disk_read": 0}, "'disk_read' is 0, but must be a number above 0"),
                          ({"disk_read": "x"}, "'disk_read' is 'x', but must be a number")):
        with pytest.raises(MachineError, match=words):
            machine.find("h200").replace(**values)


def written(path, *rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write("# mine\n")
        csv.writer(file).writerows(rows)
    return str(path)


def test_the_host_s_memory_is_behind_all_links():
    one = machine.find("h200").replace(host_nodes=2, host_bandwidth=4e10)
    assert one.link("out", devices=8) == 2 * 4e10 / 8
    assert one.link("in", both=True, devices=8) == 2 * 4e10 / 16
    assert one.link("out") == machine.find("h200").link("out")


def test_files(tmp_path):
    path = tmp_path / "mine.csv"
    good = [machine.COLUMNS, ("mine", "link_out", "2e10", "published", "here")]
    one = machine.find(written(path, *good))
    assert one.name == "mine" and one.link("out") == 2e10
    for rows, words in (
            ((), "expected the names of the columns, machine,figure,value"),
            ((*good, ("mine", "link_in", "fast", "", "")), "mine.csv:4: figure 'link_in' is 'fa"),
            ((*good, ("mine", "link", "1", "", "")), "mine.csv:4: unknown figure 'link'"),
            ((*good, ("mine", "link_in", "1")), "mine.csv:4: found 3 columns, but expected 5"),
            ((*good, good[1]), "mine.csv:4: figure 'link_out' of mine is given twice"),
            ((*good, ("mine", "link_in", "1", "guessed", "")),
             "mine.csv:4: the basis of figure 'link_in' is 'guessed', but must be one of published, "),
            ((*good, ("mine", "link_in", "1" * 400, "given", "")), "must be a number above 0"),
            ((*good, ("mine", "link_in", "1", "given", "x" * (1 << 18))),
             "cannot read the machines of .*mine.csv: field larger"),
            ((*good, ("other", "link_in", "1", "given", "")), "has 2 machines, but must have one")):
        with pytest.raises(MachineError, match=words):
            machine.find(written(path, *rows))
    with pytest.raises(MachineError, match="cannot read the machines of .*none.csv"):
        machine.find(str(tmp_path / "none.csv"))
    path.write_bytes(b"\xff")
    with pytest.raises(MachineError, match="cannot read the machines of .*mine.csv: 'utf-8'"):
        machine.find(str(path))


def test_what_the_probe_printed(tmp_path):
    path = tmp_path / "probe.json"
    products = [{"m": 64, "k": 64, "n": 64, "dtype": "float32", "flops": 1e9},
                {"m": 4096, "k": 64, "n": 64, "dtype": "float32", "flops": 3e9},
                {"m": 8, "k": 8, "n": 8, "dtype": "float32", "flops": 2e9, "batch": 64}]
    told = {"name": "here", "figures": {"hbm_bandwidth": 1e10}, "products": products}
    path.write_text(json.dumps(told))
    one = machine.find(str(path))
    # Measured figures are taken as they are, and the product that is most alike.
    assert one.memory() == 1e10
    assert one.products("float32", (100, 64, 64)) == 1e9
    assert one.products("float32", (8, 8, 16), 100) == 2e9
    assert one.products("float32", (2048, 64, 64)) == one.products("float32") == 3e9
    with pytest.raises(MachineError, match="machine 'here' has no measured products of float16"
                                           ".*actmem probe --dtypes float16"):
        one.products("float16")
    disks = [{"path": "/a"}, {"path": "/b"}]
    told["figures"] |= {"disk_write": 4e9, "disk_read": 8e9}
    told["spill"] = [
        {"disks": disks, "request_bytes": 1 << 20, "spill_bandwidth": 1e9, "fill_bandwidth": 2e9},
        {"disks": disks, "request_bytes": 4 << 20, "spill_bandwidth": 4e9, "fill_bandwidth": 8e9},
        {"disks": disks[:1], "request_bytes": 2 << 20, "spill_bandwidth": 5, "fill_bandwidth": 5},
        {"disks": disks, "request_bytes": 16 << 20, "spill_bandwidth": None,
         "fill_bandwidth": None}]
    path.write_text(json.dumps(told))
    one = machine.find(str(path))
    # In requests that are most like the values, and of all disks together.
    assert (one.files("write", 300 << 10), one.files("read", 300 << 10)) == (1e9, 2e9)
    assert (one.files("write", 64 << 20), one.files("read", 3 << 20)) == (4e9, 8e9)
    assert one.replace(disk_write=1e6).files("write", 300 << 10) == 1e6
    for text, words in (("{", "cannot read the machine of"), ("[]", "'figures' is missing"),
                        ('{"figures": {"link": 1}}', "unknown figure 'link'"),
                        ('{"figures": {"link_in": 1%s}}' % ("0" * 400), "'link_in' is 1000"),
                        ('{"figures": {}, "products": [{"m": 1}]}',
                         "probe.json: 'products': an entry has no 'k'")):
        path.write_text(text)
        with pytest.raises(MachineError, match=words):
            machine.find(str(path))
    product, row = products[0], told["spill"][0]
    for changed, words in (
            ({"spill": None}, "'spill' is not a list of objects"), ({"spill": 3}, "'spill' is not"),
            ({"spill": [3]}, "'spill' is not a list"), ({"products": None}, "'products' is not"),
            ({"spill": [{"disks": []}]}, "'spill': an entry has no 'request_bytes'"),
            ({"spill": [row | {"disks": 1}]}, "'spill': 'disks' is 1, but must be a list"),
            ({"spill": [row | {"spill_bandwidth": "x"}]}, "'spill_bandwidth' is 'x', but must be a num"),
            ({"products": [product | {"m": 0}]}, "'products': 'm' is 0, but must be a number above 0"),
            ({"products": [product | {"k": 0.5}]}, "'products': 'k' is 0.5, but must be at least 1"),
            ({"products": [product | {"flops": 0}]}, "'products': 'flops' is 0, but must be a number"),
            ({"products": [product | {"flops": "x"}]}, "'products': 'flops' is 'x', but must be a num"),
            ({"products": [product | {"dtype": 1}]}, "'products': 'dtype' is 1, but must be a string"),
            ({"products": [product | {"o": 1}]}, "has the unknown field 'o'; valid fields are m, k, n, "),
            ({"machine": {"platform": 1}}, "'machine': 'platform' is 1, but must be a string")):
        path.write_text(json.dumps(told | changed))
        with pytest.raises(MachineError, match=f"probe.json: .*{words}"):
            machine.find(str(path))
    # The devices that were measured, wherever the file is read.
    for device, platform in ((None, ""), ({}, ""), ({"platform": "gpu"}, "gpu")):
        path.write_text(json.dumps(told | {"machine": device}))
        assert machine.find(str(path)).platform == platform
        # Tests run on a CPU, which a file that does not say is taken for.
        assert defaults.compiler_of(machine.find(str(path))) is (
            memory.GPU if platform == "gpu" else memory.CPU)
