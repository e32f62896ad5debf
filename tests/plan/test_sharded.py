# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The step of a model on all devices computes what the step of one device computes, from a part of
each weight."""
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from actmem.plan import decoder, machine, of_model, sharded, targets
from actmem.plan import models as published

CONFIG = {"model_type": "llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
          "tie_word_embeddings": False}


@pytest.fixture(name="model")
def fixture_model(tmp_path):
    import json
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return published.load(str(path))


@pytest.mark.parametrize("options", ({}, {"scan": False}, {"lora": decoder.Lora(rank=4)}))
def test_a_step(model, options):
    step = decoder.step(model, batch=8, tokens=32, dtype=jnp.float32, **options)
    args = step.initial()
    program = sharded.program_of(model, devices=4, batch=8, tokens=32, dtype=jnp.float32, **options)
    parts = jax.tree.map(lambda value, leaf: jax.device_put(value, leaf.sharding), args,
                         program.args)
    assert jax.tree.map(jnp.shape, args) == jax.tree.map(jnp.shape, program.args)
    for leaf in jax.tree.leaves(program.args):
        assert isinstance(leaf.sharding, NamedSharding)
        assert math.prod(leaf.sharding.shard_shape(leaf.shape)) * 4 == math.prod(leaf.shape)
    # Of each layer's weight, the first dimension is divided.
    weights = program.args[0] | program.args[1]
    layers = [] if options == {"scan": False} else [None]
    assert weights["embed"].sharding.spec == PartitionSpec("fsdp")
    assert weights["group0.0.query"].sharding.spec == PartitionSpec(*layers, "fsdp")
    loss, gradient = jax.jit(jax.value_and_grad(step.loss))(*args)
    got, parts_of_gradient = jax.jit(jax.value_and_grad(program.loss))(*parts)
    np.testing.assert_allclose(got, loss, rtol=1e-5)
    for name, value in gradient.items():
        np.testing.assert_allclose(parts_of_gradient[name], value, rtol=1e-3, atol=1e-6)
    assert program.resident == step.bytes["optimizer"] // 4


def test_layers_gather_their_weights(model):
    program = sharded.program_of(model, devices=4, batch=8, tokens=32)
    text = str(jax.make_jaxpr(program.loss)(*program.args))
    inside = text[text.index("scan["):]
    # Seven products and two norms of a layer; the embedding, the head and the last norm.
    assert text.count("all_gather[") == 9 + 3 and inside.count("all_gather[") >= 9


def test_what_is_refused(model):
    for words, options in (("fsdp=4 does not divide the batch", {"batch": 6}),
                           ("JAX has 4: set JAX_NUM_CPU_DEVICES=8", {"devices": 8, "batch": 8}),
                           (r"fsdp=3 divides no dimension of the weight embed \(512 x 128\)",
                            {"devices": 3, "batch": 3})):
        with pytest.raises(ValueError, match=words):
            sharded.program_of(model, **({"devices": 4, "batch": 8, "tokens": 32} | options))


def test_only_fsdp_is_compiled(model, monkeypatch):
    monkeypatch.setattr(targets, "check_compiler", lambda target: None)
    with pytest.raises(decoder.ShardError, match="meshes with fsdp alone"):
        of_model.plan_of(model, machine.find("h200"), batch=8, tokens=32, compile="h200x4",
                         shard=decoder.Shard(fsdp=2, tensor=2))
    # XLA compiles the whole program, but the plan is that of one device's part.
    seen = []

    def verified(search, program, target, plan, candidates, donated, resident, choice):
        seen.append((program, resident))
        return plan
    monkeypatch.setattr("actmem.plan.verified", verified)
    options = dict(batch=8, tokens=32, shard=decoder.Shard(fsdp=4))
    found = of_model.plan_of(model, machine.find("h200"), compile="h200x4", **options)
    (program, resident), = seen
    assert program.layout.sizes == {"fsdp": 4} and program.is_checkpointed and resident > 0
    assert dataclasses.replace(found, key={}) == dataclasses.replace(
        of_model.plan_of(model, machine.find("h200"), **options), key={})
