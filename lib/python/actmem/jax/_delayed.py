# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes an Optax update at the beginning of the next step. _update.py divides the leaves of the
update's state into groups. Each group is updated just before the program of the step first uses the
parameters of this group.

early() runs in the step that computes the gradients. It computes small values, such as the global
norm, that depend on large gradients but not on stored state.

run_before() computes the rest of the update, and the results of the program that follows the
update. The program's equations keep their order. A group is updated before the first equation that
needs one of the group's parameters. The program computes the last value before the update of group
i, and only then takes the state of group i + 1 from the store. So the state of group i + 1 is
copied to the device while the program computes with the parameters of group i.
"""
from collections.abc import Sequence
from typing import Any

import jax

from actmem.jax import _choices, _finish, _private, _update
from actmem.jax._private import Atom, Eqn, Jaxpr


def _size(atom: Atom) -> int:
    return int(getattr(atom.aval, "size", 0))


class Split:
    """An update, divided into an early part, which early() computes, and a late part: the rest.

    jaxpr     the closed jaxpr of the whole update, without calls of functions
    between   the variables that the early part computes and the late part uses
    """

    def __init__(self, jaxpr: Jaxpr, is_stored: Sequence[bool], gradients: int,
                 small: int) -> None:
        """The first `gradients` inputs are gradients. `is_stored` says for each input whether it is
        in actmem memory. Values with fewer than `small` elements are small."""
        self.jaxpr = _update.prepared(jaxpr)
        inner = _private.open_jaxpr(self.jaxpr)
        stored: set[Atom] = {var for var, is_one in zip(inner.invars, is_stored) if is_one}
        self.inputs = [var for var in inner.invars if var not in stored]
        of_large = {var for var in inner.invars[:gradients] if _size(var) >= small}
        early: set[Atom] = set()
        used: set[Atom] = {atom for atom in inner.outvars if not _private.is_literal(atom)}
        for eqn in inner.eqns:
            operands = {atom for atom in eqn.invars if not _private.is_literal(atom)}
            if operands & stored:
                stored.update(eqn.outvars)
            if operands & of_large:
                of_large.update(eqn.outvars)
            is_small = all(_size(var) < small for var in eqn.outvars)
            if eqn.outvars and is_small and operands & of_large and not operands & stored:
                early.update(eqn.outvars)
            else:
                used |= operands
        self.between = [var for eqn in inner.eqns for var in eqn.outvars
                        if var in early and var in used]
        # late() omits the equations whose results are in `between`. Add the results of equations
        # with effects, so that the late part does not repeat the effects of the early part.
        self.between += [var for eqn in _private.open_jaxpr(
            _choices.only(self.jaxpr, self.between)).eqns if eqn.effects
                         for var in eqn.outvars if var not in self.between]

    def early(self, args: Sequence[Any]) -> list[Any]:
        """Returns the values of `between`. `args` are the inputs that are not stored."""
        part = _choices.only(self.jaxpr, self.between)
        return _private.run_jaxpr(_private.with_eqns(
            part, _private.open_jaxpr(part).eqns, invars=self.inputs), args)

    def late(self) -> Jaxpr:
        """Returns the closed jaxpr of the late part. Its inputs are those of the whole update, and
        the values of `between`."""
        inner, known = _private.open_jaxpr(self.jaxpr), set(self.between)
        eqns = [eqn for eqn in inner.eqns if known.isdisjoint(eqn.outvars)]
        return _private.dce(_private.with_eqns(
            self.jaxpr, eqns, invars=[*inner.invars, *self.between]))


class _Program:
    """The program that follows an update. The program's first inputs are the updated parameters:
    the variables `outputs` of the update."""

    def __init__(self, jaxpr: Jaxpr, outputs: Sequence[Atom], args: Sequence[Any]) -> None:
        self.inner = _private.open_jaxpr(jaxpr)
        self.left = list(reversed(self.inner.eqns))
        parameters = self.inner.invars[:len(outputs)]
        self.parameters: dict[Atom, Atom] = dict(zip(parameters, outputs))
        self.values: dict[Atom, Any] = dict(zip(
            (*self.inner.constvars, *self.inner.invars[len(outputs):]),
            (*getattr(jaxpr, "consts", ()), *args), strict=True))

    def order(self) -> list[int]:
        """Returns the indices of the parameters, in the order in which the program first uses them.
        Unused parameters come last."""
        numbers = {var: i for i, var in enumerate(self.parameters)}
        used = [numbers[atom] for eqn in self.inner.eqns for atom in eqn.invars
                if not _private.is_literal(atom) and atom in numbers]
        return list(dict.fromkeys([*used, *numbers.values()]))

    def operands(self, eqn: Eqn, run: _update.Run) -> list[Any] | None:
        """Returns the operands of an equation, or None if the update has not computed all of
        them."""
        found = []
        for atom in eqn.invars:
            if _private.is_literal(atom):
                found.append(atom.val)
            elif atom not in self.parameters:
                found.append(self.values[atom])
            elif run.has(self.parameters[atom]):
                found.append(run.read(self.parameters[atom]))
            else:
                return None
        return found

    def advance(self, run: _update.Run) -> list[Any]:
        """Runs the equations in order, until one of them needs a parameter that the update has not
        computed yet. Returns a list with the last array that these equations computed, or an empty
        list."""
        last: list[Any] = []
        while self.left:
            operands = self.operands(self.left[-1], run)
            if operands is None:
                break
            eqn = self.left.pop()
            results = _private.run_eqn(eqn, operands)
            self.values.update(zip(eqn.outvars, results))
            last = [value for value in results if _finish.is_value(jax.typeof(value))][:1] or last
        return last

    def results(self, run: _update.Run) -> list[Any]:
        self.advance(run)
        return [atom.val if _private.is_literal(atom) else
                run.read(self.parameters[atom]) if atom in self.parameters else self.values[atom]
                for atom in self.inner.outvars]


def run_before(update: Jaxpr, args: Sequence[Any], labels: Sequence[str | None], group_bytes: int,
               program: Jaxpr, rest: Sequence[Any], parameters: int) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of an update and those of the program that follows it.

    update       a closed jaxpr of Split.late()
    args, labels, group_bytes
                 as for _update.run()
    program      The closed jaxpr of the program. Its first inputs are the first outputs of the
                 update.
    parameters   the number of inputs of the program that are outputs of the update
    rest         the inputs of the program after its first `parameters` inputs
    """
    program = _choices.flat(program)
    if _update.choice(update, args, labels) is not None:
        outputs = _update.run(update, args, labels, group_bytes)
        return outputs, _private.run_jaxpr(program, [*outputs[:parameters], *rest])
    outvars = _private.open_jaxpr(update).outvars
    following = _Program(program, outvars[:parameters], rest)
    run = _update.Run(update, args, labels, group_bytes)
    outputs = run.results([*following.order(), *range(parameters, len(outvars))],
                          following.advance)
    return outputs, following.results(run)
