# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""`make bench-plan` in short: it runs one case a few times. The plan is among the policies that
ran, and fits."""
import importlib.machinery
import importlib.util
import json
import os
import statistics
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "bench")
BUILD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build")
sys.path.insert(0, BENCH)

import cases  # noqa: E402
import figures  # noqa: E402
import here  # noqa: E402


@pytest.fixture(name="bench", scope="module")
def fixture_bench():
    """The program, as a module."""
    path = os.path.join(BENCH, "bench-plan")
    spec = importlib.util.spec_from_loader(
        "bench_plan", importlib.machinery.SourceFileLoader("bench_plan", path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="machine", scope="module")
def fixture_machine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine")
    path = os.path.join(folder, "machine.json")
    here.measure(path, [cases.PROGRAMS["small vision"]()], os.path.join(BUILD, "bin", "actmem"),
                 str(folder), 0, 16 << 20)
    return path


def test_a_case_runs(bench, machine, tmp_path):
    case, = (one for one in cases.CASES
             if (one.program, one.host, one.device) == ("perceptron", 0.25, 0.1))
    told = bench.run(case, machine, str(tmp_path), quick=True)
    assert told["case"] == case.name
    plan, = (one for one in told["policies"] if "plan" in one["why"])
    # Memory is foreseen to within a tenth.
    assert plan["foreseen_peak"] <= told["device_bytes"] >= plan["peak_bytes"] / 1.1
    assert not set(plan["kept"]) & set(plan["offloaded"])
    whys = [why for one in told["policies"] for why in one["why"]]
    assert {why: whys.count(why) for why in whys} == {
        "plan": 1, "measured": 1, "recompute": 1, "shortlist": 2, "random": 2}
    assert all(len(one["rounds"]) == 2 and min(one["rounds"]) > 0 and one["foreseen_s"] > 0
               for one in told["policies"])
    assert told["host_bytes"] > 0
    found = figures.of(told)
    assert found["policies"] == len(told["policies"])
    assert found["over_fastest"] is None or not found["fits"] or found["over_fastest"] >= 0


def test_a_case_that_is_there_is_not_run_again(bench, tmp_path, monkeypatch, capsys):
    policies = [{"why": why, "foreseen_s": seconds, "peak_bytes": 1, "rounds": [seconds] * 4}
                for why, seconds in ((["plan", "measured"], 1.0), (["recompute"], 1.25))]
    names = [case.name for case in cases.CASES]
    with open(tmp_path / "bench-plan.jsonl", "w", encoding="utf-8") as file:
        for name in names:
            file.write(json.dumps({"case": name, "device_bytes": 1, "policies": policies}) + "\n")
    os.utime(file.name, (10**9 + 36000, 10**9 + 36000))
    monkeypatch.setattr(sys, "argv", ["bench-plan", str(tmp_path)])
    bench.main()
    words = capsys.readouterr().out.splitlines()
    # A heading and an empty line; the table with two lines at its top; the sums.
    # The date is that of the measurements.
    assert words[0].startswith("Measured on 9 September 2001 by `make bench-plan`, on ")
    assert len(words) == 2 + 2 + len(names) + 2
    assert f"{len(names) - 3} cases: over the fastest +0.0% in the median" in words[-2]
    assert words[-1].startswith("3 programs too small to gain: over recompute -20.0% at most")


@pytest.mark.parametrize("end", ["pass", "raise ValueError", "sys.exit(3)",
                                 "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"])
def test_the_session_gets_its_priority_back(end):
    """A shell, in a session of its own, reads the priority after the program has ended."""
    program = ("import os, signal, sys, time, here\n"
               f"with here.first():\n print(here.nice_of_session(), flush=True)\n {end}")
    session = ("awk '{ print $3 }' /proc/self/autogroup; \"$0\" -c \"$1\" 2>/dev/null;"
               "awk '{ print $3 }' /proc/self/autogroup")
    told = subprocess.run(["sh", "-c", session, sys.executable, program], text=True, check=True,
                          start_new_session=True, stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    before, within, after = told.stdout.split()
    if within != "-19":
        pytest.skip("this user may not raise the priority of a session")
    assert after == before != within


def test_figures():
    assert figures.tau([1, 2, 3, 4], [10, 20, 30, 40]) == 1
    assert figures.tau([4, 3, 2, 1], [10, 20, 30, 40]) == -1
    assert figures.tau([1, 2, 4, 3], [10, 20, 30, 40]) == pytest.approx(4 / 6)
    # Of pairs that are as fast as each other no order is asked, and nothing foreseen is none.
    assert figures.tau([1, 2, 4, 3], [10, 20, 30, 30.1], 0.01) == 1
    # Nor of pairs that are foreseen to be equal.
    assert figures.tau([1, 2, 2.01, 3], [1, 2.5, 2, 3], claimed=0.01) == 1
    assert figures.tau([1, 2, 2.01, 3], [1, 2.5, 2, 3], claimed=0.001) == pytest.approx(4 / 6)
    assert figures.tau([1, 1], [1, 2]) == 0 and figures.tau([1, 2], [1, 1]) is None
    assert figures.quarter([4, 1, 8, 3, 9, 9, 9, 9]) == 2
    assert figures.noise([{"rounds": [1, 1.1, 1, 1.1]}], min) == pytest.approx(0.1)
    # Of rounds that are disturbed now and then the fastest are right, of others the median.
    assert figures.step_of([{"rounds": [1, 1, 1, 9, 1, 9, 9, 9]}]) is figures.quarter
    assert figures.step_of([{"rounds": [5, 5, 5, 5, 5, 5, 5, 1]}]) is statistics.median
