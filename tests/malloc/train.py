# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A small training under JAX, whose arrays are large: prints the loss of each step, and a
digest of the weights, to the bit.
"""
import hashlib

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, BATCH, STEPS, RATE = 1024, 2048, 6, 0.05


def loss(weights, x, y):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, gradients = jax.value_and_grad(loss)(weights, x, y)
    return [w - RATE * g for w, g in zip(weights, gradients)], value


def main():
    random = np.random.default_rng(1)
    weights = [random.normal(0, WIDTH ** -0.5, (WIDTH, WIDTH)).astype(np.float32)
               for _ in range(3)]
    for _ in range(STEPS):
        x = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
        weights, value = step(weights, x, np.sin(x))
        print(float(value).hex())
    for w in weights:
        print(hashlib.sha256(np.asarray(w).tobytes()).hexdigest())


if __name__ == "__main__":
    main()
