# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The search finds what trying everything finds, and a plan says what it must."""
import dataclasses
import itertools
import json
import math
import os
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name as name

import actmem.jax
from actmem.plan import (KEEP, OFFLOAD, RECOMPUTE, Choice, Mismatch, load_plan,
                         machine, of_model, parse_size, plan, plan_key, search)
from actmem.plan.models import Attention, Group, Layer, Model
from programs import (DECODER, PROGRAMS, decoder_layer, decoder_weights, language_loss,
                      language_params, norm, scanned, shape, tokens_of)

MACHINE = machine.of("test", flops_f32=6e11, flops_bf16=6e11, hbm_bandwidth=1.6e11,
                     product_efficiency=1, memory_efficiency=1, disk_write=2e9, disk_read=4e9,
                     link_out=2e10, link_in=2e10, link_out_both=2e10, link_in_both=2e10,
                     hbm_bytes=1e15, unsure=1e-12)


def with_link(rate, name="test", **figures):
    """The same machine, with another rate of its link."""
    return dataclasses.replace(MACHINE.replace(
        link_out=rate, link_in=rate, link_out_both=rate, link_in_both=rate, **figures),
        name=name)


SLOW = with_link(1e7, "slow")


def loss_of(layers=5, width=128, stack=scanned):
    params = language_params(decoder_weights(layers, width, 352), width)
    return language_loss(stack, decoder_layer, None), params, tokens_of(4, 128)


class Made(Exception):
    """A search, before it has looked for anything."""


def search_of(monkeypatch, make, names):
    """The search that `make()` plans with, of these names alone."""
    def stop(search, *rest):
        raise Made(search)
    monkeypatch.setattr(actmem.plan, "decided", stop)
    with pytest.raises(Made) as made:
        make()
    search, = made.value.args
    monkeypatch.undo()
    search.names = names
    return search


def decoder_search(monkeypatch, which):
    return search_of(monkeypatch, lambda: plan(*loss_of(4), machine=which),
                     ("layer_input", "query_proj", "context", "mlpwi_0", "mlpwi_1"))


def gemma_search(monkeypatch, which):
    """Norms come behind its products, so that the backward pass needs these."""
    layer = Layer(Attention(4, 4, 16), 352, has_post_norms=True)
    model = Model("small", 128, 512, True, (Group((layer,), 4),))
    return search_of(monkeypatch, lambda: of_model.plan_of(model, which, batch=4, tokens=128),
                     ("decoder_layer_input", "out_proj", "mlpwi_0", "mlpwo"))


def choices_of(looked):
    for actions in itertools.product((KEEP, OFFLOAD, RECOMPUTE), repeat=len(looked.names)):
        choice = Choice()
        for each, action in zip(looked.names, actions):
            choice = choice.but(each, action)
        yield choice


@pytest.mark.parametrize("which", [MACHINE, SLOW], ids=lambda which: which.name)
@pytest.mark.parametrize("make", [decoder_search, gemma_search])
def test_exhaustive_is_the_fastest_that_fits(monkeypatch, make, which):
    looked = make(monkeypatch, which)
    times = {choice: looked.time(choice).seconds for choice in choices_of(looked)}
    peaks = {choice: looked.peak(choice) for choice in times}
    most, least = peaks[Choice(frozenset(looked.names))], peaks[Choice()]
    lowest = min(peaks.values())
    assert lowest < least
    known = {choice.saved: looked.peak(choice) for choice in times if not choice.offloaded}

    def new(limit):
        """What a search has foreseen may help it: each is to be as it was made."""
        made = search.Search(looked.timeline, looked.sizes.values(), which, known.__getitem__,
                             limit, devices=looked.rates.devices)
        made.names = looked.names
        return made
    for limit in (math.inf, (least + most) / 2, least + 1000, (lowest + least) / 2, lowest):
        fastest = min(times[choice] for choice in times if peaks[choice] <= limit)
        looked = new(limit)
        best = looked.best()
        assert peaks[best] <= limit
        assert times[best] == pytest.approx(fastest, rel=1e-9)
        looked = new(limit)
        greedy = looked.greedy()
        assert peaks[greedy] <= limit
        assert times[greedy] <= 1.02 * fastest
        monkeypatch.setattr(search, "EXHAUSTIVE", 0)
        few = looked.few(3)
        assert few[0] == greedy and all(looked.peak(each) <= limit for each in few)
        monkeypatch.undo()


def test_files_rates_may_be_off(monkeypatch):
    """Where only files are waited for, their error is that of the gain."""
    looked = decoder_search(monkeypatch, with_link(1e11, disk_write=1e7, disk_read=1e7))
    looked.host_memory = 1 << 20
    choice, stays = Choice(offloaded=frozenset({"mlpwi_0", "mlpwi_1"})), Choice()
    off = looked.machine.error * (looked.time(choice).seconds - looked.time(stays).seconds)
    assert looked.error(choice, stays) > 0.9 * off / looked.time(stays).seconds


def test_it_is_in_actmem_jax():
    assert actmem.jax.plan is plan and actmem.jax.load_plan is load_plan
    assert actmem.jax.plan_key is plan_key
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        actmem.jax.plans  # noqa: B018


def test_the_device_is_the_limit():
    small = MACHINE.replace(hbm_bytes=25e6)
    found = plan(*loss_of(), machine=small)
    assert found == plan(*loss_of(), machine=small, device_memory=0.9 * 25e6)
    assert found.peak_bytes <= 0.9 * 25e6 < plan(
        *loss_of(), machine=small, device_memory=math.inf).peak_bytes
    bare = dataclasses.replace(MACHINE, figures={
        name: figure for name, figure in MACHINE.figures.items() if name != "hbm_bytes"})
    with pytest.raises(machine.MachineError, match="machine 'test' has no figure 'hbm_bytes': "
                                                   "pass device_memory"):
        plan(*loss_of(), machine=bare)


def test_a_policy_that_is_given_and_does_not_fit():
    kept = Choice(frozenset({"mlpwi_0", "mlpwi_1"}))
    found = plan(*loss_of(), machine=MACHINE, device_memory=math.inf, choice=kept)
    assert not found.lacks and "does not fit" not in str(found) and "lacks" not in found.json()
    short = plan(*loss_of(), machine=MACHINE, choice=kept,
                 device_memory=found.peak_bytes - (1 << 20))
    assert short.lacks.startswith("the policy does not fit: it needs another 1.00 MiB of device memory")
    assert short.lacks in str(short) and short.json()["lacks"] == short.lacks
    assert short.step_s == found.step_s
    bare = dataclasses.replace(MACHINE, figures={
        name: figure for name, figure in MACHINE.figures.items() if "disk" not in name})
    sent = Choice(offloaded=frozenset({"mlpwi_0"}))
    size, = (row.bytes for row in found.names if row.name == "mlpwi_0")
    without = plan(*loss_of(), machine=bare, choice=sent, host_memory=size - 1024)
    assert without.lacks.startswith("the policy does not fit: it needs another 1.00 KiB of host memory")
    assert without.host_bytes == size
    assert not plan(*loss_of(), machine=bare, choice=sent, host_memory=size).lacks


def test_what_a_policy_that_is_given_would_gain():
    """Where the link does what it must, it is not said to do less."""
    found = plan(*loss_of(8), machine=with_link(1e12), choice=Choice())
    row, = (row for row in found.names if row.name == "mlpwi_0")
    assert re.fullmatch("keeping saves .* s; offloading saves [^ ]* s"
                        "(, which is within the error)?", row.why)
    found = plan(*loss_of(8), machine=with_link(1e12), choice=Choice(), device_memory=1e6)
    row, = (row for row in found.names if row.name == "mlpwi_0")
    assert re.search(r"offloading saves [^ ]* s but needs [0-9.]+ MiB more memory", row.why)


def test_microbatches_write_their_files_one_after_the_other():
    program = PROGRAMS["gradients accumulated"]()
    choice = Choice(offloaded=frozenset(program.names))
    found = plan(program.make(None), *program.args, choice=choice, host_memory=1 << 16,
                 machine=with_link(1e11))
    parts = actmem.plan.Timeline(actmem.plan._trace.Program(
        program.make(None), program.args).graph(jax.checkpoint_policies.nothing_saveable),
        MACHINE).parts((), choice.offloaded)
    times = max(part.times for part in parts)
    sent = sum(layer.sent for part in parts for layer in part.layers * part.times)
    assert times > 1 and sum(layer[2] for layer in found.layers) == sent
    assert found.microbatches == times
    assert sent - times * (1 << 16) <= found.disk_bytes <= sent


def test_without_a_limit_all_is_kept():
    found = plan(*loss_of(), machine=MACHINE, device_memory=math.inf)
    assert not found.with_action(OFFLOAD) and found.host_bytes == 0
    assert set(found.with_action(KEEP)) >= {"mlpwi_0", "mlpwi_1", "context", "query_proj"}
    assert 0 < found.gain < 0.5 and found.step_s < found.recompute_step_s


def test_a_slow_link_takes_nothing():
    found = plan(*loss_of(), machine=SLOW, device_memory=22e6)
    assert not found.with_action(OFFLOAD)
    assert found.peak_bytes <= 22e6
    row, = (row for row in found.names if row.name == "mlpwi_0")
    assert row.action == KEEP or " GB/s" in row.why or "no time" in row.why


def test_a_fast_link_takes_what_does_not_fit():
    fast = with_link(1e11)
    found = plan(*loss_of(8), machine=fast, device_memory=24e6)
    assert found.with_action(OFFLOAD) and found.host_bytes > 0 and not found.abstains
    assert found.peak_bytes <= 24e6
    policy = found.policy
    assert policy == found.policy or policy is not None
    layer = jax.checkpoint(lambda x: jnp.sin(name(jnp.sin(x), "mlpwi_0")), policy=policy)
    jax.make_jaxpr(jax.grad(lambda x: jnp.sum(layer(x))))(jnp.ones(8))


def test_what_fits_stays_on_the_device():
    """With actmem.jax.checkpoint, too, which offloads what a policy of save_only_these_names
    saves."""
    found = plan(*loss_of(2), machine=MACHINE)
    kept, *_ = found.with_action(KEEP)
    assert not found.with_action(OFFLOAD)
    layer = actmem.jax.checkpoint(lambda x: jnp.sin(name(jnp.sin(x), kept)), policy=found.policy,
                                  min_bytes=0)
    text = jax.jit(jax.grad(lambda x: jnp.sum(layer(x)))).lower(jnp.ones(8)).as_text()
    assert "actmem_put" not in text


def test_the_host_s_budget_goes_to_files():
    fast = with_link(1e11, disk_write=5e10, disk_read=5e10)
    found = plan(*loss_of(8), machine=fast, device_memory=24e6, host_memory="4M")
    assert found.host_bytes <= 4 << 20
    assert found.disk_bytes > 0


def test_nothing_fits():
    with pytest.raises(ValueError, match="nothing fits into device_memory=1000 bytes.*needs"):
        plan(*loss_of(), machine=MACHINE, device_memory=1000)


def test_files_that_would_help_are_named(monkeypatch):
    """Also if only several names together leave enough device memory."""
    bare = dataclasses.replace(MACHINE, figures={
        name: figure for name, figure in MACHINE.figures.items() if "disk" not in name})
    looked = decoder_search(monkeypatch, bare)
    looked = search.Search(looked.timeline, list(looked.sizes.values()), bare,
                           lambda saved: 10 ** 9, host_memory=1)
    looked.device_memory = looked.peak(Choice(offloaded=frozenset(looked.names)))
    for look in looked.best, looked.greedy:
        with pytest.raises(search.NoFiles, match="has no figure 'disk_write'"):
            look()


def test_constants_are_no_arguments():
    """A table in unrolled layers is a constant of the program, in front of its arguments."""
    def loss(w, x, scale):
        table = np.arange(64, dtype="float32")
        for each in w:
            x = jnp.sin(name(x @ each, "hidden")) * table
        return jnp.mean(name(scale * w[0], "fixed")) + jnp.mean(x)
    found = plan(loss, [shape(64, 64)] * 3, shape(32, 64), shape(64, 64), machine=MACHINE)
    assert [(row.name, row.bytes) for row in found.names] == [
        ("hidden", 3 * 32 * 64 * 4), ("fixed", 64 * 64 * 4)]


def test_names_are_proposed():
    def loss(w, x):
        def layer(x, w):
            return x + jnp.tanh(jnp.sin(x @ w) @ w), None
        return jnp.sum(jax.lax.scan(layer, x, w)[0])
    found = plan(loss, shape(6, 256, 256), shape(256, 256), machine=MACHINE)
    (given, place), = found.proposed.items()
    assert re.fullmatch(r"test_search_\d+", given) and place == given.replace("ch_", "ch.py:")
    row, = found.names
    assert (row.name, row.bytes, row.action) == (given, 2 * 6 * 256 * 256 * 4, KEEP)
    assert found.gain > 0
    assert f'before using this plan, name the value that {place} computes: ' \
        f'jax.ad_checkpoint.checkpoint_name(..., "{given}")' in str(found)


def test_nothing_is_named():
    def step(w, x):
        layer = jax.checkpoint(lambda w, x: jnp.sum(jnp.sin(x @ w) @ w))
        return jax.grad(layer)(w, x)
    with pytest.raises(ValueError, match=r"step names no values; name .*checkpoint_name: "
                                         r"test_search.py:\d+, \d+ bytes"):
        plan(step, shape(256, 256), shape(256, 256), machine=MACHINE)
    with pytest.raises(ValueError, match="<lambda> names no values, and it has no large "
                                         "products"):
        plan(lambda w, x: jnp.sum(w * x), shape(8), shape(8), machine=MACHINE)


def test_no_loss():
    with pytest.raises(ValueError, match="returns f(loat)?32\\[4\\]"):
        plan(lambda w, x: w * x, shape(4), shape(4), machine=MACHINE)


@pytest.mark.parametrize("size, count", [("70G", 70 << 30), ("70 GiB", 70 << 30), (7e9, 7e9),
                                         ("1.5k", 1536), ("12", 12), (None, math.inf)])
def test_a_size(size, count):
    assert parse_size("size", size) == count


@pytest.mark.parametrize("name, value, words", [
    *(("device_memory", size, "not a number of bytes, such as") for size in (
        "much", "70GB", "70B", "1.2.3G", ".", "", "0G", "-1G", 0, -1, math.nan, True, b"1")),
    ("host_memory", "0", "not a number of bytes"), ("ring", 0, "a number of at least 1"),
    ("ring", 1.5, "a number of at least 1"), ("measure", -1, "a number of at least 0"),
    ("devices", 0, "a number of at least 1"), ("donated", -1, "a number of at least 0"),
    ("frozen", None, "a number of at least 0")])
def test_a_number_that_is_none(name, value, words):
    verb = "is" if words.startswith("not") else "must be"
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r} {verb} {words}")):
        plan(*loss_of(1), machine=MACHINE, **{name: value})


def test_layers_that_are_not_checkpointed():
    def loss(w, x):
        def layer(x, w):
            return x + jnp.tanh(name(x @ w, "hidden")), None
        return jnp.sum(jax.lax.scan(layer, x, w)[0])
    found = plan(loss, shape(6, 64, 64), shape(32, 64), machine=MACHINE)
    assert [row.name for row in found.names] == ["hidden"]
    assert found.names[0].bytes == 6 * 32 * 64 * 4
    assert found.with_action(KEEP) == ["hidden"]


@pytest.mark.parametrize("which", PROGRAMS)
def test_every_program_is_planned(which):
    program = PROGRAMS[which]()
    found = plan(program.make(None), *program.args, machine=MACHINE)
    assert {row.name for row in found.names} == set(program.names)
    assert found.gain > 0


def test_as_json_as_a_table_for_maxtext_and_as_a_curve(tmp_path):
    found = plan(*loss_of(), machine=MACHINE, device_memory=25e6, model="tiny")
    fields = json.loads(json.dumps(found.json()))
    assert list(fields) == ["model", "machine", "names", "step_s", "recompute_step_s", "gain",
                            "error", "peak_bytes", "host_bytes", "disk_bytes", "abstains"]
    assert [row["name"] for row in fields["names"]] == list(DECODER)
    assert all(set(row) == {"name", "bytes", "action", "why"} for row in fields["names"])
    table = str(found).splitlines()
    assert table[0].split() == ["name", "bytes", "action", "why"]
    assert "tiny on test: a step of" in table[len(DECODER) + 1]
    lines = found.maxtext().splitlines()
    assert lines[0] == "remat_policy: custom" and len(lines) == len(DECODER) + 1
    assert all(line.split(": ")[1] in ("remat", "device", "offload") for line in lines[1:])
    with pytest.raises(ValueError, match=r"has no curve: call plan\(..., curve=True\)"):
        found.plot(tmp_path / "plan.svg")
    found = plan(*loss_of(), machine=MACHINE, device_memory=25e6, curve=True)
    found.plot(tmp_path / "plan.svg")
    assert "<svg" in (tmp_path / "plan.svg").read_text(encoding="utf-8")


def test_saved_and_loaded(tmp_path):
    path = tmp_path / "plan.json"
    found = plan(*loss_of(2), machine=MACHINE)
    found.save(path)
    key = plan_key(*loss_of(2), machine=MACHINE)
    assert load_plan(path, key) == load_plan(path) == found
    # A policy is what plans change.
    loss, *args = loss_of(2)
    assert plan_key(language_loss(scanned, decoder_layer, found.policy), *args,
                    machine=MACHINE) == key
    for other in (plan_key(*loss_of(3), machine=SLOW), key | {"JAX": "0"},
                  plan_key(*loss_of(2), machine=MACHINE.replace(link_in=1)),
                  plan_key(*loss_of(2), machine=dataclasses.replace(
                      MACHINE, requests=(machine.Requests(4096, 1e9, 1e9),)))):
        differ = [what for what, value in other.items() if key[what] != value]
        words = "; for ".join(f"{what} {key[what]}, but this is {what} {other[what]}"
                              for what in differ)
        with pytest.raises(Mismatch, match=re.escape(f"{path} is a plan for {words}: make a "
                                                     "new plan, or pass force=True")):
            load_plan(path, other)
        assert load_plan(path, other, force=True) == found
    assert [key["machine"].split()[0], key["JAX"]] == ["test", jax.__version__]
    fields = json.loads(path.read_text())
    for text in ("{", "[]", "null", '{"format": 1}', *(json.dumps(wrong) for wrong in (
            fields | {"format": 0}, fields | {"names": None}, fields | {"names": [None]},
            fields | {"key": []}, fields | {"layers": [3]}, fields | {"layers": [[1, 2]]},
            fields | {"step_s": "1"}, fields | {"recompute_step_s": 0}, fields | {"more": 1},
            fields | {"measured": [{}]}, fields | {"proposed": ["x"]}, fields | {"model": 1},
            {key: value for key, value in fields.items() if key != "step_s"}))):
        path.write_text(text)
        with pytest.raises(Mismatch, match=re.escape(
                f"{path} is not a plan of this version of actmem: make a new plan")):
            load_plan(path)
    path.write_bytes(b"\xff")
    with pytest.raises(Mismatch, match="is not a plan of this version"):
        load_plan(path)


def test_what_cannot_be_saved_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        plan(*loss_of(2), machine=MACHINE).save(tmp_path / "folder")
    assert os.listdir(tmp_path) == ["folder"]


def test_sixty_layers_take_ten_seconds():
    program = loss_of(60)
    begin = time.process_time()
    found = plan(*program, machine=MACHINE, device_memory=150e6)
    seconds = time.process_time() - begin
    assert len(found.names) == 9
    assert seconds <= 10


def test_what_gains_nothing_is_not_saved():
    """A value that is computed again in no time is not kept, though that is a little faster."""
    def loss(w, x):
        def layer(x, w):
            return name(norm(jax.nn.softmax(x), 1.0), "normed") @ w, None
        return jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, w)[0])
    found = plan(loss, shape(4, 1024, 1024), shape(8, 1024), machine=MACHINE)
    assert found.with_action(RECOMPUTE) == ["normed"]
    assert found.step_s == found.recompute_step_s and not found.abstains


def test_a_small_program_is_left_alone():
    """What the calls of its values may take besides is as much as there is to gain."""
    found = plan(*loss_of(), machine=MACHINE)
    assert found.with_action(KEEP)
    unsure = MACHINE.replace(unsure=(found.recompute_step_s - found.step_s) / 5)
    found = plan(*loss_of(), machine=unsure)
    assert not found.with_action(KEEP) and not found.with_action(OFFLOAD)
    assert found.step_s == found.recompute_step_s
