# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Ghosts that a program returns. XLA makes a constant of each array without bytes, and prints the
program when it compiles it. Printing such a constant takes two characters for each element of the
value: 0.2 seconds for 16 MiB of float32, and minutes for the state of a large model."""
import re

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import actmem.jax
import actmem.optax
from models import FORMS, data, layer

SIDE = 64
CONSTANT = re.compile(r"\w+\[\d[\d,]*,0\]\S* constant\(")
TRANSFORMATIONS = {
    "adam": optax.adam(1e-3), "apply_if_finite": optax.apply_if_finite(optax.adam(1e-3), 3),
    "MultiSteps": optax.MultiSteps(optax.adam(1e-3), 4)}


def check(function, *operands, **options):
    """Compiles a program that returns ghosts."""
    text = jax.jit(function, **options).lower(*operands).compile().as_text()
    assert not CONSTANT.findall(text)
    assert 'custom_call_target="actmem_ghost"' in text


def optimizer(tx, sharding=None):
    """Returns weights, a state, and a step that keeps their shapes."""
    tx = actmem.optax.offload(tx)
    weights = {"w": jax.device_put(jnp.ones((SIDE, SIDE)), sharding)}

    def step(weights, state):
        updates, state = tx.update(weights, state, weights)
        return optax.apply_updates(weights, updates), state
    return weights, tx.init(weights), step


def scanned(step):
    return lambda *carry: jax.lax.scan(lambda carry, _: (step(*carry), None), carry, None,
                                       length=3)[0]


def repeated(step):
    return lambda *carry: jax.lax.while_loop(lambda carry: carry[0]["w"].sum() > 0,
                                             lambda carry: step(*carry), carry)


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("form", [lambda step: step, scanned, repeated],
                         ids=["once", "scan", "while"])
def test_steps(name, form):
    weights, state, step = optimizer(TRANSFORMATIONS[name])
    for donated in ((0, 1), ()):
        check(form(step), weights, state, donate_argnums=donated)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_devices(kind):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(kind,))
    with jax.set_mesh(mesh):
        weights, state, step = optimizer(TRANSFORMATIONS["adam"], NamedSharding(mesh, P("d")))
        shardings = jax.tree.map(lambda leaf: leaf.sharding, (weights, state))
        check(step, weights, state)
        check(step, weights, state, out_shardings=shardings)


@pytest.mark.parametrize("form", FORMS)
def test_pullbacks(form):
    function = FORMS[form](actmem.jax.checkpoint(layer, offload_argnums=0, min_bytes=0))
    check(lambda *args: jax.vjp(function, *args), *data())
