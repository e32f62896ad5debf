# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A decoder-only transformer in plain JAX: RMSNorm, RoPE, causal attention, MLP.

The layers' weights are stacked, and lax.scan runs over them. The caller chooses where a layer's
activations are between forward and backward pass: loss() takes a function that wraps the layer, as
jax.checkpoint does.
"""
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name


class Shape(NamedTuple):
    """Sizes of the model and of one batch."""
    vocabulary: int
    layers: int
    width: int
    heads: int
    batch: int
    length: int

    @property
    def head_width(self):
        return self.width // self.heads


def initial_parameters(key, shape):
    """Returns normally distributed random weights. The weights of projections
    into the residual stream are scaled by 1 / sqrt(2 * layers).
    """
    keys = iter(jax.random.split(key, 8))
    width, hidden = shape.width, 4 * shape.width

    def matrix(rows, columns, scale=1.0):
        size = (shape.layers, rows, columns)
        return scale * rows ** -0.5 * jax.random.normal(next(keys), size)

    into_stream = (2 * shape.layers) ** -0.5
    return {
        "embedding": 0.02 * jax.random.normal(
            next(keys), (shape.vocabulary, width)),
        "layers": {
            "attention_norm": jnp.ones((shape.layers, width)),
            "query": matrix(width, width),
            "key": matrix(width, width),
            "value": matrix(width, width),
            "attention_out": matrix(width, width, into_stream),
            "mlp_norm": jnp.ones((shape.layers, width)),
            "mlp_in": matrix(width, hidden),
            "mlp_out": matrix(hidden, width, into_stream),
        },
        "final_norm": jnp.ones(width),
    }


def rms_norm(x, scale):
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + 1e-6) * scale


def rotary_tables(shape):
    half = shape.head_width // 2
    frequency = 10000.0 ** (-jnp.arange(half) / half)
    angle = jnp.arange(shape.length)[:, None] * frequency
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x, tables):
    """Applies RoPE to `x`, whose shape is [batch, heads, length, head width]."""
    cos, sin = tables
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate(
        [first * cos - second * sin, second * cos + first * sin], axis=-1)


def causal_attention(q, k, v):
    length = q.shape[-2]
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(causal, scores, -1e30)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def make_layer(shape, tables):
    """Returns layer(weights, x) -> x. The layer names q, k and v for checkpoint policies."""

    def split_heads(x):
        return x.reshape(shape.batch, shape.length, shape.heads,
                         shape.head_width).transpose(0, 2, 1, 3)

    def layer(weights, x):
        h = rms_norm(x, weights["attention_norm"])
        q = rotate(split_heads(h @ weights["query"]), tables)
        k = rotate(split_heads(h @ weights["key"]), tables)
        v = split_heads(h @ weights["value"])
        q = checkpoint_name(q, "q")
        k = checkpoint_name(k, "k")
        v = checkpoint_name(v, "v")
        attended = causal_attention(q, k, v).transpose(0, 2, 1, 3)
        x = x + attended.reshape(x.shape) @ weights["attention_out"]
        h = rms_norm(x, weights["mlp_norm"])
        return x + jax.nn.gelu(h @ weights["mlp_in"]) @ weights["mlp_out"]

    return layer


def loss(parameters, tokens, shape, wrap_layer):
    """Returns the mean cross-entropy, in nats, of all tokens except the first of each sequence."""
    layer = wrap_layer(make_layer(shape, rotary_tables(shape)))
    x = parameters["embedding"][tokens[:, :-1]]
    x, _ = jax.lax.scan(lambda x, weights: (layer(weights, x), None),
                        x, parameters["layers"])
    x = rms_norm(x, parameters["final_norm"])
    log_probability = jax.nn.log_softmax(x @ parameters["embedding"].T)
    of_target = jnp.take_along_axis(
        log_probability, tokens[:, 1:, None], axis=-1)
    return -jnp.mean(of_target)
