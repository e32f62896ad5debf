# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Stored: an array whose value is in actmem memory, such as one of Adam's moments or a weight.

A stored array consists of a token and a ghost (_kept.py). The token identifies the value in actmem.
The ghost is an array without bytes that has the value's shape. Programs pass on the token and the
ghost like other arrays. A stored array is immutable, like JAX's arrays: an update takes the old
value from actmem and stores a new value. If the caller donates the old array, the program frees the
old value after taking it, so that new values can use the memory. The store identifies a value by
its place in the state, which is the same in all steps. So the store learns in each step when the
next step will need the value (lib/store/schedule.h).
"""
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Self

import jax
import numpy as np
from jax.sharding import AbstractMesh, Sharding
from numpy.typing import NDArray

from actmem.jax import _calls, _finish, _intact, _primitives, _private
from actmem.jax._kept import ARRAY_ATTRIBUTES, STATE, Kept, without_arithmetic


GROUPS = 32     # number of parts in which a tree is copied, one after the other


@without_arithmetic
class Stored:
    """An array in actmem memory. In a pytree, it is a node with two leaves, a token and a ghost.

    value() returns the array, on the device. Indexing, numpy.asarray() and the functions of
    jax.numpy call value(). Each call copies the whole value to the device. Arithmetic with a Stored
    raises TypeError.

    Attributes:
      label: the name in error messages, such as ".mu['w'] of the optimizer state".
      shape, dtype, ndim, size, nbytes: those of the whole array, not of one device's part.
    """

    CHILDREN: tuple[str, ...] = ("token", "ghost")      # a subclass adds names of more children
    token: Any
    ghost: Any

    def __init__(self, token: Any, ghost: Any, label: str) -> None:
        self.token, self.ghost, self.label = token, ghost, label

    def tree_flatten_with_keys(self) -> tuple[Any, str]:
        key = jax.tree_util.GetAttrKey
        return tuple((key(name), getattr(self, name)) for name in self.CHILDREN), self.label

    @classmethod
    def tree_unflatten(cls, label: str, children: Sequence[Any]) -> Self:
        token, ghost, *more = children
        return cls(token, ghost, label, *more)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.ghost.shape
        return shape

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.ghost.dtype.of_values
        return dtype

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape)))
    nbytes = property(lambda self: self.size * self.dtype.itemsize)

    @property
    def sharding(self) -> Sharding | None:
        """The sharding of the array, or None if it is not known: in a traced program, or if the
        program that stored the array came from JAX's cache."""
        if not isinstance(self.ghost, Kept):
            return None
        sharding: Sharding | None = self.ghost.sharding
        if self.ghost.sharding.num_devices > 1:
            sharding = _calls.latest_sharding(self.label, self.shape, self.dtype,
                                              self.ghost.sharding)
        return sharding

    @property
    def is_stack(self) -> bool:
        """Whether the array is a stack: each layer is a block of its own (_params.py)."""
        return len(self.token.shape) > 0

    @property
    def batch(self) -> tuple[int, ...]:
        """The axes of the array that are also axes of the tokens."""
        return tuple(range(len(self.token.shape)))

    def taken(self) -> Any:
        """Returns the array, as a value of the traced program that calls taken()."""
        return _primitives.take(self.token, self.ghost, self.label, False, self.batch)

    def value(self) -> jax.Array:
        """Returns a copy of the array on the device."""
        return values_of([self])[0]

    def __getitem__(self, index: Any) -> jax.Array:
        return self.value()[index]

    def __len__(self) -> int:
        return len(self.value())

    def __iter__(self) -> Iterator[jax.Array]:
        return iter(self.value())

    def refusal(self) -> str:
        return (f"{self} is in actmem memory: its value() is an array, and actmem.jax.value() "
                "returns a tree with arrays instead")

    def __getattr__(self, name: str) -> Any:
        if name in ARRAY_ATTRIBUTES and not hasattr(type(self), name):
            raise AttributeError(f"{self.refusal()}, which has {name!r}")
        raise AttributeError(f"'Stored' object has no attribute {name!r}")

    def __jax_array__(self) -> jax.Array:
        return self.value()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.value(), dtype)

    def __repr__(self) -> str:
        if isinstance(self.ghost, Kept) or hasattr(self.ghost, "aval"):
            return f"Stored({self.label}, {self.dtype}{list(self.shape)})"
        return f"Stored({self.label})"


jax.tree_util.register_pytree_with_keys_class(Stored)


def is_stored(value: Any) -> bool:
    return isinstance(value, Stored)


def is_stack(value: Any) -> bool:
    return is_stored(value) and bool(value.is_stack)


def named_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of a tree with their paths. A Stored is one leaf."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_stored)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def groups_of(named: list[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Yields groups of leaves that are copied together. A program for each leaf would need more
    time and memory to compile. Copying all leaves at once would need twice the memory."""
    def size(leaf: Any) -> int:
        return getattr(leaf, "size", 1) * getattr(getattr(leaf, "dtype", None), "itemsize", 8)
    most = sum(size(leaf) for _, leaf in named) // GROUPS
    group: list[tuple[str, Any]] = []
    total = 0
    for name, leaf in named:
        if group and total + size(leaf) > most:
            yield group
            group, total = [], 0
        group.append((name, leaf))
        total += size(leaf)
    if group:
        yield group


@partial(jax.jit, static_argnums=1)
def _take_all(leaves: Sequence[Stored], shardings: Sequence[Sharding | None]) -> list[jax.Array]:
    values = [leaf.taken() for leaf in leaves]
    return [value if sharding is None or _private.is_explicit(sharding) else
            jax.lax.with_sharding_constraint(value, sharding)
            for value, sharding in zip(values, shardings)]


def values_of(leaves: Sequence[Stored]) -> list[jax.Array]:
    """Returns copies of stored arrays on the device. XLA compiles one program for all arrays."""
    shardings = [leaf.sharding for leaf in leaves]
    values: list[jax.Array] = _take_all(leaves, tuple(
        sharding if sharding is not None and sharding.num_devices > 1 else None
        for sharding in shardings))
    return values


def value(tree: Any) -> Any:
    """Returns a tree with arrays on the device in place of stored arrays.

    Args:
      tree: A pytree, such as the state of an optimizer. The tree can be traced.

    Example:
      >>> import jax.numpy as jnp, optax, actmem.optax
      >>> state = actmem.optax.offload(optax.adam(0.1)).init({"w": jnp.ones((64, 64))})
      >>> optax.tree.norm(actmem.optax.value(state)).item()
      0.0
    """
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_stored)
    stored = [leaf for leaf in leaves if is_stored(leaf)]
    values = iter(values_of(stored) if stored else [])
    return jax.tree.unflatten(structure, [next(values) if is_stored(leaf) else leaf
                                          for leaf in leaves])


def store(value: Any, label: str, use: str = STATE) -> Stored:
    """Returns a value of a traced program as a stored array. `use`: as for _kept.TokenType."""
    _, token, ghost = _primitives.put(value, label, use)
    return Stored(token, ghost, label)


def _store_layers(values: Any, label: str) -> Stored:
    stored: Stored = jax.lax.map(partial(store, label=label), values)
    return stored


@partial(jax.jit, static_argnums=(1, 2))
def store_all(values: Sequence[Any], labels: Sequence[str],
              are_stacks: Sequence[bool]) -> list[Stored]:
    """Returns the values as stored arrays, with a block for each layer of a stack. XLA compiles one
    program for all values."""
    return [(_store_layers if is_stack else store)(value, label)
            for value, label, is_stack in zip(values, labels, are_stacks)]


@jax.jit
def _stacked(layers: Sequence[Stored]) -> Stored:
    stacked: Stored = jax.tree.map(lambda *parts: jax.lax.concatenate(
        [jax.lax.expand_dims(part, [0]) for part in parts], 0), *layers)
    return stacked


def store_stack(values: Any, label: str) -> Stored:
    """Stores an array whose first axis is that of the layers, with a block for each layer. A NumPy
    array is copied to the device one layer at a time."""
    stack: Stored
    if isinstance(values, np.ndarray):
        stack = _stacked([jax.block_until_ready(store_all([value], (label,), (False,))[0])
                          for value in values])
    else:
        stack, = store_all([values], (label,), (True,))
    return stack


def store_group(group: Sequence[tuple[str, Any]], values: Sequence[Any]) -> list[Any]:
    """Returns `values`, with a stored array in place of each value whose leaf in `group` is
    stored."""
    chosen = [(value, leaf) for (_, leaf), value in zip(group, values) if is_stored(leaf)]
    if not chosen:
        return list(values)
    stored = iter(store_all([value for value, _ in chosen],
                            tuple(leaf.label for _, leaf in chosen),
                            tuple(leaf.is_stack for _, leaf in chosen)))
    both = [next(stored) if is_stored(leaf) else value
            for (_, leaf), value in zip(group, values)]
    # Wait: otherwise the copies of many arrays would be in memory at once.
    jax.block_until_ready(both)
    return both


def kind_of(leaf: Any) -> tuple[tuple[int, ...], Any]:
    """Returns the shape and the dtype of a leaf."""
    array = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else np.asarray(leaf)
    return tuple(array.shape), array.dtype


def _check_arrays(given: list[tuple[str, Any]], named: list[tuple[str, Any]]) -> None:
    """Raises an error unless the leaves of the tree (`given`) match those of `like` (`named`)."""
    names, others = ({name for name, _ in leaves} for leaves in (named, given))
    for name in sorted(names ^ others):
        where = "`like` has {}, but the tree does not" if name in names else \
            "the tree has {}, but `like` does not"
        raise ValueError(f"actmem.optax.stored(): {where.format(name)}")
    for (name, leaf), (_, value) in zip(named, given):
        if is_stored(value):
            raise ValueError(f"actmem.optax.stored(): {name} is stored already")
        (shape, dtype), (wanted, kind) = kind_of(value), kind_of(leaf)
        if (shape, dtype) != (wanted, kind):
            raise ValueError(f"actmem.optax.stored(): {name} is {dtype}{list(shape)}, but "
                             f"{kind}{list(wanted)} in `like`")


def _placed_as(leaf: Any, value: Any) -> Any:
    """Returns the value with the sharding of `leaf`, if `leaf` states devices."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        return value
    return jax.device_put(value, sharding)


def stored(tree: Any, like: Any) -> Any:
    """Returns the tree with stored arrays in the places where `like` has them. stored() is the
    inverse of value().

    Args:
      tree: A pytree of jax.Array or NumPy arrays, such as a state that another library has restored.
      like: A tree of the same structure, shapes and dtypes, such as jax.eval_shape(optimizer.init,
        params). Each array gets the sharding of its leaf in `like`. If the leaf states no sharding,
        as after jax.eval_shape(), the array keeps its own sharding. This sharding must then be that
        of the parameter to which the array belongs.

    Raises:
      ValueError: `tree` and `like` differ in structure, or in the shape or dtype of an array, or an
        array of `tree` is stored already. The error message names the array.

    The tree is copied to the device in parts of about 1/32 of its size, one after the other.

    Example:
      >>> import jax, jax.numpy as jnp, optax, actmem.optax
      >>> optimizer, params = actmem.optax.offload(optax.adam(0.1)), {"w": jnp.ones((64, 64))}
      >>> state = actmem.optax.value(optimizer.init(params))
      >>> state = actmem.optax.stored(state, jax.eval_shape(optimizer.init, params))
      >>> state[0].mu["w"].shape
      (64, 64)
    """
    named, given = named_leaves(like), named_leaves(tree)
    _check_arrays(given, named)
    results: list[Any] = []
    for group in groups_of(named):
        values = [value for _, value in given[len(results):len(results) + len(group)]]
        results += store_group(group, [_placed_as(leaf, value)
                                       for (_, leaf), value in zip(group, values)])
    return jax.tree.unflatten(jax.tree.structure(like, is_leaf=is_stored), results)


_finish.when_whole(lambda name, jaxpr: _intact.check(jaxpr))
