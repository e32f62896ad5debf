# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What XLA's programs decide: policies that do not fit are dropped, and those whose schedule shows
that offloading gains nothing are refused. A fake compiler makes the programs."""
import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, PartitionSpec

from actmem.jax import _private
from actmem.plan import Choice, Nothing, _trace, compiled, load_plan, plan, targets
from actmem.plan._schedule import Schedule
from actmem.plan.compiled import Compiled
from test_measure import ARGS, limit_that_is_tight, loss
from test_search import with_link

H200 = dataclasses.replace(with_link(1e11, hbm_bandwidth=1e12, error=0.001), name="h200")
BOTH = frozenset({"hidden", "low"})


@dataclasses.dataclass(frozen=True)
class Program:
    choice: Choice
    devices: int = 1


donations = []


@pytest.fixture(name="xla")
def fixture_xla(monkeypatch):
    """Starts a compiler that makes made_of(choice). Returns the list of compiled choices."""
    def start(made_of):
        ran = []

        @contextlib.contextmanager
        def jitted(self, policy):
            kept, offloaded, where = _private.names_of(policy)
            assert where in (None, "pinned_host", "actmem")
            yield Choice(frozenset(kept), frozenset(offloaded))

        def compile_for(target, program, variables):
            assert target == targets.find("h200")
            ran.append(program.choice)
            return made_of(program.choice, variables) if variables else made_of(program.choice)
        monkeypatch.setattr(_trace.Program, "jitted", jitted)
        monkeypatch.setattr(compiled, "lowered", lambda step, shapes, target, donated: (
            donations.append(donated), Program(step))[1])
        monkeypatch.setattr(compiled, "compile_for", compile_for)
        monkeypatch.setattr(targets, "check_compiler", lambda target: None)
        return ran
    return start


def planned(**options):
    return plan(loss, *ARGS, machine=H200, compile="h200", **options)


def of(found, choice):
    """The build of a choice."""
    build, = (each for each in found.compiled
              if (set(each.kept), set(each.offloaded)) == (choice.kept, choice.offloaded))
    return build


def test_xla_s_peak_replaces_the_predicted_one(xla, capsys):
    ran = xla(lambda choice: Compiled(argument=5000, output=300, temp=80 * len(choice.kept) + 7,
                                      alias=20))
    found = planned(donated=100, resident=1)
    assert set(donations) == {100}
    assert set(found.with_action("keep")) == BOTH
    assert found.peak_bytes == 5000 + 300 + 2 * 80 + 7 - 20 + 1
    assert ran[0] == Choice(BOTH) and Choice() in ran and 3 <= len(ran) <= 4
    assert [build.peak_bytes for build in found.compiled if not build.kept] == [5288]
    assert not any(build.refused or build.method for build in found.compiled)
    told = capsys.readouterr()
    assert not told.out and "h200: compiling policy 1: hidden, low kept, nothing offloaded" in \
        told.err and "after 0 s: 5.32 KiB of device memory" in told.err
    text = str(found)
    assert "compiled for h200: 5.16 KiB of device memory, 0 B of host memory, with nothing kept " \
        "and nothing offloaded" in text and "refused" not in text


def test_what_does_not_fit_is_dropped_and_the_search_goes_on(xla):
    limit = int(plan(loss, *ARGS, machine=H200, choice=Choice(BOTH)).peak_bytes * 1.1)
    small = int(limit * 0.9)
    ran = xla(lambda choice: Compiled(temp=limit + 1 if len(choice.saved) == 2 else small))
    found = planned(device_memory=limit)
    assert len(found.with_action("keep")) == 1 and found.peak_bytes == small
    assert any(choice.kept == BOTH for choice in ran)
    assert of(found, Choice(BOTH)).refused == \
        f"it does not fit: the limit is {limit / 2**20:.2f} MiB"
    # XLA may also say so without a number.
    xla(lambda choice: Compiled(exhausted="RESOURCE_EXHAUSTED: 9 G") if len(choice.saved) == 2
        else Compiled(temp=small))
    found = planned(device_memory=limit)
    assert len(found.with_action("keep")) == 1
    build = of(found, Choice(BOTH))
    assert build.refused == "it does not fit: RESOURCE_EXHAUSTED: 9 G" and build.peak_bytes is None
    ran = xla(lambda choice: Compiled(temp=limit + 1))
    with pytest.raises(Nothing, match="none of the .* policies compiled for h200 can be used: it "
                                      "does not fit.*smaller batch"):
        planned(device_memory=limit)
    assert len(ran) <= 8


def offloading(**counts):
    """A program that copies what it offloads, and its schedule."""
    def made_of(choice):
        return Compiled(temp=10, host_temp=77, schedule=Schedule(**counts)
                        if choice.offloaded else Schedule())
    return made_of


def test_unrolled_layers_do_not_offload(xla):
    limit = limit_that_is_tight()
    xla(offloading(copies_out=12, bytes_out=1200, late_out=6, late_bytes_out=600))
    found = planned(device_memory=limit)
    offloaded = found.with_action("offload")
    assert offloaded and found.peak_bytes == 10
    choice = Choice(frozenset(found.with_action("keep")), frozenset(offloaded))
    build = of(found, choice)
    assert (build.method, build.host_bytes, build.copies, build.late_copies) == (
        "stock", 77, 12, 6)
    assert not build.refused
    xla(offloading(copies_out=12, bytes_out=1200, late_out=7, late_bytes_out=700))
    found = planned(device_memory=limit)
    assert not found.with_action("offload") and not found.host_bytes
    assert of(found, choice).refused == (
        "unrolled: 7 of 12 offloaded values stay on the device until just before the backward "
        "pass needs them; use jax.lax.scan, or actmem.jax.checkpoint")
    assert f"; refused: {of(found, choice).refused}" in str(found)
    xla(offloading())
    found = planned(device_memory=limit)
    assert not found.with_action("offload")
    assert of(found, choice).refused == "XLA's program copies nothing to the host"
    # The handlers of actmem copy by themselves.
    xla(offloading(puts=12, put_bytes=1200))
    found = planned(device_memory=limit, destination="actmem")
    assert set(found.with_action("offload")) == choice.offloaded
    build = of(found, choice)
    assert (build.method, build.wait_s, build.copies, build.host_bytes) == (
        "actmem", None, 12, 1277)


def test_a_policy_that_loses_by_its_own_schedule(xla):
    limit = limit_that_is_tight()
    without = plan(loss, *ARGS, machine=H200, device_memory=limit)
    counts = dict(copies_out=4, bytes_out=400, copies_in=4, bytes_in=400)
    for name in ("exposed_bytes_out", "exposed_bytes_in"):
        # The link moves 1e11 bytes a second.
        xla(offloading(**counts, **{name: 10 ** 6}))
        found = planned(device_memory=limit)
        assert found.with_action("offload") and found.waited_s >= 1e-5
        assert found.step_s == pytest.approx(without.step_s - without.waited_s + max(
            1e-5, without.waited_s))
        assert "its schedule waits 1e-05 s for copies" in str(found)
        ran = xla(offloading(**counts, **{name: 10 ** 10}))
        found = planned(device_memory=limit)
        assert not found.with_action("offload") and len(ran) == len(set(ran))
        build = next(build for build in found.compiled if build.offloaded)
        assert build.wait_s == pytest.approx(0.1)
        assert build.refused.startswith("it is 0.") and build.refused.endswith(
            "nothing: the device waits 0.1 s for its copies; actmem.jax.checkpoint hides them")


@pytest.mark.parametrize("first, second, best", (
    ({"exposed_bytes_in": 10 ** 6}, None, 0),
    ({"exposed_bytes_in": 10 ** 11}, {"exposed_bytes_in": 10 ** 6}, 1),
    (None, {"exposed_bytes_in": 10 ** 6}, 1),
    (None, {"exposed_bytes_in": 10 ** 11}, None)))
def test_other_flags_can_hide_copies(xla, monkeypatch, capsys, first, second, best):
    """The planner compiles a policy that waits with each set of flags, until one helps and the
    program fits. Here, None means that the program does not fit."""
    limit = limit_that_is_tight()
    counts = dict(copies_out=4, bytes_out=400, copies_in=4, bytes_in=400)
    flags = [{"LIBTPU_INIT_ARGS": "--one=1 --two=2"}, {"LIBTPU_INIT_ARGS": "--three=3"}]
    monkeypatch.setitem(targets.OFFLOAD_FLAGS, "cuda", flags)

    def made_of(choice, variables=None):
        if variables is None:
            return offloading(**counts, exposed_bytes_in=10 ** 10)(choice)
        assert choice.offloaded
        later = (first, second)[flags.index(variables)]
        return Compiled(exhausted="RESOURCE_EXHAUSTED") if later is None else \
            offloading(**counts, **later)(choice)
    xla(made_of)
    found = planned(device_memory=limit)
    builds = [build for build in found.compiled if build.offloaded]
    assert bool(found.with_action("offload")) == (best is not None)
    for build in builds:
        assert build.flags.get("LIBTPU_INIT_ARGS") == (
            None if best is None else flags[best]["LIBTPU_INIT_ARGS"])
        assert build.wait_s == pytest.approx(0.1 if best is None else 1e-5)
    assert ("with LIBTPU_INIT_ARGS='--one=1 --two=2'" in str(found)) == (best == 0)
    again = "compiling it again with other flags, because it waits 0.1 s for copies"
    assert capsys.readouterr().err.count(again) == len(builds) * (1 if best == 0 else 2)
    # The user's flags count.
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--mine=1")
    assert not planned(device_memory=limit).with_action("offload")
    assert again not in capsys.readouterr().err


def test_stock_programs_on_gpus_wait_for_copies_from_the_host(xla):
    xla(offloading(copies_out=4, bytes_out=400, copies_in=4, bytes_in=10 ** 10))
    for one, wait in ((H200, 0.0), (H200.replace(stock_waits=1), 0.1)):
        found = plan(loss, *ARGS, machine=dataclasses.replace(one, name="h200"), compile="h200",
                     device_memory=limit_that_is_tight())
        assert bool(found.with_action("offload")) == (not wait)
        build = next(build for build in found.compiled if build.offloaded)
        assert build.wait_s == pytest.approx(wait) and bool(build.refused) == bool(wait)


def test_copies_that_outlast_the_forward_pass_make_the_device_wait(xla):
    def wait(**schedule):
        xla(offloading(copies_out=4, **schedule))
        found = plan(loss, *ARGS, machine=H200, compile="h200",
                     choice=Choice(frozenset(), frozenset({"hidden"})))
        return found.compiled[0].wait_s
    few, more = wait(bytes_out=10 ** 10), wait(bytes_out=2 * 10 ** 10)
    assert 0 < few < 0.1 and more - few == pytest.approx(0.1)
    # Exposed copies are among these copies. Late copies run in the backward pass.
    assert wait(bytes_out=10 ** 10, exposed_bytes_out=10 ** 8) == pytest.approx(few)
    assert wait(bytes_out=10 ** 10, late_bytes_out=10 ** 8) == 0


def test_xla_s_cycles_give_the_wait(xla):
    events = [["starts", "a", True, 10 ** 6], ["computes", 1000], ["ends", "a"]]
    xla(offloading(copies_out=1, bytes_out=10, timed=[[2, events]]))
    clocked = dataclasses.replace(H200.replace(clock=1e9), name="h200")
    for one, wait in ((clocked, 2 * (1e-5 - 1e-6)), (H200, 0.0)):
        found = plan(loss, *ARGS, machine=one, compile="h200",
                     choice=Choice(frozenset(), frozenset({"hidden"})))
        assert found.compiled[0].wait_s == pytest.approx(wait)


def test_what_xla_rematerialises(xla, tmp_path):
    xla(lambda choice: Compiled(temp=9, schedule=Schedule(rematerialised=3 * len(choice.kept))))
    found = planned()
    assert of(found, Choice(BOTH)).rematerialised == 6 and "XLA rematerialises 6 values by " \
        "itself, so its times cannot be compared: use a smaller batch" in str(found)
    first = found.json()["compiled"][0]
    assert list(first) == ["target", "policy", "method", "peak_bytes", "host_bytes", "copies",
                           "late_copies", "wait_s", "rematerialised", "refused", "flags"]
    assert first["policy"] == {"keep": ("hidden", "low"), "offload": ()}
    found.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == found
    assert "compiled" not in plan(loss, *ARGS, machine=H200).json()


def test_a_given_policy(xla):
    ran = xla(offloading(copies_out=1, bytes_out=10, late_bytes_out=10, late_out=1))
    choice = Choice(frozenset({"low"}), frozenset({"hidden"}))
    found = planned(choice=choice)
    assert ran == [choice, Choice()] and found.with_action("offload") == ["hidden"]
    assert found.lacks.startswith("the policy is refused: unrolled: 1 of 1")
    assert planned(choice=Choice(BOTH)).lacks == ""


def test_what_is_refused(xla):
    xla(lambda choice: Compiled())
    for words, options in (
            ("measure= and compile= cannot be combined", {"compile": "h200", "measure": 2}),
            ("machine='h200' and compile='h100' are different machines: leave machine= out",
             {"compile": "h100", "machine": H200}),
            ("unknown target 'h201'", {"compile": "h201"}),
            ("compile= needs the mesh of 4 devices in the shardings of the arguments",
             {"compile": "h200", "machine": H200.replace(interconnect=1e11), "devices": 1,
              "mesh": Mesh(jax.devices()[:4], ("x",)), "specs": {"low": PartitionSpec("x")}})):
        with pytest.raises(ValueError, match=words):
            plan(loss, *ARGS, **options)
    assert planned(choice=Choice()).machine == "h200"
    # The target is the machine.
    found = plan(loss, dict(up=jax.ShapeDtypeStruct((4, 64, 256), jnp.bfloat16),
                            down=jax.ShapeDtypeStruct((4, 256, 64), jnp.bfloat16)),
                 jax.ShapeDtypeStruct((128, 64), jnp.bfloat16), compile="h200")
    assert found.machine == "h200"
