# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the devices of a model's mesh send each other takes its time, or hides behind compute."""
import math

import pytest

from actmem.plan import Choice, decoder, of_model
from actmem.plan.between import Between, Turn
from actmem.plan.models import Attention, Experts, Group, Layer, Model
from test_search import with_link

MODEL = Model("small", 64, 256, True, (Group((Layer(Attention(4, 4, 16), 128),), 3),))
HERE = with_link(1e11, devices=4, link_out_all=1e11, link_in_all=1e11, interconnect=1e9)
ACTIVATION = 2 * 128 * 64 * 2       # bytes of a layer's input, of two sequences


def between(**shard):
    return Between(decoder.step(MODEL, batch=2, tokens=128, shard=decoder.Shard(**shard)), HERE)


def test_sums_of_a_layer_are_waited_for():
    # Two all-reduces of an activation in each pass; one is repeated, unless its value is kept.
    once = 2 * ACTIVATION * 0.5 / 1e9
    (forward, backward), = between(tensor=2).turns(())
    assert (forward.waited, forward.beside) == (pytest.approx(2 * once), 0)
    assert backward.waited == pytest.approx(3 * once)
    (_, kept), = between(tensor=2).turns({"out_proj"})
    assert kept.waited == pytest.approx(2 * once)


def test_weights_are_gathered_beside_compute():
    (forward, backward), = between(fsdp=2).turns(())
    assert forward.waited == backward.waited == 0
    # Backward they are gathered again, and their gradients added up.
    assert backward.beside == pytest.approx(2 * forward.beside) and forward.beside > 0
    assert between(fsdp=2).rest > 0


def weights_of(layer):
    step = decoder.step(Model("one", 64, 256, True, (Group((layer,), 3),)), batch=2, tokens=128)
    return {name: 2 * math.prod(shape.shape) for name, shape in step.trained.items()}


@pytest.mark.parametrize("axis", ["data", "sequence", "expert"])
def test_gradients_are_added_up(axis):
    """Devices with other tokens and the same weights add up gradients beside compute, of a
    layer's weights but for experts that are on one of them alone."""
    layer = Layer(Attention(4, 4, 16), 0, experts=Experts(4, 2, 32))
    sizes = weights_of(layer)
    model = Model("one", 64, 256, True, (Group((layer,), 3),))
    step = decoder.step(model, batch=2, tokens=128, shard=decoder.Shard(**{axis: 2}))
    found = Between(step, HERE)
    (forward, backward), = found.turns(())
    shared = sum(size for name, size in sizes.items() if name.startswith("group") and
                 (axis != "expert" or ".expert_" not in name)) / 3
    # All that two devices send each other of a sum is as much as the sum.
    assert forward.beside == 0 and backward.beside == pytest.approx(shared / 1e9)
    assert found.rest == pytest.approx(sizes["embed"] / 1e9)
    frozen = decoder.step(model, batch=2, tokens=128, train="attention",
                          shard=decoder.Shard(**{axis: 2}))
    assert Between(frozen, HERE).rest == 0
    (_, less), = Between(frozen, HERE).turns(())
    assert 0 < less.beside < backward.beside


def test_of_a_pass():
    assert Turn(waited=2.0, beside=1.0).of(3.0) == 5.0
    assert Turn(waited=2.0, beside=9.0).of(3.0) == 9.0


def test_a_plan_has_it():
    options = {"batch": 2, "tokens": 128, "choice": Choice(), "device_memory": 1e12,
               "shard": decoder.Shard(tensor=2)}
    seconds = [of_model.plan_of(MODEL, HERE.replace(interconnect=rate), **options).step_s
               for rate in (1e9, 1e15)]
    once = 2 * ACTIVATION * 0.5 / 1e9
    assert seconds[0] - seconds[1] == pytest.approx(3 * 5 * once, rel=0.01)
