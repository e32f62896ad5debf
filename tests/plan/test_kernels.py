# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Kernels are one operation: their work is that of what they are made of, and nothing within
them is in memory."""
import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from actmem.plan import _graph, _kernels, _trace, decoder, memory, work
from actmem.plan.models import Attention, Group, Layer, Model
from programs import shape

TOKENS, HEADS, KV_HEADS, DIM, HIDDEN, LAYERS = 256, 4, 2, 16, 64, 3
MODEL = Model("small", HIDDEN, 256, True, (
    Group((Layer(Attention(HEADS, KV_HEADS, DIM), 128),), LAYERS),))
# Of all layers: the blocks of queries leave out 7 of 16 scores.
SCORES = LAYERS * HEADS * (TOKENS * TOKENS * 9 // 16)


def graph_of(*kept):
    step = decoder.step(MODEL, batch=1, tokens=TOKENS, remat=functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(*kept)))
    return _trace.graph_of(jax.grad(step.loss), step.trained, step.frozen, step.batch)


def kernels_of(graph):
    found = []
    for node in graph.nodes:
        found += [node] if node.is_kernel else []
        for body in node.bodies:
            found += kernels_of(body)
    return found


def test_attention_is_counted_and_what_it_leaves_is_kept():
    graph = graph_of()
    forward, again, backward = kernels_of(graph)
    assert [each.bytes for each in again.outputs] == [TOKENS * HEADS * DIM * 2,
                                                      TOKENS * HEADS * 4]
    assert len(backward.outputs) == 3
    counted = work.Counted(graph)
    without, kept = counted.total(), counted.total(["context"])
    # Two products forward, and what is kept spares them.
    assert without.flops["bfloat16"] - kept.flops["bfloat16"] == 2 * SCORES * 2 * DIM
    real = work.Counted(graph_of("context"))
    assert real.total().flops == kept.flops
    of_kernels = sum(
        _kernels.flops_of(node.op, node.params, node.reads, lambda jaxpr: work.Counted(
            _graph.Graph.of(jaxpr)).total().flops)["bfloat16"]
        for node in (forward, again, backward))
    assert of_kernels == SCORES // LAYERS * 2 * DIM * (2 + 2 + 5)


def test_scores_are_not_in_memory():
    tokens = 4096
    step = decoder.step(MODEL, batch=1, tokens=tokens, remat=jax.checkpoint)
    graph = _trace.graph_of(jax.grad(step.loss), step.trained, step.frozen, step.batch)
    of_one_block = HEADS * tokens * tokens // 8 * 4
    activations = LAYERS * tokens * HIDDEN * 2
    assert activations < memory.foresee(graph).temporary < activations + of_one_block


def multiply(x, y, cost=None):
    def kernel(x, y, out):
        out[...] = jnp.dot(x[...], y[...])
    return pl.pallas_call(
        kernel, out_shape=jax.ShapeDtypeStruct((64, 64), jnp.float32), grid=(2, 4),
        in_specs=[pl.BlockSpec((32, 64), lambda i, j: (i, 0)),
                  pl.BlockSpec((64, 16), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((32, 16), lambda i, j: (i, j)), cost_estimate=cost)(x, y)


def test_pallas():
    args = shape(64, 64), shape(64, 64)
    graph = _trace.graph_of(lambda x, y: multiply(x * 2, y), *args)
    total = work.Counted(graph).total()
    assert total.flops == {"float32": 2 * 64 ** 3}
    assert total.moved >= 3 * 64 * 64 * 4
    told = pl.CostEstimate(flops=1000, bytes_accessed=1, transcendentals=0)
    graph = _trace.graph_of(lambda x, y: multiply(x, y, told), *args)
    assert work.Counted(graph).total().flops == {"float32": 1000}


@pytest.mark.parametrize("op, mask, flops", [
    ("dot_product_attention_fwd", "MaskType.NO_MASK", 4 * 2 * 4 * 8 * 16 * 32),
    ("dot_product_attention_fwd", "MaskType.CAUSAL", 2 * 2 * 4 * 8 * 16 * 32),
    ("dot_product_attention_bwd", "MaskType.CAUSAL", 5 * 2 * 4 * 8 * 16 * 32)])
def test_attention_by_cudnn(op, mask, flops):
    reads = [shape(2, 8, 4, 32, dtype=jnp.bfloat16), shape(2, 16, 4, 32, dtype=jnp.bfloat16),
             shape(2, 16, 4, 32, dtype=jnp.bfloat16)]
    assert _kernels.flops_of(op, {"mask_type": mask}, reads, None) == {"bfloat16": flops}
