# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Finds the part of each value that a device of a mesh holds. The caller gives the shardings of
arguments and of named values. The program can give more shardings with with_sharding_constraint.
This module propagates the shardings from operands to results, as XLA's partitioner does.
`Layout(...).of(jaxpr).local(variable)` is the type of a device's part of `variable`.

Axes of the mesh divide dimensions of values. An axis divides at most one dimension of a value. If
an operation has an undivided and a divided operand, the undivided one is divided in the same way.
For each matrix product, this module also counts the bytes that devices must send each other.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from actmem.jax import _private
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr
from actmem.plan import _specs
from actmem.plan._specs import Spec


def _named_sharding(sharding: Any) -> NamedSharding | None:
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh.size > 1 else None


def _constraints(jaxpr: Jaxpr) -> list[NamedSharding]:
    found = []
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        sharding = eqn.primitive.name == "sharding_constraint" and _named_sharding(
            eqn.params["sharding"])
        if sharding:
            found.append(sharding)
        for inner in _private.inner_jaxprs(eqn.params):
            found += _constraints(inner)
    return found


class Layout:
    """The mesh, and the shardings given for arguments and names."""

    def __init__(self, args: Any, jaxpr: Jaxpr, mesh: Any,
                 specs: Mapping[str, PartitionSpec] | None) -> None:
        leaves = jax.tree_util.tree_leaves_with_path(args)
        shardings = [_named_sharding(getattr(leaf, "sharding", None)) for _, leaf in leaves]
        meshes = [mesh, *(each.mesh for each in shardings if each),
                  *(each.mesh for each in _constraints(jaxpr))]
        found = next((each for each in meshes if each is not None), None)
        if specs and found is None:
            raise ValueError("specs= needs a mesh: pass mesh=")
        self.sizes: dict[str, int] = dict(found.shape) if found is not None else {}
        # If all axes are Explicit, the types of values already contain their shardings.
        self.is_there = found is not None and not found.are_all_axes_explicit
        self.inputs: list[Spec] = []
        for (path, leaf), each in zip(leaves, shardings):
            shape = jax.numpy.shape(leaf)
            what = f"argument {jax.tree_util.keystr(path)}"
            self.inputs.append(_specs.of(each.spec, shape, self.sizes, what) if each else
                               _specs.whole(shape))
        self.names = dict(specs or {})

    def text(self) -> str:
        """Returns a text that identifies the layout."""
        if not self.sizes:
            return ""
        return f"{self.sizes} {self.inputs} {sorted(self.names.items())}"

    def of(self, jaxpr: Jaxpr, outputs: Sequence[Spec] = ()) -> Shards | None:
        """Propagates the shardings through a program with the layout's arguments. `outputs` has the
        shardings of the program's last results; a sharding that divides nothing is ignored."""
        if not self.is_there:
            return None
        shards = Shards(self)
        inner = _private.open_jaxpr(jaxpr)
        for var, spec in zip(inner.outvars[len(inner.outvars) - len(outputs):], outputs):
            if any(spec):
                shards.fixed[id(var)] = spec
        shards.run(inner, self.inputs)
        return shards


@dataclasses.dataclass
class _Product:
    reads: list[Aval]               # types of the operands' parts that a device multiplies
    gathered: list[bool]            # for each operand, whether other devices send parts of it
    between: dict[str, int]         # bytes that a device receives or sends, by axis


class Shards:
    """The shardings of the variables of one program."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.sizes = layout, layout.sizes
        self.specs: dict[int, Spec] = {}
        self.fixed: dict[int, Spec] = {}
        self.products: dict[int, _Product] = {}

    def local(self, atom: Atom) -> Aval:
        spec = self.specs.get(id(atom))
        return atom.aval if spec is None else self._part(atom.aval, spec)

    def _part(self, aval: Aval, spec: Spec) -> Aval:
        if not any(spec):
            return aval
        return _private.ShapedArray(_specs.local(aval.shape, spec, self.sizes), aval.dtype)

    def of(self, atom: Atom) -> Spec:
        return self.specs.get(id(atom)) or _specs.whole(getattr(atom.aval, "shape", ()))

    def run(self, jaxpr: Jaxpr, inputs: Sequence[Spec]) -> list[Spec]:
        for var, spec in zip(jaxpr.invars, inputs):
            self.specs[id(var)] = spec
        for eqn in jaxpr.eqns:
            told = self._told(eqn)
            if told is not None:
                # The operand gets the result's sharding, unless a sharding is given for the operand
                # itself.
                self.fixed.setdefault(id(eqn.invars[0]), told)
        for eqn in jaxpr.eqns:
            for var, spec in zip(eqn.outvars, self._eqn(eqn)):
                self.specs[id(var)] = self.fixed.get(id(var), spec)
        return [self.of(var) for var in jaxpr.outvars]

    def _eqn(self, eqn: Eqn) -> list[Spec]:
        op = eqn.primitive.name
        told = self._told(eqn)
        if told is not None:
            return [told]
        if op == "scan":
            return self._scan(eqn)
        if op == "dot_general":
            return [self._product(eqn)]
        inner = [] if op == "shard_map" else list(_private.inner_jaxprs(eqn.params))
        found: list[Spec] = []
        for jaxpr in map(_private.open_jaxpr, inner):
            extra = len(eqn.invars) - len(jaxpr.invars)     # 1 for a cond, which has an index
            if extra < 0 or op.startswith(("reduce", "scatter", "while")):
                continue
            outs = self.run(jaxpr, [self.of(atom) for atom in eqn.invars[extra:]])
            found = found or outs
        if len(found) == len(eqn.outvars):
            return found
        return [_specs.result(op, eqn, var.aval.shape, [self.of(atom) for atom in eqn.invars],
                              self.sizes) for var in eqn.outvars]

    def _told(self, eqn: Eqn) -> Spec | None:
        """Returns the sharding that is given for the result of `eqn`, by its name or by a
        constraint. Returns None if no sharding is given."""
        name = _private.name_of(eqn)
        if name in self.layout.names:
            spec, what = self.layout.names[name], repr(name)
        elif eqn.primitive.name == "sharding_constraint" and \
                _named_sharding(eqn.params["sharding"]):
            spec = eqn.params["sharding"].spec
            what = f"a value at {_private.place_of(eqn.source_info)}"
        else:
            return None
        return _specs.of(spec, eqn.outvars[0].aval.shape, self.sizes, what)

    def _scan(self, eqn: Eqn) -> list[Spec]:
        consts = _private.scan_consts(eqn.params)
        carries = _private.scan_carries(eqn.params)
        specs = [self.of(atom) for atom in eqn.invars]
        body = _private.open_jaxpr(eqn.params["jaxpr"])
        stacked = [spec[1:] for spec in specs[consts + carries:]]
        carried = specs[consts:consts + carries]
        while True:
            outs = self.run(body, [*specs[:consts], *carried, *stacked])
            more = [_specs.joined([a, b]) for a, b in zip(carried, outs)]
            if more == carried:
                break
            carried = more
        return [*carried, *(((), *spec) for spec in outs[carries:])]

    def _product(self, eqn: Eqn) -> Spec:
        (sums, batch) = eqn.params["dimension_numbers"]
        left, right = (self.of(atom) for atom in eqn.invars)
        shapes = [atom.aval.shape for atom in eqn.invars]
        told = self.fixed.get(id(eqn.outvars[0]))
        taken = {axis for axes in told or () for axis in axes}
        out: list[tuple[str, ...]] = []

        def take(*axes: Sequence[str]) -> tuple[str, ...]:
            free = next((tuple(each) for each in axes if each and not taken & set(each)), ())
            taken.update(free)
            return free
        free = [[i for i in range(len(shape)) if i not in sums[side] and i not in batch[side]]
                for side, shape in enumerate(shapes)]
        if told is None:
            out += [take(left[i], right[j]) for i, j in zip(*batch)]
            out += [take(spec[i]) for spec, dims in zip((left, right), free) for i in dims]
        else:
            out += told
        over = [take(left[i], right[j]) for i, j in zip(*sums)]
        spec = tuple(out)
        between: dict[str, int] = {}
        size = eqn.outvars[0].aval.dtype.itemsize * math.prod(
            _specs.local(eqn.outvars[0].aval.shape, spec, self.sizes))
        for axis in (axis for axes in over for axis in axes):
            # The devices of the axis add up their partial sums.
            count = self.sizes[axis]
            between[axis] = between.get(axis, 0) + 2 * size * (count - 1) // count
        reads, gathered = [], []
        for side, (atom, spec_of, dims) in enumerate(zip(eqn.invars, (left, right), free)):
            used = list(spec_of)
            for k, i in enumerate(batch[side]):
                used[i] = out[k]
            at = len(batch[0]) + (len(free[0]) if side else 0)
            for k, i in enumerate(dims):
                used[i] = out[at + k]
            for k, i in enumerate(sums[side]):
                used[i] = over[k]
            reads.append(self._part(atom.aval, tuple(used)))
            # If a device holds less of the operand than it multiplies, other devices send the rest.
            missing = {axis for axes in spec_of for axis in axes} - {
                axis for axes in used for axis in axes}
            gathered.append(bool(missing))
            for axis in sorted(missing):
                count = self.sizes[axis]
                whole = atom.aval.dtype.itemsize * math.prod(reads[-1].shape)
                between[axis] = between.get(axis, 0) + whole * (count - 1) // count
        self.products[id(eqn)] = _Product(reads, gathered, between)
        return spec
