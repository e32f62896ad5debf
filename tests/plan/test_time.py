# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The queues of a step, in cases that are worked out by hand."""
import pytest

from actmem.plan import machine
from actmem.plan.time import Layer, simulate
from actmem.plan.work import Work

MACHINE = machine.of("test", flops_bf16=100, product_efficiency=0.5, hbm_bandwidth=1e9,
                     memory_efficiency=1, link_out=10, link_in=10, link_out_both=10,
                     link_in_both=10)
RATES = MACHINE.rates()


def test_nothing_sent_is_compute():
    step = simulate([Layer(1.0, 2.0)] * 5, RATES, rest=0.5)
    assert (step.seconds, step.waited, step.host_bytes) == (15.5, 0.0, 0)


def test_transfers_hide_behind_compute():
    # 10 bytes are 1 s either way; the last layer's come back with nothing to hide behind:
    # out until 5, in until 6.
    step = simulate([Layer(1.0, 2.0, 10)] * 4, RATES)
    assert step.seconds == pytest.approx(4 + 2 + 4 * 2.0)
    assert step.host_bytes == 40


def test_the_last_layer_stays():
    step = simulate([Layer(1.0, 2.0, 10)] * 3 + [Layer(1.0, 2.0)], RATES)
    assert step.seconds == 4 * 3.0


def test_a_slow_link_is_waited_for():
    # 4 s each out, with room for one: the second layer ends its forward pass when the first
    # is out, and so on.
    step = simulate([Layer(1.0, 1.0, 40)] * 3, RATES, ring=1)
    # forward: 1, out 5, 6, out 10, 11, out 15; backward: in 19, 20; in 23, 24; in 27, 28.
    assert step.seconds == pytest.approx(28.0)
    assert step.compute == 6.0 and step.waited == pytest.approx(22.0)


def test_files_beyond_the_budget():
    files = MACHINE.replace(disk_write=5, disk_read=5).rates()
    layers = [Layer(2.0, 4.0, 10)] * 4
    step = simulate(layers, files, budget=20)
    assert (step.host_bytes, step.disk_bytes) == (20, 20)
    assert step.seconds >= simulate(layers, files).seconds
    with pytest.raises(ValueError, match="machine 'test' has no figure 'disk_write'"):
        simulate(layers, RATES, budget=20)


def test_memory_of_the_host_is_waited_for():
    # 1 s each out, 10 s each to a file, with room for one: the second goes out when the first
    # is in a file, at 12, and the third at 23; the device goes on, as the ring has room.
    files = MACHINE.replace(disk_write=1, disk_read=1).rates()
    layers = [Layer(1.0, 2.0, 10)] * 3
    step = simulate(layers, files, budget=10, ring=3)
    # backward: what is there comes in until 25; then each is read for 10, and comes in for 1.
    assert step.seconds == pytest.approx(25 + 10 + 1 + 10 + 1 + 2)
    assert (step.host_bytes, step.disk_bytes) == (10, 20)


def test_processors_that_copy_compute_nothing():
    rates = MACHINE.replace(transfer_share=1, transfers=2).rates()
    layers = [Layer(1.0, 2.0, 10, 2)] * 4
    # 1 s each out and in for the bytes, and half a second for each value.
    assert simulate(layers, rates).seconds == pytest.approx(4 * (3.0 + 2 * (1.0 + 2 * 0.5)))
    half = MACHINE.replace(transfer_share=0.5).rates()
    assert simulate(layers, RATES).seconds < simulate(layers, half).seconds < \
        simulate(layers, rates).seconds


def test_a_device_may_wait_for_copies_from_the_host():
    # 1 s each, before each layer's backward pass; copies to the host are hidden.
    layers = [Layer(1.0, 2.0, 10)] * 4
    assert simulate(layers, RATES, waits=True).seconds == pytest.approx(4 + 1 + 4 * (1.0 + 2.0))


def test_more_bytes_never_take_less():
    seconds = [simulate([Layer(1.0, 2.0, sent)] * 8, RATES).seconds for sent in range(0, 50, 5)]
    assert seconds == sorted(seconds)


def test_rates_of_a_machine():
    work = Work()
    work.flops["bfloat16"] = 500
    assert MACHINE.seconds(work) == 10.0
    work.flops["float8_e4m3fn"] = 1
    with pytest.raises(ValueError, match="machine 'test' has no figure 'flops_fp8'"):
        MACHINE.seconds(work)


def test_devices_share_the_host():
    many = MACHINE.replace(link_out_all=4, link_in_all=5, disk_write=8, disk_read=12).rates(4)
    assert (many.link_out, many.link_in, many.disk_write(1), many.disk_read(1)) == (4, 5, 2, 3)
    half = many.scaled(0.5, 0.25)
    assert (half.link_out_both, half.link_in_both, half.disk_read(1)) == (2, 2.5, 0.75)
    with pytest.raises(ValueError, match="machine 'test' has no figure 'link_out_all'"):
        MACHINE.rates(4)


def test_what_devices_send_each_other():
    work = Work(moved=1e9)
    work.collectives["data"] = 40
    with pytest.raises(ValueError, match="machine 'test' has no figure 'interconnect'"):
        MACHINE.seconds(work)
    assert MACHINE.replace(interconnect=20).seconds(work) == 3.0
