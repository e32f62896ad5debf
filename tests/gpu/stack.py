# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Define the program that layers.py measures: a stack of transformer layers with the sizes
of known models, its weights, its loss, and its work in FLOP and bytes."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

OFFLOADED = ("q", "k", "v")     # by all methods; the planner may choose any of these:
NAMES = (*OFFLOADED, "context", "out", "gate", "up", "down")
SAMPLES = 8192          # elements of a gradient, of each layer and weight


class Sizes(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    batch: int = 4
    sequence: int = 2048

    @property
    def tokens(self):
        return self.batch * self.sequence

    @property
    def widths(self):
        """The widths of Q, K and V."""
        return [heads * self.head_dim for heads in (self.heads, self.kv_heads, self.kv_heads)]

    @property
    def layer_parameters(self):
        return self.hidden * (sum(self.widths) + self.widths[0] + 3 * self.mlp + 2)

    @property
    def offloaded_bytes(self):
        """The bytes of Q, of K and of V of one layer."""
        return [self.tokens * width * 2 for width in self.widths]

    @property
    def forward_flop(self):
        """The FLOP of one layer's forward pass. Half of attention is masked."""
        attention = 2 * self.tokens * self.sequence * self.heads * self.head_dim
        return 2 * self.tokens * self.layer_parameters + attention

    @property
    def projection_flop(self):
        """The FLOP that one layer saves if Q, K and V are not recomputed."""
        return 2 * self.tokens * self.hidden * sum(self.widths)


# Published dimensions. "small" is for a CPU.
MODELS = {
    "llama-2-13b": Sizes(40, 5120, 40, 40, 128, 13824),
    "gemma-2-27b": Sizes(46, 4608, 32, 16, 128, 36864),
    "small": Sizes(3, 64, 4, 2, 16, 128, 2, 32),
}


def _layer_weights(sizes, key):
    q, k, v = sizes.widths
    shapes = {"q": (sizes.hidden, q), "k": (sizes.hidden, k), "v": (sizes.hidden, v),
              "out": (q, sizes.hidden), "gate": (sizes.hidden, sizes.mlp),
              "up": (sizes.hidden, sizes.mlp), "down": (sizes.mlp, sizes.hidden)}
    keys = jax.random.split(key, len(shapes))
    weights = {name: jax.random.normal(key, shape, jnp.bfloat16) * shape[0] ** -0.5
               for key, (name, shape) in zip(keys, shapes.items())}
    weights["norms"] = jnp.ones((2, sizes.hidden), jnp.bfloat16)
    return weights


def make_weights(sizes, unrolled):
    """Return the weights stacked, or as a list of layers. The numbers are the same."""
    keys = jax.random.split(jax.random.key(1), sizes.layers)
    if unrolled:
        one = jax.jit(lambda key: _layer_weights(sizes, key))
        return [one(key) for key in keys]
    return jax.jit(lambda keys: jax.lax.map(lambda key: _layer_weights(sizes, key), keys))(keys)


def make_batch(sizes):
    keys = jax.random.split(jax.random.key(2), 2)
    shape = (sizes.batch, sizes.sequence, sizes.hidden)
    return tuple(jax.random.normal(key, shape, jnp.bfloat16) for key in keys)


def _norm(x, scale):
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return wide.astype(x.dtype) * scale


def _rotate(x):
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(half) / half)
    sin, cos = (jnp.asarray(f(angles), jnp.float32)[None, :, None] for f in (np.sin, np.cos))
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)


def make_layer(sizes, attention):
    def layer(x, w):
        normed = _norm(x, w["norms"][0])
        q, k, v = (jnp.reshape(normed @ w[name], (*x.shape[:2], -1, sizes.head_dim))
                   for name in OFFLOADED)
        q, k, v = (checkpoint_name(value, name) for name, value in
                   zip(OFFLOADED, (_rotate(q), _rotate(k), v)))
        mixed = checkpoint_name(jax.nn.dot_product_attention(
            q, k, v, is_causal=True, implementation=attention), "context")
        x = x + checkpoint_name(jnp.reshape(mixed, (*x.shape[:2], -1)) @ w["out"], "out")
        normed = _norm(x, w["norms"][1])
        gate, up = (checkpoint_name(normed @ w[name], name) for name in ("gate", "up"))
        return x + checkpoint_name((jax.nn.silu(gate) * up) @ w["down"], "down")
    return layer


def make_loss(layer, unrolled):
    def loss(weights, batch):
        x, wanted = batch
        if unrolled:
            for w in weights:
                x = layer(x, w)
        else:
            x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)
        x = _norm(x, jnp.ones(x.shape[-1], x.dtype))
        return jnp.mean((x.astype(jnp.float32) - wanted.astype(jnp.float32)) ** 2)
    return loss


def sample(gradients, unrolled):
    """Return some elements of each weight's gradient as float32, [layer, element]."""
    @jax.jit
    def of(value):
        flat = value.reshape(len(value), -1)
        return flat[:, ::max(1, flat.shape[1] // SAMPLES)][:, :SAMPLES].astype(jnp.float32)

    if not unrolled:
        return {name: np.asarray(of(value)) for name, value in gradients.items()}
    return {name: np.concatenate([np.asarray(of(layer[name][None])) for layer in gradients])
            for name in gradients[0]}


def difference(got, wanted):
    """Return the largest ‖got − wanted‖ / ‖wanted‖ over layers and weights."""
    worst = 0.0
    for name, b in wanted.items():
        a = got[name]
        if a.shape != b.shape or not np.isfinite(a).all():
            return float("inf")
        lengths = np.linalg.norm(b, axis=1)
        worst = max(worst, float(np.max(np.linalg.norm(a - b, axis=1) /
                                        np.maximum(lengths, 1e-30))))
    return worst
