# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The spec of a value says which axes of a mesh divide each dimension of the value. This module
derives the spec of a result from the specs of its operands. See _shards.py."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from actmem.jax._private import Eqn

Axes = tuple[str, ...]
Spec = tuple[Axes, ...]
Sizes = Mapping[str, int]


def whole(shape: Sequence[int]) -> Spec:
    return ((),) * len(shape)


def of(spec: Any, shape: Sequence[int], sizes: Sizes, what: str) -> Spec:
    """Converts a PartitionSpec to a spec. `what` names the value in error messages."""
    if len(spec) > len(shape):
        raise ValueError(f"{what} has {len(shape)} dimensions, but its sharding has {len(spec)}")
    found: list[Axes] = []
    for i, size in enumerate(shape):
        part = spec[i] if i < len(spec) else None
        axes = () if part is None else part if isinstance(part, tuple) else (part,)
        if not all(isinstance(axis, str) for axis in axes):
            axes = ()               # unconstrained
        for axis in axes:
            if axis not in sizes:
                raise ValueError(f"the sharding of {what} names the axis {axis!r}, but the mesh "
                                 f"has only {', '.join(sizes)}")
        count = _count(axes, sizes)
        if size % count:
            raise ValueError(f"the mesh does not divide {what}: its dimension {i} is {size}, but "
                             f"{' x '.join(axes)} is {count}")
        found.append(axes)
    return tuple(found)


def _count(axes: Axes, sizes: Sizes) -> int:
    return math.prod(sizes[axis] for axis in axes)


def local(shape: Sequence[int], spec: Spec, sizes: Sizes) -> tuple[int, ...]:
    return tuple(size // _count(axes, sizes) for size, axes in zip(shape, spec))


def joined(specs: Sequence[Spec]) -> Spec:
    """Combines specs of values that have the same shape. Each dimension gets its axes from the
    first suitable spec: one that divides this dimension, by axes that no earlier dimension uses."""
    found: list[Axes] = []
    taken: set[str] = set()
    for each in zip(*specs):
        axes = next((axes for axes in each if axes and not taken & set(axes)), ())
        taken.update(axes)
        found.append(axes)
    return tuple(found)


def _reshaped(spec: Spec, before: Sequence[int], after: Sequence[int], sizes: Sizes) -> Spec:
    """Returns the spec after a reshape. If dimensions are joined or split, the first new
    dimension gets the axes of the first old dimension. Axes that do not divide the new length are
    dropped."""
    found: list[Axes] = [()] * len(after)
    i = j = 0
    while i < len(before) and j < len(after):
        first, at, a, b = i, j, before[i], after[j]
        while a != b:
            if a < b and i + 1 < len(before):
                i += 1
                a *= before[i]
            elif j + 1 < len(after):
                j += 1
                b *= after[j]
            else:
                return tuple(found)
        # Leading dimensions of length 1 are not divided.
        while first < i and before[first] == 1:
            first += 1
        while at < j and after[at] == 1:
            at += 1
        if after[at] % _count(spec[first], sizes) == 0:
            found[at] = spec[first]
        i, j = i + 1, j + 1
    return tuple(found)


def _gathered(eqn: Eqn, shape: Sequence[int], operand: Spec, index: Spec) -> Spec:
    """Returns the spec of a gather's result. The dimensions that come from the indices are divided
    like the indices. A dimension that spans a whole dimension of the operand keeps the operand's
    axes."""
    dims = eqn.params["dimension_numbers"]
    sizes, source = eqn.params["slice_sizes"], eqn.invars[0].aval.shape
    kept = [i for i in range(len(source)) if i not in dims.collapsed_slice_dims and
            i not in getattr(dims, "operand_batching_dims", ())]
    found: list[Axes] = []
    numbers, rows = iter(index[:-1]), iter(kept)
    for i in range(len(shape)):
        if i in dims.offset_dims:
            at = next(rows)
            found.append(operand[at] if sizes[at] == source[at] else ())
        else:
            found.append(next(numbers, ()))
    return joined([tuple(found)])


def _at_their_places(shape: Sequence[int], spec: Spec, before: Sequence[int]) -> Spec:
    """Returns `spec` without the axes of the dimensions whose length changes."""
    if len(before) != len(shape):
        return whole(shape)
    return tuple(axes if a == b else () for axes, a, b in zip(spec, before, shape))


def result(op: str, eqn: Eqn, shape: Sequence[int], specs: Sequence[Spec], sizes: Sizes,
           ) -> Spec:
    """Returns the spec of a result of shape `shape`, from the specs of the operands."""
    shapes = [tuple(getattr(atom.aval, "shape", ())) for atom in eqn.invars]
    params = eqn.params
    if not specs:
        return whole(shape)
    if op == "broadcast_in_dim":
        found: list[Axes] = [()] * len(shape)
        for i, at in enumerate(params["broadcast_dimensions"]):
            found[at] = specs[0][i] if shapes[0][i] == shape[at] else ()
        return tuple(found)
    if op == "transpose":
        return tuple(specs[0][i] for i in params["permutation"])
    if op in ("reshape", "squeeze", "expand_dims"):
        return _reshaped(specs[0], shapes[0], shape, sizes)
    if op.startswith(("reduce_", "arg")) and "axes" in params and op != "reduce_precision":
        return tuple(axes for i, axes in enumerate(specs[0]) if i not in params["axes"])
    if op == "gather":
        return _gathered(eqn, shape, specs[0], specs[1])
    if op == "conv_general_dilated":
        dims = params["dimension_numbers"]
        found = [()] * len(shape)
        found[dims.out_spec[0]] = specs[0][dims.lhs_spec[0]]
        return tuple(found)
    alike = [spec for spec, each in zip(specs, shapes) if each == tuple(shape)]
    if alike:
        return joined(alike)
    return _at_their_places(shape, specs[0], shapes[0])
