# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The loss over a vocabulary, computed in chunks of tokens: see decoder.py."""
from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp


def _part_of_loss(softcap: float, head: jax.Array, x: jax.Array, targets: jax.Array,
                  ) -> jax.Array:
    logits = jnp.dot(x, head.astype(x.dtype), preferred_element_type=jnp.float32)
    if softcap:
        logits = softcap * jnp.tanh(logits / softcap)
    right = jnp.take_along_axis(logits, targets[:, None] % logits.shape[1], 1)[:, 0]
    return jnp.sum(jax.nn.logsumexp(logits, -1) - right)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def total_loss(softcap: float, learns: bool, head: jax.Array, x: jax.Array,
                targets: jax.Array) -> jax.Array:
    """Returns the sum of the loss over chunks of tokens. `x` and `targets` have the shape (chunks,
    tokens, ...). Computes the chunks one after the other. The backward pass recomputes the logits.
    `learns` says whether to compute the gradient with respect to the weight of the head."""
    total: jax.Array = jax.lax.scan(
        lambda total, part: (total + _part_of_loss(softcap, head, *part), None),
        jnp.zeros((), jnp.float32), (x, targets))[0]
    return total


def total_loss_forward(softcap: float, learns: bool, head: jax.Array, x: jax.Array,
                        targets: jax.Array) -> tuple[jax.Array, Any]:
    total: jax.Array = total_loss(softcap, learns, head, x, targets)
    return total, (head, x, targets)


def total_loss_backward(softcap: float, learns: bool, residuals: Any, slope: jax.Array,
                         ) -> tuple[Any, ...]:
    head, x, targets = residuals

    def part(total: Any, inputs: Any) -> tuple[Any, jax.Array]:
        x, targets = inputs
        of_x = functools.partial(_part_of_loss, softcap, targets=targets)
        if not learns:
            _, pull = jax.vjp(lambda x: of_x(head, x), x)
            return total, pull(slope)[0]
        _, pull = jax.vjp(of_x, head, x)
        dhead, dx = pull(slope)
        return total + dhead.astype(jnp.float32), dx
    total = jnp.zeros(head.shape if learns else (), jnp.float32)
    total, dx = jax.lax.scan(part, total, (x, targets))
    return (total.astype(head.dtype) if learns else jnp.zeros_like(head)), dx, None


total_loss.defvjp(total_loss_forward, total_loss_backward)
