# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Flax: its nn.remat and nnx.remat call jax.checkpoint. Under patch(), gradients are the same, and the
values that the policy offloads go through actmem. Flax is imported before patch() here, and after it by
test_run_offload.py."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import actmem.jax
import actmem.optax
from models import Count, close, normal

offload = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["out"], names_which_can_be_offloaded=["hidden"],
    offload_src="device", offload_dst="pinned_host")
save = jax.checkpoint_policies.save_only_these_names("hidden", "out")

LAYERS, WIDTH, HIDDEN = 2, 16, 64
X = normal(1, 2, 8, WIDTH)
HIDDEN_BYTES = LAYERS * X.size // WIDTH * HIDDEN * 4


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, scale):
        x = nn.LayerNorm()(x)
        h = checkpoint_name(nn.Dense(HIDDEN)(x), "hidden")
        h = nn.Dropout(0.2, deterministic=False)(jnp.tanh(h))
        return x + checkpoint_name(nn.Dense(WIDTH)(h), "out") * scale


class Linen(nn.Module):
    """As MaxText makes its decoder: a layer under nn.remat, in nn.scan."""
    policy: object
    scan: bool

    @nn.compact
    def __call__(self, x):
        layer = nn.remat(Layer, policy=self.policy, static_argnums=(2,),
                         prevent_cse=not self.scan)
        if not self.scan:
            for i in range(LAYERS):
                x = layer(name=f"layer{i}")(x, 0.5)
            return x
        run = nn.scan(lambda layer, x, _: (layer(x, 0.5), None), length=LAYERS,
                      variable_axes={"params": 0},
                      split_rngs={"params": True, "dropout": True})
        return run(layer(), x, None)[0]


def linen(policy, scan):
    """The gradients, and what the calls have changed beside: nothing."""
    model = Linen(policy, scan)
    keys = {"params": jax.random.key(2), "dropout": jax.random.key(3)}
    weights = model.init(keys, X)

    @jax.jit
    def gradient(weights):
        return jax.grad(lambda weights: jnp.mean(
            model.apply(weights, X, rngs=keys) ** 2))(weights)
    return gradient(weights), None


class Block(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, HIDDEN, rngs=rngs)
        self.down = nnx.Linear(HIDDEN, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.calls = nnx.Variable(jnp.zeros((), jnp.int32))

    def __call__(self, x):
        self.calls[...] += 1
        h = checkpoint_name(self.up(x), "hidden")
        return x + checkpoint_name(self.down(self.dropout(jnp.tanh(h))), "out")


def nnx_blocks(policy, scan):
    """The gradients, and how often each block was called."""
    make = nnx.vmap(Block) if scan else Block
    blocks = make(nnx.Rngs(0).split(LAYERS) if scan else nnx.Rngs(0))
    run = nnx.remat(lambda block, x: block(x), policy=policy)

    def loss(blocks):
        if scan:
            x = nnx.scan(lambda x, block: run(block, x), length=LAYERS,
                         in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(X, blocks)
        else:
            x = X
            for _ in range(LAYERS):
                x = run(blocks, x)
        return jnp.mean(x ** 2)

    gradients = nnx.jit(nnx.grad(loss))(blocks)
    return nnx.state(gradients), int(jnp.sum(blocks.calls[...]))


@pytest.fixture(autouse=True, scope="module")
def nothing_traced_before():
    """JAX keeps traces of modules' functions that other tests made under a mesh."""
    jax.clear_caches()


@pytest.mark.parametrize("scan", [False, True], ids=["unrolled", "scanned"])
@pytest.mark.parametrize("model", [linen, nnx_blocks])
def test_remat(model, scan):
    wanted, calls = jax.block_until_ready(model(save, scan))
    assert calls in (None, LAYERS)
    with actmem.jax.patch():
        for policy, values in ((offload, LAYERS), (save, 0)):
            count = Count()
            got, got_calls = jax.block_until_ready(model(policy, scan))
            assert count("puts_total") == count("takes_total") == values
            assert count("put_bytes_total") == (HIDDEN_BYTES if values else 0)
            close(got, wanted, 16)
            assert got_calls == calls


def test_a_stored_state():
    def loss(model):
        return jnp.mean((model(jnp.ones((8, 64))) - 0.3) ** 2)

    def params_of(model):
        return nnx.to_pure_dict(nnx.state(model, nnx.Param))
    tx = optax.adam(1e-2)
    offloaded = actmem.optax.offload(tx)
    models = [nnx.Linear(64, 64, rngs=nnx.Rngs(0)) for _ in range(2)]
    with pytest.raises(NotImplementedError, match="nnx.Optimizer cannot update a stored state"):
        nnx.Optimizer(models[0], offloaded, wrt=nnx.Param)
    for model, optimizer in zip(models, (offloaded, tx)):
        state = optimizer.init(params_of(model))
        for _ in range(3):
            updates, state = optimizer.update(params_of(nnx.grad(loss)(model)), state, params_of(model))
            nnx.update(model, optax.apply_updates(params_of(model), updates))
    np.testing.assert_allclose(models[0].kernel[...], models[1].kernel[...], atol=1e-6)
