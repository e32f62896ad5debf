# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The step time on a TPU if each iteration of a scan waits for its own copies."""
import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from actmem.plan import Choice, machine, models, of_model, plan

LAYERS, ROWS, WIDTH = 6, 8192, 4096
BYTES = 2 * ROWS * WIDTH        # of a value of one layer


def layer(x, weights):
    first, second, third = weights
    early = checkpoint_name(x @ first, "early")
    late = checkpoint_name(jnp.tanh(early) @ second, "late")
    return jnp.tanh(late) @ third


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, "bfloat16")


def planned(name, rate, is_scanned=True, layer=layer):
    """Returns the plan that offloads the values of a name over a link of `rate` bytes a second."""
    def loss(weights, x):
        each = jax.checkpoint(layer)
        if is_scanned:
            x, _ = jax.lax.scan(lambda x, w: (each(x, w), None), x, weights)
        else:
            for i in range(LAYERS):
                x = each(x, [w[i] for w in weights])
        return jnp.sum(x, dtype="float32")
    chip = machine.find("v5p").replace(link_out=rate, link_in=rate)
    return plan(loss, [shape(LAYERS, WIDTH, WIDTH)] * 3, shape(ROWS, WIDTH), machine=chip,
                choice=Choice(offloaded=frozenset({name})), device_memory="1T",
                host_memory="1T")


def waits(name, rate, **options):
    """Returns for how many seconds each iteration waits, forward and backward together."""
    found = planned(name, rate, **options)
    return (found.stock_step_s - (found.step_s - found.waited_s)) / LAYERS


@pytest.mark.parametrize("name", ("early", "late"))
def test_a_fast_link_is_not_waited_for(name):
    assert waits(name, 1e15) == pytest.approx(0, abs=1e-6)


def test_copies_to_the_host_overlap_what_the_layer_computes_afterwards():
    # Each copy takes half as long as a product. Two products follow the early value in the forward
    # pass. In the backward pass, only slices of the weights and of the layer's input precede its
    # first use.
    took = planned("early", 1e15).layers[0][0] / 6
    assert took / 2 < waits("early", BYTES / took) < took


def test_copies_from_the_host_overlap_what_is_recomputed_before_their_first_use():
    # One product precedes the late value's first use in the backward pass, and one product follows
    # the value in the forward pass.
    took = planned("late", 1e15).layers[0][0] / 6
    assert waits("late", BYTES / took) == pytest.approx(0, abs=1e-6)
    assert waits("late", BYTES / (8 * took)) > 8 * took


def test_copies_from_the_host_overlap_what_allocates_less_than_their_first_use():
    """In the backward pass, the first use allocates sixteen times as much as the product that is
    independent of the copied value."""
    def layer(x, weights):
        value = checkpoint_name(x @ weights[0], "value")
        wide = jnp.tanh(jnp.concatenate([value] * 4, 1) @ jnp.concatenate([weights[1]] * 4))
        for _ in range(2):
            wide = jnp.tanh(jnp.concatenate([wide] * 2, 1))
        return jnp.sum(wide.reshape(ROWS, 4, WIDTH), 1) @ weights[2]
    took = planned("early", 1e15).layers[0][0] / 6
    assert waits("value", BYTES / took, layer=layer) == pytest.approx(0, abs=1e-6)


def test_copies_from_the_host_overlap_what_precedes_the_attention_kernel():
    """If attention's result is kept, only the backward pass of attention reads query, key and
    value. The transposes for the kernel can run at any time, and are not the first use."""
    chip = machine.find("v5p").replace(link_out=15e9, link_in=15e9)
    model = models.find("llama-3.1-8b")
    for kept, is_waited_for in ((frozenset(), True), (frozenset(("context", "mlpwo")), False)):
        found = of_model.plan_of(
            model, chip, batch=2, tokens=2048, device_memory="1T", host_memory="1T",
            choice=Choice(kept, frozenset(("query_proj", "key_proj", "value_proj"))))
        wait = found.stock_step_s - (found.step_s - found.waited_s)
        assert (wait > 0.01 * found.step_s) == is_waited_for


def layer_of_input(x, weights):
    return layer(checkpoint_name(x, "input"), weights)


@pytest.mark.parametrize("name", ("input", "early", "late"))
def test_a_slow_link_is_waited_for_in_both_directions(name):
    longer = waits(name, 1e8, layer=layer_of_input) - waits(name, 2e8, layer=layer_of_input)
    assert longer == pytest.approx(2 * BYTES * (1 / 1e8 - 1 / 2e8), rel=1e-6)


def test_only_scans_are_predicted():
    assert planned("early", 1e10, is_scanned=False).stock_step_s is None
