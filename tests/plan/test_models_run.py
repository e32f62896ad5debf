# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What decoder.py makes of each kind of model runs, scanned and unrolled."""
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from actmem.plan import decoder
from test_models import TINY, fixture_few_blocks, tiny  # noqa: F401


@pytest.mark.parametrize("kind", TINY)
def test_it_runs_and_every_weight_has_a_gradient(kind, few_blocks):
    model = tiny(kind)
    images = 1 if model.vision else 0
    step = decoder.step(model, batch=2, tokens=9, images=images, dtype=jnp.float32,
                        train=lambda name: True)
    assert not step.frozen and len(step.trained) == len(decoder.shapes(model, images=images))
    value, gradients = jax.jit(jax.value_and_grad(step.loss))(*step.initial())
    assert abs(value - math.log(model.vocab)) < 0.5
    for name, gradient in gradients.items():
        # The router's bias chooses; the choice has no derivative. A key's moves no softmax.
        if not name.endswith(("router_bias", "key_bias")):
            assert jnp.all(jnp.isfinite(gradient)) and jnp.any(gradient != 0), name


@pytest.mark.parametrize("kind", ["gemma2", "deepseek_v3"])
def test_scanned_and_unrolled_are_alike(kind, few_blocks):
    model = tiny(kind, num_hidden_layers=5)
    options = {"batch": 2, "tokens": 9, "dtype": jnp.float32}
    scanned = decoder.step(model, **options)
    unrolled = decoder.step(model, scan=False, **options)
    trained, frozen, batch = scanned.initial()
    apart, number = {}, 0
    for i, group in enumerate(model.groups):
        for turn in range(group.repeat):
            for position in range(len(group.layers)):
                for name, value in decoder._inner(trained, f"group{i}.{position}.").items():
                    apart[f"group{number}.0.{name}"] = \
                        value[turn] if group.repeat > 1 else value
                number += 1
    apart.update({name: value for name, value in trained.items() if "group" not in name})
    assert {name: value.shape for name, value in apart.items()} == \
        {name: value.shape for name, value in unrolled.trained.items()}
    np.testing.assert_allclose(jax.jit(scanned.loss)(trained, frozen, batch),
                               jax.jit(unrolled.loss)(apart, {}, batch), rtol=1e-5)
