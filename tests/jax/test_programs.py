# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The generator of random programs (programs.py) notices what it has to notice."""
import signal

import pytest

import actmem.jax
from generator import compare, draw, shrink, text, workers


def small(**changes):
    """A case that passes: two checkpointed layers of a scan, with names."""
    layer = {"op": "checkpoint", "args": "xw", "kind": "subject", "policy": ["names", "a"],
             "prevent_cse": True, "offload": "x",
             "bodies": [[{"op": "sin dot"}, {"op": "name", "name": "a"}, {"op": "tanh"}]]}
    scan = {"op": "scan", "args": "xwsn", "form": "layers", "length": 2, "reverse": False,
            "unroll": 1, "bodies": [[layer, {"op": "add"}]]}
    program = {**draw.SMALL, "dtype": "float32", "mesh": None, "body": [scan],
               "derivation": "grad", "one": 0, "axis": 0, "outside": "jit", "layers": []}
    return {"program": {**program, **changes}, "form": "ours", "flags": [], "spills": False}


def replace(monkeypatch, make):
    """Has programs use make(checkpoint) rather than actmem.jax.checkpoint."""
    monkeypatch.setattr(actmem.jax, "checkpoint", make(actmem.jax.checkpoint))


def test_a_program_that_is_right():
    verdict = compare.run(small())
    assert verdict["result"] in ("same", "close"), verdict
    assert verdict["detail"] == "12 puts"       # three runs of two layers' x and a


def test_a_wrong_value(monkeypatch):
    replace(monkeypatch, lambda ours: lambda f, **options: ours(
        lambda *args: f(*args) * 1.001, **options))
    verdict = compare.run(small())
    assert (verdict["result"], verdict["reason"]) == ("wrong", "far"), verdict


def test_blocks_that_remain(monkeypatch):
    kept = []

    def make(ours):
        def checkpoint(f, **options):
            wrapped = ours(f, **options)
            kept.append(compare.jax.vjp(wrapped, *map(compare.jnp.ones, ((3, 4), (4, 4))))[1])
            return wrapped
        return checkpoint
    replace(monkeypatch, make)
    layer = small()["program"]["body"][0]["bodies"][0]
    verdict = compare.run(small(body=layer, outside="eager"))
    assert verdict["result"] == "left", verdict


def test_a_refusal(monkeypatch):
    def make(ours):
        def checkpoint(f, **options):
            raise NotImplementedError("of this test, 3 times")
        return checkpoint
    replace(monkeypatch, make)
    verdict = compare.run(small())
    assert verdict["result"] == "error", verdict
    assert verdict["reason"] == "NotImplementedError: of this test, N times"
    monkeypatch.setitem(compare.DOCUMENTED, "a test", (None, "of this test"))
    assert compare.run(small())["result"] == "skipped"


@pytest.mark.parametrize("signal, result", [
    (signal.SIGSEGV, "crash"), (signal.SIGSTOP, "hang")])
def test_the_end_of_a_process(signal, result):
    """Of the one that runs a case, after stock JAX and before; the next case runs."""
    processes = workers.Workers(timeout=100)
    try:
        worker = processes.worker(False)
        read = worker._read

        def interrupted():
            line = read()
            if line is None:
                if result == "hang":
                    worker.timeout = 2
                worker.process.send_signal(signal)
            return line
        worker._read = interrupted
        assert processes.run(small())["result"] == result
        assert processes.run(small())["result"] in ("same", "close")
        verdict = processes.run({"spills": False})
        assert (verdict["result"], verdict["reason"]) == ("skipped", "stock JAX: status 1")
    finally:
        processes.close()


def test_shrinking():
    """Fails as long as a gather is in a checkpoint."""
    def run(case):
        found = any(it["op"] == "gather" for outer in draw.statements(case["program"]["body"])
                    if outer.get("kind") == "subject"
                    for it in draw.statements(outer["bodies"][0]))
        return {"result": "wrong" if found else "same", "reason": ""}
    case = next(case for case in map(draw.case, range(10000))
                if run(case)["result"] == "wrong" and len(text.source(case["program"])) > 2000)
    case, verdict = shrink.shrink(case, run(case), run, seconds=60)
    assert verdict["result"] == "wrong"
    (checkpoint,) = case["program"]["body"]
    assert [it["op"] for it in checkpoint["bodies"][0]] == ["gather"]
    assert case["program"]["derivation"] == "grad" and case["program"]["layers"] == []


def test_what_seeds_draw():
    """A seed is always the same case, and everything is drawn."""
    cases = [draw.case(seed) for seed in range(3000)]
    assert cases == [draw.case(seed) for seed in range(3000)]
    drawn = {it["op"] for case in cases for it in draw.statements(case["program"]["body"])}
    assert drawn >= set(text.LEAVES)
    assert {case["program"]["derivation"] for case in cases} == set(text.DERIVATIONS)
    assert {case["form"] for case in cases} == set(draw.FORMS)
    for case in cases:
        compile(text.source(case["program"]), "program", "exec")


@pytest.mark.parametrize("got, wanted, reason", [
    ([1.0], [1.0], None), ([1.0 + 1e-7], [1.0], None), ([1.0 + 4e-7], [1.0], None),
    ([1.0 + 1e-6], [1.0], "near"),
    ([1.1], [1.0], "far"), ([1.1], [1.1], None), ([float("nan")], [1.0], "not a number")])
def test_how_errors_compare(got, wanted, reason):
    got, wanted = (compare.np.array(values, "float32") for values in (got, wanted))
    exact, other = compare.np.array([1.0]), compare.np.array([1.0 + 1e-7])
    more = compare.excess([got], [[wanted], [other]], [[exact], [other]], 1.2e-7)
    assert (more and more[0]) == reason
