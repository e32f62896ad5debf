# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Trains the demo's model on the CPU, as many steps as each line of input asks for.

Answers each line by one of JSON: the seconds of each step, those of processors, and
the losses. Input's end ends it. A line `memory` is answered by the resident bytes, and the most there were.
"""
import json
import os
import resource
import sys
import time

import jax

DEMO = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../examples/demo")
sys.path.insert(0, DEMO)
# pylint: disable=wrong-import-position
import adamw  # noqa: E402
import model  # noqa: E402
from text import ALPHABET, Text  # noqa: E402

SHAPE = model.Shape(vocabulary=len(ALPHABET), layers=4, width=128, heads=4,
                    batch=8, length=256)
STEPS = 1000
SEED = 1


def compile_step(parameters, state, tokens):
    settings = adamw.Settings(STEPS)

    def step(parameters, state, tokens):
        loss, gradients = jax.value_and_grad(model.loss)(
            parameters, tokens, SHAPE, lambda layer: layer)
        parameters, state = adamw.update(parameters, gradients, state, settings)
        return parameters, state, loss

    return jax.jit(step, donate_argnums=(0, 1)).lower(parameters, state, tokens).compile()


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def memory():
    return {"resident_bytes": resident_bytes(),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main():
    text = Text(SEED)
    parameters = model.initial_parameters(jax.random.key(SEED), SHAPE)
    state = adamw.initial_state(parameters)
    step = compile_step(parameters, state, text.batch(SHAPE.batch, SHAPE.length))
    for line in sys.stdin:
        if line.strip() == "memory":
            print(json.dumps(memory()), flush=True)
            continue
        seconds, cpu_seconds, losses = [], [], []
        for _ in range(int(line)):
            tokens = text.batch(SHAPE.batch, SHAPE.length)
            began, cpu_began = time.perf_counter(), time.process_time()
            parameters, state, loss = step(parameters, state, tokens)
            losses.append(float(loss))
            seconds.append(time.perf_counter() - began)
            cpu_seconds.append(time.process_time() - cpu_began)
        print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "losses": losses}),
              flush=True)


if __name__ == "__main__":
    main()
