# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The table of docs/weights.md, "what trains on one H200", is that of `actmem plan`. If it is not, the
test prints the new table."""
import json
import os
import re

import pytest

from actmem import _command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODELS = ("llama-3.1-8b", "llama-2-13b", "llama-3.3-70b")


def page():
    with open(os.path.join(ROOT, "docs", "weights.md"), encoding="utf-8") as file:
        return file.read()


def options():
    """Those of the command in the page."""
    return re.search(r"actmem plan (--machine .*?) --model", page())[1].split()


def planned(capsys, model, batch):
    assert _command.run(["plan", "--json", *options(), "--model", model, "--batch", batch]) == 0
    return json.loads(capsys.readouterr().out)["placement"]


def seconds(one):
    return f"{one['stored']}: {one['compute_s']:.1f} + {one['wait_s']:.1f} = {one['step_s']:.1f}"


def test_the_table(capsys):
    lines = []
    for model in MODELS:
        few, many = (planned(capsys, model, batch) for batch in ("2", "16"))
        assert few["place"] == many["place"]
        lines.append(f"| {model} | {few['place']} | "
                     f"{few['host_bytes'] / 1e9:,.0f} | {seconds(few)} | {seconds(many)} |")
    wanted = [line for line in page().split("<!-- largest -->")[1].splitlines()
              if line.startswith("| ")][1:]
    print("\n".join(lines))
    assert [re.sub(r"[\d.,]+", "N", line) for line in lines] == [
        re.sub(r"[\d.,]+", "N", line) for line in wanted]
    for line, there in zip(lines, wanted):
        # JAX's versions differ in details of what they trace.
        assert [float(word) for word in re.findall(r"\d+\.\d", line)] == pytest.approx(
            [float(word) for word in re.findall(r"\d+\.\d", there)], rel=0.01, abs=0.11)
        assert line.split(" | ")[2] == there.split(" | ")[2]


def test_a_larger_model_is_refused(capsys):
    """405B needs 6.5 TB."""
    assert _command.run(["plan", *options(), "--model", "llama-3.1-405b", "--batch", "2"]) == 1
    error = capsys.readouterr().err
    assert "it needs 5.8" in error and "TiB of host memory (limit 1.46 TiB)" in error
