# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Keeps a copy of weights, in a wider type, in the state of an Optax transformation."""
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]


class MasterCopyState(NamedTuple):
    """The state of master_copy(): the weights in the wider type, and the transformation's state."""

    master: Any
    state: Any


class MasterCopy(optax.GradientTransformationExtraArgs):    # type: ignore[misc]
    """A transformation that updates a copy of the weights. master_copy() makes it."""

    applied: Callable[..., Any]


def master_copy(tx: optax.GradientTransformation, dtype: Any = jnp.float32) -> MasterCopy:
    """Wraps `tx`. The state of the resulting transformation has a copy, in `dtype`, of each weight
    whose type is narrower, such as bfloat16.

    Args:
      tx: Any Optax transformation.
      dtype: The type of the copy.

    Each step updates the copy, with gradients converted to `dtype`. The new weights are the copy,
    rounded to the type of the weights. Rounding errors do not add up, because the next step begins
    with the copy. A weight has no copy if its type is `dtype`, a wider type or an integer type.

    With offload(master_copy(tx), on="host"), bfloat16 gradients are copied to the host and bfloat16
    weights to the device: 2 bytes for each weight in each direction. Offloaded.apply() returns the
    rounded copy. update() returns the differences between the rounded copy and the weights.

    Returns:
      A transformation whose state is a MasterCopyState. If other code changes the weights, for
      example by reading a checkpoint, call init() again. Otherwise, the next update replaces the
      changed weights by the rounded copy.

    Example:
      >>> import jax.numpy as jnp, optax, actmem.optax
      >>> optimizer = actmem.optax.offload(actmem.optax.master_copy(optax.sgd(1e-3)), on="host")
      >>> params = {"w": jnp.ones((64, 64), jnp.bfloat16)}
      >>> state = optimizer.init(params)
      >>> for _ in range(4):
      ...     updates, state = optimizer.update({"w": params["w"]}, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> float(state.master["w"][0, 0]), float(params["w"][0, 0])
      (0.9960078001022339, 0.99609375)
    """
    tx = optax.with_extra_args_support(tx)
    bits = jnp.finfo(dtype).bits

    def is_narrow(leaf: Any) -> bool:
        return jnp.issubdtype(leaf.dtype, jnp.floating) and jnp.finfo(leaf.dtype).bits < bits

    def wide(leaf: Any) -> Any:
        return leaf.astype(dtype) if is_narrow(leaf) else leaf

    def init(params: Any) -> MasterCopyState:
        master = jax.tree.map(lambda leaf: leaf.astype(dtype) if is_narrow(leaf) else
                              optax.MaskedNode(), params)
        return MasterCopyState(master, tx.init(jax.tree.map(wide, params)))

    def advanced(gradients: Any, state: MasterCopyState, params: Any, extra: Any) -> Any:
        """Returns the updates, the new weights, and the new state."""
        if params is None:
            raise ValueError("actmem.optax.master_copy(): update() needs the parameters")
        before = jax.tree.map(lambda leaf, copy: copy if is_narrow(leaf) else leaf, params,
                              state.master)
        updates, inner = tx.update(jax.tree.map(wide, gradients), state.state, before, **extra)
        after = optax.apply_updates(before, updates)
        new = jax.tree.map(lambda leaf, copy: copy.astype(leaf.dtype), params, after)
        master = jax.tree.map(lambda leaf, copy: copy if is_narrow(leaf) else optax.MaskedNode(),
                              params, after)
        return updates, new, MasterCopyState(master, inner)

    def update(gradients: Any, state: MasterCopyState, params: Any = None, **extra: Any) -> Any:
        updates, new, state = advanced(gradients, state, params, extra)

        # Without a barrier, XLA could omit the rounding, because wide() widens the result again.
        def difference(update: Any, before: Any, after: Any) -> Any:
            return wide(jax.lax.optimization_barrier(after)) - wide(before) if is_narrow(before) \
                else update
        return jax.tree.map(difference, updates, params, new), state

    def applied(gradients: Any, state: MasterCopyState, params: Any, **extra: Any) -> Any:
        return advanced(gradients, state, params, extra)[1:]
    transformation = MasterCopy(init, update)
    transformation.applied = applied
    return transformation
