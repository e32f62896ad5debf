# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs whose memory is foreseen and compared with what XLA says: each is a function of
(policy) that returns a training step, its arguments' shapes, and the names it gives."""
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name

f32 = jnp.float32


def shape(*sizes, dtype=f32):
    return jax.ShapeDtypeStruct(sizes, dtype)


@dataclasses.dataclass(frozen=True)
class Program:
    make: Callable[[Any], Callable[..., Any]]   # policy → step
    args: tuple[Any, ...]
    names: Sequence[str]
    donate: tuple[int, ...] = ()


def norm(x, scale):
    mean = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean + 1e-6) * scale


def rope(x):
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 1e4 ** -(jnp.arange(half) / half)
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(x.dtype)


def attention(q, k, v, causal=True):
    batch, tokens, heads, dim = q.shape
    groups = k.shape[2]
    q = q.reshape(batch, tokens, groups, heads // groups, dim)
    scores = jnp.einsum("btghd,bsgd->bghts", q, k) * dim ** -0.5
    if causal:
        mask = jnp.arange(tokens)[:, None] >= jnp.arange(tokens)
        scores = jnp.where(mask, scores, -1e30)
    out = jnp.einsum("bghts,bsgd->btghd", jax.nn.softmax(scores, -1), v)
    return out.reshape(batch, tokens, heads * dim)


DECODER = ("layer_input", "query_proj", "key_proj", "value_proj", "context", "out_proj",
           "mlpwi_0", "mlpwi_1", "mlpwo")


def attention_part(x, w, heads, groups):
    batch, tokens, width = x.shape
    dim = width // heads
    y = norm(x, w["norm1"])
    q = name(rope((y @ w["q"]).reshape(batch, tokens, heads, dim)), "query_proj")
    k = name(rope((y @ w["k"]).reshape(batch, tokens, groups, dim)), "key_proj")
    v = name((y @ w["v"]).reshape(batch, tokens, groups, dim), "value_proj")
    context = name(attention(q, k, v), "context")
    return x + name(context @ w["o"], "out_proj")


def decoder_layer(x, w, heads=4, groups=2):
    x = name(x, "layer_input")
    x = attention_part(x, w, heads, groups)
    y = norm(x, w["norm2"])
    gate = name(y @ w["gate"], "mlpwi_0")
    up = name(y @ w["up"], "mlpwi_1")
    return x + name((jax.nn.silu(gate) * up) @ w["down"], "mlpwo")


def decoder_weights(layers, width, hidden, heads=4, groups=2):
    kv = width // heads * groups
    sizes = dict(norm1=(width,), q=(width, width), k=(width, kv), v=(width, kv),
                 o=(width, width), norm2=(width,), gate=(width, hidden), up=(width, hidden),
                 down=(hidden, width))
    return {key: shape(layers, *size) for key, size in sizes.items()}


def cross_entropy(x, table, labels):
    logits = x @ table.T
    return jnp.mean(jax.nn.logsumexp(logits, -1) -
                    jnp.take_along_axis(logits, labels[..., None], -1)[..., 0])


def scanned(layer, policy, x, weights):
    layer = jax.checkpoint(layer, policy=policy, prevent_cse=False)
    return jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)[0]


def unrolled(layer, policy, x, weights):
    layer = jax.checkpoint(layer, policy=policy)
    for i in range(len(jax.tree.leaves(weights)[0])):
        x = layer(x, jax.tree.map(lambda w: w[i], weights))
    return x


def language_loss(stack, layer, policy):
    def loss(params, tokens):
        x = params["table"][tokens]
        x = stack(layer, policy, x, params["layers"])
        return cross_entropy(norm(x, params["norm"]), params["table"], tokens)
    return loss


def trained(loss, rate=0.1):
    """A step of stochastic gradient descent."""
    def step(params, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        return value, jax.tree.map(lambda p, g: p - rate * g, params, gradient)
    return step


def tokens_of(batch, length):
    return shape(batch, length, dtype=jnp.int32)


def language_params(layers, width, vocabulary=512):
    return dict(table=shape(vocabulary, width), norm=shape(width), layers=layers)


def dense(stack, layers):
    params = language_params(decoder_weights(layers, 128, 352), 128)
    return Program(lambda policy: jax.value_and_grad(language_loss(stack, decoder_layer, policy)),
                   (params, tokens_of(4, 128)), DECODER)


# A mixture of experts: each token by the two best of four, with room for all.

MOE = DECODER[:6] + ("router", "dispatched", "moe_gate", "moe_up", "moe_out")


def moe_layer(x, w, chosen=2):
    x = attention_part(name(x, "layer_input"), w, 4, 2)
    y = norm(x, w["norm2"])
    batch, tokens, _ = y.shape
    experts = w["router"].shape[-1]
    logits = name(y @ w["router"], "router")
    gates, index = jax.lax.top_k(jax.nn.softmax(logits, -1), chosen)
    capacity = tokens * chosen // experts * 2
    hot = jax.nn.one_hot(index, experts)
    flat = hot.reshape(batch, tokens * chosen, experts)
    place = (jnp.cumsum(flat, axis=1) - flat).reshape(hot.shape)
    place = jnp.sum(place * hot, -1).astype(jnp.int32)
    slot = jax.nn.one_hot(place, capacity)      # none beyond the capacity
    dispatch = jnp.einsum("btke,btkc->btec", hot, slot)
    combine = jnp.einsum("btke,btkc,btk->btec", hot, slot, gates)
    sent = name(jnp.einsum("btec,btd->ebcd", dispatch, y), "dispatched")
    gate = name(jnp.einsum("ebcd,edf->ebcf", sent, w["gate"]), "moe_gate")
    up = name(jnp.einsum("ebcd,edf->ebcf", sent, w["up"]), "moe_up")
    out = name(jnp.einsum("ebcf,efd->ebcd", jax.nn.silu(gate) * up, w["down"]), "moe_out")
    return x + jnp.einsum("btec,ebcd->btd", combine, out)


def moe_weights(layers, width, hidden, experts=4):
    return decoder_weights(layers, width, hidden) | dict(
        router=shape(layers, width, experts), gate=shape(layers, experts, width, hidden),
        up=shape(layers, experts, width, hidden), down=shape(layers, experts, hidden, width))


def moe():
    params = language_params(moe_weights(4, 128, 256), 128)
    return Program(lambda policy: jax.value_and_grad(language_loss(scanned, moe_layer, policy)),
                   (params, tokens_of(4, 128)), MOE)


# A tower of vision: patches, layers with biases and GELU, a head.

VISION = ("qkv", "scores", "context", "out_proj", "fc1", "gelu", "fc2")


def layer_norm(x, scale, bias):
    mean = jnp.mean(x, -1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-6) * scale + bias


def vision_layer(x, w, heads=4):
    batch, tokens, width = x.shape
    y = layer_norm(x, w["norm1"], w["bias1"])
    qkv = name(y @ w["qkv"] + w["qkv_bias"], "qkv")
    q, k, v = (part.reshape(batch, tokens, heads, -1) for part in jnp.split(qkv, 3, -1))
    scores = name(jnp.einsum("bthd,bshd->bhts", q, k), "scores")
    scores = jax.nn.softmax(scores * (width // heads) ** -0.5, -1)
    context = name(jnp.einsum("bhts,bshd->bthd", scores, v).reshape(x.shape), "context")
    x = x + name(context @ w["o"] + w["o_bias"], "out_proj")
    y = layer_norm(x, w["norm2"], w["bias2"])
    hidden = name(y @ w["up"] + w["up_bias"], "fc1")
    hidden = name(jax.nn.gelu(hidden), "gelu")
    return x + name(hidden @ w["down"] + w["down_bias"], "fc2")


def vision_weights(layers, width, hidden):
    sizes = dict(norm1=(width,), bias1=(width,), qkv=(width, 3 * width), qkv_bias=(3 * width,),
                 o=(width, width), o_bias=(width,), norm2=(width,), bias2=(width,),
                 up=(width, hidden), up_bias=(hidden,), down=(hidden, width),
                 down_bias=(width,))
    return {key: shape(layers, *size) for key, size in sizes.items()}


def vision(width=128):
    params = dict(layers=vision_weights(4, width, 512), patch=shape(8, 8, 3, width),
                  place=shape(64, width), head=shape(width, 100))

    def make(policy):
        def loss(params, batch):
            images, labels = batch
            x = jax.lax.conv_general_dilated(images, params["patch"], (8, 8), "VALID",
                                             dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = x.reshape(len(images), -1, width) + params["place"]
            x = scanned(vision_layer, policy, x, params["layers"])
            logits = jnp.mean(x, axis=1) @ params["head"]
            return jnp.mean(jax.nn.logsumexp(logits, -1) -
                            jnp.take_along_axis(logits, labels[:, None], -1)[:, 0])
        return trained(loss)
    return Program(make, (params, (shape(8, 64, 64, 3), shape(8, dtype=jnp.int32))), VISION,
                   donate=(0,))


def accumulated():
    """Gradients of four microbatches, added up; then a step of Adam, in place."""
    params = language_params(decoder_weights(3, 128, 352), 128)

    def make(policy):
        loss = language_loss(scanned, decoder_layer, policy)

        def step(params, moments, batch):
            def add(total, tokens):
                value, gradient = jax.value_and_grad(loss)(params, tokens)
                return jax.tree.map(jnp.add, total, gradient), value
            zero = jax.tree.map(jnp.zeros_like, params)
            gradient, values = jax.lax.scan(add, zero, batch)
            first, second = moments
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
            second = jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g * g, second, gradient)
            params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8),
                                  params, first, second)
            return jnp.mean(values), params, (first, second)
        return step
    return Program(make, (params, (params, params), shape(4, 4, 128, dtype=jnp.int32)), DECODER,
                   donate=(0, 1))


FLAX = ("attention", "hidden", "activated", "out")


def flax_linen():
    import flax.linen as nn

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x):
            y = nn.LayerNorm()(x)
            x = x + name(nn.SelfAttention(num_heads=4)(y), "attention")
            y = name(nn.Dense(512)(nn.LayerNorm()(x)), "hidden")
            y = name(nn.gelu(y), "activated")
            return x + name(nn.Dense(128)(y), "out")

    class Model(nn.Module):
        policy: Any

        @nn.compact
        def __call__(self, tokens):
            x = nn.Embed(512, 128)(tokens)
            layer = nn.remat(Layer, policy=self.policy, prevent_cse=False)
            run = nn.scan(lambda layer, x, _: (layer(x), None), length=4,
                          variable_axes={"params": 0}, split_rngs={"params": True})
            x, _ = run(layer(), x, None)
            return nn.Dense(512)(nn.LayerNorm()(x))

    tokens = tokens_of(4, 128)
    params = jax.eval_shape(Model(None).init, jax.random.key(0), tokens)

    def make(policy):
        def loss(params, tokens):
            logits = Model(policy).apply(params, tokens)
            return jnp.mean(jax.nn.logsumexp(logits, -1) -
                            jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0])
        return trained(loss)
    return Program(make, (params, tokens), FLAX, donate=(0,))


def flax_nnx():
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.norm1 = nnx.LayerNorm(128, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(4, 128, decode=False, rngs=rngs)
            self.norm2 = nnx.LayerNorm(128, rngs=rngs)
            self.up = nnx.Linear(128, 512, rngs=rngs)
            self.down = nnx.Linear(512, 128, rngs=rngs)

        def __call__(self, x):
            x = x + name(self.attention(self.norm1(x)), "attention")
            y = name(self.up(self.norm2(x)), "hidden")
            y = name(nnx.gelu(y), "activated")
            return x + name(self.down(y), "out")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(512, 128, rngs=rngs)
            self.blocks = nnx.List([Block(rngs) for _ in range(3)])
            self.head = nnx.Linear(128, 512, rngs=rngs)

        def __call__(self, tokens, policy):
            x = self.embed(tokens)
            run = nnx.remat(lambda block, x: block(x), policy=policy)
            for block in self.blocks:
                x = run(block, x)
            return self.head(x)

    graph, params, rest = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))), nnx.Param, ...)

    def make(policy):
        def loss(params, batch):
            rest, tokens = batch
            logits = nnx.merge(graph, params, rest)(tokens, policy)
            return jnp.mean(jax.nn.logsumexp(logits, -1) -
                            jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0])
        return jax.value_and_grad(loss)
    return Program(make, (params, (rest, tokens_of(4, 128))), FLAX)


PROGRAMS = {
    "dense scanned": lambda: dense(scanned, 5),
    "dense unrolled": lambda: dense(unrolled, 3),
    "mixture of experts": moe,
    "vision tower": vision,
    "gradients accumulated": accumulated,
    "Flax linen": flax_linen,
    "Flax nnx": flax_nnx,
}
