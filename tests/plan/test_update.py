# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The time of a step whose state is in host memory: the update on the device and on the host."""
import dataclasses
import math

import pytest

from actmem.plan import machine
from actmem.plan.update import Bytes, Job, Load, Update, predict, rates_of

B13, B70 = 13e9, 70.6e9
# A host's memory in GB/s, at 80% of the peak: two sockets with 8 channels of DDR5-4800, 8 of
# DDR5-6400, 12 of DDR5-6400, and 12 of MRDIMM-8800.
SPR, XEON_6700, XEON_6900, MRDIMM = 490e9, 655e9, 983e9, 1350e9


def rates(devices=1, dram=SPR):
    """An H200 with 55 GB/s each way."""
    link = {f"link_{way}{kind}": 55e9 for way in ("out", "in") for kind in ("", "_both", "_all")}
    return rates_of(machine.find("h200").replace(
        host_bandwidth=dram / 2, dram_efficiency=1, **link), devices)


def job(parameters, tokens, clips, devices=1, **options):
    """630 TFLOP/s, and 8 FLOP for each parameter and token with recomputation: a quarter forward,
    three quarters backward."""
    compute = 8 * parameters * tokens / 630e12
    return Job(parameters / devices, compute / 4, compute * 3 / 4, clips=clips, **options)


# Seconds of a step, computed by hand with these rates: 12 bytes of state for each parameter each way
# on the link and 24 of the host's memory if the device updates; 2 each way and 32 if the host does.
# A step is forward + max(backward, update) without clipping, max(forward, update) + backward with a
# delayed update, and otherwise the sum. The weights of 70B do not fit on one H200: they are copied
# twice in a step. A pair is a range.
TABLE = [
    # parameters, tokens, devices, place: no clipping, delayed, after the backward pass
    (B13, 8192, 1, "device", 3.2, 3.8, 4.2),
    (B13, 65536, 1, "device", 10.8, 10.9, 13.6),
    (B70, 8192, 1, "device", 20.5, 20.5, None),
    (B70, 65536, 1, "device", 58.8, (60, 62), 74),
    (B13, 8192, 1, "host", 1.35, 1.9, (2.2, 2.6)),
    (B13, 65536, 1, "host", 10.8, 10.8, 11.7),
    (B70, 8192, 1, "host", 7.5, 10.1, 12),
    (B70, 65536, 1, "host", 58.8, 58.8, 63),
    (B70, 8192, 8, "device", 7.3, 8.9, None),
    (B70, 8192, 8, "host", 7.3, 10.1, None),
    (B70, 65536, 8, "device", 58, 58, None),
    (B70, 65536, 8, "host", 58, 58, None)]
CELLS = [(*row[:4], behind, row[4 + number])
         for row in TABLE for number, behind in enumerate(("backward", "forward", "nothing"))
         if row[4 + number] is not None]
# If the weights are stored, the model counts more than the table, which adds up only the slower
# direction of the link: a pass waits for its own copy of the weights, and an update of stored weights
# also moves them and their gradients.
LOOSE, TIGHT = 0.15, 0.025


def predicted(parameters, tokens, devices, place, behind, **options):
    stored = "weights" if parameters == B70 and devices == 1 else "state"
    return predict(job(parameters, tokens, behind != "backward", devices, **options),
                   Update(stored, place, behind), rates(devices))


@pytest.mark.parametrize("parameters, tokens, devices, place, behind, wanted", CELLS)
def test_a_cell_of_the_table(parameters, tokens, devices, place, behind, wanted):
    low, high = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    off = LOOSE if parameters == B70 and devices == 1 else TIGHT
    got = predicted(parameters, tokens, devices, place, behind).seconds
    assert low * (1 - off) < got < high * (1 + off)


@pytest.mark.parametrize("parameters, tokens, devices, faster", [
    (B13, 8192, 1, "host host host"), (B13, 65536, 1, "both host host"),
    (B70, 8192, 1, "host host host"), (B70, 65536, 1, "both host host"),
    (B70, 8192, 8, "both device device"), (B70, 65536, 8, "both both device")])
def test_the_faster_update(parameters, tokens, devices, faster):
    for behind, wanted in zip(("backward", "forward", "nothing"), faster.split()):
        device, host = (predicted(parameters, tokens, devices, place, behind).seconds
                        for place in ("device", "host"))
        assert wanted == ("both" if math.isclose(device, host, rel_tol=0.001) else
                          "device" if device < host else "host"), behind


def test_the_rows_of_parts():
    """The time of the link with 12 and 2 bytes for each parameter, and that of the host's update with
    the memory of four hosts."""
    for parameters, twelve, two, hosts in ((B13, 2.84, 0.47, (0.85, 0.64, 0.42, 0.31)),
                                           (B70, 15.4, 2.57, (4.6, 3.4, 2.3, 1.7))):
        device, host = (predict(job(parameters, 8192, True), Update("state", place), rates()).parts
                        for place in ("device", "host"))
        assert device["link"] == pytest.approx(twelve, rel=0.01)
        assert host["link"] == pytest.approx(two, rel=0.01)
        for dram, wanted in zip((SPR, XEON_6700, XEON_6900, MRDIMM), hosts):
            step = predict(job(parameters, 8192, True), Update("state", "host"), rates(1, dram))
            assert step.parts["host memory"] == pytest.approx(wanted, rel=0.025)
    node = predict(job(B70, 8192, True, 8), Update("state", "device"), rates(8))
    assert node.parts["link"] == pytest.approx(1.93, rel=0.01)
    assert node.parts["host memory"] == pytest.approx(3.46, rel=0.01)
    assert node.limit == "host memory" and device["link"] > device["host memory"]


@pytest.mark.parametrize("place, devices, dram, backward, forward", [
    ("device", 1, SPR, 22.9e3, 68.7e3), ("host", 1, SPR, 6.9e3, 20.6e3),
    ("device", 8, SPR, 41e3, 123e3), ("host", 8, SPR, 55e3, 165e3),
    ("device", 8, MRDIMM, 22.9e3, 68.7e3), ("host", 8, MRDIMM, 20e3, 60e3)])
@pytest.mark.parametrize("share", [1, 10])
def test_the_tokens_that_hide_an_update(place, devices, dram, backward, forward, share):
    """They are those of a whole node, for any size of a dense model. If a token uses only a share of
    the parameters, as in a mixture of experts, that many times more tokens."""
    for behind, tokens in (("backward", backward), ("forward", forward)):
        for factor, hides in ((0.96, False), (1.04, True)):
            one = job(B70 / share, tokens * share * factor / devices, behind == "forward")
            one = dataclasses.replace(one, parameters=B70 / devices)
            waits = predict(one, Update("state", place, behind), rates(devices, dram)).waits
            assert (waits <= 1e-9) == hides, (behind, factor)


def test_a_grace_hopper_updates_on_its_device():
    one = rates_of(machine.find("gh200"))
    device, host = (predict(job(B13, 8192, True), Update("state", place), one)
                    for place in ("device", "host"))
    assert device.seconds < host.seconds
    # 13B with 450 GB/s of memory: 0.69 s and 0.92 s. Here 80% of 512 GB/s.
    assert device.parts["host memory"] == pytest.approx(0.69 * 450 / 409.6, rel=0.01)
    assert host.parts["host memory"] == pytest.approx(0.92 * 450 / 409.6, rel=0.01)


def test_the_last_microbatch_alone_hides():
    """8 micro-batches of 8192 tokens: 10.82 s, of which the last backward pass has 1.01 s, and the
    first forward pass 0.34 s."""
    for behind, hidden in (("backward", 1.014), ("forward", 0.338)):
        step = predicted(B13, 65536, 1, "device", behind, microbatches=8)
        assert step.seconds == pytest.approx(10.82 - hidden + 2.836, rel=0.001)
    # Each pass copies stored weights again, and adds its gradients to those of the last one.
    for count, waits in ((1, 17.97), (4, 20.54)):
        one = predicted(B70, 65536, 1, "device", "nothing", microbatches=count)
        assert one.waits == pytest.approx(waits, rel=0.01)      # the tokens hide these copies
    slow = [predicted(B70, 8192, 1, "host", "nothing", microbatches=count) for count in (1, 4)]
    # A copy takes 2.567 s, longer than a pass of a fourth of the tokens. Three of the backward passes
    # copy gradients to the device, and so does the norm of accumulated gradients.
    assert [step.waits for step in slow] == pytest.approx(
        [1 * 2.567 + 5.508 + 4.034 - 7.344, (4 + 1 + 3 * 2 + 1) * 2.567 + 4.034 - 7.344],
        rel=0.002)


def test_an_update_behind_a_pass_of_stored_weights():
    """The weights come twice, and the state once in the second of these passes, with which it goes; the
    gradients do not leave."""
    step = predicted(B70, 8192, 1, "device", "backward")
    assert step.seconds == pytest.approx((2 + 2 + 12) / 55 * 70.6, rel=0.001)
    # Of two micro-batches, the second one also takes the gradients of the first one, which leave.
    step = predicted(B70, 8192, 1, "device", "backward", microbatches=2)
    assert step.seconds == pytest.approx((2 + 2 + 2 + 2 + 2 + 12) / 55 * 70.6 + 2.754 - 2.567,
                                         rel=0.001)


def test_a_link_is_faster_in_one_direction():
    """Of 2 bytes out and 12 in, 2 move at the rates of both directions, and 10 alone."""
    one = dataclasses.replace(rates(), link_in=50e9, link_in_both=40e9, link_out_both=40e9)
    for out, into, seconds in ((2e9, 12e9, 0.05 + 10 / 50), (12e9, 2e9, 0.05 + 10 / 55)):
        assert Load(out=out, into=into).parts(one)["link"] == pytest.approx(seconds)


def test_the_memory_of_one_socket():
    """A device near one node updates with the memory of that node; the host with both."""
    one, two, all_ = (rates_of(machine.find("h200"), devices) for devices in (1, 5, 8))
    assert one.near == pytest.approx(0.8 * 307.2e9) == one.host / 2
    assert two.near == two.host == pytest.approx(0.8 * 614.4e9 / 5)
    assert all_.near == all_.host == pytest.approx(0.8 * 614.4e9 / 8)
    assert (one.link_in, all_.link_in) == (55.4e9, 35.4e9)
    assert all_.link_in_both == pytest.approx(35.4e9 * 47.09 / 55.4)
    assert (one.disk_read, one.disk_write) == (0, 0)
    # All devices share the disks.
    disks = rates_of(machine.find("h200").replace(disk_read=48e9, disk_write=26e9), 8)
    assert (disks.disk_read, disks.disk_write) == (6e9, 3.25e9)
    # A measured rate is no peak.
    measured = machine.from_json({"figures": {name: figure.value for name, figure in
                                              machine.find("h200").figures.items()}}, "here")
    assert rates_of(measured).host == 614.4e9


@pytest.mark.parametrize("each, link, dram", [
    (Bytes(), 12, 32), (Bytes(moments=4), 8, 24), (Bytes(master=0), 8, 26),
    (Bytes(master=0, moments=4), 4, 18)])
def test_the_bytes_of_other_states(each, link, dram):
    """Without a master copy, the host's update also reads the weights."""
    one = Job(1e9, 0, 0, each)
    parts = predict(one, Update("state", "device"), rates()).parts
    assert parts["link"] == pytest.approx(link / 55) and parts["host memory"] == pytest.approx(
        2 * link / 245)
    parts = predict(one, Update("state", "host"), rates()).parts
    assert parts["host memory"] == pytest.approx(dram / 490)


def test_stored_weights():
    """12 bytes for each weight of bfloat16 with moments of float32: the moments, the weight and its
    gradient. The norm of accumulated gradients needs the gradient before that."""
    one = Job(1e9, 0, 0, Bytes(master=0))
    assert one.stored_bytes("weights") == 12e9
    update = Update("weights", "device")
    assert predict(one, update, rates()).parts["link"] == pytest.approx(12 / 55)
    accumulated = dataclasses.replace(one, microbatches=2)
    assert predict(accumulated, update, rates()).parts["link"] == pytest.approx(14 / 55)
    accumulated = dataclasses.replace(accumulated, clips=False)
    assert predict(accumulated, update, rates()).parts["link"] == pytest.approx(12 / 55)
    # Weights that are not trained are only copied to the device.
    frozen = dataclasses.replace(one, frozen_bytes=1e9)
    assert predict(frozen, update, rates()).parts == predict(one, update, rates()).parts
    assert frozen.stored_bytes("weights") == 13e9
    # Twice 2 bytes to the device, and meanwhile 2 back; the frozen ones twice; and 22 bytes of the
    # host's memory.
    copies = predict(frozen, Update("weights", "host"), rates())
    assert copies.waits == pytest.approx(4 / 55 + 2 / 55 + 22 / 490)
    assert copies.parts == pytest.approx({"link": 0, "host memory": 22 / 490, "disks": 0})


def test_disks():
    """8 disks that read 48 GB/s and write 26: 156 GB need 3.3 s and 6.0 s."""
    fast = dataclasses.replace(rates(), disk_read=48e9, disk_write=26e9)
    one = job(B13, 8192, True, host_memory=0)
    step = predict(one, Update("state", "host"), fast)
    assert step.spilled_bytes == step.written_bytes == step.stored_bytes == 156e9
    assert step.parts["disks"] == pytest.approx(6.0) == step.waits and step.limit == "disks"
    slow = dataclasses.replace(fast, disk_read=12e9)
    assert predict(one, Update("state", "host"), slow).waits == pytest.approx(13)
    part = dataclasses.replace(one, host_memory=100e9)
    step = predict(part, Update("state", "host"), fast)
    assert step.written_bytes == 56e9 and step.stored_bytes == 156e9
    # The state is spilled first, then the gradients, which the update reads, then the weights, which
    # both passes read.
    for memory, written, read in ((52e9, 156, 156), (26e9, 182, 182), (0, 208, 234)):
        step = predict(dataclasses.replace(one, host_memory=memory), Update("weights", "host"),
                       dataclasses.replace(rates(), disk_write=1e9, disk_read=1e6))
        assert step.written_bytes == written * 1e9
        assert step.seconds == pytest.approx(read * 1e3, rel=0.01)


def test_activations_share_the_link():
    """55 GB leave in the forward pass and come back in the backward pass: a second each."""
    one = dataclasses.replace(job(B13, 8192, False), sent=55e9)
    assert predict(one, Update("nothing"), rates()).seconds == pytest.approx(1 + 1.014, rel=0.001)
    step = predict(one, Update("state", "device", "backward"), rates())
    assert step.seconds == pytest.approx(1 + 1 + 2.836, rel=0.001)


def test_clipping_needs_all_gradients():
    with pytest.raises(ValueError, match="cannot run behind the backward pass"):
        predict(job(B13, 8192, True), Update("state", "host", "backward"), rates())
