# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Refuses programs that move the elements of a stored array without taking the array.

A stored array consists of a token and a ghost (_state.py). So the function
jax.tree.map(lambda w: w[..., ::-1], params) would reverse the token and the ghost, but not the
elements in memory. If the shape does not change, no error would show this mistake. The last
dimensions of a ghost are the dimensions of one block. So no equation is allowed to change or
reorder these dimensions, or select elements along them by a mask.
"""
from collections.abc import Iterable, Sequence
from typing import Any

from actmem.jax import _private
from actmem.jax._kept import is_ghost
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr

Axes = frozenset[int]

# Elementwise operations. Elements of the result can differ along an axis only if elements of an
# operand can differ along the same axis.
_OF_MASKS = {"and", "convert_element_type", "copy", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "xor"}


def _reordered(eqn: Eqn) -> Iterable[int]:
    """Returns the axes of the first operand along which an array operation reorders elements."""
    name, params = eqn.primitive.name, eqn.params
    if name == "rev":
        return list(params["dimensions"])
    if name == "transpose":
        return [to for to, axis in enumerate(params["permutation"]) if to != axis]
    if name == "gather":
        return list(params["dimension_numbers"].start_index_map)
    if name == "scatter":
        return list(params["dimension_numbers"].scatter_dims_to_operand_dims)
    if name == "stack":         # the new axis moves `axis` and all later axes
        return [params["axis"] - 1]
    return [params["axis"]] if name == "unstack" else []


def _is_stored(aval: Aval) -> bool:
    """Returns whether `aval` is the type of a stored array's ghost."""
    return is_ghost(aval) and aval.dtype.block is not None


def _is_whole(aval: Aval) -> bool:
    """Returns whether the last dimensions of a ghost are those of its block. Under vmap, the last
    dimensions can include a dimension of the batch."""
    shape = aval.dtype.block.of[0]
    return bool(aval.shape[aval.ndim - len(shape):] == shape)


def _long(shape: Sequence[int]) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size != 1]


class _Body:
    """One jaxpr. `axes` has for each variable the axes along which its elements can differ."""

    def __init__(self, jaxpr: Jaxpr, axes: Sequence[Axes | None]) -> None:
        self.jaxpr = _private.open_jaxpr(jaxpr)
        self.axes: dict[Atom, Axes] = {var: given for var, given in zip(self.jaxpr.invars, axes)
                                       if given is not None}

    def of(self, atom: Atom) -> Axes:
        if is_ghost(atom.aval):
            return frozenset()          # a ghost has no elements that could differ
        known = None if _private.is_literal(atom) else self.axes.get(atom)
        return frozenset(_long(getattr(atom.aval, "shape", ()))) if known is None else known

    def results(self) -> list[Axes]:
        """Checks the jaxpr. Returns the axes along which the elements of each result can differ."""
        for eqn in self.jaxpr.eqns:
            found = self.inside(eqn) or self.axes_of(eqn)
            self.axes.update(zip(eqn.outvars, found))
            if not any(True for _ in _private.inner_jaxprs(eqn.params)):
                self.check(eqn)
        return list(map(self.of, self.jaxpr.outvars))

    def inside(self, eqn: Eqn) -> list[Axes]:
        """Checks the jaxprs inside an equation. If the equation is a call, returns the results() of
        the called jaxpr, else an empty list."""
        jaxprs = list(_private.inner_jaxprs(eqn.params))
        given = eqn.invars[1:] if eqn.primitive.name == "cond" else eqn.invars
        found: list[Axes] = []
        for jaxpr in jaxprs:
            invars = _private.open_jaxpr(jaxpr).invars
            is_call = [var.aval for var in invars] == [atom.aval for atom in given]
            found = _Body(jaxpr, list(map(self.of, given)) if is_call else []).results()
            if not is_call or len(jaxprs) > 1 or len(found) != len(eqn.outvars):
                found = []
        return found

    def axes_of(self, eqn: Eqn) -> list[Axes]:
        name, first = eqn.primitive.name, eqn.invars[:1]
        if name == "broadcast_in_dim":
            to = eqn.params["broadcast_dimensions"]
            return [frozenset(to[axis] for axis in self.of(first[0]))]
        if name in ("reshape", "squeeze"):
            before, after = first[0].aval.shape, eqn.outvars[0].aval.shape
            if [before[i] for i in _long(before)] == [after[i] for i in _long(after)]:
                to = dict(zip(_long(before), _long(after)))
                return [frozenset(to[axis] for axis in self.of(first[0]) if axis in to)]
        if name in _OF_MASKS:
            return [frozenset[int]().union(*map(self.of, eqn.invars))]
        return []

    def check(self, eqn: Eqn) -> None:
        ghosts = [atom.aval for atom in eqn.invars if _is_stored(atom.aval)]
        if not ghosts or not all(map(_is_whole, ghosts)):
            return
        block = ghosts[0].dtype.block
        axes = self.of(eqn.invars[0]) if eqn.primitive.name == "select_n" else _reordered(eqn)
        first = ghosts[0].ndim - len(block.of[0])
        if any(axis >= first for axis in axes) or not all(
                _is_whole(out.aval) for out in eqn.outvars if _is_stored(out.aval)):
            place = _private.place_of(eqn.source_info)
            is_known = place != "?" and not place.startswith("_kept.py")     # outside of jit
            raise NotImplementedError(
                f"{block.of[2]}: a function of a tree ({eqn.primitive}{f' at {place}' * is_known}) "
                "would move or select elements of this stored array: apply the function to the array's "
                "value()")


def check(jaxpr: Any) -> None:
    """Raises a NotImplementedError if a program would move elements of a stored array."""
    _Body(jaxpr, []).results()
