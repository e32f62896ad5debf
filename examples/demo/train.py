# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Trains one variant and measures it. A process trains only one variant, because its peak RSS never
falls.

Prints a line of JSON for each step, and then a line with the measurements. The gradients of the
first batch at the initial parameters go to the file --gradients. With --steps 0 the program does
not train.
"""
import argparse
import json
import resource
import statistics
import time

import jax
import numpy as np

import adamw
import model
import variants
from text import ALPHABET, Text

SHAPE = model.Shape(vocabulary=len(ALPHABET), layers=12, width=128, heads=4,
                    batch=8, length=256)
SEED = 1
WARMUP_STEPS = 2    # not timed, because the first steps fault memory in


def say(**line):
    print(json.dumps(line), flush=True)


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compile_step(wrap_layer, settings, parameters, state, tokens):
    def step(parameters, state, tokens):
        loss, gradients = jax.value_and_grad(model.loss)(
            parameters, tokens, SHAPE, wrap_layer)
        parameters, state = adamw.update(parameters, gradients, state, settings)
        return parameters, state, loss

    jitted = jax.jit(step, donate_argnums=(0, 1))
    return jitted.lower(parameters, state, tokens).compile()


def train(wrap_layer, steps):
    """Trains, and returns the measurements as a dictionary."""
    text = Text(SEED)
    parameters = model.initial_parameters(jax.random.key(SEED), SHAPE)
    state = adamw.initial_state(parameters)
    tokens = text.batch(SHAPE.batch, SHAPE.length)
    step = compile_step(wrap_layer, adamw.Settings(steps), parameters, state,
                        tokens)
    compiled_rss_bytes = peak_rss_bytes()

    times, losses = [], []
    for number in range(1, steps + 1):
        began = time.perf_counter()
        parameters, state, loss = step(parameters, state, tokens)
        losses.append(float(loss))
        times.append(1e3 * (time.perf_counter() - began))
        say(step=number, steps=steps, loss=losses[-1], ms=times[-1])
        tokens = text.batch(SHAPE.batch, SHAPE.length)

    return {
        "parameter_bytes": sum(leaf.nbytes for leaf in
                               jax.tree.leaves(parameters)),
        "step_ms": statistics.median(times[WARMUP_STEPS:] or times or [0.0]),
        "first_loss": losses[0] if losses else None,
        "final_loss": losses[-1] if losses else None,
        "losses": losses,
        "temp_bytes": step.memory_analysis().temp_size_in_bytes,
        "compiled_rss_bytes": compiled_rss_bytes,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def save_gradients(wrap_layer, path):
    parameters = model.initial_parameters(jax.random.key(SEED), SHAPE)
    tokens = Text(SEED).batch(SHAPE.batch, SHAPE.length)
    gradient = jax.jit(jax.grad(
        lambda parameters: model.loss(parameters, tokens, SHAPE, wrap_layer)))
    leaves = jax.tree_util.tree_leaves_with_path(gradient(parameters))
    np.savez(path, **{jax.tree_util.keystr(path, simple=True, separator="."):
                      leaf for path, leaf in leaves})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("variant", choices=variants.WRAPPERS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--gradients", required=True, metavar="FILE.npz")
    arguments = parser.parse_args()
    wrap_layer = variants.WRAPPERS[arguments.variant]

    measured = train(wrap_layer, arguments.steps)
    uses_actmem = arguments.variant in variants.IN_ACTMEM
    if uses_actmem:
        import memory
        measured |= memory.measure(arguments.steps)
    save_gradients(wrap_layer, arguments.gradients)
    if uses_actmem:
        measured |= memory.finish()
    say(variant=arguments.variant, shape=SHAPE._asdict(), **measured)


if __name__ == "__main__":
    main()
