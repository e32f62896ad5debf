# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The programs and policies for which tests/aot/pairs compares the planner with XLA's compilers.

A program is a function of the target's number of devices that returns a function like plan(). Sizes
are those of real models with fewer layers, because a compiler's time does not depend on the sizes.
"""
import dataclasses
import functools
import os
import sys

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from actmem.plan import decoder, models, of_model, plan

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(ROOT, "tests", "gpu"))

import stack  # noqa: E402

tree = jax.tree.map
DEVICE, HOST = jax.memory.Space.Device, jax.memory.Space.Host
REMAT = functools.partial(jax.checkpoint, prevent_cse=False)


def bytes_of(args):
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(args))


def shape(*sizes, dtype="float32"):
    return jax.ShapeDtypeStruct(sizes, dtype)


def on_host(args):
    mesh = jax.make_mesh((1,), ("device",), (AxisType.Auto,), devices=jax.devices()[:1])
    sharding = NamedSharding(mesh, PartitionSpec(), memory_kind="pinned_host")
    return tree(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), args)


# JAX's tutorial on offloading: ten layers of two products, and Adam on four layers.

def tutorial(devices, rows=256, fetches=False):
    def layer(x, w):
        up, down = jax.device_put(w, DEVICE) if fetches else w
        return checkpoint_name(checkpoint_name(x, "x") @ up, "y") @ down, None

    def loss(w, x):
        return jnp.sum(jax.lax.scan(REMAT(layer), x, w)[0])
    w = shape(10, 256, 1024), shape(10, 1024, 256)
    return functools.partial(plan, loss, on_host(w) if fetches else w, shape(rows, 256))


def adam(loss, hosts_state=False):
    """Returns a step of Adam, with its state on the device or the host between steps."""
    def step(params, state, *batch):
        value, gradient = loss(params, *batch)
        first, second = jax.device_put(state, DEVICE) if hosts_state else state
        first = tree(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = tree(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradient)
        params = tree(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, first, second)
        state = first, second
        return value, params, jax.device_put(state, HOST) if hosts_state else state
    return step


def tutorial_optimizer(devices, hosts_state=True, width=7168):
    def loss(weights, x):
        y = x
        for w in weights:
            y = jax.checkpoint(lambda y, w: jax.nn.gelu(checkpoint_name(y @ w, "y")))(y, w)
        return jnp.mean((y - x) ** 2) + 1e-3 * sum(jnp.sum(w ** 2) for w in weights)
    weights = [shape(width, width)] * 4
    state = on_host((weights, weights)) if hosts_state else (weights, weights)
    donated = bytes_of(weights) + (0 if hosts_state else bytes_of(state))
    return functools.partial(plan, adam(jax.value_and_grad(loss), hosts_state), weights, state,
                             shape(width, width), donated=donated)


# Layers of published models.

def model(name, layers):
    found = models.find(name)
    group = dataclasses.replace(found.groups[0], repeat=layers)
    return dataclasses.replace(found, groups=(group,))


def decoded(devices, name="llama-3.1-8b", layers=8, batch=2, tokens=2048, **options):
    """The planner's own function of a published model: float32 weights, products in bfloat16."""
    step = decoder.step(model(name, layers), batch=batch, tokens=tokens, **options)
    return functools.partial(plan, step.loss, step.trained, step.frozen, step.batch, frozen=1)


def unrolled(devices, **options):
    return decoded(devices, scan=False, remat=jax.checkpoint, **options)


def stacked(devices, name="llama-2-13b", layers=8, batch=4, is_unrolled=False, attention="xla"):
    """The layers of tests/gpu: bfloat16 weights, and attention that writes all scores."""
    sizes = stack.MODELS[name]._replace(layers=layers, batch=batch)
    layer = jax.checkpoint(stack.make_layer(sizes, attention), prevent_cse=is_unrolled)
    args = jax.eval_shape(lambda: (stack.make_weights(sizes, is_unrolled),
                                   stack.make_batch(sizes)))
    return functools.partial(plan, stack.make_loss(layer, is_unrolled), *args)


def trained(devices, hosts_state=False, microbatches=0, name="llama-3.1-8b", layers=4, batch=2,
            tokens=2048, remat=REMAT, scan=True):
    """A step of Adam, optionally with gradients of microbatches that a scan adds up."""
    step = decoder.step(model(name, layers), batch=batch, tokens=tokens, remat=remat, scan=scan)
    gradients = jax.value_and_grad(lambda params, data: step.loss(params, {}, data))
    data = step.batch

    def accumulated(params, data):
        def add(total, each):
            value, gradient = gradients(params, each)
            return tree(jnp.add, total, gradient), value
        total, values = jax.lax.scan(add, tree(jnp.zeros_like, params), data)
        return jnp.mean(values), total
    if microbatches:
        data = tree(lambda leaf: shape(microbatches, *leaf.shape, dtype=leaf.dtype), data)
    state = step.trained, step.trained
    donated = bytes_of(step.trained) + (0 if hosts_state else bytes_of(state))
    return functools.partial(plan, adam(accumulated if microbatches else gradients, hosts_state),
                             step.trained, on_host(state) if hosts_state else state, data,
                             donated=donated)


def sharded(devices, name="llama-2-13b", layers=8, batch=2, tokens=4096, **options):
    """A published model over all devices, as `actmem plan --model` compiles it."""
    def planned(machine=None, compile=None, **given):
        return of_model.plan_of(
            model(name, layers), machine, batch=batch * devices, tokens=tokens, compile=compile,
            shard=decoder.Shard(fsdp=devices), **options, **given)
    return planned


QKV = "query_proj,key_proj,value_proj"
make = functools.partial
PROGRAMS = {
    "tutorial activations": tutorial,
    "tutorial parameters": make(tutorial, fetches=True),
    "tutorial optimizer": tutorial_optimizer,
    "tutorial optimizer, kept": make(tutorial_optimizer, hosts_state=False),
    "GQA scanned": decoded,
    "GQA unrolled": make(unrolled, layers=4),
    "bf16 scanned": stacked,
    "bf16 unrolled": make(stacked, layers=4, is_unrolled=True),
    "MoE": make(decoded, name="qwen3-30b-a3b", layers=4),
    "frozen MLP": make(decoded, train="attention"),
    "accumulation": make(trained, microbatches=4),
    "Adam": trained,
    "Adam, state on the host": make(trained, hosts_state=True),
    "FSDP": sharded,
    "FSDP, frozen MLP": make(sharded, name="llama-3.1-8b", train="attention"),
    "FSDP, frozen MLP, short": make(sharded, name="llama-3.1-8b", train="attention", batch=4,
                                    tokens=2048),
    "FSDP, frozen tied head": make(sharded, name="gemma-2-9b", train="attention"),
    "FSDP, LoRA of MHA": make(sharded, lora=decoder.Lora(rank=16)),
    "FSDP, LoRA of GQA": make(sharded, name="llama-3.1-8b", lora=decoder.Lora(rank=16)),
    # Only in the second half.
    "tutorial activations, 4096": make(tutorial, rows=4096),
    "MHA scanned": make(decoded, name="llama-2-13b", layers=6, batch=4),
    "MHA, scores written": make(decoded, name="llama-2-13b", layers=6, attention="dot_product"),
    "bf16 GQA scanned": make(stacked, name="gemma-2-27b", layers=4),
    "MoE, short": make(decoded, name="qwen3-30b-a3b", layers=6, batch=4, tokens=1024),
    "accumulation, 2 microbatches": make(trained, microbatches=2, layers=2, tokens=4096),
    "FSDP of GQA": make(sharded, name="llama-3.1-8b", batch=1),
    # Only in the third set.
    "tutorial activations, 1024": make(tutorial, rows=1024),
    "70B, long": make(decoded, name="llama-3.3-70b", layers=3, batch=1, tokens=8192),
    "Gemma, scores written": make(decoded, name="gemma-2-9b", layers=4, attention="dot_product"),
    "wide bf16": make(stacked, layers=5, batch=8),
    "Adam of MHA": make(trained, name="llama-2-13b", layers=3, batch=1),
    # Only in the fifth set.
    "MHA unrolled": make(unrolled, name="llama-2-13b", layers=3, batch=4),
    "Adam, unrolled": make(trained, layers=3, remat=jax.checkpoint, scan=False),
}

# Program, names to keep, names to offload, target. The first set was written before the compilers'
# descriptions, and the second set after them. The third set was written after the rules that follow
# XLA's scheduler for GPUs.
FIRST = (
    ("tutorial activations", "", "", "h200"),
    ("tutorial activations", "", "x", "h200"),
    ("tutorial activations", "x,y", "", "v5p:2x2x1"),
    ("tutorial parameters", "", "x", "h200"),
    ("tutorial parameters", "", "", "v5p:2x2x1"),
    ("tutorial optimizer", "", "", "h200"),
    ("tutorial optimizer, kept", "y", "", "h200"),
    ("tutorial optimizer", "", "", "v5p:2x2x1"),
    ("GQA scanned", "", "", "h200"),
    ("GQA scanned", "", QKV, "h200"),
    ("GQA scanned", "mlpwi_0,mlpwi_1", "", "h100"),
    ("GQA scanned", "", "", "v5p:2x2x1"),
    ("GQA scanned", "context,mlpwo", QKV, "v5p:2x2x1"),
    ("GQA scanned", QKV, "", "v6e:2x2x1"),
    ("GQA unrolled", "", "", "h200"),
    ("GQA unrolled", "mlpwi_0,mlpwi_1", "", "v5p:2x2x1"),
    ("bf16 scanned", "", "q,k,v", "h200"),
    ("bf16 scanned", "", "q,k,v", "v5p:2x2x1"),
    ("bf16 unrolled", "gate,up", "", "h100"),
    ("MoE", "", "", "h200"),
    ("MoE", "", QKV, "v5p:2x2x1"),
    ("frozen MLP", "", QKV, "h100"),
    ("frozen MLP", "mlpwi_0", "", "v6e:2x2x1"),
    ("accumulation", "", "", "h200"),
    ("accumulation", "", QKV, "v5p:2x2x1"),
    ("Adam", "mlpwi_0", "", "h200"),
    ("Adam, state on the host", "", "", "h100"),
    ("Adam, state on the host", "", "", "v5p:2x2x1"),
    ("FSDP", "", QKV, "h200x8"),
    ("FSDP, frozen MLP", "", QKV, "v5p:2x2x2"),
)
SECOND = (
    ("tutorial activations", "x", "", "h200"),
    ("tutorial activations, 4096", "", "x", "h100"),
    ("GQA scanned", "", QKV, "v5p:2x2x1"),
    ("tutorial parameters", "x", "", "h200"),
    ("tutorial optimizer, kept", "", "", "h100"),
    ("GQA scanned", "mlpwi_0,mlpwi_1", "", "v5p:2x2x1"),
    ("GQA scanned", "", "decoder_layer_input", "h200"),
    ("GQA scanned", "context,out_proj", "", "h200"),
    ("bf16 scanned", "gate,up", "", "v5p:2x2x1"),
    ("GQA scanned", "mlpwi_0", "mlpwi_1", "h100"),
    ("GQA unrolled", "context", "", "h200"),
    ("bf16 GQA scanned", "", "q,k,v", "v6e:2x2x1"),
    ("bf16 scanned", "", "", "h200"),
    ("bf16 GQA scanned", "", "q,k,v", "h200"),
    ("MHA scanned", "", QKV, "v5p:2x2x1"),
    ("MHA scanned", "", QKV, "h200"),
    ("MHA, scores written", "", "", "h200"),
    ("MoE", "", "", "v5p:2x2x1"),
    ("MoE", "mlpwi_0,mlpwi_1", "", "h200"),
    ("MoE, short", "", QKV, "h100"),
    ("frozen MLP", "", QKV, "v5p:2x2x1"),
    ("frozen MLP", "", "", "h200"),
    ("accumulation, 2 microbatches", "mlpwi_0", "", "h200"),
    ("accumulation", "", "", "v5p:2x2x1"),
    ("Adam", "", QKV, "h200"),
    ("Adam, state on the host", QKV, "", "h200"),
    ("Adam", "", "", "v5p:2x2x1"),
    ("FSDP", "mlpwi_0", "", "h200x8"),
    ("FSDP of GQA", "", "", "h100x8"),
    ("FSDP of GQA", "", "", "v6e:2x4"),
)
THIRD = (
    ("tutorial activations, 1024", "y", "", "h100"),
    ("tutorial activations, 1024", "", "x", "h200"),
    ("70B, long", "", QKV, "h200"),
    ("70B, long", "context", "", "h100"),
    ("70B, long", "", "", "v5p:2x2x1"),
    ("Gemma, scores written", "", "", "h200"),
    ("Gemma, scores written", "mlpwi_0", "", "v6e:2x2x1"),
    ("wide bf16", "", "", "h200"),
    ("wide bf16", "q,k", "gate", "h200"),
    ("wide bf16", "", "q,k,v", "v5p:2x2x1"),
    ("bf16 GQA scanned", "gate", "", "h100"),
    ("bf16 unrolled", "", "", "h200"),
    ("MHA, scores written", "query_proj", "", "h100"),
    ("MoE", "", "decoder_layer_input", "h200"),
    ("frozen MLP", "mlpwi_0,mlpwi_1", "", "h200"),
    ("accumulation", "context", "", "h100"),
    ("Adam of MHA", "", "", "h200"),
    ("Adam of MHA", "", QKV, "v5p:2x2x1"),
    ("FSDP of GQA", "", QKV, "h200x8"),
    ("FSDP, frozen MLP", "", "", "h100x8"),
)
# Chosen after the rules of _gathers.py.
FOURTH = (
    ("FSDP, frozen MLP, short", "", "", "h100x8"),
    ("FSDP, frozen tied head", "", "", "h100x8"),
    ("FSDP, LoRA of MHA", "", "", "h100x8"),
    ("FSDP, LoRA of GQA", "", "", "h100x8"),
    ("FSDP, LoRA of GQA", "mlpwi_0", "", "h100x8"),
)
# Chosen after the rules of _list_order.py.
FIFTH = (
    ("70B, long", "", QKV, "v5p:2x2x1"),
    ("MoE, short", "", QKV, "v5p:2x2x1"),
    ("Adam", "", QKV, "v5p:2x2x1"),
    ("bf16 GQA scanned", "gate", "q,k,v", "v5p:2x2x1"),
    ("MHA, scores written", "", QKV, "v5p:2x2x1"),
    ("GQA scanned", "mlpwi_0,mlpwi_1", QKV, "v5p:2x2x1"),
    ("GQA scanned", "", "decoder_layer_input", "v6e:2x2x1"),
    ("FSDP of GQA", "", QKV, "v5p:2x2x2"),
    ("tutorial activations, 4096", "", "x", "v5p:2x2x1"),
    ("GQA unrolled", "mlpwi_0", "", "h100"),
    ("MHA unrolled", "", "", "h200"),
    ("Adam, unrolled", "", "", "h200"),
    ("bf16 unrolled", "q,k", "", "h200"),
)
