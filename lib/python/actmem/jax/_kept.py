# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The two types that represent a value in actmem memory within a program: token and ghost.

A put stores a value in a block of memory, and a take returns the value. Without vmap, a put makes
one block and one token. Under vmap, the value has many examples (elements of the batch). The put
then makes one block for all examples, and an array of tokens with the batch's dimensions. A token
consists of four integers, which identify one example in a block. So JAX can select, gather, reverse
or stack tokens: each token still identifies its example.

A ghost has the shape, the dtype, the sharding and the tangents of the value, but no bytes in
memory. So a loop can stack ghosts, vmap can batch them along any axis, and second derivatives
propagate through them. A take states which dimensions of its ghost correspond to those of its
tokens.

JAX passes arrays of tokens and ghosts between compiled programs, just like arrays of random keys.
When the last array that contains a token is deleted, no program can take the token's value any
more: see _tokens.py.
"""
import types
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import Sharding

from actmem.jax import _private
from actmem.jax._tokens import watch, watch_state

TOKEN_WORDS = 4

ARRAY_ATTRIBUTES = {name for name in dir(jax.Array) if not name.startswith("_")}


class _scalar(jax.dtypes.extended):
    """The `type` of all dtypes of this module."""


def zeros(shape: Sequence[int], dtype: _private.DType) -> Any:
    """Returns an array of zeros, in a dtype of this module. A program that takes the value of a
    token of zeros gets zeros."""
    element = dtype._rules.physical_element_aval(dtype)
    return wrap_p.bind(jnp.zeros((*shape, *element.shape), element.dtype), dtype=dtype)


def _result_handler(aval: _private.Aval, sharding: Sharding, committed: bool) -> Any:
    handler = _private.result_handler(_private.physical_aval(aval),
                                      _private.physical_sharding(aval, sharding),
                                      committed)
    return handler.wrap(lambda base: _of_device_put(aval.dtype, base)
                        if isinstance(aval.dtype, TokenType) and _private.is_device_put() else
                        Kept(aval.dtype, base))


# Each run of this program returns new references to the blocks of its input.
_referenced = jax.jit(lambda kept: kept)


def _of_device_put(dtype: "TokenType", base: jax.Array) -> Any:
    """Returns new references for the tokens that jax.device_put() copied. So Python can delete the
    original tokens and the copies in any order."""
    kept = Kept.__new__(Kept)
    kept.dtype, kept.base = dtype, base     # without watch(): copied tokens hold no references
    with jax.disable_jit(False):
        return _referenced(kept)


def _make_sharded(aval: _private.Aval, sharding: Sharding, arrays: "Sequence[Kept]",
                  committed: bool) -> "Kept":
    handler = _private.result_handler(_private.physical_aval(aval),
                                      _private.physical_sharding(aval, sharding),
                                      committed)
    return Kept(aval.dtype, handler([array.base for array in arrays]))


def _full(shape: Sequence[int], fill_value: Any, dtype: _private.DType) -> Any:
    if isinstance(fill_value, jax.core.Tracer) or np.ndim(fill_value) or fill_value != 0:
        raise TypeError(f"{dtype} stands for a value in actmem memory, which can be filled only with "
                        f"zeros, not with {fill_value}: make an array of the value's shape instead")
    return zeros(shape, dtype)


_rules = types.SimpleNamespace(
    allow_conversion=False,
    full=_full,
    zero=lambda dtype: zeros((), dtype),
    physical_element_aval=lambda dtype: dtype.element,
    physical_const=lambda value: value.base,
    tangent_dtype=lambda dtype: dtype.tangent_dtype,
    add=lambda dtype, *tokens: _refuse_sum(dtype, *tokens),
    global_sharded_result_handler=_result_handler,
    make_sharded_array=_make_sharded)


class _KeptType(_private.ExtendedDType):
    """A dtype with rules for JAX. Two dtypes of one class are equal if their `of` is equal."""

    type = _scalar
    _rules = _rules
    of: Any
    name: str

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.of == other.of

    def __hash__(self) -> int:
        return hash((type(self), self.of))


# The uses of values: a value belongs to one step, to a state that outlives the step (_state.py), or
# to the gradient of a stored weight (_params.py).
STEP, STATE, GRADIENT = "step", "state", "gradient"


class TokenType(_KeptType):
    """The dtype of tokens. The value for each example of the batch has the shape `shape` and the
    dtype `dtype`. `label` is the value's name in error messages. `use` is STEP, STATE or GRADIENT.
    Two tokens have different dtypes if they differ in `shape`, `dtype`, `label` or `use`. JAX
    combines only arrays of one dtype, so it never mixes tokens that differ. The tokens of gradients
    are tangents themselves."""

    name = "actmem_token"
    element = _private.ShapedArray((TOKEN_WORDS,), np.dtype(np.uint32))
    itemsize = 4 * TOKEN_WORDS

    def __init__(self, shape: Sequence[int], dtype: _private.DType, label: str,
                 use: str = STEP) -> None:
        self.of = tuple(shape), dtype, label, use
        self.tangent_dtype = self if use == GRADIENT else jax.dtypes.float0
        # If a traced program computes with a token, JAX's error message shows this name.
        if use != STEP:
            self.name = "actmem_token (actmem.jax.value() returns stored values as arrays" + (
                ', and gradients="device" of value_and_grad() makes arrays)' if use == GRADIENT else ")")


class GhostType(_KeptType):
    """The dtype of ghosts that represent values with the dtype `of_values`. If the values belong to
    a state or are gradients, `block` is the dtype of their tokens, and programs must not reorder
    the elements of a ghost (_intact.py). Otherwise, `block` is None."""

    element = _private.ShapedArray((0,), np.dtype(np.uint8))
    itemsize = 0

    def __init__(self, of_values: _private.DType, block: TokenType | None = None) -> None:
        # This class has no attribute `dtype`: NumPy would treat this dtype as equal to the
        # attribute's value.
        self.of, self.of_values, self.block = (of_values, block), of_values, block
        self.name = f"actmem_ghost[{of_values.name}]"
        self.tangent_dtype = _private.tangent_dtype(of_values)


def _refuse_sum(dtype: Any, *tokens: Any) -> Any:
    raise NotImplementedError(
        f"{dtype.of[2]}: the function takes this weight several times, in a layer, a loop or several "
        "scans, and the gradients cannot be added in the store. Call value() once for each layer, or "
        'pass gradients="device" to actmem.jax.value_and_grad()')


class SlotType(_KeptType):
    """The dtype of slots. A slot has no content, but its tangent is the token of a stored gradient.
    So if a loop stores gradients, JAX stacks their tokens just as it would stack the gradients."""

    name = "actmem_slot"
    element = TokenType.element
    itemsize = TokenType.itemsize

    def __init__(self, gradient: TokenType) -> None:
        self.of = gradient.of
        self.tangent_dtype = gradient


# The dtype of tokens of unknown origin. Such tokens can only be dropped.
ANY_TOKEN = TokenType((), None, "")


def is_token(aval: _private.Aval) -> bool:
    return isinstance(getattr(aval, "dtype", None), TokenType)


def is_state(aval: _private.Aval) -> bool:
    """Returns whether `aval` is the type of tokens whose values can outlive the step."""
    return is_token(aval) and aval.dtype.of[3] != STEP


def is_kept(aval: _private.Aval) -> bool:
    return isinstance(getattr(aval, "dtype", None), _KeptType)


def is_ghost(aval: _private.Aval) -> bool:
    return isinstance(getattr(aval, "dtype", None), GhostType)


_private.leave_calls_alone(is_ghost)

_transpose = jax.jit(jax.lax.transpose, static_argnums=1)

# The names of the methods that implement Python's operators.
_ARITHMETIC = [f"__{prefix}{name}__" for prefix in ("", "r") for name in (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift",
    "rshift", "and", "or", "xor")] + [f"__{name}__" for name in (
        "neg", "pos", "abs", "invert", "lt", "le", "gt", "ge", "float", "int", "complex", "index",
        "round")]


def without_arithmetic(kind: type) -> type:
    """Makes all arithmetic with objects of the class raise TypeError, with the message of
    refusal()."""
    def operator(self: Any, *others: Any) -> Any:
        raise TypeError(self.refusal())
    for name in _ARITHMETIC:
        setattr(kind, name, operator)
    return kind


@without_arithmetic
class Kept:
    """An array of tokens or ghosts. `base` is the JAX array that stores them."""

    # The sharding of the ghost's value, if the value was put into actmem outside of jit on several
    # devices.
    spread: Sharding | None = None

    def __init__(self, dtype: _private.DType, base: jax.Array) -> None:
        self.dtype, self.base = dtype, base
        if isinstance(dtype, TokenType):
            watch(self)
            if dtype.of[3] != STEP:
                watch_state(self)

    @property
    def aval(self) -> _private.Aval:
        base = jax.typeof(self.base)
        sharding = base.sharding.update(
            spec=jax.sharding.PartitionSpec(*base.sharding.spec[:len(self.shape)]))
        return base.update(shape=self.shape, dtype=self.dtype, weak_type=False,
                           sharding=sharding)

    shape = property(lambda self: self.base.shape[:-1])
    ndim = property(lambda self: self.base.ndim - 1)
    size = property(lambda self: int(np.prod(self.shape)))
    weak_type = False
    sharding = property(lambda self: _private.logical_sharding(
        self.shape, self.dtype, self.base.sharding))
    committed = property(lambda self: self.base.committed)
    _committed = committed

    def devices(self) -> set[jax.Device]:
        return self.base.devices()

    def is_deleted(self) -> bool:
        return self.base.is_deleted()

    def block_until_ready(self) -> "Kept":
        self.base.block_until_ready()
        return self

    def __getitem__(self, index: Any) -> Any:
        return jax.jit(lambda kept: kept[index])(self)

    def transpose(self, order: Sequence[int]) -> Any:
        """Transposes the array. Outside of jit, vmap calls this method."""
        return _transpose(self, tuple(order))

    def refusal(self) -> str:
        return (f"{self} stands for a value in actmem memory, and is no array; "
                "actmem.jax.value() returns a tree with arrays instead")

    def __getattr__(self, name: str) -> Any:
        if name in ARRAY_ATTRIBUTES:
            raise AttributeError(self.refusal(), name=name, obj=self)
        raise AttributeError(f"'Kept' object has no attribute {name!r}", name=name, obj=self)

    def __reduce__(self) -> Any:
        raise TypeError("a value in actmem memory can be neither pickled nor copied: use "
                        "actmem.jax.save_state(), or the value() of a Stored")

    def __repr__(self) -> str:
        return f"Kept({self.dtype}{list(self.shape)})"


def _check_place(kept: Kept, sharding: Sharding) -> None:
    """Refuses to move the tokens of a state to devices other than those of the state."""
    if not is_state(kept) or sharding.device_set == kept.base.sharding.device_set:
        return
    shape, dtype, label, _ = kept.dtype.of
    raise ValueError(
        f"{label}, {dtype}{list(shape)}, is stored for {_names_of(kept.base.sharding)}, but "
        f"{_names_of(sharding)} would need it: give jax.device_put() the state's own "
        "shardings, make the state by init() with parameters on these devices, or use "
        "actmem.jax.save_state() and restore_state()")


def _names_of(sharding: Sharding) -> str:
    devices: list[Any] = list(sharding.device_set)
    devices.sort(key=lambda device: device.id)
    return str(devices[0]) if len(devices) == 1 else f"{len(devices)} devices from {devices[0]} on"


def _shard(values: Sequence[Kept], shardings: Sequence[Sharding], layouts: Any,
           copy_semantics: Any) -> Any:
    for value, sharding in zip(values, shardings):
        _check_place(value, sharding)
    return _private.shard_args(
        [_private.physical_sharding(value.aval, sharding)
         for value, sharding in zip(values, shardings)],
        layouts, copy_semantics, [value.base for value in values])


_private.register_array_class(Kept, _shard)

# Makes tokens or ghosts from the integers that represent them in memory.
wrap_p = Primitive("actmem_wrap")
wrap_p.def_impl(lambda base, *, dtype: Kept(dtype, base))


@wrap_p.def_abstract_eval
def _wrap_abstract(base: _private.Aval, *, dtype: _private.DType) -> _private.Aval:
    spec = jax.sharding.PartitionSpec(*base.sharding.spec[:base.ndim - 1])
    return base.update(shape=base.shape[:-1], dtype=dtype, weak_type=False,
                       sharding=base.sharding.update(spec=spec))


def _wrap_batched(values: Sequence[Any], dims: Sequence[int], *,
                  dtype: _private.DType) -> tuple[Any, int]:
    (base,), (dim,) = values, dims
    return wrap_p.bind(jnp.moveaxis(base, dim, 0), dtype=dtype), 0


batching.primitive_batchers[wrap_p] = _wrap_batched
mlir.register_lowering(wrap_p, lambda ctx, base, *, dtype: [base])
