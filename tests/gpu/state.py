# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measure training steps whose AdamW has its state on the device, in actmem, in actmem with a
delayed update, and in actmem with the weights and gradients. Compare the losses, and the memory that
XLA's program needs on the device.

A layer of 317 million parameters has 2.5 GB of state. A step moves it to the device and back. The
more tokens a step has, the more of these copies it can hide. Prints TAP, and figures as JSON.
"""
import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import actmem.jax
import actmem.optax
import stack
import training
from telling import check, end, fact, figure

GROUP_BYTES = 1 << 30
STEPS, SECONDS = 8, 25
LIMIT = 1.02            # of the step with the state on the device, at the most tokens


def make_loss(sizes, attention, is_scanned):
    inner = stack.make_layer(sizes, attention)

    @jax.checkpoint
    def layer(x, weights):
        weights = actmem.jax.value(weights)
        return inner(x, jax.tree.map(lambda w: w.astype(jnp.bfloat16), weights))
    return stack.make_loss(layer, not is_scanned)


def on_device(loss, tx):
    def step(weights, state, batch):
        value, gradients = jax.value_and_grad(loss)(weights, batch)
        updates, state = tx.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value
    return tx.init, step


def offloaded(loss, tx):
    return on_device(loss, actmem.optax.offload(tx, group_bytes=GROUP_BYTES))


def delayed(loss, tx):
    tx = actmem.optax.delayed(tx, group_bytes=GROUP_BYTES)

    def step(weights, state, batch):
        (value, gradients), weights, state = tx.run(jax.value_and_grad(loss), weights, state, batch)
        return weights, tx.keep(gradients, state, weights), value
    return tx.init, step


def with_weights(loss, tx):
    tx = actmem.optax.offload(tx)

    def step(weights, state, batch):
        value, gradients = actmem.jax.value_and_grad(loss)(weights, batch)
        return *tx.apply(gradients, state, weights), value
    return tx.init, step


METHODS = {"on the device": on_device, "in actmem": offloaded, "in actmem, delayed": delayed,
           "in actmem, with weights": with_weights}


def measure(method, sizes, attention):
    """Returns the seconds of a step, the losses, and the bytes of temporary device memory."""
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4))
    is_scanned = METHODS[method] is with_weights
    init, step = METHODS[method](make_loss(sizes, attention, is_scanned), tx)
    step = jax.jit(step, donate_argnums=(0, 1))
    batch = stack.make_batch(sizes)
    weights = jax.tree.map(lambda w: w.astype(jnp.float32),
                           stack.make_weights(sizes, not is_scanned))
    if is_scanned:
        weights = actmem.jax.offload_params(weights)
    state = init(weights)
    losses, times, programs, deadline = [], [], {}, None
    while len(times) < STEPS and (len(times) < 4 or time.perf_counter() < deadline):
        kind = jax.tree.structure(state)    # a delayed update begins with the second step
        if kind not in programs:
            programs[kind] = step.lower(weights, state, batch).compile()
            deadline = time.perf_counter() + SECONDS
        took, (weights, state, value) = training.timed(
            lambda: programs[kind](weights, state, batch))
        times.append(took)
        losses.append(float(value))
    return statistics.median(times[2:]), losses, \
        programs[kind].memory_analysis().temp_size_in_bytes


def compare(sizes, attention, is_last):
    tokens, state = sizes.tokens, 8 * sizes.layers * sizes.layer_parameters
    fact(f"state with {tokens} tokens", f"{state / 1e9:.2f} GB")
    seconds, wanted = {}, None
    for method in METHODS:
        seconds[method], losses, temp = measure(method, sizes, attention)
        figure(f"step, {tokens} tokens, state {method}", seconds[method], "s")
        figure(f"temporary memory, {tokens} tokens, state {method}", temp / 1e9, "GB")
        wanted = wanted or losses
        check(np.allclose(losses, wanted[:len(losses)], rtol=0.01) and losses[-1] < losses[0],
              f"losses with {tokens} tokens, state {method}", losses, wanted)
    best = min(seconds["in actmem"], seconds["in actmem, delayed"]) / seconds["on the device"]
    figure(f"step with the state in actmem, {tokens} tokens", best, "of that on the device")
    if is_last:
        check(best <= LIMIT, f"a step of {tokens} tokens hides the copies of the state: {best:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batches", default="4,16", help="sequences of 2048 tokens in a step")
    parser.add_argument("--attention", choices=("xla", "cudnn"), default="cudnn")
    parser.add_argument("--cpu", action="store_true", help="small sizes, and no limit of time")
    options = parser.parse_args()
    model = stack.MODELS["small" if options.cpu else "llama-2-13b"]
    run = functools.partial(compare, attention="xla" if options.cpu else options.attention)
    batches = [2] if options.cpu else list(map(int, options.batches.split(",")))
    for batch in batches:
        layers = model.layers if options.cpu else options.layers
        run(model._replace(layers=layers, batch=batch),
            is_last=batch == batches[-1] and not options.cpu)
    return end()


if __name__ == "__main__":
    raise SystemExit(main())
