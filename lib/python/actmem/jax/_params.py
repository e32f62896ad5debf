# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Keeps the weights of a model's layers in the store. A stack is an array whose first axis is that
of the layers. Each layer of a stack is one block. A scan over the layers takes one block from the
store in each iteration.

offload_params() stores stacks of weights. The program passes the result to a jax.lax.scan as `xs`.
The scan's body gets the stored weights of one layer, and calls value() to get the arrays.

value_and_grad() differentiates a function of stored weights. For each input, JAX returns a gradient
of the input's size, so the gradients of all layers would be on the device. To avoid this,
value_and_grad() adds a second input for each stored weight: a slot, which has no content and whose
gradient is a token. The backward pass of a layer stores the gradients of the layer's weights, and
the scan stacks the tokens of these gradients.
"""
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from numpy.typing import NDArray

from actmem.jax import _finish, _primitives, _private
from actmem.jax._kept import GRADIENT, STATE, SlotType, TokenType, zeros
from actmem.jax._primitives import label_of, line_of_caller
from actmem.jax._state import Stored, is_stored, named_leaves, store_stack

OF_GRADIENT, OF_WEIGHTS = "gradient of ", " of the weights ("


class _Weight(Stored):
    """A stored weight within value_and_grad().

    slot   With gradients="store", a slot whose gradient is the token of the weight's gradient. With
           gradients="device", None; the ghost's gradient (_kept.py) is the weight's gradient.
    guard  two arrays of numbers. The first has a 0 for each layer. The second has the canary
           (canary_of()) for each layer.

    The guard detects functions that a program applies to a tree of weights, but that have no effect
    on a stored weight. jax.lax.stop_gradient() ignores slot and ghost because of their dtypes, and
    stops only the gradient of the guard. A function that changes the floating-point numbers of a
    tree, such as a conversion, changes only the canary. The backward pass returns two values as
    gradients of the guard's arrays: they become `squares` and `canary` of the weight's Gradient.
    """

    CHILDREN = (*Stored.CHILDREN, "slot", "guard")
    slot: Any
    guard: Any

    def __init__(self, token: Any, ghost: Any, label: str, slot: Any, guard: Any) -> None:
        super().__init__(token, ghost, label)
        self.slot, self.guard = slot, guard

    def taken(self) -> Any:
        if self.is_stack and self.slot is not None:
            raise NotImplementedError(
                f"{self.label}: value() of all layers at once has no gradient in the store. Call "
                'value() in the body of a jax.lax.scan over the layers, or pass gradients="device" to '
                "actmem.jax.value_and_grad()")
        _check_dtype(self.guard[1], self.dtype, self.label, "value() of the weight")
        return _take_weight(self.label, self.batch, self.slot is not None,
                            _marked(self.token, self.guard[1]), self.ghost, self.slot, self.guard)


jax.tree_util.register_pytree_with_keys_class(_Weight)


# For gradients of these dtypes, a sum of squares in float32 has the same range as the sum that the
# program would compute.
SQUARED = (jnp.float32, jnp.bfloat16)


def canary_of(dtype: Any, ndim: int) -> NDArray[Any]:
    """Returns the canary, an array that shows whether a function changed the numbers of a tree. The
    canary has numbers of both signs and of all magnitudes, so that any arithmetic, rounding,
    clipping or reordering changes at least one of them. Like a layer's weight, the canary has
    `ndim` dimensions (but at least 1), because functions often select arrays by their number of
    dimensions."""
    limits = jnp.finfo(dtype)
    exponents = range(max(-12, math.ceil(math.log10(limits.smallest_normal))),
                      min(12, math.floor(math.log10(limits.max))))
    numbers = np.array([(-1) ** i * (1 + 2 ** -20) * 10.0 ** i for i in exponents or [0]])
    if jnp.issubdtype(dtype, jnp.complexfloating):
        numbers = numbers * (1 + 1j)
    canary = numbers.astype(dtype)
    canary = canary[canary == canary]   # a dtype without a sign has NaN for negative numbers
    return np.asarray(canary.reshape(*(1,) * (ndim - 1), -1))


def _check_dtype(canary: Any, dtype: Any, label: str, instead: str) -> None:
    if canary.dtype != dtype:
        raise TypeError(f"{label}: a function converted the arrays of a tree to {canary.dtype}, but "
                        f"cannot convert a stored value: convert the {instead}")


def _marked(token: Any, canary: Any, is_changed: Any = False) -> Any:
    """Marks the tokens if `is_changed` is true or if the canary was changed. A program that takes
    the value of a marked token fails."""
    wanted = jnp.broadcast_to(canary_of(canary.dtype, canary.ndim - token.ndim), canary.shape)
    return _primitives.mark_p.bind(
        token, jnp.any(canary != wanted, tuple(range(token.ndim, canary.ndim))) | is_changed)


def _squares_of(gradient: Any) -> Any:
    """Returns the sum of the squares of a gradient, or 0 if the gradient's dtype is not in SQUARED.
    If an element of the gradient is NaN or infinite, the result is NaN or infinite for any
    dtype."""
    if gradient.dtype in SQUARED:
        return jnp.sum(jnp.square(gradient.astype(jnp.float32)))
    numbers = gradient if jnp.iscomplexobj(gradient) else gradient.astype(jnp.float32)
    largest = jnp.max(jnp.abs(numbers), initial=0).astype(jnp.float32)
    return jnp.where(jnp.all(jnp.isfinite(gradient)), jnp.float32(0), largest)


class Gradient(Stored):
    """A stored gradient.

    squares  a float32 result of _squares_of() for each layer's gradient. The backward pass
             computes the squares while the gradient is on the device.
    bits     the bits of the squares, as uint32
    canary   the result of canary_of() for each layer

    A function that changes all floating-point numbers of a tree cannot change the gradient, because
    JAX has no arithmetic for tokens. But the function changes the canary, so a program that takes
    the gradient fails. A function that changes only infinities and NaN, such as jnp.nan_to_num,
    changes the squares if the gradient is not finite. So a program that takes the gradient also
    fails if the bits of the squares differ from `bits`.
    """

    CHILDREN = (*Stored.CHILDREN, "squares", "bits", "canary")
    squares: Any
    bits: Any
    canary: Any

    def __init__(self, token: Any, ghost: Any, label: str, squares: Any, bits: Any,
                 canary: Any) -> None:
        super().__init__(token, ghost, label)
        self.squares, self.bits, self.canary = squares, bits, canary

    def checked(self) -> "Gradient":
        """Returns this gradient without its canary. If a function changed the canary or the
        squares, a program that takes the returned gradient fails."""
        if self.canary is None:
            return self
        _check_dtype(self.canary, self.dtype, self.label,
                     'gradients in the Optax transformation, or pass gradients="device" to '
                     "actmem.jax.value_and_grad()")
        token = _marked(self.token, self.canary, _bits_of(self.squares) != self.bits)
        return Gradient(token, self.ghost, self.label, self.squares, self.bits, None)

    def taken(self) -> Any:
        return super(Gradient, self.checked()).taken()


jax.tree_util.register_pytree_with_keys_class(Gradient)


def _bits_of(squares: Any) -> Any:
    return jax.lax.bitcast_convert_type(squares, jnp.uint32)


def _without_slots(tree: Any) -> Any:
    """Returns the tree with each _Weight replaced by the user's Stored."""
    def without(leaf: Any) -> Any:
        return Stored(leaf.token, leaf.ghost, leaf.label) if isinstance(leaf, _Weight) else leaf
    return jax.tree.map(without, tree, is_leaf=is_stored)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _take_weight(label: str, batch: Sequence[int], stores: bool, token: Any, ghost: Any, slot: Any,
                 guard: Any) -> Any:
    return _primitives.take(token, ghost, label, False, batch)


def _take_weight_fwd(label: str, batch: Sequence[int], stores: bool, token: Any, ghost: Any,
                     slot: Any, guard: Any) -> Any:
    # The second result has one element if the gradient is wanted, and no element if the program
    # stopped the gradient. The second result cannot be None instead, because JAX uses the tree
    # structure of one call's result for all calls of a jitted function.
    return _primitives.take(token.value, ghost.value, label, False, batch), \
        jnp.zeros(int(guard[0].perturbed), jnp.uint8)


def _take_weight_bwd(label: str, batch: Sequence[int], stores: bool, is_wanted: Any,
                     gradient: Any) -> Any:
    if not is_wanted.size or isinstance(gradient, SymbolicZero):
        return None, None, None, None
    numbers = canary_of(gradient.dtype, gradient.ndim - len(batch))
    canary = jnp.broadcast_to(numbers, (*(gradient.shape[i] for i in batch), *numbers.shape))
    if not stores:
        return None, gradient, None, (None, canary)
    _, token, _ = _primitives.put(gradient, _label_of_gradient(label), GRADIENT)
    return None, None, token, (_squares_of(gradient), canary)


_take_weight.defvjp(_take_weight_fwd, _take_weight_bwd, symbolic_zeros=True)


def _label_of_gradient(label: str) -> str:
    return f"{OF_GRADIENT}{label}"


def _checked(path: str, leaf: Any, layers: int | None) -> int:
    """Checks a stack of weights. Returns the number of its layers."""
    where = f"actmem.jax.offload_params(): {path}"
    if is_stored(leaf):
        raise ValueError(f"{where} is stored already")
    if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
        raise TypeError(f"{where} is {getattr(leaf, 'dtype', type(leaf).__name__)}: weights are "
                        "arrays of floating-point numbers")
    if isinstance(leaf, jax.Array) and leaf.weak_type:
        raise ValueError(f"{where} is {leaf.dtype}{list(leaf.shape)} with a weak type, which a stored "
                         f"array loses: give the array a dtype, as by jnp.asarray(..., "
                         f"jnp.{leaf.dtype})")
    if not leaf.ndim or not leaf.shape[0] or layers is not None and leaf.shape[0] != layers:
        raise ValueError(f"{where} is {leaf.dtype}{list(leaf.shape)}: the first axis of each "
                         f"array must be that of the layers, {layers or 'at least 1'}")
    if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and \
            len(leaf.devices()) > 1:
        raise NotImplementedError(f"{where} is on {len(leaf.devices())} devices: stored weights "
                                  "work on one device")
    return int(leaf.shape[0])


def offload_params(params: Any) -> Any:
    """Returns the stacked weights of layers as stored arrays, one block for each layer and weight.

    Args:
      params: A pytree of jax.Array or NumPy arrays of floating-point numbers. The first axis of
        each array is that of the layers. Each jax.Array is on one device. NumPy arrays, such as
        those of a mapped file, are copied to the device one layer at a time.

    Returns:
      A tree of the same structure with an actmem.jax.Stored for each array. Pass this tree as the
      `xs` of a jax.lax.scan over the layers. The scan's body calls actmem.jax.value() to get the
      arrays of one layer.

    Raises:
      ValueError: The arrays have different numbers of layers, or an array is stored already.
      TypeError: A leaf is not an array of floating-point numbers.
      NotImplementedError: An array is on several devices.

    Wrap the scan's body in jax.checkpoint or actmem.jax.checkpoint. Otherwise the compilation
    fails, because the forward pass would keep the weights of all layers on the device for the
    backward pass. To update the weights, call apply() of the optimizer that actmem.optax.offload()
    returns. jax.eval_shape(offload_params, params) returns a tree that can be passed as `like` to
    actmem.jax.restore_state().

    Example:
      >>> import jax, jax.numpy as jnp, actmem.jax
      >>> layers = actmem.jax.offload_params({"w": jnp.ones((3, 64, 64))})
      >>> @jax.checkpoint
      ... def layer(x, weights):
      ...     return jnp.tanh(x @ actmem.jax.value(weights)["w"]), None
      >>> @jax.jit
      ... @actmem.jax.value_and_grad
      ... def loss(layers, x):
      ...     return jnp.sum(jax.lax.scan(layer, x, layers)[0])
      >>> value, gradients = loss(layers, jnp.ones((8, 64)) / 64)
      >>> gradients["w"].shape
      (3, 64, 64)
    """
    line = line_of_caller()
    named = named_leaves(params)
    layers: int | None = None
    for path, leaf in named:
        layers = _checked(path, leaf, layers)
    stored = [store_stack(leaf, label_of(path + OF_WEIGHTS[:-2], line)) for path, leaf in named]
    return jax.tree.unflatten(jax.tree.structure(params, is_leaf=is_stored), stored)


def _gradient_type(weight: Stored) -> TokenType:
    shape, dtype, label, _ = weight.token.dtype.of
    return TokenType(shape, dtype, _label_of_gradient(label), GRADIENT)


def value_and_grad(function: Callable[..., Any], *, has_aux: bool = False,
                   gradients: str = "store") -> Callable[..., Any]:
    """Returns a function that computes the value and the gradient of `function`, as
    jax.value_and_grad does. The weights can be stored arrays.

    Args:
      function: A function whose first argument is a tree of weights. It returns a scalar, or with
        `has_aux` a scalar and other results. Results of offload_params() can be anywhere in the
        tree; the other leaves are arrays of floating-point numbers.
      has_aux: As for jax.value_and_grad().
      gradients: If "store", the backward pass of each layer stores the gradients of the layer's
        stored weights, and returns each gradient as a Stored. If "device", the gradients of a
        weight for all layers are one array on the device.

    Returns:
      A function that returns the value and a tree of gradients, which has the structure of the
      weights. The gradient is zero for a layer whose weight does not affect the value.

    Raises:
      ValueError: `gradients` is neither "store" nor "device".
      TypeError: The value is not a floating-point scalar, or a weight is not floating-point.
      NotImplementedError: With gradients="store": a layer calls value() twice for one weight,
        several scans use one weight, value() is called for all layers at once, or the function
        indexes the weights.

    Example:
      >>> import jax, jax.numpy as jnp, actmem.jax
      >>> weights = {"w": jnp.ones(3), "b": jnp.zeros(())}
      >>> function = actmem.jax.value_and_grad(lambda weights, x: weights["w"] @ x + weights["b"])
      >>> value, gradients = function(weights, jnp.arange(3.0))
      >>> value.item(), gradients["w"].tolist()
      (3.0, [0.0, 1.0, 2.0])
    """
    if gradients not in ("store", "device"):
        raise ValueError(f'gradients={gradients!r} must be "store" or "device"')

    def differentiated(params: Any, *args: Any, **kwargs: Any) -> Any:
        named, tree = named_leaves(params), jax.tree.structure(params, is_leaf=is_stored)
        for path, leaf in named:
            if not is_stored(leaf) and not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
                raise TypeError(f"actmem.jax.value_and_grad(): {path} of the weights is "
                                f"{jnp.result_type(leaf)}, which has no gradient: pass it as another "
                                "argument")
        leaves = [leaf for _, leaf in named]

        def to_differentiate(leaf: Any) -> Any:
            if not is_stored(leaf):
                return leaf
            shape = leaf.token.shape
            slot = leaf.ghost if gradients == "device" else \
                zeros(shape, SlotType(_gradient_type(leaf)))
            canary = canary_of(leaf.dtype, leaf.ndim - len(shape))
            return slot, (jnp.zeros(shape, jnp.float32),
                          jnp.asarray(np.broadcast_to(canary, (*shape, *canary.shape))))

        def with_weights(leaf: Any, varied: Any) -> Any:
            if not is_stored(leaf):
                return varied
            slot, guard = varied
            return _Weight(leaf.token, slot, leaf.label, None, guard) if gradients == "device" else \
                _Weight(leaf.token, leaf.ghost, leaf.label, slot, guard)

        def of(varied: list[Any]) -> Any:
            result = function(jax.tree.unflatten(tree, list(map(with_weights, leaves, varied))),
                              *args, **kwargs)
            return _without_slots(result if has_aux else (result, None))
        value, pull, aux = jax.vjp(of, list(map(to_differentiate, leaves)), has_aux=True)
        if np.shape(value) or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
            raise TypeError(f"actmem.jax.value_and_grad(): the function returned "
                            f"{jax.typeof(value)}, but must return a scalar")
        try:
            found, = pull(jnp.ones_like(value))
        except TypeError as error:
            if TokenType.name not in str(error):
                raise
            actor = "jax_disable_jit makes each scan a Python loop, which" \
                if getattr(jax.config, "jax_disable_jit", False) else "the function"
            raise NotImplementedError(
                f"actmem.jax.value_and_grad(): {actor} indexes, repeats or selects stored weights, "
                "and JAX cannot do the same with gradients in the store. Let a jax.lax.scan iterate "
                'over the weights as offload_params() returned them, or pass gradients="device"'
                ) from error
        def gradient_of(leaf: Any, new: Any) -> Any:
            if not is_stored(leaf):
                return new
            gradient, (squares, canary) = new
            if gradients == "store":
                return Gradient(gradient, leaf.ghost, _label_of_gradient(leaf.label), squares,
                                _bits_of(squares), canary)
            # If the returned canary is 0, jax.lax.stop_gradient() in a branch of the layer stopped
            # the gradient of the guard, but not that of the weight. So set the gradient of the
            # weight to 0.
            is_stopped = jnp.all(canary == 0, tuple(range(leaf.token.ndim, canary.ndim)))
            axes = range(is_stopped.ndim, gradient.ndim)
            return jnp.where(jnp.expand_dims(is_stopped, axes), jnp.zeros_like(gradient), gradient)
        results = list(map(gradient_of, leaves, found))
        return (value, aux) if has_aux else value, jax.tree.unflatten(tree, results)
    return differentiated


# The name of the compiled functions of actmem.optax. Unlike a user's functions, these functions are
# allowed to return weights of all layers, such as the master copies of small weights.
OPTIMIZER = "actmem_optimizer"
# Primitives that return the elements of their first operand in another form.
_FORMS = {"convert_element_type", "copy", "copy_p", "reshape", "transpose", "squeeze",
          "broadcast_in_dim", "optimization_barrier", "reduce_precision"}


def _taken_weights(jaxpr: Any) -> list[str | None]:
    """For each output of a jaxpr, returns the label of a stored weight if the output is the value
    of this weight, else None."""
    inner = _private.open_jaxpr(jaxpr)
    labels: dict[Any, str | None] = {}
    for eqn in inner.eqns:
        name, jaxprs = eqn.primitive.name, list(_private.inner_jaxprs(eqn.params))
        if eqn.primitive is _primitives.take_p:
            label = eqn.params["label"]
            is_weight = OF_WEIGHTS in label and eqn.invars[0].aval.dtype.of[3] == STATE
            labels[eqn.outvars[0]] = label if is_weight else None
        elif name in _FORMS:
            labels.update((out, labels.get(atom)) for atom, out in zip(eqn.invars, eqn.outvars)
                          if not _private.is_literal(atom))
        elif name == "scan":
            _check_kept(eqn)
        elif eqn.params.get("name") == OPTIMIZER:
            pass
        elif len(jaxprs) == 1 and len(_private.open_jaxpr(jaxprs[0]).outvars) == len(eqn.outvars):
            labels.update(zip(eqn.outvars, _taken_weights(jaxprs[0])))
    return [None if _private.is_literal(atom) else labels.get(atom) for atom in inner.outvars]


def _check_kept(scan: Any) -> None:
    """Refuses a scan that returns the weights of all its layers as arrays."""
    carries = _private.scan_carries(scan.params)
    for label in _taken_weights(scan.params["jaxpr"])[carries:]:
        if label is not None:
            raise ValueError(
                f"{label}: the scan at {_private.place_of(scan.source_info)} keeps this weight of "
                "all layers, or of all its iterations, on the device. Put jax.checkpoint or "
                "actmem.jax.checkpoint around the body of this scan, and of each scan around it, so "
                "that the backward pass takes the weights again. If the bodies have it, jax.grad "
                "differentiates actmem.jax.value_and_grad() itself: use jax.jvp instead. For the "
                "weights of all layers as one array, call value() with the whole tree")


_finish.when_whole(lambda name, jaxpr: name == f"jit({OPTIMIZER})" or _taken_weights(jaxpr))
