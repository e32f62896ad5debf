#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""An input pipeline without copies.

A thread reads batches from a file into actmem regions before the training needs them. JAX uses the
batches in place.

    actmem run -- python examples/arrays.py

The same training with NumPy arrays gives the same losses, bit by bit.
"""
import argparse
import os
import queue
import tempfile
import threading

import jax
import jax.numpy as jnp
import numpy as np

import actmem
import actmem.jax

BATCH, FEATURES = 512, 1024
AHEAD = 4           # maximum number of batches that were read but not used yet
RATE = 0.05


def write(path, batches):
    """Writes noisy samples of a linear function to a file. The training learns this function."""
    random = np.random.default_rng(0)
    line = random.standard_normal(FEATURES, np.float32)
    with open(path, "wb") as file:
        for _ in range(batches):
            samples = random.standard_normal((BATCH, FEATURES + 1), np.float32)
            samples[:, -1] = samples[:, :-1] @ line + 0.1 * samples[:, -1]
            samples.tofile(file)


def batches(path, steps, new, hand_over):
    """Yields `steps` batches. A thread reads the file again and again. For each batch, `new`
    creates an array, and `hand_over` converts the filled array for JAX."""
    waiting = queue.Queue(AHEAD)

    def read():
        try:
            with open(path, "rb", buffering=0) as file:
                for _ in range(steps):
                    batch = new((BATCH, FEATURES + 1), np.float32)
                    if file.readinto(batch) != batch.nbytes:
                        file.seek(0)
                        file.readinto(batch)
                    waiting.put(hand_over(batch))
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while (batch := waiting.get()) is not None:
        if isinstance(batch, BaseException):
            raise batch
        yield batch


def loss(weights, batch):
    return jnp.mean((batch[:, :-1] @ weights - batch[:, -1]) ** 2)


@jax.jit
def step(weights, batch):
    # On a GPU, batches must be copied from host memory; on a CPU, the step uses them in place.
    if jax.default_backend() == "gpu":
        batch = jax.device_put(batch, jax.memory.Space.Device)
    value, gradient = jax.value_and_grad(loss)(weights, batch)
    return weights - RATE * gradient, value


def train(path, steps, new, hand_over):
    weights = jnp.zeros(FEATURES)
    losses = []
    for batch in batches(path, steps, new, hand_over):
        weights, value = step(weights, batch)
        losses.append(value)
    return np.asarray(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples")
        write(path, batches=3)
        plain = train(path, steps, np.empty, jnp.asarray)
        linked = train(path, steps, actmem.jax.empty, actmem.jax.asarray)
    if not np.array_equal(plain, linked):
        raise SystemExit(f"the losses differ: {plain} and {linked}")
    counts = actmem.jax.stats()["arrays"]
    print(actmem.describe())
    print(f"loss {linked[0]:.3f} to {linked[-1]:.3f} in {steps} steps; NumPy's own "
          "arrays give the same losses, bit by bit")
    print(f"{counts['blocks_total']} batches of {BATCH * (FEATURES + 1) * 4} "
          f"bytes in {counts['region_bytes']} bytes of regions, "
          f"{counts['copied_bytes_total']} bytes copied")


if __name__ == "__main__":
    main()
