# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Prepares the jaxpr of an Optax update for _update.py.

flat() replaces each call of a function by the equations of the function, so that each leaf of the
state has its own equations.

choice() finds a scalar that decides whether an update keeps the old state, as in
`jnp.where(is_finite, new, old)`. Such an update always computes the new state, even if its result
is the old state.

assuming() returns the jaxpr for one value of this scalar, without the equations that this value
makes unnecessary. If the update keeps the old state for this value, the jaxpr does not read the
state.
"""
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from actmem.jax import _private
from actmem.jax._private import Atom, Eqn, Jaxpr, Var

# Primitives that compute each element of the result from the operands' elements at the same
# position.
_ELEMENTWISE = {"add", "sub", "mul", "and", "or", "not", "eq", "ne", "neg"}
# Primitives that return the elements of their operand in another shape, perhaps repeated.
_RESHAPING = {"broadcast_in_dim", "reshape", "squeeze", "copy", "copy_p", "expand_dims"}


def flat(jaxpr: Jaxpr, select: bool = False) -> Jaxpr:
    """Returns a closed jaxpr without calls of functions. If `select` is true, this jaxpr computes
    both branches of each lax.cond and selects between their results, so that choice() can find the
    condition and assuming() can remove one branch."""
    inner = _private.open_jaxpr(jaxpr)
    return jax.make_jaxpr(lambda *args: _private.run_jaxpr(
        jaxpr, args, expand=True, select=select))(
        *(var.aval for var in inner.invars))


def _producers(jaxpr: Jaxpr) -> dict[Atom, Eqn]:
    return {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}


def _needs(jaxpr: Jaxpr, wanted: Sequence[Atom]) -> set[Atom]:
    """Returns the variables in `wanted`, and all variables from which they are computed."""
    producers, found, left = _producers(jaxpr), set(), [*wanted]
    while left:
        var = left.pop()
        if _private.is_literal(var) or var in found:
            continue
        found.add(var)
        if var in producers:
            left.extend(producers[var].invars)
    return found


def _making(jaxpr: Jaxpr, variables: set[Atom]) -> list[Eqn]:
    """Returns the equations that compute `variables`, in the order of the jaxpr."""
    return [eqn for eqn in jaxpr.eqns if not variables.isdisjoint(eqn.outvars)]


def _predicate(eqn: Eqn, producers: Mapping[Atom, Eqn]) -> Atom | None:
    """Returns the scalar condition of a select_n, or None if the select_n chooses each element
    separately."""
    atom = eqn.invars[0]
    while not _private.is_literal(atom) and atom.aval.shape:
        made = producers.get(atom)
        if made is None or made.primitive.name not in _RESHAPING:
            return None
        atom = made.invars[0]
    return None if _private.is_literal(atom) or atom.aval.dtype != np.bool_ else atom


def choice(jaxpr: Jaxpr, kept: Mapping[int, Atom]) -> Atom | None:
    """Returns a boolean scalar that decides whether outputs keep their old values, or None if the
    jaxpr has no such scalar. `kept` maps the index of an output to the input that has the old
    value. The scalar depends on none of these inputs. It also depends on no equation with an
    effect: such an equation would run twice, once for the scalar and once for the update."""
    inner = _private.open_jaxpr(jaxpr)
    producers = _producers(inner)
    counts: dict[Atom, int] = {}
    for i, var in kept.items():
        eqn = producers.get(inner.outvars[i])
        if eqn is not None and eqn.primitive.name == "select_n" and var in eqn.invars[1:]:
            atom = _predicate(eqn, producers)
            if atom is not None:
                counts[atom] = counts.get(atom, 0) + 1
    stored = set(kept.values())
    for atom in sorted(counts, key=counts.__getitem__, reverse=True):
        needs = _needs(inner, [atom])
        if stored.isdisjoint(needs) and not any(eqn.effects for eqn in _making(inner, needs)):
            return atom
    return None


def only(jaxpr: Jaxpr, wanted: Sequence[Var]) -> Jaxpr:
    """Returns a closed jaxpr whose outputs are `wanted`, with only the equations that compute these
    outputs."""
    inner = _private.open_jaxpr(jaxpr)
    return _private.with_eqns(jaxpr, _making(inner, _needs(inner, wanted)), outvars=[*wanted])


class _Assumed:
    """Simplifies equations, given the value of one variable. If all elements of a variable have the
    same known value, `known` maps the variable to this value."""

    def __init__(self, var: Var, value: bool) -> None:
        self.known: dict[Atom, Any] = {var: np.bool_(value)}
        self.renamed: dict[Atom, Atom] = {}

    def read(self, atom: Atom) -> Atom:
        return atom if _private.is_literal(atom) else self.renamed.get(atom, atom)

    def value(self, atom: Atom) -> Any:
        if _private.is_literal(atom):
            return np.asarray(atom.val)[()] if not np.shape(atom.val) else None
        return self.known.get(atom)

    def simplify(self, eqn: Eqn) -> Eqn | None:
        """Returns the simplified equation, or None if the equation is unnecessary."""
        name, invars = eqn.primitive.name, [self.read(atom) for atom in eqn.invars]
        if name == "optimization_barrier" or len(eqn.outvars) != 1:
            return eqn.replace(invars=invars)
        values, out = [self.value(atom) for atom in invars], eqn.outvars[0]
        if name == "select_n" and values[0] is not None:
            self.renamed[out] = invars[1 + int(values[0])]
            return None
        if name in _RESHAPING and values[0] is not None:
            self.known[out] = values[0]
        elif name == "convert_element_type" and values[0] is not None:
            self.known[out] = np.asarray(values[0]).astype(out.aval.dtype)[()]
        elif name in _ELEMENTWISE and not any(value is None for value in values):
            with jax.ensure_compile_time_eval():
                self.known[out] = np.asarray(eqn.primitive.bind(*values, **eqn.params))[()]
        elif name == "mul" and any(value is not None and value == 0 for value in values):
            # optax.MultiSteps multiplies an update by 0 in steps that only accumulate gradients.
            self.known[out] = np.zeros((), out.aval.dtype)[()]
        return eqn.replace(invars=invars)


def assuming(jaxpr: Jaxpr, var: Var, value: bool) -> Jaxpr:
    """Returns the closed jaxpr without the equations that are unnecessary if `var` is `value`."""
    inner = _private.open_jaxpr(jaxpr)
    assumed = _Assumed(var, value)
    eqns = [new for new in map(assumed.simplify, inner.eqns) if new is not None]
    known = assumed.known

    def with_constants(*args: Any) -> Sequence[Any]:
        def full(atom: Atom) -> Any:
            is_explicit = _private.explicit_shard_shape(atom.aval) is not None
            return jax.lax.full(atom.aval.shape, known[atom], atom.aval.dtype,
                                sharding=atom.aval.sharding if is_explicit else None)
        return _private.run_jaxpr(_private.with_eqns(jaxpr, eqns, outvars=[
            assumed.read(atom) for atom in inner.outvars]), args,
            {atom: full(atom) for atom in known})
    return _private.dce(jax.make_jaxpr(with_constants)(*(var.aval for var in inner.invars)))
