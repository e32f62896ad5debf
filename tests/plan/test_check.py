# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Plan.check() names the term that was off."""
import dataclasses

import pytest

from actmem.plan.report import Plan, Row

# Two layers send 100 bytes each; of 10 s a device waits for 1, and 50 bytes go to files.
PLAN = Plan("m", "here", (Row("q", 200, "offload", ""),), 10.0, 12.0, 0.02, 1000, 150, 50, "",
            layers=((2.0, 2.5, 100), (2.0, 2.5, 100)), waited_s=1.0, rate_error=0.1)


def stats(step_s=10.0, waited=1.0, put=200, spilled=50, peak=1000, steps=1):
    return {"step_s": step_s, "peak_bytes": peak, "last_run_put_bytes": put,
            "store": {"take_stall_ns_total": 0.75e9 * waited * steps,
                      "put_stall_ns_total": 0.25e9 * waited * steps,
                      "spilled_bytes_total": spilled * steps}}


def test_as_foreseen():
    found = PLAN.check(stats())
    assert not found.off and str(found).endswith("all predictions are within the error")
    assert {term.name for term in found.terms} == {
        "compute", "waiting for transfers", "bytes offloaded", "bytes written to files",
        "device memory"}
    assert not PLAN.check(stats(step_s=10.8, put=195, spilled=52, peak=1050)).off


@pytest.mark.parametrize("term, seen", [
    ("compute", {"step_s": 14.0}), ("waiting for transfers", {"step_s": 13.0, "waited": 4.0}),
    ("bytes offloaded", {"put": 400}), ("bytes written to files", {"spilled": 0}),
    ("device memory", {"peak": 1500})])
def test_the_term_that_was_off(term, seen):
    found = PLAN.check(stats(**seen))
    assert found.off == term
    assert str(found).endswith(f"prediction of {term} was wrong") and "predicted" in str(found)


def test_counts_are_of_these_steps():
    before, after = stats(steps=3), stats(steps=8)
    assert not PLAN.check(after, since=before, steps=5).off
    assert PLAN.check(after, since=before, steps=2).off


def test_stalls_are_of_all_devices():
    """Each of the devices waits for its own."""
    plan = dataclasses.replace(PLAN, devices=4)
    found = plan.check(stats(waited=4.0, put=800, spilled=200))
    assert not found.off
    assert {term.name: term.seen for term in found.terms}["waiting for transfers"] == 1.0
    assert plan.check(stats(waited=16.0, step_s=13.0, put=800, spilled=200)).off == \
        "waiting for transfers"


def test_nothing_to_compare():
    with pytest.raises(ValueError, match="nothing to compare: pass actmem.jax.stats"):
        PLAN.check({})
    assert [term.name for term in PLAN.check({"step_s": 9.5}).terms] == ["compute"]
