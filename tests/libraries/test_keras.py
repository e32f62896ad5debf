# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Keras 3 on JAX, trained by fit(): layers that call jax.checkpoint with a
policy themselves, for keras.remat takes none. test_libraries_offload.py has RematScope."""
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402
import pytest  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

from training import (  # noqa: E402
    BATCH, HIDDEN, LAYERS, RATE, STEPS, TOKENS, WIDTH, X, Y, compare)


class Layer(keras.layers.Layer):
    """The variables are read inside of the function; dropout draws its seed,
    which changes a variable, outside of it."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    def build(self, shape):
        self.up = self.add_weight(shape=(shape[-1], HIDDEN), name="up")
        self.down = self.add_weight(shape=(HIDDEN, shape[-1]), name="down")

    def call(self, x):
        def run(x):
            h = checkpoint_name(x @ self.up.value, "hidden")
            return x + checkpoint_name(jax.nn.gelu(h) @ self.down.value, "out")
        if self.policy:
            run = jax.checkpoint(run, policy=self.policy)
        return run(x)


def fit(make, batch=None):
    """The losses, and all variables at the end."""
    keras.utils.set_random_seed(0)
    layers = []
    for _ in range(LAYERS):
        layers += [make(), keras.layers.Dropout(RATE)]
    model = keras.Sequential([keras.Input((TOKENS, WIDTH), batch_size=batch), *layers])
    model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=True)
    history = model.fit(X, Y, batch_size=BATCH, epochs=STEPS, shuffle=False,
                        verbose=0)
    return ([jax.numpy.float32(loss) for loss in history.history["loss"]],
            [variable.value for variable in model.variables],
            [variable.value for variable in model.optimizer.variables])


@pytest.mark.parametrize("batch", [BATCH, None], ids=["batch", "any-batch"])
def test_checkpoint_in_a_layer(batch):
    compare(lambda policy: fit(lambda: Layer(policy), batch))


def test_remat_takes_no_policy():
    with pytest.raises(TypeError, match="policy"):
        keras.remat(lambda x: x, policy=None)
