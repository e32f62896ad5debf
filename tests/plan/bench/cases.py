# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The cases of `make bench-plan`: programs of scanned layers whose step takes about a tenth of a
second on two processors, each within several budgets of the device's and the host's memory.
Unrolled layers would not do: XLA runs them on a CPU breadth first. Sizes are no powers of two:
what is transposed then takes up to three times as long, as its strides share few sets of the
caches, by addresses that differ from one program to the next."""
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name as name

import programs


@dataclasses.dataclass(frozen=True)
class Program:
    loss_of: Callable[[Any], Callable[..., Any]]    # policy → loss
    args: Any                                       # shapes: parameters, and a batch


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    device: float       # of what keeping everything adds to the least: the device may take
    host: float         # of all that is named: the host may keep; 1 or more: no budget
    is_small: bool = False

    @property
    def name(self) -> str:
        return f"{self.program}, device {self.device:g}, host {self.host:g}"


def decoder(layers, width, hidden, heads, groups, batch, tokens):
    weights = programs.decoder_weights(layers, width, hidden, heads, groups)
    layer = functools.partial(programs.decoder_layer, heads=heads, groups=groups)
    return Program(functools.partial(programs.language_loss, programs.scanned, layer),
                   (programs.language_params(weights, width), programs.tokens_of(batch, tokens)))


def experts(layers, width, hidden, batch, tokens):
    weights = programs.moe_weights(layers, width, hidden)
    return Program(functools.partial(programs.language_loss, programs.scanned,
                                     programs.moe_layer),
                   (programs.language_params(weights, width), programs.tokens_of(batch, tokens)))


def vision(layers, width, hidden, images, patches):
    shape = programs.shape
    params = dict(layers=programs.vision_weights(layers, width, hidden), patch=shape(192, width),
                  head=shape(width, 100))

    def loss_of(policy):
        def loss(params, batch):
            x = batch @ params["patch"]
            x = programs.scanned(programs.vision_layer, policy, x, params["layers"])
            logits = jnp.mean(x, axis=1) @ params["head"]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, 0])
        return loss
    return Program(loss_of, (params, shape(images, patches, 192)))


def perceptron_layer(x, w):
    x = name(x, "layer_input")
    hidden = name(name(programs.norm(x, w["norm"]), "normed") @ w["up"], "hidden")
    mixed = name(jnp.tanh(hidden) @ w["mid"], "mixed")
    return x + name(jax.nn.gelu(mixed), "activated") @ w["down"]


def perceptron(layers, width, hidden, rows):
    shape = programs.shape
    params = dict(norm=shape(layers, width), up=shape(layers, width, hidden),
                  mid=shape(layers, hidden, hidden), down=shape(layers, hidden, width))

    def loss_of(policy):
        def loss(params, x):
            return jnp.mean(jnp.square(
                programs.scanned(perceptron_layer, policy, x, params)))
        return loss
    return Program(loss_of, (params, shape(rows, width)))


PROGRAMS = {
    "decoder": lambda: decoder(4, 480, 1320, 4, 2, 1, 288),
    "narrow decoder": lambda: decoder(4, 240, 960, 4, 2, 8, 72),
    "long decoder": lambda: decoder(3, 480, 960, 4, 2, 1, 576),
    "vision": lambda: vision(4, 480, 1920, 4, 72),
    "experts": lambda: experts(4, 240, 480, 2, 144),
    "perceptron": lambda: perceptron(5, 480, 960, 576),
    "small decoder": lambda: decoder(3, 32, 96, 2, 1, 2, 32),
    "small vision": lambda: vision(3, 32, 128, 4, 16),
    "small perceptron": lambda: perceptron(3, 32, 64, 64),
}

CASES = [Case(program, device, host, program.startswith("small"))
         for program in PROGRAMS
         for device, host in ([(0.1, 1), (0.1, 0.25), (0.5, 1), (0.5, 0.25)]
                              if not program.startswith("small") else [(0.1, 1)])]


def values(shapes, seed=1):
    """Arguments of these shapes: numbers of a normal distribution, small ones of weights, and
    tokens of a vocabulary."""
    leaves, tree = jax.tree.flatten(shapes)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    made = []
    for key, leaf in zip(keys, leaves):
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            made.append(jax.random.randint(key, leaf.shape, 0, 512, leaf.dtype))
        else:
            deep = leaf.shape[-2] if leaf.ndim > 1 else 1
            made.append(jax.random.normal(key, leaf.shape, leaf.dtype) / math.sqrt(deep))
    return jax.tree.unflatten(tree, made)
