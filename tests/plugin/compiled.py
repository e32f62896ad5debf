# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What XLA's compiler for GPUs makes of steps. Nothing is run. Prints TAP.

In a step whose layers are unrolled, the puts of each layer are in the forward pass, before those
of the next layer, and not where their takes are. In a step with loops, each call is there once. An
optimizer's state needs two groups of device memory, and moves during the backward pass, or during the
forward pass if its update is delayed."""
import argparse
import os
import re
import sys

import actmem.jax
import actmem.optax
import jax
import jax.numpy as jnp
import optax

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../gpu"))

import stack  # noqa: E402
import training  # noqa: E402
from stock import check, finish  # noqa: E402

LAYERS = 6
CALLED = re.compile('custom_call_target="actmem')


def unrolled():
    sizes = stack.MODELS["small"]._replace(layers=LAYERS)
    options = argparse.Namespace(method="actmem", form="unrolled", attention="xla")
    step = jax.jit(training.make_step(sizes, options))
    return step.lower(*training.shapes(sizes, options)).compile().as_text()


def powers(x):
    """A loop whose values a loop of the backward pass only stores."""
    return jax.lax.fori_loop(0, 2, lambda _, x: jnp.cos(x) * x, x)


def check_loops():
    """XLA fuses an operation with the update that stores its result in a stack, and may then
    run it in both places."""
    kept = actmem.jax.checkpoint(powers, policy=jax.checkpoint_policies.everything_saveable,
                                 min_bytes=0)
    lowered = jax.jit(jax.grad(lambda x: jnp.sum(kept(x) ** 2))).lower(jnp.ones((64, 64)))
    text = lowered.compile().as_text()
    wanted, found = (each.count(f'{mark}actmem_take') for each, mark in (
        (lowered.as_text(), "@"), (text, 'custom_call_target="')))
    check(0 < wanted == found, f"{wanted} takes in loops are {found} when compiled")
    fusions = re.findall(r"^%(\S*fus\S*) \(.*\n((?:  .*\n)*)", text, re.MULTILINE)
    holding = [name for name, body in fusions if CALLED.search(body)]
    check(fusions and not holding, f"none of {len(fusions)} fusions has a call: {holding}")


def check_state():
    side, count = 1024, 8
    size = 4 * side * side
    weights = {f"w{i}": jax.ShapeDtypeStruct((side, side), jnp.float32) for i in range(count)}

    def loss(weights, x):
        for w in weights.values():
            x = jnp.tanh(x @ w)
        return jnp.mean(x ** 2)

    def compiled(function, tx, *operands):
        state = jax.eval_shape(tx.init, weights)
        return jax.jit(lambda state, *operands: function(tx, state, *operands),
                       donate_argnums=0).lower(state, *operands).compile()

    def update(tx, state, gradients):
        return tx.update(gradients, state, gradients)

    def step(tx, state, weights, x):
        return tx.update(jax.grad(loss)(weights, x), state, weights)
    stored = actmem.optax.offload(optax.adamw(1e-3), group_bytes=2 * size)
    temp = compiled(update, stored, weights).memory_analysis().temp_size_in_bytes
    check(temp <= 4 * size + 4096, f"a state of {2 * count} leaves needs {temp / size:.2f} of them")
    text = compiled(step, stored, weights, jax.ShapeDtypeStruct((256, side), jnp.float32)).as_text()
    ghosts = text.count('custom_call_target="actmem_ghost"')
    check(ghosts == 2 * count and len(text) < side * side,
          f"{ghosts} ghosts are results of calls: the program has {len(text)} characters")
    lines = text.rpartition("\nENTRY")[2].splitlines()
    puts = [i for i, line in enumerate(lines) if 'custom_call_target="actmem_put' in line]
    products = [i for i, line in enumerate(lines)
                if re.search(r"transpose\(jvp.*dot_general", line)]
    early = sum(i < products[-1] for i in puts)
    check(len(puts) == 2 * count and early >= count,
          f"{early} of {len(puts)} leaves are put before the backward pass ends")
    check_delayed(weights, loss)


def check_delayed(weights, loss):
    optimizer = actmem.optax.delayed(
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)), group_bytes=1)
    state = jax.eval_shape(optimizer.keep, weights, jax.eval_shape(optimizer.init, weights),
                           weights)

    def step(weights, state, x):
        gradients, weights, state = optimizer.run(jax.grad(loss), weights, state, x)
        return weights, optimizer.keep(gradients, state, weights)
    lines = jax.jit(step, donate_argnums=(0, 1)).lower(
        weights, state, jax.ShapeDtypeStruct((256, 1024), jnp.float32)
        ).compile().as_text().rpartition("\nENTRY")[2].splitlines()
    takes = [i for i, line in enumerate(lines) if 'custom_call_target="actmem_take' in line]
    forward = [i for i, line in enumerate(lines)
               if "dot_general" in line and "transpose" not in line]
    between = sum(any(one < product < other for product in forward)
                  for one, other in zip(takes, takes[1:]))
    check(len(takes) == 2 * len(weights) and between >= len(weights) - 2,
          f"a delayed update: {between} of {len(takes)} takes follow a layer's forward pass")


def main():
    check_loops()
    check_state()
    text = unrolled()
    check("is_scheduled=true" in text, "XLA tells the order")
    calls = training.calls(text)
    puts = [i for i, name in calls if name == "put"]
    tie = next(i for i, name in calls if name == "tie")
    check(len(puts) == 3 * LAYERS and puts[-1] < tie,
          f"{len(puts)} puts come before the first layer's takes are tied, at {tie}: {puts}")
    gaps = [puts[i] - puts[i - 1] for i in range(3, len(puts), 3)]
    within = [puts[i + 2] - puts[i] for i in range(0, len(puts), 3)]
    check(min(gaps) > max(within),
          f"what a layer computes after its puts is before the next layer's: {gaps}")
    late = training.late_share(text)
    check(0 < late < 0.5, f"{late:.2f} of the puts are in the last quarter of the forward pass")
    finish()


if __name__ == "__main__":
    main()
