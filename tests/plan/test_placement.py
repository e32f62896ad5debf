# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Where weights and state live, which update is chosen, what it says, and the wear of disks."""
import dataclasses
import json
import math

import jax.numpy as jnp
import pytest

from actmem import _command
from actmem.plan import decoder, load_plan, machine, models, placement
from actmem.plan.placement import Chooser, Sizes, Training
from actmem.plan.report import Plan
from actmem.plan.search import NoFiles, Nothing
from actmem.plan.wear import Endurance, wear_of

B13, B70 = 13e9, 70.6e9
LINK = {f"link_{way}{kind}": 55e9 for way in ("out", "in") for kind in ("", "_both", "_all")}
H200 = machine.find("h200").replace(host_bandwidth=245e9, dram_efficiency=1, **LINK)


def sizes(parameters, devices=1):
    """Of a model of 40 layers, a fifth of whose weights are in one stack."""
    share = parameters / devices
    return Sizes(devices, share, 4 * share, share, 0, 2 * share / 40, share / 5)


def planner(parameters, tokens, devices=1, least=20e9, training=Training()):
    """A plan without offloading. The activations and one layer need `least` bytes."""
    compute = 8 * parameters * tokens / 630e12

    def plan_at(more):
        has = parameters / devices * (8 + more["optimizer_bytes"] if more["optimizer_bytes"] else 4)
        peak = int(has - more["spared"] + least)
        if peak > 126.9e9:
            raise Nothing("nothing fits", peak)
        count = training.microbatches
        return Plan("model", "h200", (), compute / count, compute / count, 0.0, peak, 0, 0, "",
                    layers=((compute / 4 / count, compute * 3 / 4 / count, 0),))
    return plan_at


def chosen(parameters, tokens, devices=1, on=H200, host_memory=math.inf, least=20e9, **options):
    training = Training(**options)
    return Chooser(training, sizes(parameters, devices), on, 126.9e9, host_memory,
                   planner(parameters, tokens, devices, least, training)).choose()[1]


def brief(placed):
    how = placed.best.update
    return how.stored, how.place, how.behind


@pytest.mark.parametrize("parameters, tokens, devices, options, wanted, seconds", [
    (B13, 8192, 1, {}, ("state", "host", "nothing"), 2.2),
    (B13, 8192, 1, {"unrolled": True}, ("state", "host", "nothing"), 2.2),
    (B13, 8192, 1, {"unrolled": True, "clips": False}, ("state", "host", "backward"), 1.35),
    (B13, 65536, 1, {"clips": False}, ("state", "host", "nothing"), 11.67),
    # Both are hidden: the device's works for any transformation.
    (B13, 65536, 1, {"unrolled": True, "clips": False}, ("state", "device", "backward"), 10.8),
    (B13, 65536, 1, {"unrolled": True}, ("state", "device", "forward"), 10.95),
    (B70, 8192, 1, {}, ("weights", "host", "nothing"), 12.11),
    (B70, 8192, 8, {}, ("state", "device", "nothing"), 10.8),
    (B70, 8192, 8, {"unrolled": True}, ("state", "device", "forward"), 8.9),
    (B70, 8192, 8, {"unrolled": True, "clips": False}, ("state", "device", "backward"), 7.3),
    (B70, 65536, 8, {"unrolled": True}, ("state", "device", "forward"), 58.8),
    (B13, 8192, 8, {}, ("nothing", "device", "nothing"), 1.35)])
def test_the_choice(parameters, tokens, devices, options, wanted, seconds):
    placed = chosen(parameters, tokens, devices, **options)
    assert brief(placed) == wanted
    assert placed.best.seconds == pytest.approx(seconds, rel=0.015)


def test_a_grace_hopper():
    assert brief(chosen(B13, 8192, on=machine.find("gh200")))[:2] == ("state", "device")


def test_activations_may_need_the_state_s_memory():
    """The step without memory for activations is longer than with the state elsewhere, if the update
    is short enough."""
    class Few(Chooser):
        def plan(self, more):
            has_state = more["optimizer_bytes"] > 0
            seconds = 30.0 if has_state else 20.0
            return Plan("model", "h200", (), seconds, 30.0, 0.0, int(100e9), 0, 0, "",
                        layers=((seconds / 4, seconds * 3 / 4, 0),),
                        unlimited_step_s=self.least)
    for parameters, least, wanted in ((7e9, 20.0, "state"), (7e9, 29.9, "nothing")):
        one = Few(Training(), sizes(parameters), H200, 126.9e9, math.inf, None)
        one.plan_at, one.least = one.plan, least
        found, placed = one.choose()
        assert placed.best.update.stored == wanted
        assert one.options_of(found)["optimizer_bytes"] == (0 if wanted == "state" else 8)
        assert found.step_s == (20.0 if wanted == "state" else 30.0)
        if wanted == "state":
            assert [str(each) for each in placed.others][0] == placement.MEMORY["nothing"]


def test_micro_batches_make_a_step():
    placed = chosen(B13, 65536, microbatches=8)
    assert placed.best.step.compute == pytest.approx(10.82, rel=0.001)
    plan = placed.best.plan
    assert plan.microbatches == len(plan.layers) == 8
    assert plan.step_s == pytest.approx(10.82, rel=0.001)


def test_the_bytes_of_options():
    for options, state in (({}, 12), ({"optimizer": "lion"}, 8), ({"optimizer": "sgd"}, 4),
                           ({"state_dtype": "bfloat16"}, 8), ({"has_master": False}, 8)):
        assert Training(**options).bytes.state == state
    assert Training().options("nothing")["weight_dtype"] == jnp.float32
    assert Training().options("state")["weight_dtype"] == jnp.bfloat16
    assert Training(has_master=False).options("nothing")["weight_dtype"] == jnp.bfloat16
    assert Training(optimizer="lion").options("nothing")["optimizer_bytes"] == 4
    assert Training().options("state")["optimizer_bytes"] == 0
    with pytest.raises(Nothing, match="sgd without a master copy has no state"):
        chosen(40e9, 8192, optimizer="sgd", has_master=False, host_memory=1e9)


def test_the_sizes_of_a_model():
    model, each = models.find("llama-2-13b"), Training().bytes
    one = Sizes.of(decoder.step(model, batch=1, tokens=64), each)
    assert one.parameters == model.parameters and one.resident == 4 * model.parameters
    embeddings = 2 * 32000 * 5120
    assert one.layers == model.parameters - embeddings - 5120
    assert one.layer_bytes == 2 * one.layers / 40 and one.leaf == 40 * 5120 * 13824
    shared = Sizes.of(decoder.step(model, batch=8, tokens=64, shard=decoder.Shard(fsdp=8)), each)
    assert shared.parameters == model.parameters / 8 and shared.devices == 8
    assert shared.leaf == one.leaf / 8
    lora = Sizes.of(decoder.step(model, batch=1, tokens=64, train="attention"), each)
    assert lora.layers == lora.parameters == 40 * 4 * 5120 ** 2
    assert lora.frozen_bytes == 2 * (one.layers - lora.layers)
    assert lora.resident == 2 * model.parameters + 2 * lora.parameters


def test_the_update_needs_memory():
    """The device holds the state of one and a half groups, the longest stack, beside weights and
    gradients. The host's update needs none."""
    placed = chosen(20e9, 65536)
    lacks = [each.lacks for each in placed.others]
    assert lacks[1] == "the update needs 141.56 GiB of device memory (limit 118.18 GiB)"
    assert brief(placed)[:2] == ("state", "host")
    # Without a scan, a group is smaller, but the activations are there at the same time.
    placed = chosen(20e9, 65536, unrolled=True, clips=False)
    assert placed.best.device_bytes == pytest.approx(20e9 * 4 + 20e9 + 1.5 * 12 * 20e9 / 40)


def test_stored_weights_need_memory():
    """The device holds three and a half layers."""
    placed = chosen(B70, 8192)
    assert placed.best.device_bytes == pytest.approx(20e9 + 3.5 * 2 * B70 / 40)


def test_activations_share_host_memory():
    """Of 190 GB, the state needs 156, and the host's update 31.2 for new values of the longest stack. If
    activations take 10, 7.2 of the state's are on disks."""
    limits = []

    def plan_at(more):
        limits.append(more["host_memory"])
        return dataclasses.replace(planner(B13, 8192)(more), host_bytes=int(10e9))
    training, on = Training(allows_wear=True), H200.replace(**DISKS)
    placed = Chooser(training, sizes(B13), on, 126.9e9, 190e9, plan_at).choose()[1]
    assert limits == pytest.approx([34e9, 2.8e9])
    assert brief(placed)[:2] == ("state", "host")
    assert placed.disk_bytes == pytest.approx(7.2e9) and placed.host_bytes == pytest.approx(190e9)
    # With enough memory, a plan is made once.
    limits.clear()
    Chooser(training, sizes(B13), on, 126.9e9, 300e9, plan_at).choose()
    assert limits == [144e9]


def test_what_the_plan_says():
    placed = chosen(B13, 8192, host_memory=400e9)
    lines = str(placed).splitlines()
    assert lines == [
        "state in actmem, update on the host after the backward pass: a step of 2.201 s = 1.352 s "
        "as above + 0.849 s that nothing hides; the update alone takes link 0.473 s, host memory "
        "0.849 s",
        "memory with it: 67.06 GiB of the device, 174.34 GiB of the host, 0 B on disks; in a "
        "program: actmem.optax.offload(actmem.optax.master_copy(tx), on=\"host\")",
        "assumed: the host's update reaches 100% of 2 × 245 GB/s with all processors",
        "rejected: weights, gradients and state on the device: their sum needs 193.72 GiB of device "
        "memory (limit 118.18 GiB)",
        "rejected: state in actmem, update on the device after the backward pass: 4.189 s, limited "
        "by its link",
        "rejected: weights, gradients and state in actmem, update on the device after the backward "
        "pass: 4.796 s, limited by its link",
        "rejected: weights, gradients and state in actmem, update on the host after the backward "
        "pass: 2.23 s, limited by its host memory"]
    found = placed.json()
    assert found["step_s"] == pytest.approx(2.2, rel=0.001) and found["disk_bytes"] == 0
    assert found["host_bytes"] == 156e9 + 31.2e9 and found["update_s"]["host_memory"] == \
        pytest.approx(0.849, rel=0.001)
    assert [(one["stored"], one["place"]) for one in found["rejected"]] == [
        ("nothing", "device"), ("state", "device"), ("weights", "device"), ("weights", "host")]
    assert found["rejected"][0]["step_s"] is None and "193.72 GiB" in found["rejected"][0]["why"]
    json.dumps(found)
    # A loop would help.
    placed = chosen(B13, 8192, clips=False)
    assert "(--unrolled), a step takes 1.352 s, because" in str(placed)
    assert "--unrolled" not in str(chosen(B13, 8192, clips=False, unrolled=True))
    assert str(chosen(B13, 8192, 8)) == "weights, gradients and state on the device: they fit"
    assert "actmem.optax.delayed(actmem.optax.master_copy(tx))" in \
        str(chosen(B70, 8192, 8, unrolled=True))
    assert "actmem.jax.offload_params(layers), " in str(chosen(B70, 8192))


def test_what_cannot_be_stored():
    with pytest.raises(Nothing) as error:
        Chooser(Training(), sizes(B13), machine.find("v5p"), 126.9e9, math.inf,
                planner(B13, 8192)).choose()
    assert str(error.value) == (
        "nothing fits into device_memory=126900000000 bytes: weights, gradients and state on the "
        "device: their sum needs 193.72 GiB of device memory (limit 118.18 GiB); state in actmem, "
        "update on the device after the backward pass: not on TPUs: there, keep the state in "
        "pinned_host, and update it by jax.experimental.compute_on; use a smaller batch or more "
        "devices")
    for devices, options, why in ((2, {}, "weights are stored for one device only, not 2"),
                                  (1, {"unrolled": True}, "only if a lax.scan runs over the layers")):
        with pytest.raises(Nothing, match=why):
            chosen(B70, 8192, devices, least=120e9, **options)
    lacks = [each.lacks for each in chosen(B70, 8192, 8).others if each.update.place == "host"]
    assert lacks == ["the host updates for one device only, not 8"]
    with pytest.raises(Nothing, match="the rates of disks are unknown: pass --disk READ,WRITE"):
        chosen(B13, 8192, host_memory=100e9)


def test_activations_may_need_files():
    """A placement whose activations lack host memory does not end the search for others."""
    def plan_at(more):
        if more["host_memory"] < 20e9:
            raise NoFiles("machine 'h200' has no figure 'disk_write'")
        return dataclasses.replace(planner(B13, 8192)(more), host_bytes=int(10e9))
    placed = Chooser(Training(), sizes(B13), H200, 126.9e9, 190e9, plan_at).choose()[1]
    assert brief(placed)[:2] == ("state", "device")
    assert "machine 'h200' has no figure 'disk_write'" in [each.lacks for each in placed.others]


DISKS = {"disk_read": 48e9, "disk_write": 26e9, "disk_bytes": 8 * 15.36e12}


def test_wear():
    """The state of 13B at 10 s a step, and that of 70B at 60 s, on 8 disks of 15.36 TB."""
    on = H200.replace(**DISKS)
    wear = wear_of(on, Endurance(), 12 * B13, 10)
    assert wear.day_bytes == pytest.approx(1.35e15, rel=0.002)
    assert wear.allowed == pytest.approx(0.123e15, rel=0.002) and 10.9 < wear.ratio < 11
    assert wear_of(on, Endurance(), 12 * B70, 60).day_bytes == pytest.approx(1.22e15, rel=0.002)
    assert str(wear) == ("1.35 PB a day on disks, 11 times the 0.123 PB that they are made for (1 "
                         "drive writes a day of 122.9 TB, given)")
    assert wear_of(on, Endurance(3), 12 * B13, 10).ratio == pytest.approx(wear.ratio / 3)
    # In five years, the drives may write as much as in half a year at this rate.
    total = wear_of(on, Endurance(1, 56e15), 1, 1)
    assert total.allowed == 56e15 / 1825 and total.basis == "56 PB in 5 years"
    assert "30.72 TB, of h200" in wear_of(H200, Endurance(), 1, 1).basis
    assert "30.72 TB, assumed" in wear_of(machine.find("a100"), Endurance(), 1, 1).basis


def test_wear_is_warned_of_and_refused():
    """A fifth of the state of 13B on disks."""
    on = H200.replace(**DISKS)

    def placed(writes, allows=False):
        return chosen(B13, 8192, on=on, host_memory=156.2e9, endurance=Endurance(writes),
                      allows_wear=allows)
    # 31 GB, which take 1.19 s, in a step of 2.54 s are 1.05 PB a day.
    assert "wears" not in str(placed(9)) and brief(placed(9))[:2] == ("state", "host")
    warned = placed(8)
    assert warned.json()["wear"]["day_bytes"] == pytest.approx(1.0525e15, rel=0.001)
    line, = [line for line in str(warned).splitlines() if "wears" in line]
    assert line.startswith("this wears the disks out: it writes 1.05 PB a day on disks, 1.07 times")
    assert "--state-dtype bfloat16" in line and "a master copy" in line
    assert "28.87 GiB on disks" in str(warned)
    # The device's update needs no memory for new values, so it writes nothing.
    refused = placed(0.8)
    assert brief(refused)[:2] == ("state", "device")
    why, = [each.lacks for each in refused.others if each.update.place == "host"
            and each.update.stored == "state"]
    assert why.startswith("it would write 1.05 PB a day on disks, 10.7 times the 0.0983 PB that")
    assert why.endswith("; --allow-wear accepts that")
    assert brief(placed(0.8, allows=True))[:2] == ("state", "host")
    with pytest.raises(Nothing, match="it would write .*--state-dtype bfloat16.* need half"):
        chosen(B13, 8192, on=on, host_memory=50e9)
    # The wear is that of all devices of a host.
    eight = chosen(B70, 8192, 8, on=on, host_memory=100e9, allows_wear=True)
    assert eight.best.wear.day_bytes == pytest.approx(
        86400 * (12 * B70 - 800e9) / eight.best.seconds)
    with pytest.raises(Nothing, match=r"the rest exceeds the 9.31 GiB of the disks \(given\)"):
        chosen(B13, 8192, on=on.replace(disk_bytes=10e9), host_memory=100e9)


SMALL = {"model_type": "llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 352,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
         "tie_word_embeddings": False}


@pytest.fixture(name="config")
def fixture_config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    return str(path)


def planned(capsys, *arguments):
    assert _command.run(["plan", "--json", "--machine", "h200", "--devices", "1", "--tokens", "64",
                         *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command(capsys, config, monkeypatch):
    """Eleven megabytes of weights, gradients and state fit. Five megabytes of device memory are
    enough if the state is elsewhere."""
    found = planned(capsys, "--config", config)
    assert found["placement"]["stored"] == "nothing" and found["placement"]["rejected"] == []
    found = planned(capsys, "--config", config, "--device-memory", "10M")
    where, count = found["placement"], decoder.count(models.load(config))
    assert where["stored"] == "state" and where["host_bytes"] == 12 * (count + 4 * 128 * 352)
    assert where["step_s"] == where["compute_s"] + where["wait_s"] > found["step_s"] > 0
    assert where["device_bytes"] <= 10 << 20
    found = planned(capsys, "--config", config, "--device-memory", "3M")
    assert found["placement"]["stored"] == "weights"
    assert found["placement"]["device_bytes"] == found["peak_bytes"] < 3 << 20
    for options, state in ((("--optimizer", "lion"), 8), (("--state-dtype", "bfloat16"), 8),
                           (("--master", "none"), 8)):
        found = planned(capsys, "--config", config, "--device-memory", "6M", *options)
        assert found["placement"]["host_bytes"] >= state * count, options
    two = planned(capsys, "--config", config, "--batch", "4", "--accumulate", "2")
    half = planned(capsys, "--config", config, "--batch", "2")
    assert two["step_s"] == 2 * half["step_s"] and two["names"] == half["names"]
    found = planned(capsys, "--config", config, "--device-memory", "10M", "--no-clip", "--unrolled")
    assert found["placement"]["behind"] == "backward"
    disks = ("--host-memory", "4M", "--disk", "48G,26G", "--disk-bytes", "1G", "--disk-endurance")
    found = planned(capsys, "--config", config, "--device-memory", "10M", *disks, "2", "--allow-wear")
    assert found["placement"]["wear"]["allowed"] == 2 << 30
    spilled = 12 * (count + 4 * 128 * 352) - (4 << 20)
    assert found["placement"]["disk_bytes"] == spilled
    assert found["placement"]["update_s"]["disks"] == pytest.approx(spilled / (26 << 30))
    machines = []
    monkeypatch.setattr(placement, "Chooser", lambda *args: machines.append(args[2]) or Chooser(*args))
    found = planned(capsys, "--config", config, "--device-memory", "10M", *disks, "2PB",
                    "--allow-wear")
    assert found["placement"]["wear"]["allowed"] == 2e15 / 1825
    assert [machines[0].need(f"disk_{name}") for name in ("read", "write", "bytes")] == [
        48 << 30, 26 << 30, 1 << 30]
    assert _command.run(["plan", "--machine", "h200", "--devices", "1", "--tokens", "64,128",
                         "--config", config, "--device-memory", "10M"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("state in actmem"))
    assert first < next(i for i, line in enumerate(lines) if line.startswith("at 128 tokens"))


def test_a_saved_plan_has_its_placement(capsys, config, tmp_path):
    path = str(tmp_path / "plan.json")
    planned(capsys, "--config", config, "--save", path)
    assert load_plan(path).placement == ""
    planned(capsys, "--config", config, "--save", path, "--device-memory", "10M")
    found = load_plan(path)
    assert found.placement.startswith("state in actmem") and "actmem.optax" in found.placement
    assert str(found).endswith(found.placement)
    with pytest.raises(ValueError, match="only activations, but this plan has state in actmem"):
        found.check({"step_s": 1.0})


def test_errors_of_options(capsys, config):
    for words, arguments in (
            ("argument --disk: '26G' is not READ,WRITE in bytes a second", ("--disk", "26G")),
            ("argument --disk: 'fast' is not a number of bytes", ("--disk", "fast,26G")),
            ("argument --disk-endurance: '0' is neither drive writes a day", (
                "--disk-endurance", "0")),
            ("argument --disk-endurance: 'PB' is neither", ("--disk-endurance", "PB")),
            ("argument --optimizer: invalid choice: 'adam'", ("--optimizer", "adam")),
            ("argument --accumulate: '0' is not a number from 1", ("--accumulate", "0")),
            ("--compile and --state-dtype cannot be combined", (
                "--config", config, "--compile", "h200", "--state-dtype", "bfloat16")),
            ("--no-clip applies only to a model", ("train.py:f", "--machine", "h200", "--no-clip"))):
        with pytest.raises(SystemExit) as exit_:
            _command.run(["plan", *arguments])
        assert exit_.value.code == 2
        assert words in capsys.readouterr().err
    assert _command.run(["plan", "--config", config, "--machine", "h200", "--devices", "1",
                         "--batch", "3", "--accumulate", "2"]) == 1
    assert "accumulate=2 does not divide the batch, which is 3" in capsys.readouterr().err


def test_a_given_policy_that_does_not_fit_is_still_predicted(capsys, config):
    found = planned(capsys, "--config", config, "--device-memory", "1K", "--keep", "context")
    assert found["lacks"].startswith("the policy does not fit")
    assert found["placement"]["stored"] == "nothing" and \
        len(found["placement"]["rejected"]) == 4
