# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Weights that devices share are gathered before use, also if they are not cast."""
import jax
import jax.numpy as jnp
import pytest

from actmem.plan import _trace, memory
from actmem.plan._gathers import with_gathers
from programs import scanned, shape

LAYERS, ROWS, WIDTH, CHUNKS = 6, 64, 128, 4
bf16 = jnp.bfloat16


def layer(x, w):
    return jnp.sin(x @ w["trained"].astype(bf16)) @ w["frozen"]


def loss_in(chunks, microbatches=0):
    def loss(trained, frozen, x):
        y = scanned(layer, None, x, {"trained": trained, "frozen": frozen["layers"]})

        def add(total, part):
            return total + jnp.sum(jnp.square(part @ frozen["head"]).astype(jnp.float32)), None
        if not chunks:
            return add(jnp.float32(0), y)[0]
        return jax.lax.scan(add, jnp.float32(0), y.reshape(chunks, -1, WIDTH))[0]

    def step(trained, frozen, x):
        def one(total, x):
            value, gradient = jax.value_and_grad(loss)(trained, frozen, x)
            return total + gradient, value
        return jax.lax.scan(one, jnp.zeros_like(trained), x)
    args = (shape(LAYERS, WIDTH, WIDTH), {"head": shape(WIDTH, 2 * WIDTH, dtype=bf16),
                                          "layers": shape(LAYERS, WIDTH, WIDTH, dtype=bf16)})
    if microbatches:
        return _trace.Program(step, (*args, shape(microbatches, ROWS, WIDTH, dtype=bf16)))
    return _trace.Program(loss, (*args, shape(ROWS, WIDTH, dtype=bf16)), frozen=1)


def gathers(graph):
    return [node.outputs[0].bytes for node in graph.nodes if node.op == "gathered"]


@pytest.mark.parametrize("chunks, early", [(CHUNKS, 2), (1, 0), (0, 0)])
def test_weights_are_gathered(chunks, early):
    graph = loss_in(chunks).graph_saving()
    before = memory.foresee(graph)
    made = with_gathers(graph, 3, True)
    each, head = 2 * WIDTH * WIDTH, 4 * WIDTH * WIDTH
    # Outside of loops: the head, once for both passes, and the first layer of the backward pass, of
    # which the trained weight is gathered in bfloat16.
    assert sorted(gathers(made)) == early * [each] + [head]
    # In each loop of layers: the frozen weight, once. The other weight is cast.
    bodies = [node.bodies[0] for node in made.nodes if node.op == "scan"]
    assert [gathers(body) for body in bodies if gathers(body)] == [[each], [each]]
    assert gathers(with_gathers(graph, 3, False)) == [head]
    assert memory.foresee(graph) == before and not gathers(graph)
    if early:
        loops = [i for i, node in enumerate(made.nodes) if node.op == "scan"]
        places = [i for i, node in enumerate(made.nodes) if node.op == "gathered"]
        # Behind the loop of the forward pass, before that of the loss.
        assert all(loops[0] < i < loops[1] for i in places[-early:])


def test_weights_are_gathered_in_each_microbatch():
    graph = loss_in(CHUNKS, 2).graph_saving()
    made = with_gathers(graph, 3, True)
    assert not gathers(made)
    body, = (node.bodies[0] for node in made.nodes if node.op == "scan")
    assert len(gathers(body)) == 3


def test_gathered_weights_need_memory():
    graph = loss_in(CHUNKS).graph_saving()
    alone, shared = (memory.foresee(graph, shared=memory.Shared(1, 2, devices))
                     for devices in (1, 8))
    head, each = 4 * WIDTH * WIDTH, 2 * WIDTH * WIDTH
    assert shared.temporary >= alone.temporary + head
    assert shared.temporary <= alone.temporary + head + 4 * each
