# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The queues of a step, in cases that are worked out by hand."""
import dataclasses

import pytest

from actmem.plan.time import Layer, Machine, simulate
from actmem.plan.work import Work

MACHINE = Machine("test", {"bfloat16": 100.0}, memory=1e9, link_out=10.0, link_in=10.0,
                  efficiency=0.5, memory_efficiency=1.0)


def test_nothing_sent_is_compute():
    step = simulate([Layer(1.0, 2.0)] * 5, MACHINE, rest=0.5)
    assert (step.seconds, step.waited, step.host_bytes) == (15.5, 0.0, 0)


def test_transfers_hide_behind_compute():
    # 10 bytes are 1 s either way; the last layer's come back with nothing to hide behind:
    # out until 5, in until 6.
    step = simulate([Layer(1.0, 2.0, 10)] * 4, MACHINE)
    assert step.seconds == pytest.approx(4 + 2 + 4 * 2.0)
    assert step.host_bytes == 40


def test_the_last_layer_stays():
    step = simulate([Layer(1.0, 2.0, 10)] * 3 + [Layer(1.0, 2.0)], MACHINE)
    assert step.seconds == 4 * 3.0


def test_a_slow_link_is_waited_for():
    # 4 s each out, with room for one: the second layer ends its forward pass when the first
    # is out, and so on.
    step = simulate([Layer(1.0, 1.0, 40)] * 3, MACHINE, ring=1, ahead=1)
    # forward: 1, out 5, 6, out 10, 11, out 15; backward: in 19, 20; in 24, 25; in 29, 30.
    assert step.seconds == pytest.approx(30.0)
    assert step.compute == 6.0 and step.waited == pytest.approx(24.0)


def test_files_beyond_the_budget():
    files = dataclasses.replace(MACHINE, file_write=5.0, file_read=5.0)
    layers = [Layer(2.0, 4.0, 10)] * 4
    step = simulate(layers, files, budget=20)
    assert (step.host_bytes, step.disk_bytes) == (20, 20)
    assert step.seconds >= simulate(layers, files).seconds
    with pytest.raises(ValueError, match="budget of 20.*test has no rate of files"):
        simulate(layers, MACHINE, budget=20)


def test_more_bytes_never_take_less():
    seconds = [simulate([Layer(1.0, 2.0, sent)] * 8, MACHINE).seconds for sent in range(0, 50, 5)]
    assert seconds == sorted(seconds)


def test_rates_of_a_machine():
    work = Work()
    work.flops["bfloat16"] = 500
    assert MACHINE.seconds(work) == 10.0
    work.flops["float8_e4m3fn"] = 1
    with pytest.raises(ValueError, match="no rate of float8_e4m3fn"):
        MACHINE.seconds(work)
