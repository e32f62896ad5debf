# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Refuses programs that move the elements of a stored array without taking it.

jax.tree.map(lambda w: w[..., ::-1], params) reverses the token and the ghost of a stored array (_state.py)
instead of its elements. So the array would stay as it is, without an error, if its shape does. The
last dimensions of a ghost are those of one block: no equation may change or reorder these.
"""
from collections.abc import Iterable, Sequence

from actmem.jax import _private
from actmem.jax._kept import is_ghost
from actmem.jax._private import Aval, Eqn, Jaxpr


def _reordered(eqn: Eqn) -> Iterable[int]:
    """Returns the axes of the first operand along which an array operation reorders elements."""
    name, params = eqn.primitive.name, eqn.params
    if name == "rev":
        return list(params["dimensions"])
    if name == "transpose":
        return [to for to, axis in enumerate(params["permutation"]) if to != axis]
    if name == "gather":
        return list(params["dimension_numbers"].start_index_map)
    return list(params["dimension_numbers"].scatter_dims_to_operand_dims) if name == "scatter" else []


def _is_stored(aval: Aval) -> bool:
    """Returns whether this is the type of ghosts of stored arrays."""
    return is_ghost(aval) and aval.dtype.block is not None


def _is_whole(aval: Aval) -> bool:
    """Returns whether the last dimensions of a ghost are those of its block."""
    shape = aval.dtype.block.of[0]
    return bool(aval.shape[aval.ndim - len(shape):] == shape)


def _moves(eqn: Eqn, ghosts: Sequence[Aval]) -> bool:
    """Returns whether an equation with these operands moves elements of their blocks."""
    first = min(aval.ndim - len(aval.dtype.block.of[0]) for aval in ghosts)
    return any(axis >= first for axis in _reordered(eqn)) or not all(
        _is_whole(out.aval) for out in eqn.outvars if _is_stored(out.aval))


def check(jaxpr: Jaxpr) -> None:
    """Raises a NotImplementedError if a program moves elements of a stored array."""
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        for inner in _private.inner_jaxprs(eqn.params):
            check(inner)
        ghosts = [atom.aval for atom in eqn.invars if _is_stored(atom.aval)]
        if ghosts and _moves(eqn, ghosts):
            place = _private.place_of(eqn.source_info)
            is_known = place != "?" and not place.startswith("_kept.py")     # outside of jit
            raise NotImplementedError(
                f"{ghosts[0].dtype.block.of[2]}: a function of a tree "
                f"({eqn.primitive}{f' at {place}' * is_known}) would move elements of this stored "
                "array: apply the function to the array's value()")
