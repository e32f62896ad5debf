# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs that were compiled and run decide: those that do not fit are dropped, the
fastest is the plan, and one that offloads has to gain more than the runs differ."""
import dataclasses
import re
import types

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name as name

import actmem.jax
from actmem.plan import Choice, Nothing, _trace, load_plan, machine, measure, plan
from actmem.jax import _private
from programs import shape
from test_search import MACHINE, with_link

STEPS = 5


def loss(w, x):
    def layer(x, w):
        y = jnp.sin(name(x @ w["up"], "hidden"))
        return x + jnp.sin(name(y @ w["down"], "low")), None
    layer = jax.checkpoint(layer, policy=None, prevent_cse=False)
    return jnp.mean(jax.lax.scan(layer, x, w)[0])


ARGS = dict(up=shape(4, 64, 256), down=shape(4, 256, 64)), shape(128, 64)


@dataclasses.dataclass
class Clock:
    """Of programs that take what `seconds_of` says and need what `bytes_of` says."""
    seconds_of: object
    bytes_of: object
    now: float = 0.0
    runs: list = dataclasses.field(default_factory=list)

    def compiled(self, program, policy, leaves):
        kept, offloaded, where = _private.names_of(policy)
        assert where in (None, "actmem") and len(leaves) == 3
        choice = Choice(frozenset(kept), frozenset(offloaded))

        def run(*leaves):
            self.runs.append(choice)
            self.now += self.seconds_of(choice) * (1 + 0.001 * (len(self.runs) % 2))
        run.memory_analysis = lambda: types.SimpleNamespace(
            argument_size_in_bytes=self.bytes_of(choice), output_size_in_bytes=0,
            temp_size_in_bytes=0, alias_size_in_bytes=0)
        return run


@pytest.fixture(name="clock")
def fixture_clock(monkeypatch):
    def start(seconds_of, bytes_of=lambda choice: 1):
        clock = Clock(seconds_of, bytes_of)
        monkeypatch.setattr(_trace.Program, "compiled", lambda self, policy, leaves:
                            clock.compiled(self, policy, leaves))
        monkeypatch.setattr(measure.time, "perf_counter", lambda: clock.now)
        return clock
    return start


def planned(link=1e11, **options):
    return plan(loss, *ARGS, machine=with_link(link, hbm_bandwidth=1e12), measure=STEPS,
                destination="actmem", **options)


def test_the_fastest_that_ran_is_the_plan(clock):
    # Of those that are foreseen to be good the machine likes one alone.
    ran = clock(lambda choice: 2.0 if choice == Choice(frozenset({"hidden"})) else 3.0)
    found = planned()
    assert found.with_action("keep") == ["hidden"] and not found.with_action("offload")
    assert found.step_s == pytest.approx(2.0, rel=0.01)
    assert found.recompute_step_s == pytest.approx(3.0, rel=0.01)
    assert found.gain == pytest.approx(1 / 3, abs=0.01) and 0.01 <= found.error < 0.02
    # In turns, one step of each, and a first one that is not counted.
    count = len(set(ran.runs))
    assert count >= 4 and len(ran.runs) == count * (STEPS + 1)
    assert all(len(set(ran.runs[i:i + count])) == count for i in range(0, len(ran.runs), count))
    assert {run.step_s for run in found.measured} and "measured: " in str(found)


def test_what_does_not_fit_is_dropped(clock):
    ran = clock(lambda choice: 1.0 if choice.kept else 2.0,
                lambda choice: 10 ** 9 if choice.kept else 1)
    found = planned(device_memory="512M")
    assert not found.with_action("keep") and not any(choice.kept for choice in ran.runs)
    clock(lambda choice: 1.0, lambda choice: 10 ** 9)
    with pytest.raises(Nothing, match="compiled policies fits .*: the smallest needs "
                                      "1000000000"):
        planned(device_memory="512M")


def test_those_that_need_less_follow_where_none_of_the_best_fits(clock):
    """The compiler needs a tenth more than was foreseen for whatever is kept."""
    limit = plan(loss, *ARGS, machine=with_link(1e11), choice=Choice()).peak_bytes * 1.3
    both = {"hidden", "low"}
    ran = clock(lambda choice: 2.0 - len(choice.kept) / 2,
                lambda choice: int(limit * 1.1) if choice.saved == both else int(limit * 0.9))
    found = planned(1e5, device_memory=limit * 2)
    assert set(found.with_action("keep")) == both       # when it fits
    found = planned(1e5, device_memory=limit)
    assert not any(choice.saved == both for choice in ran.runs[-3:])
    assert len(found.with_action("keep")) == 1 and found.peak_bytes <= limit


def test_what_is_there_besides_takes_its_part(clock):
    clock(lambda choice: 1.0 if choice.kept else 2.0,
          lambda choice: 2 * 10 ** 8 if choice.kept else 10 ** 8)
    assert planned(device_memory=3.9e8).with_action("keep")
    found = planned(device_memory=3.9e8, resident=2 * 10 ** 8)
    assert not found.with_action("keep") and found.peak_bytes == 3 * 10 ** 8


@pytest.mark.parametrize("when", ["compiled", "run"])
def test_what_the_device_has_no_memory_for_is_dropped(clock, monkeypatch, when):
    ran = clock(lambda choice: 1.0 if choice.kept else 2.0)
    make = ran.compiled

    def exhausted(what=lambda choice: choice.kept, words="RESOURCE_EXHAUSTED: out of memory"):
        def fail(choice):
            if what(choice):
                raise jax.errors.JaxRuntimeError(words)

        def compiled(program, policy, leaves):
            kept, offloaded, _ = _private.names_of(policy)
            choice = Choice(frozenset(kept), frozenset(offloaded))
            if when == "compiled":
                fail(choice)
            real = make(program, policy, leaves)

            def run(*leaves):
                fail(choice)
                return real(*leaves)
            run.memory_analysis = real.memory_analysis
            return run
        monkeypatch.setattr(ran, "compiled", compiled)
    exhausted()
    found = planned()
    assert found.step_s == pytest.approx(2.0, rel=0.01) and not found.with_action("keep")
    assert found.measured and not any(run.kept for run in found.measured)
    exhausted(lambda choice: True)
    with pytest.raises(Nothing, match="none of the .* compiled policies"):
        planned()
    exhausted(words="INTERNAL: it is broken")
    with pytest.raises(jax.errors.JaxRuntimeError, match="it is broken"):
        planned()


def test_one_policy_is_not_looked_for():
    with pytest.raises(ValueError, match="measure= and choice= cannot be combined"):
        planned(choice=Choice())


def limit_that_is_tight():
    names = frozenset({"hidden", "low"})
    kept, offloaded = (plan(loss, *ARGS, machine=MACHINE, choice=choice).peak_bytes
                       for choice in (Choice(names), Choice(frozenset(), names)))
    return (kept + offloaded) // 2


def test_it_abstains_within_what_runs_differ(clock):
    clock(lambda choice: 2.0 if choice.offloaded else 2.005)
    found = planned(device_memory=limit_that_is_tight())
    assert any(run.offloaded for run in found.measured)
    assert found.abstains.startswith("abstains: offloading") and not found.with_action("offload")
    clock(lambda choice: 1.0 if choice.offloaded else 2.0)
    found = planned(device_memory=limit_that_is_tight())
    assert found.with_action("offload") and not found.abstains


def test_it_abstains_within_the_error_of_rates():
    fields = {}
    for error in (0.9, 0.001):
        fields[error] = plan(loss, *ARGS, machine=with_link(1e11, hbm_bandwidth=1e12, error=error),
                             device_memory=limit_that_is_tight())
    unsure, sure = fields.values()
    assert unsure.abstains.startswith("abstains: offloading") and not unsure.host_bytes
    assert sure.with_action("offload") and not sure.abstains
    assert [each.json()["abstains"] for each in (unsure, sure)] == [True, False]
    row, = (row for row in unsure.names if row.action == "recompute")
    assert re.fullmatch(r"keeping saves .* s but needs [0-9.]+ KiB more memory \(it would fit "
                        r"with \d+% of the batch\); offloading saves .* s, which is within the "
                        r"error", row.why)


def test_the_host_has_no_room():
    figures = {name: figure.value for name, figure in with_link(1e11).figures.items()
               if not name.startswith("disk")}
    without = machine.of("bare", **figures)
    limit = limit_that_is_tight()
    found = plan(loss, *ARGS, machine=without, device_memory=limit, host_memory=1000)
    assert not found.with_action("offload")
    assert any("host memory is too small to offload it" in row.why for row in found.names)


def test_real_runs(tmp_path):
    found = plan(loss, *ARGS, machine=MACHINE, measure=2)
    assert len(found.measured) >= 3
    assert [run.step_s for run in found.measured] == sorted(
        run.step_s for run in found.measured)
    assert found.step_s == found.measured[0].step_s
    peaks = {run.kept: run.peak_bytes for run in found.measured}
    assert peaks[("hidden", "low")] > peaks[()]
    found.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == found


def test_a_step_runs_too():
    def step(w, x):
        value, gradient = jax.value_and_grad(loss)(w, x)
        return value, jax.tree.map(lambda w, g: w - g, w, gradient)
    found = plan(step, *ARGS, machine=MACHINE, measure=1)
    assert {run.kept for run in found.measured} >= {(), ("hidden", "low")}
    assert actmem.jax.plan is plan
