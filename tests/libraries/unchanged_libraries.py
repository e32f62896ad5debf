# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""unchanged_libraries.py equinox|keras: a training that knows nothing of actmem, as
`actmem run` starts them. Equinox's policy offloads "hidden"; Keras' remat takes no policy.
Prints a digest of what two steps end with."""
import hashlib
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

LAYERS, BATCH, WIDTH, HIDDEN, STEPS = 2, 8, 16, 64, 2
PUTS = STEPS * LAYERS


def equinox():
    import equinox as eqx
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"],
        offload_src="device", offload_dst="pinned_host")
    x = jax.random.normal(jax.random.key(1), (BATCH, WIDTH))

    class Layer(eqx.Module):
        up: eqx.nn.Linear
        down: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key)
            self.up = eqx.nn.Linear(WIDTH, HIDDEN, key=keys[0])
            self.down = eqx.nn.Linear(HIDDEN, WIDTH, key=keys[1])

        def __call__(self, x):
            hidden = checkpoint_name(jax.vmap(self.up)(x), "hidden")
            return x + jax.vmap(self.down)(jax.nn.gelu(hidden))

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(layers):
        y = x
        for layer in layers:
            y = eqx.filter_checkpoint(Layer.__call__, policy=policy)(layer, y)
        return jnp.mean(y ** 2)
    layers = [Layer(key) for key in jax.random.split(jax.random.key(0), LAYERS)]
    for _ in range(STEPS):
        layers = eqx.apply_updates(layers, gradient(layers))
    return eqx.filter(layers, eqx.is_array)


def keras():
    import keras
    keras.utils.set_random_seed(0)
    with keras.RematScope("full"):
        layers = [keras.layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    model = keras.Sequential([keras.Input((WIDTH,)), *layers])
    model.compile("sgd", "mse", jit_compile=True)
    x = np.linspace(-1, 1, BATCH * WIDTH, dtype="float32").reshape(BATCH, WIDTH)
    model.fit(x, x, batch_size=BATCH, epochs=STEPS, shuffle=False, verbose=0)
    return [variable.value for variable in model.variables]


def train(kind):
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves({"equinox": equinox, "keras": keras}[kind]()):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(train(*sys.argv[1:]))
