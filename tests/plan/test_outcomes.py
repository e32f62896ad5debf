# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""`actmem plan` predicts the sign of published gains (outcomes.csv), and docs/planning.md has its
predictions."""
import csv
import functools
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def outcomes():
    with open(os.path.join(HERE, "outcomes.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def told():
    """The last column of the table in the docs."""
    with open(os.path.join(ROOT, "docs", "planning.md"), encoding="utf-8") as file:
        table = file.read().split("<!-- outcomes -->")[1]
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")]
            for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


@functools.cache
def planned(options):
    command = os.path.join(ROOT, "build", "bin", "actmem")
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    words = [os.path.join(HERE, word) if word.endswith((".json", ":make_step")) else word
             for word in options.split()]
    result = subprocess.run([command, "plan", "--json", *words], capture_output=True, text=True,
                            env=os.environ | {"PATH": path}, check=False)
    assert result.returncode == 0, (options, result.stderr)
    return json.loads(result.stdout)


@pytest.mark.parametrize("number, row", enumerate(outcomes()),
                         ids=[row["source"] for row in outcomes()])
def test_the_sign_is_right(number, row):
    model = row["options"].split(" --machine")[0]
    found = planned(row["options"])
    if row["against"] == "recompute":
        gain = found["gain"]
    else:
        machine = row["options"].split("--machine ")[1].split(" --keep")[0]
        other = planned(f"{model} --machine {machine} {row['against']}")
        gain = 1 - found["step_s"] / other["step_s"]
    print(f"{row['source']}: {gain:.1%} ± {found['error']:.1%}")
    if row["sign"] == "0":
        assert gain <= found["error"] + 0.01
    else:
        assert (gain > 0) == (row["sign"] == "+")
    source, published, foreseen = (told()[number][i] for i in (0, -2, -1))
    assert (source, published) == (row["source"], row["published"])
    # The docs are of the same model; JAX's versions differ in details of what they trace.
    assert abs(float(foreseen.split("%")[0]) / 100 - gain) < 0.005
