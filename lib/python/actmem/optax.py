# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Keeps the state of Optax optimizers in actmem memory.

    import optax, actmem.optax

    optimizer = actmem.optax.offload(optax.adamw(1e-3))
    state = optimizer.init(params)

    @jax.jit(donate_argnums=(0, 1))
    def step(params, state, batch):
        grads = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state
"""
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

from actmem.jax import _delayed, _private
from actmem.jax._layers import run
from actmem.jax._master import MasterCopy, master_copy as master_copy
from actmem.jax._params import OPTIMIZER, Gradient
from actmem.jax._primitives import label_of, line_of_caller
from actmem.jax._state import (is_stack, is_stored, named_leaves, stored as stored,
                               value as value)

LEAST_ELEMENTS = 4096
GROUP_BYTES = 256 << 20


def _aval(leaf: Any) -> Any:
    """Returns `leaf` in a form that JAX can trace: a stored leaf as its shape, dtype and sharding,
    any other leaf unchanged."""
    if not is_stored(leaf):
        return leaf
    ghost = jax.typeof(leaf.ghost)
    explicit = _private.explicit_shard_shape(ghost) is not None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype,
                                sharding=ghost.sharding if explicit else None)


def _like_params(state: Any, params: Any) -> list[Any]:
    """For each leaf of a state, returns the sharding of the leaf's parameter, or None if no
    parameter on several devices belongs to the leaf. The path of a leaf ends with the path of its
    parameter."""
    shardings = {path: (leaf.shape, leaf.sharding) for path, leaf in named_leaves(params)
                 if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
                 and leaf.sharding.num_devices > 1}
    return [next((sharding for name, (shape, sharding) in shardings.items()
                  if path.endswith(name) and getattr(leaf, "shape", None) == shape), None)
            for path, leaf in named_leaves(state)]


def _layers_like_params(state: Any, params: Any) -> list[int | None]:
    """For each leaf of a state, returns the number of layers if the leaf or its weight is stored
    layer by layer, else None."""
    stacks = {path: leaf.shape[0] for path, leaf in named_leaves(params) if is_stack(leaf)}
    return [leaf.shape[0] if is_stack(leaf) else
            next((layers for name, layers in stacks.items()
                  if path.endswith(name) and getattr(leaf, "shape", ())[:1] == (layers,)), None)
            for path, leaf in named_leaves(state)]


def _constrained(state: Any, shardings: list[Any]) -> Any:
    """Applies `shardings` to the leaves of a state. Without a sharding, XLA would replicate an
    array of zeros on all devices."""
    leaves = [leaf if sharding is None or is_stored(leaf) else
              jax.sharding.reshard(leaf, sharding) if _private.is_explicit(sharding) else
              jax.lax.with_sharding_constraint(leaf, sharding)
              for (_, leaf), sharding in zip(named_leaves(state), shardings)]
    return jax.tree.unflatten(jax.tree.structure(state, is_leaf=is_stored), leaves)


# (label, shape, dtype) → the different shardings of the leaves that init() made. A label consists
# of the leaf's path and the line that called offload().
_shardings: dict[Any, list[Any]] = {}
_shardings_lock = threading.Lock()


def _number_of(key: Any, sharding: Any) -> int:
    """Returns the index of `sharding` among the shardings of `key`. Adds `sharding` if it is
    new. The index becomes a part of the leaf's label. So each label has only one sharding, and the
    sharding of a leaf can be looked up by the label."""
    with _shardings_lock:
        known = _shardings.setdefault(key, [])
        for number, other in enumerate(known):
            if other.is_equivalent_to(sharding, len(key[1])):
                return number
        known.append(sharding)
        return len(known) - 1


def _check_types(paths: list[tuple[str, Any]], labels: list[str | None]) -> None:
    """Raises ValueError if a leaf that will be stored has a weak type. A weak type affects JAX's
    type promotion, but a stored leaf would lose its weak type."""
    for (path, leaf), label in zip(paths, labels):
        if label is not None and leaf.weak_type:
            raise ValueError(
                f"{path} of the optimizer state, {leaf.dtype}{list(leaf.shape)}, has a weak type: "
                "give it a dtype, as in jnp.full(shape, value, jnp.float32)")


def _is_array(leaf: Any) -> bool:
    return is_stored(leaf) or isinstance(leaf, jax.Array) or hasattr(leaf, "__array__")


def _device_of(params: Any) -> Any:
    """Returns the device of the parameters if all of them are on one device, else None."""
    devices = {device for leaf in jax.tree.leaves(params)
               if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
               for device in leaf.devices()}
    return devices.pop() if len(devices) == 1 else None


def _compiled(function: Callable[[list[Any]], list[Any]]) -> Any:
    def named(args: list[Any]) -> list[Any]:
        return function(args)
    named.__name__ = OPTIMIZER
    return jax.jit(named)


class _Traced(NamedTuple):
    """A traced update.

    jaxpr      the closed jaxpr of the update
    args       the inputs of the jaxpr: first the gradients and extra arguments
    gradients  the number of inputs that are gradients or extra arguments
    tree       the structure of the update's outputs
    labels, layers, given
               as for _layers.run()
    """

    jaxpr: Any
    args: list[Any]
    gradients: int
    tree: Any
    labels: list[str | None]
    layers: list[int | None]
    given: list[int | None]

    def run(self, args: list[Any], group_bytes: int | None) -> list[Any]:
        return run(self.jaxpr, args, self.labels, self.layers, self.given, group_bytes)


class _Offloaded:
    """A transformation whose state is stored in actmem. If `applies` is true, the update returns
    new parameters, not updates of parameters."""

    def __init__(self, tx: Any, mask: Callable[[str, Any], bool] | None, group_bytes: int,
                 line: str, applies: bool = False, on_host: bool = False) -> None:
        self.tx = _applying(tx) if applies else optax.with_extra_args_support(tx)
        self.mask, self.group_bytes, self.line = mask, group_bytes, line
        self.applies, self.on_host = applies, on_host

    def label(self, path: str, leaf: Any, sharding: Any = None) -> str | None:
        """Returns the label of a leaf, or None if the leaf is not stored. `sharding` is the leaf's
        sharding if init() creates the leaf on several devices, else None."""
        if getattr(leaf, "size", 1) < LEAST_ELEMENTS or _private.is_extended(leaf.dtype):
            return None
        if self.mask is not None and not self.mask(path, leaf):
            return None
        label = label_of(f"{path} of the optimizer state", self.line)
        number = 0 if sharding is None else \
            _number_of((label, leaf.shape, str(leaf.dtype)), sharding)
        return label if not number else \
            label_of(f"{path} of the optimizer state, sharding {number + 1}", self.line)

    def init(self, params: Any) -> Any:
        if _private.is_nnx_optimizer():
            raise NotImplementedError(
                "flax.nnx.Optimizer cannot update a stored state, because it copies only arrays of the "
                "new state: call init() and update() with nnx.to_pure_dict(nnx.state(model, "
                "nnx.Param)), and nnx.update(model, new_params)")

        def function(params: Any) -> Any:
            state = self.tx.init(params)
            shardings[:] = _like_params(state, concrete)
            return _constrained(state, shardings)
        concrete, shardings = params, list[Any]()
        leaves, tree = jax.tree.flatten(params, is_leaf=is_stored)
        jaxpr, shape = jax.make_jaxpr(
            lambda *leaves: function(jax.tree.unflatten(tree, leaves)),
            return_shape=True)(*map(_aval, leaves))
        twice = [path for path, leaf in named_leaves(shape) if is_stored(leaf)]
        if twice:
            raise ValueError(f"{twice[0]} of the optimizer state is stored already: call "
                             "actmem.optax.offload() once, with the outermost transformation")
        labels = [self.label(path, leaf, sharding)
                  for (path, leaf), sharding in zip(named_leaves(shape), shardings)]
        _check_types(named_leaves(shape), labels)
        # Under the caller's jit, `program` becomes a part of the caller's program.
        program = _compiled(partial(run, jaxpr, labels=labels, group_bytes=self.group_bytes,
                                    layers=_layers_like_params(shape, concrete),
                                    given=_layers_like_params(concrete, concrete)))
        meshes = [sharding.mesh for sharding in shardings if _private.is_explicit(sharding)]
        # Make the device of the parameters the default device. Otherwise, a leaf that does not
        # depend on the parameters could be on another device.
        device = _device_of(params)
        with jax.set_mesh(meshes[0]) if meshes else nullcontext(), \
                jax.default_device(device) if device else nullcontext():
            outputs = program(leaves)
        return jax.tree.unflatten(jax.tree.structure(shape), outputs)

    def update(self, updates: Any, state: Any, params: Any = None, **extra: Any) -> Any:
        stacks = [path for path, leaf in named_leaves((updates, state, params)) if is_stack(leaf)]
        if stacks and not self.applies:
            raise ValueError("actmem.optax.offload(): update() cannot return the updates of stored "
                             f"weights ({len(stacks)} arrays, such as {stacks[0]}): call "
                             "apply(gradients, state, params), which returns new weights")
        traced = self.trace(updates, state, params, extra)
        group_bytes = None if self.on_host else self.group_bytes
        outputs = _compiled(partial(traced.run, group_bytes=group_bytes))(traced.args)
        return jax.tree.unflatten(traced.tree, outputs)

    def trace(self, updates: Any, state: Any, params: Any, extra: Any) -> _Traced:
        leaves, tree = jax.tree.flatten((updates, extra, state, params), is_leaf=is_stored)
        is_array = [_is_array(leaf) for leaf in leaves]
        args = [leaf.checked() if isinstance(leaf, Gradient) else leaf
                for leaf, is_one in zip(leaves, is_array) if is_one]

        def function(*arrays: Any) -> Any:
            rest = iter(arrays)
            updates, extra, state, params = jax.tree.unflatten(tree, [
                next(rest) if is_one else leaf for leaf, is_one in zip(leaves, is_array)])
            return self.tx.update(updates, state, params, **extra)
        jaxpr, shape = jax.make_jaxpr(function, return_shape=True)(*map(_aval, args))
        gradients = sum(is_array[:len(jax.tree.leaves((updates, extra), is_leaf=is_stored))])
        labels = [*self.labels_before(params, shape[0]), *self.labels_after(state, shape[1])]
        given = [layers for layers, is_one in zip(_layers_like_params(
            (updates, extra, state, params), params), is_array) if is_one]
        return _Traced(jaxpr, args, gradients, jax.tree.structure(shape), labels,
                       _layers_like_params(shape, params), given)

    def labels_before(self, params: Any, shape: Any) -> list[str | None]:
        """Returns the labels of the first result of update(): the updates or, if `applies` is true,
        the new parameters."""
        if not self.applies:
            return [None] * len(jax.tree.leaves(shape))
        labels = [leaf.label if is_stored(leaf) else None for _, leaf in named_leaves(params)]
        _check_types(named_leaves(shape), labels)
        return labels

    def labels_after(self, state: Any, shape: Any) -> list[str | None]:
        """Returns the labels of the new state, which must have the structure of the old state."""
        old, new = named_leaves(state), named_leaves(shape)
        for path, leaf in old:
            if not is_stored(leaf) and self.label(path, leaf):
                raise ValueError(
                    f"{path} of the optimizer state, {leaf.dtype}{list(leaf.shape)}, is not stored: "
                    "make the state by init() of this transformation, or by "
                    "actmem.jax.restore_state(path, jax.eval_shape(optimizer.init, params))")
        if [path for path, _ in old] != [path for path, _ in new]:
            raise ValueError(
                "actmem.optax.offload() cannot store this state, because update() returned "
                f"another structure than it got: {_difference(old, new)}")
        labels = [leaf.label if is_stored(leaf) else None for _, leaf in old]
        _check_types(new, labels)
        return labels


def _difference(old: list[tuple[str, Any]], new: list[tuple[str, Any]]) -> str:
    names, others = ({path for path, _ in paths} for paths in (old, new))
    only = sorted(names ^ others)
    return f"only one of them has {only[0]}" if only else "their leaves are in another order"


class Offloaded(optax.GradientTransformationExtraArgs):     # type: ignore[misc]
    """A transformation whose state is stored in actmem. offload() makes it."""

    _applying: _Offloaded

    def apply(self, gradients: Any, state: Any, params: Any, **extra: Any) -> tuple[Any, Any]:
        """Returns updated parameters and state. Parameters, gradients and state can be stored
        arrays.

        Args:
          gradients: Gradients from actmem.jax.value_and_grad(), or from jax.grad().
          state: The state that init() or apply() returned.
          params: The parameters. Stored parameters (actmem.jax.offload_params()) are updated layer
            by layer, and stored again.
          extra: Further arguments of the transformation's update().

        Raises:
          NotImplementedError: The transformation computes one layer from several layers of stored
            weights. Reductions over all layers are the only supported operations that combine
            layers.

        Donate `params` and `state` to the step, so that each layer's new values use the memory of
        its old values.

        Example:
          >>> import jax.numpy as jnp, optax, actmem.jax, actmem.optax
          >>> optimizer = actmem.optax.offload(optax.sgd(0.5))
          >>> params = {"layers": actmem.jax.offload_params(jnp.ones((3, 64, 64)))}
          >>> state = optimizer.init(params)
          >>> params, state = optimizer.apply({"layers": jnp.ones((3, 64, 64))}, state, params)
          >>> params["layers"][0, 0, 0].item()
          0.5
        """
        params, state = self._applying.update(gradients, state, params, **extra)
        return params, state


def offload(tx: optax.GradientTransformation, *,
            mask: Callable[[str, jax.ShapeDtypeStruct], bool] | None = None,
            group_bytes: int = GROUP_BYTES, on: str = "device") -> Offloaded:
    """Returns `tx` with its state in actmem memory instead of on the device.

    Args:
      tx: Any Optax transformation, even a chain, or a transformation with masks or a schedule.
      mask: A function that returns whether to store a leaf of the state. Its arguments are the
        leaf's path, such as ".mu['w']" (see jax.tree_util.keystr), and the leaf's shape and dtype.
        Random keys, and leaves with fewer than 4,096 elements, always stay on the device.
      group_bytes: The update divides the leaves into groups. All leaves of a group together have at
        most this many bytes of state; a larger leaf is a group of its own. At most two groups are
        on the device at the same time.
      on: Where the update runs. "device": each group is copied to the device and back. "host":
        the gradients are copied to the host, and the host's processors compute the new state. The
        arrays that the device needs, such as the updates, are copied back. See docs/state.md.

    Returns:
      A transformation with the same functions as `tx`. Each stored leaf of its state is an
      actmem.jax.Stored, with the shape and dtype of the leaf.

    Call init() outside of jit, so that each leaf gets the sharding of its parameter. Call update()
    inside of jit: otherwise XLA compiles the update in each call. Donate the state to the step. If
    the state is not donated, an update keeps the old state, and needs twice the memory. The store's
    budget and spill path (ACTMEM_BUDGET, ACTMEM_SPILL) apply to the state and to offloaded
    activations together.

    If a lax.cond, or a jnp.where with a scalar condition, selects the old value of a leaf, the
    update neither reads nor writes this leaf.

    Raises:
      ValueError: `group_bytes` is below 1, or `on` is neither "device" nor "host". init() raises
        this error if a part of `tx` is the result of offload(). init() and update() raise this
        error if a leaf to store has a weak type. update() raises this error if a leaf is not stored
        but should be, or if the new state has another structure than the old state.
      NotImplementedError: init() raises this error if flax.nnx.Optimizer calls it. update() raises
        this error if `tx` uses refs or ordered callbacks, or if the update is differentiated or
        runs under jax.vmap. With on="host", update() also raises this error if the state is on
        several devices, or if an operation that computes new state from old state is not
        elementwise in float32 or bfloat16.

    Example:
      >>> import jax.numpy as jnp, optax, actmem.optax
      >>> optimizer = actmem.optax.offload(optax.adam(0.1))
      >>> params = {"w": jnp.ones((64, 64))}
      >>> state = optimizer.init(params)
      >>> state[0].mu["w"].shape
      (64, 64)
      >>> updates, state = optimizer.update({"w": jnp.ones((64, 64))}, state, params)
      >>> round(float(updates["w"][0, 0]), 4)
      -0.1
    """
    if group_bytes < 1:
        raise ValueError(f"group_bytes={group_bytes} must be at least 1")
    if on not in ("device", "host"):
        raise ValueError(f'on={on!r} must be "device" or "host"')
    line, on_host = line_of_caller(), on == "host"
    offloaded = _Offloaded(tx, mask, group_bytes, line, on_host=on_host)
    transformation = Offloaded(offloaded.init, offloaded.update)
    transformation._applying = _Offloaded(tx, mask, group_bytes, line, True, on_host)
    return transformation


def _applying(tx: Any) -> Any:
    """Returns `tx` with an update that returns new parameters instead of updates."""
    tx = optax.with_extra_args_support(tx)

    def update(gradients: Any, state: Any, params: Any, **extra: Any) -> Any:
        if isinstance(tx, MasterCopy):
            return tx.applied(gradients, state, params, **extra)
        updates, state = tx.update(gradients, state, params, **extra)
        return optax.apply_updates(params, updates), state
    return optax.GradientTransformationExtraArgs(tx.init, update)


class Pending(NamedTuple):
    """A pending update, which keep() makes. `values` are small values that keep() computed from the
    gradients. `leaves` are copies of those leaves of the state that are on the device."""

    gradients: Any
    extra: Any
    leaves: list[Any]
    values: list[Any]


def _on_device(state: Any) -> list[Any]:
    """Returns the arrays of a state that are not stored."""
    return [leaf for _, leaf in named_leaves(state) if not is_stored(leaf) and _is_array(leaf)]


def _with_leaves(state: Any, leaves: Sequence[Any]) -> Any:
    """Returns `state` with `leaves` in place of the arrays that _on_device() returns."""
    rest = iter(leaves)
    return jax.tree.unflatten(jax.tree.structure(state, is_leaf=is_stored), [
        leaf if is_stored(leaf) or not _is_array(leaf) else next(rest)
        for _, leaf in named_leaves(state)])


def _unless_changed(new: Any, now: Any, then: Any) -> Any:
    """Returns `now` if the program has changed the array from `then` to `now`, otherwise `new`."""
    if now.shape != new.shape or now.dtype != new.dtype:
        return new
    is_same = now == then
    if jnp.issubdtype(now.dtype, jnp.inexact):
        is_same |= (now != now) & (then != then)
    return jnp.where(jnp.all(is_same), new, now)


class DelayedState(NamedTuple):
    """The state of a delayed update: the state of the transformation, and the pending update or
    None. run() or flush() computes the pending update."""

    state: Any
    pending: Pending | None


class Delayed:
    """A transformation whose update runs during the next step. delayed() makes it."""

    def __init__(self, tx: Any, mask: Any, group_bytes: int, line: str) -> None:
        self._offloaded = _Offloaded(tx, mask, group_bytes, line, applies=True)

    def init(self, params: Any) -> DelayedState:
        """Returns the state for these parameters. Call init() outside of jit.

        Raises:
          ValueError: actmem.jax.offload_params() stored a parameter.
        """
        stacks = [path for path, leaf in named_leaves(params) if is_stored(leaf)]
        if stacks:
            raise ValueError(f"actmem.optax.delayed(): {stacks[0]} of the parameters is stored: use "
                             "the apply() of actmem.optax.offload()")
        return DelayedState(self._offloaded.init(params), None)

    def keep(self, gradients: Any, state: DelayedState, params: Any, **extra: Any) -> DelayedState:
        """Returns a state that keeps these gradients for run().

        Args:
          gradients: The gradients, as for the update() of the transformation; they stay on the
            device.
          state: The state that run(), flush() or init() returned.
          params: The parameters of these gradients. Pass the same parameters to the next run().
          extra: Further arguments of the transformation's update(), each an array.

        Raises:
          ValueError: `state` keeps gradients already.
        """
        if state.pending is not None:
            raise ValueError("keep() was called twice: the state keeps gradients already, and "
                             "run() or flush() must use them first")
        split, traced = self._split(gradients, state.state, params, extra)
        arrays = [arg for arg in traced.args if not is_stored(arg)]
        values, leaves = jax.jit(lambda arrays, leaves: (
            split.early(arrays), jax.tree.map(jnp.copy, leaves)))(arrays, _on_device(state.state))
        return state._replace(pending=Pending(gradients, extra, leaves, values))

    def run(self, function: Callable[..., Any], params: Any, state: DelayedState,
            *args: Any) -> tuple[Any, Any, DelayedState]:
        """If the state keeps gradients, updates the parameters. Calls `function(params, *args)`
        with the updated parameters.

        Args:
          function: A function of arrays, such as the result of jax.value_and_grad().
          params: The parameters that keep() got.
          state: The state that keep() or init() returned. Some leaves are on the device, such as
            the hyperparameters of optax.inject_hyperparams. The update uses the values that these
            leaves had when keep() was called. If the program has changed such a leaf since, the
            next update uses the changed value.
          args: Arrays, and trees of arrays.

        Returns:
          The result of `function`, the updated parameters, and the updated state.
        """
        pending, now = state.pending, _on_device(state.state)
        if pending is None:
            return jax.jit(function)(params, *args), params, state
        split, traced = self._split(pending.gradients, _with_leaves(state.state, pending.leaves),
                                    params, pending.extra)
        count = len(jax.tree.leaves(params))
        new = jax.tree.unflatten(traced.tree, traced.jaxpr.out_avals)
        program, shape = jax.make_jaxpr(function, return_shape=True)(new[0], *args)

        def both(arrays: Any, now: Any, args: Any) -> Any:
            outputs, results = _delayed.run_before(
                split.late(), arrays, traced.labels, self._offloaded.group_bytes, program,
                jax.tree.leaves(args), count)
            params, inner = jax.tree.unflatten(traced.tree, outputs)
            leaves = list(map(_unless_changed, _on_device(inner), now, pending.leaves))
            return jax.tree.unflatten(jax.tree.structure(shape), results), params, \
                _with_leaves(inner, leaves)
        result, params, inner = jax.jit(both)([*traced.args, *pending.values], now, args)
        return result, params, DelayedState(inner, None)

    def flush(self, params: Any, state: DelayedState) -> tuple[Any, DelayedState]:
        """Returns updated parameters and state. Call flush() before the parameters are evaluated or
        saved."""
        _, params, state = self.run(lambda params: (), params, state)
        return params, state

    def _split(self, gradients: Any, state: Any, params: Any,
               extra: Any) -> tuple[_delayed.Split, _Traced]:
        traced = self._offloaded.trace(gradients, state, params, extra)
        return _delayed.Split(traced.jaxpr, list(map(is_stored, traced.args)), traced.gradients,
                              LEAST_ELEMENTS), traced


def delayed(tx: optax.GradientTransformation, *,
            mask: Callable[[str, jax.ShapeDtypeStruct], bool] | None = None,
            group_bytes: int = GROUP_BYTES) -> Delayed:
    """Returns `tx` with its state in actmem memory and an update that runs during the next step.

    Clipping by the global norm needs all gradients before the first parameter can be updated. So
    with clipping, the update of offload() runs at the end of the step, where no computation hides
    the copies of the state. A delayed update runs at the beginning of the next step: it updates
    each parameter just before the forward pass first uses this parameter. While the program
    computes with the updated parameters, the state of the next parameters is copied to the device.
    The results equal those of offload(). The step that computes the gradients also computes the
    values that need all gradients, such as their norm.

    Args:
      tx, mask, group_bytes: As for offload().

    Returns:
      An object with the methods init(), run(), keep() and flush().

    The gradients stay on the device until the next step. Computing their norm needs all gradients
    on the device anyway, so a delayed update needs no more memory. A function that uses all layers
    at once, such as a lax.scan over layers, begins only when all layers are updated. In
    optax.apply_if_finite and optax.MultiSteps, a lax.cond or a jnp.where with a scalar condition
    selects between the old and the new state. With such an update, the function begins only after
    the whole update.

    Example:
      >>> import jax, jax.numpy as jnp, optax, actmem.optax
      >>> from functools import partial
      >>> optimizer = actmem.optax.delayed(
      ...     optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)))
      >>> gradients_of = jax.grad(lambda params, x: jnp.sum(x @ params["w"]))
      >>> @partial(jax.jit, donate_argnums=(0, 1))
      ... def step(params, state, x):
      ...     gradients, params, state = optimizer.run(gradients_of, params, state, x)
      ...     return params, optimizer.keep(gradients, state, params)
      >>> params = {"w": jnp.ones((64, 64))}
      >>> state = optimizer.init(params)
      >>> for _ in range(2):
      ...     params, state = step(params, state, jnp.ones((8, 64)))
      >>> params, state = optimizer.flush(params, state)
      >>> round(float(params["w"][0, 0]), 4)
      0.8
    """
    if group_bytes < 1:
        raise ValueError(f"group_bytes={group_bytes} must be at least 1")
    return Delayed(tx, mask, group_bytes, line_of_caller())
