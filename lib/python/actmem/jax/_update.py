# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes an Optax update leaf by leaf. The state of the update is stored in actmem memory.

The update is traced as if its state were on the device. run() then computes the jaxpr in another
order. For each output, run() finds the stored leaves that the output needs. run() takes a leaf
(copies it to the device) just before the first use of the leaf. As soon as a new leaf exists, run()
puts the new leaf (copies it to actmem memory). Only the order of the equations changes. So each
leaf keeps its shape, and each scalar is computed once.

Leaves that run() takes one after the other form a group of at most `group_bytes`. run() takes group
i + 1 only when it has put group i - 1. When group i begins, run() announces group i + 1 to the
store. So at most two groups are on the device, and a group is copied while the previous one is
updated. In addition, run() takes a group only when the group's gradients exist. Otherwise XLA could
take the group at the beginning of the step. The update begins with the gradient of the last
parameter, which the backward pass computes first. So the update can run during the backward pass,
unless the update needs all gradients at once, as clipping does.

A branch of lax.cond gets the token of a stored leaf (_state.py) instead of the leaf's value. So a
branch that returns the leaf unchanged returns the token, and copies nothing.
"""
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax

from actmem.jax import _choices, _finish, _host, _primitives, _private
from actmem.jax._private import Atom, Eqn, Jaxpr
from actmem.jax._state import Stored, is_stored, store


class _Take(NamedTuple):
    var: Atom


class _Put(NamedTuple):
    output: int


class _Group(NamedTuple):
    """The steps of one group, in order. A step takes an input, runs an equation or puts an output
    into actmem."""

    takes: list[Atom]
    steps: "list[_Take | _Put | Eqn]"


class _Plan:
    """The order in which to compute a jaxpr.

    stored       the length in bytes of each stored input
    wanted       the indices of the outputs to put into actmem
    unchanged    the indices of the outputs that are stored inputs
    order        the indices of all outputs, in the order of computation
    """

    def __init__(self, jaxpr: Jaxpr, stored: Mapping[Atom, int], wanted: Container[int],
                 unchanged: Container[int], order: Sequence[int], group_bytes: int) -> None:
        self.jaxpr, self.stored, self.group_bytes = jaxpr, stored, group_bytes
        self.groups = [_Group([], [])]
        self.open_bytes = 0
        self.producers = {var: i for i, eqn in enumerate(jaxpr.eqns) for var in eqn.outvars}
        self.done: set[int] = set()
        self.taken = 0                  # bit i: a step takes stored input i
        self.bits = {var: 1 << i for i, var in enumerate(stored)}
        self.needs: dict[Atom, int] = dict(self.bits)
        for eqn in jaxpr.eqns:
            needs = 0
            for atom in eqn.invars:
                if not _private.is_literal(atom) and not self.is_handed_on(eqn, atom):
                    needs |= self.needs.get(atom, 0)
            self.needs.update((var, needs) for var in eqn.outvars)
        self.waiting = {i: self.need(jaxpr.outvars[i]) for i in order if i in wanted}
        for i in order:
            if i not in wanted and i not in unchanged:
                self.compute(jaxpr.outvars[i])
                self.put_ready()
        for i in list(self.waiting):
            if i in self.waiting:
                self.put(i)
                self.put_ready()
        for number, eqn in enumerate(jaxpr.eqns):
            if eqn.effects and number not in self.done:     # such as jax.debug.print
                self.compute_last(number)

    def is_handed_on(self, eqn: Eqn, atom: Atom) -> bool:
        """Returns whether `eqn` gets the token of a stored input, not the input's value."""
        return eqn.primitive.name == "cond" and atom in self.stored

    def need(self, atom: Atom) -> int:
        return 0 if _private.is_literal(atom) else self.needs.get(atom, 0)

    def put_ready(self) -> None:
        """Adds a step that puts each new leaf, if earlier steps take all stored inputs that this
        leaf needs."""
        for i, needs in list(self.waiting.items()):
            if i in self.waiting and not needs & ~self.taken:
                self.put(i)

    def put(self, output: int) -> None:
        del self.waiting[output]
        self.compute(self.jaxpr.outvars[output])
        self.groups[-1].steps.append(_Put(output))

    def take(self, var: Atom) -> None:
        size = self.stored[var]
        if self.open_bytes and self.open_bytes + size > self.group_bytes:
            self.put_ready()
            self.groups.append(_Group([], []))
            self.open_bytes = 0
        self.open_bytes += size
        self.taken |= self.bits[var]
        self.groups[-1].takes.append(var)
        self.groups[-1].steps.append(_Take(var))

    def compute(self, wanted: Atom) -> None:
        """Adds the equations that compute `wanted`. Each equation comes after those that compute
        its operands."""
        left = [wanted]
        while left:
            atom = left[-1]
            if _private.is_literal(atom):
                left.pop()
            elif atom in self.stored:
                left.pop()
                if not self.taken & self.bits[atom]:
                    self.take(atom)
            elif self.producers.get(atom) is None or self.producers[atom] in self.done:
                left.pop()
            else:
                self.compute_eqn(self.producers[atom], left)

    def compute_last(self, number: int) -> None:
        """Adds an equation that no output needs, after the equations that compute its operands."""
        for atom in self.jaxpr.eqns[number].invars:
            if _private.is_literal(atom) or not self.is_handed_on(self.jaxpr.eqns[number], atom):
                self.compute(atom)
        self.compute_eqn(number, [])

    def compute_eqn(self, number: int, left: list[Atom]) -> None:
        """Adds an equation to the plan if all operands are computed. Otherwise, appends a missing
        operand to `left`."""
        eqn = self.jaxpr.eqns[number]
        for atom in eqn.invars:
            if _private.is_literal(atom) or self.is_handed_on(eqn, atom):
                continue
            producer = self.producers.get(atom)
            is_missing = not self.taken & self.bits[atom] if atom in self.stored else \
                producer is not None and producer not in self.done
            if is_missing:
                left.append(atom)
                return
        self.done.add(number)
        self.groups[-1].steps.append(eqn)


class Run:
    """Computes a jaxpr in the order of its plan."""

    def __init__(self, jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None],
                 group_bytes: int, depth: int = 0) -> None:
        inner = _private.open_jaxpr(jaxpr)
        self.inner, self.labels, self.group_bytes = inner, labels, group_bytes
        self.depth = depth
        self.values: dict[Atom, Any] = dict(zip(
            (*inner.constvars, *inner.invars), (*getattr(jaxpr, "consts", ()), *args),
            strict=True))
        self.stored = {var: arg for var, arg in zip(inner.invars, args) if is_stored(arg)}
        self.taken: dict[Atom, Any] = {}
        self.outputs: dict[int, Any] = {}
        self.uses: dict[Atom, int] = {}
        for atom in (*(atom for eqn in inner.eqns for atom in eqn.invars), *inner.outvars):
            if not _private.is_literal(atom):
                self.uses[atom] = self.uses.get(atom, 0) + 1

    def read(self, atom: Atom) -> Any:
        if _private.is_literal(atom):
            return atom.val
        return self.taken[atom] if atom in self.taken else self.values[atom]

    def has(self, atom: Atom) -> bool:
        """Returns whether the array of `atom` exists already."""
        return _private.is_literal(atom) or atom in self.taken or \
            atom in self.values and not is_stored(self.values[atom])

    def results(self, order: Sequence[int] | None = None,
                follow: "Callable[[Run], list[Any]]" = lambda run: []) -> list[Any]:
        """Returns the outputs.

        order     The indices of the outputs, in the order of their computation. None: from the
                  last output to the first.
        follow    A function that is called after each group. It computes arrays from the values
                  known by then, and returns these arrays. Group i + 2 takes its inputs only when
                  the arrays returned after group i exist.
        """
        for i, (atom, label) in enumerate(zip(self.inner.outvars, self.labels)):
            if label is not None and not _private.is_literal(atom) and \
                    atom in self.stored and self.stored[atom].label == label:
                self.outputs[i] = self.stored[atom]
        wanted = {i for i, label in enumerate(self.labels)
                  if label is not None and i not in self.outputs}
        if order is None:
            order = range(len(self.labels))[::-1]
        plan = _Plan(self.inner, {var: arg.nbytes for var, arg in self.stored.items()}, wanted,
                     self.outputs, order, self.group_bytes)
        first = [value for value in self.values.values()
                 if not is_stored(value) and _finish.is_value(jax.typeof(value))][:1]
        inputs = self.inputs_of(plan.groups)
        ties: list[Any] = []
        for i, group in enumerate(plan.groups):
            if not i:
                self.tie(group, inputs[i] or first)
            if i + 1 < len(plan.groups):
                self.tie(plan.groups[i + 1], [*ties, *inputs[i + 1]] or first)
            ties = [token for step in group.steps if (token := self.step(step)) is not None]
            ties += follow(self)
        return [self.outputs[i] if i in self.outputs else self.read(atom)
                for i, atom in enumerate(self.inner.outvars)]

    def inputs_of(self, groups: Sequence[_Group]) -> list[list[Any]]:
        """Returns, for each group, the inputs that no earlier group uses, such as gradients."""
        known, found = set(self.values), []
        for group in groups:
            new = {atom: None for step in group.steps if not isinstance(step, (_Take, _Put))
                   for atom in step.invars if not _private.is_literal(atom) and atom in known}
            known -= set(new)
            values = [self.values[atom] for atom in new]
            found.append([value for value in values if not is_stored(value) and
                          _finish.is_value(jax.typeof(value))])
        return found

    def tie(self, group: _Group, ties: Sequence[Any]) -> None:
        """Delays the steps that take the inputs of `group` until `ties` exist. Announces these
        inputs to the store."""
        if not ties or not group.takes:
            return
        leaves = [self.stored[var] for var in group.takes]
        tokens = _primitives.tie_p.bind(*(leaf.token for leaf in leaves), *ties,
                                        numbers=(-1,) * len(leaves))
        self.stored.update((var, Stored(token, leaf.ghost, leaf.label))
                           for var, leaf, token in zip(group.takes, leaves, tokens))

    def step(self, step: "_Take | _Put | Eqn") -> Any:
        """Runs a step. Returns the token of the output if the step puts one, else None."""
        if isinstance(step, _Take):
            leaf = self.stored[step.var]
            self.taken[step.var] = _primitives.take(leaf.token, leaf.ghost, leaf.label, False)
        elif isinstance(step, _Put):
            return self.put(step.output)
        elif step.primitive.name == "cond":
            self.cond(step)
        else:
            self.values.update(zip(step.outvars, _private.run_eqn(
                step, list(map(self.read, step.invars)))))
        return None

    def put(self, output: int) -> Any:
        atom, label = self.inner.outvars[output], self.labels[output]
        assert label is not None
        value = self.read(atom)
        self.outputs[output] = value if is_stored(value) else store(value, label)
        return self.outputs[output].token

    def cond(self, eqn: Eqn) -> None:
        """Computes a lax.cond whose branches get and return stored arrays."""
        wanted: dict[Atom, str | None] = {
            atom: label for atom, label in zip(self.inner.outvars, self.labels)
            if not _private.is_literal(atom) and self.uses[atom] == 1}
        labels = [wanted.get(var) for var in eqn.outvars]
        operands = [self.stored[atom] if atom in self.stored else self.read(atom)
                    for atom in eqn.invars[1:]]
        branches = [partial(_branch, branch, labels, self.group_bytes, self.depth)
                    for branch in eqn.params["branches"]]
        results = jax.lax.switch(self.read(eqn.invars[0]), branches, *operands)
        self.values.update(zip(eqn.outvars, results))


# The maximum depth of nested choices (see choice()). Each level doubles the number of equations.
MOST_CHOICES = 3


def _branch(jaxpr: Jaxpr, labels: Sequence[str | None], group_bytes: int | None, depth: int,
            *args: Any) -> Any:
    return run(jaxpr, args, labels, group_bytes, depth)


def prepared(jaxpr: Jaxpr, select: bool = False) -> Jaxpr:
    """Returns `jaxpr`, a closed jaxpr, without function calls and without unnecessary equations.
    `select`: as for _choices.flat().

    Raises:
      NotImplementedError: The jaxpr has effects that must stay in their order.
    """
    jaxpr = _private.dce(_choices.flat(jaxpr, select))
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        if _private.must_stay_in_order(eqn):
            raise NotImplementedError(
                f"{eqn.primitive} at {_private.place_of(eqn.source_info)}: actmem.optax changes "
                "the order of an update, so the update must not use refs or ordered callbacks")
    return jaxpr


def choice(jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None]) -> Atom | None:
    """Returns the scalar condition that says whether outputs equal stored inputs, or None if the
    program has no such condition."""
    inner = _private.open_jaxpr(jaxpr)
    inputs = {arg.label: var for var, arg in zip(inner.invars, args) if is_stored(arg)}
    kept = {i: inputs[label] for i, label in enumerate(labels) if label in inputs}
    return _choices.choice(jaxpr, kept)


def run(jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None],
        group_bytes: int | None, depth: int = 0) -> list[Any]:
    """Returns the outputs of a closed jaxpr.

    args         The inputs. An array can be a Stored.
    labels       For each output, the label under which to store the output; None: do not store. If
                 an output is a stored input with the same label, run() returns this input.
    group_bytes  The maximum bytes of stored inputs in a group. A larger input is a group of its
                 own. None: the host computes the stored outputs (_host.py).
    depth        The number of nested choices around this jaxpr (see MOST_CHOICES).
    """
    jaxpr = prepared(jaxpr, select=group_bytes is None)
    chosen = choice(jaxpr, args, labels) if depth < MOST_CHOICES else None
    if chosen is None:
        return _host.Run(jaxpr, args, labels).results() if group_bytes is None else \
            Run(jaxpr, args, labels, group_bytes, depth).results()
    value, = run(_choices.only(jaxpr, [chosen]), args, [None], group_bytes)
    branches = [partial(_branch, _choices.assuming(jaxpr, chosen, is_true), labels, group_bytes,
                        depth + 1) for is_true in (True, False)]
    outputs: list[Any] = jax.lax.cond(value, *branches, *args)
    return outputs
