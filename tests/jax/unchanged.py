# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""unchanged.py KIND [NAME]: a training that knows nothing of actmem, as `actmem run` starts
them. KIND is plain, linen or nnx; its policy offloads the value NAME, "hidden" if there is
none. Prints a digest of the gradients of two steps."""
import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

LAYERS, BATCH, WIDTH, HIDDEN = 3, 32, 16, 64
PUTS = 2 * LAYERS       # of two steps
X = jnp.linspace(-1, 1, BATCH * WIDTH).reshape(BATCH, WIDTH)


def policy_of(name):
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=[name],
        offload_src="device", offload_dst="pinned_host")


def block(x, up, down):
    hidden = checkpoint_name(up(x), "hidden")
    return checkpoint_name(x + down(jnp.tanh(hidden)), "out")


def plain(policy):
    random = np.random.default_rng(0)
    weights = tuple(jnp.asarray(random.standard_normal((LAYERS, *shape), np.float32) / 8)
                    for shape in ((WIDTH, HIDDEN), (HIDDEN, WIDTH)))
    layer = jax.checkpoint(lambda x, w: block(x, lambda x: x @ w[0], lambda x: x @ w[1]),
                           policy=policy)

    def loss(weights):
        return jnp.mean(jax.lax.scan(lambda x, w: (layer(x, w), None), X, weights)[0] ** 2)
    return jax.jit(jax.grad(loss)), weights


def linen(policy):
    import flax.linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            return block(x, nn.Dense(HIDDEN), nn.Dense(WIDTH))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(LAYERS):
                x = nn.remat(Layer, policy=policy)()(x)
            return x
    model = Model()
    weights = model.init(jax.random.key(0), X)
    return jax.jit(jax.grad(lambda weights: jnp.mean(model.apply(weights, X) ** 2))), weights


def nnx(policy):
    from flax import nnx

    class Layer(nnx.Module):
        def __init__(self, rngs):
            self.up, self.down = (nnx.Linear(WIDTH, HIDDEN, rngs=rngs),
                                  nnx.Linear(HIDDEN, WIDTH, rngs=rngs))

        def __call__(self, x):
            return block(x, self.up, self.down)
    run = nnx.remat(lambda layer, x: layer(x), policy=policy)

    def loss(layer):
        x = X
        for _ in range(LAYERS):
            x = run(layer, x)
        return jnp.mean(x ** 2)
    gradient = nnx.jit(nnx.grad(loss))
    return lambda layer: nnx.to_pure_dict(nnx.state(gradient(layer))), Layer(nnx.Rngs(0))


def train(kind, name="hidden"):
    step, weights = {"plain": plain, "linen": linen, "nnx": nnx}[kind](policy_of(name))
    digest = hashlib.sha256()
    for _ in range(2):
        for leaf in jax.tree.leaves(step(weights)):
            digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(train(*sys.argv[1:]))
