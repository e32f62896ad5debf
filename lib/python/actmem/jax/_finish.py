# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Work left until a program is whole, before it becomes XLA's.

JAX differentiates, batches and splits puts and takes without asking what they are. Here
each token is followed through the program that came of it:

* A token that goes one way, to one take, ends with it. One that is taken several times,
  or in every turn of a loop, is dropped after the last. One that the program was given,
  or gives away, is Python's, and is dropped when its array is gone (_tokens.py).
* A take whose token comes through the barrier of a rematerialisation is tied to a value
  of the backward pass that goes through it, too: XLA's for CPUs drops barriers, and what
  is not tied would be taken as soon as it was put.
* The puts of a program are numbered by it, so that unfinished executions of it are told
  from those of others.
* A program in which nothing chooses what is put and taken says so: on a GPU its steps are
  foreseen.
"""
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

from actmem.jax import _private
from actmem.jax._kept import is_kept, is_token
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr, Primitive
from actmem.jax._primitives import (drop_p, dropped_of, ghost_p, hold_p, put_p, take_p,
                                    tie_p)

_numbers: dict[str, Iterator[int]] = {}     # label → numbers of programs
_numbers_lock = threading.Lock()

# Of these, operands go to the inputs of the one jaxpr inside, one by one.
_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr",
          "closed_call": "call_jaxpr", "core_call": "call_jaxpr",
          "eval_jaxpr": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "call_jaxpr",
          "shard_map": "jaxpr", "run_state": "jaxpr", "actmem_together": "jaxpr"}


def _uses(eqn: Eqn) -> bool:
    """Whether `eqn` does more with a token than to hand it on."""
    return eqn.primitive in (take_p, drop_p) or \
        eqn.primitive.name in ("scan", "while", "cond", *_CALLS)


def _mentions(jaxpr: Jaxpr, seen: dict[int, bool]) -> bool:
    """Whether `jaxpr` puts or takes, inside of anything, or hands tokens on."""
    jaxpr = _private.open_jaxpr(jaxpr)
    if id(jaxpr) not in seen:
        seen[id(jaxpr)] = any(is_token(var.aval) for var in jaxpr.invars) or any(
            eqn.primitive in (put_p, take_p) or
            any(is_token(atom.aval) for atom in (*eqn.invars, *eqn.outvars)) or
            any(_mentions(inner, seen) for inner in _private.inner_jaxprs(eqn.params))
            for eqn in jaxpr.eqns)
    return seen[id(jaxpr)]


class _Program:
    def __init__(self, many: bool, gives_away: bool, fixed: bool) -> None:
        self.many = many            # some token is taken more than once
        self.gives_away = gives_away
        self.fixed = fixed          # no condition has a put or a take, nor chooses a token
        self.found_many = False
        self.found_choice = False
        self.numbers: dict[str, int] = {}
        self.announced = itertools.count()
        self.seen: dict[int, bool] = {}

    def number(self, label: str) -> int:
        if label not in self.numbers:
            with _numbers_lock:
                self.numbers[label] = next(_numbers.setdefault(label, itertools.count(1)))
        return self.numbers[label]

    def jaxpr(self, jaxpr: Jaxpr, owned_in: Sequence[bool], tie: int | None = None,
              numbers: Sequence[int | None] | None = None,
              is_whole: bool = False) -> tuple[Jaxpr, list[bool]]:
        """`jaxpr` finished, and which of its results are tokens that it owned.

        owned_in  which inputs are tokens that nobody else takes
        tie       the index of the input to tie all tokens among the inputs to
        numbers   as what takes of tokens among the inputs were announced
        """
        inner = _private.open_jaxpr(jaxpr)
        if not _mentions(inner, self.seen):
            return jaxpr, [False] * len(inner.outvars)
        return _Body(self, inner, owned_in, tie, numbers, is_whole).finished(jaxpr)


class _Flow:
    """A token of a jaxpr, under all names that it has where it is only handed on."""

    def __init__(self, var: Atom) -> None:
        self.sources = [var]        # more than one where it is chosen among them
        self.uses = 0
        self.last: Eqn = None       # the equation that uses it last; none: it is a result

    def joined(self, other: "_Flow") -> "_Flow":
        if other is not self:
            self.sources += other.sources
        return self


class _Body:
    """One jaxpr of a program."""

    def __init__(self, program: _Program, jaxpr: Jaxpr, owned_in: Sequence[bool],
                 tie: int | None, numbers: Sequence[int | None] | None,
                 is_whole: bool) -> None:
        self.program, self.is_whole = program, is_whole
        self.source = _private.with_eqns(jaxpr, [_without_ghosts(eqn)
                                                 for eqn in jaxpr.eqns])
        self.eqns: list[Eqn] = []
        self.tied: dict[Atom, Atom] = {}
        self.given: list[tuple[int, Atom]] = []
        self.ties: dict[_Flow, list[Atom]] = {}
        self.numbers: dict[Atom, int | None] = dict(
            zip(jaxpr.invars, numbers or [None] * len(jaxpr.invars)))
        self.flows: dict[Atom, _Flow] = {}
        self.follow()
        self.owned = {var for var, owned in zip(jaxpr.invars, owned_in) if owned}
        if tie is not None:
            self.tie([var for var in jaxpr.invars if is_token(var.aval)],
                     jaxpr.invars[tie])
        self.drop_unused(jaxpr.invars)

    @staticmethod
    def is_token(atom: Atom) -> bool:
        return not isinstance(atom, Literal) and is_token(atom.aval)

    def follow(self) -> None:
        for var in self.source.invars:
            self.flows[var] = _Flow(var)
        for eqn in self.source.eqns:
            tokens = [self.flows[atom] for atom in eqn.invars if self.is_token(atom)]
            if _uses(eqn):
                for flow in tokens:
                    flow.uses += 1
                    flow.last = eqn
            self.flows.update((var, _Flow(var)) for var in eqn.outvars)
            if _uses(eqn) or not tokens:
                continue
            if eqn.primitive.name == "optimization_barrier":
                for atom, var in zip(eqn.invars, eqn.outvars):
                    if self.is_token(atom):
                        self.flows[var] = self.flows[atom]
                continue
            flow = tokens[0]
            self.program.found_choice |= len(tokens) > 1
            for other in tokens[1:]:
                flow = flow.joined(other)
                self.flows.update((var, flow) for var, its in self.flows.items()
                                  if its is other)
            self.flows.update((var, flow) for var in eqn.outvars if self.is_token(var))
        for atom in self.source.outvars:
            if self.is_token(atom):
                self.flows[atom].uses += 1
                self.flows[atom].last = None

    def is_owned(self, atom: Atom) -> bool:
        return self.is_token(atom) and \
            all(source in self.owned for source in self.flows[atom].sources)

    def moved(self, atom: Atom) -> bool:
        """Whether it goes nowhere else."""
        return self.is_owned(atom) and self.flows[atom].uses == 1 and \
            len(self.flows[atom].sources) == 1

    def finished(self, jaxpr: Jaxpr) -> tuple[Jaxpr, list[bool]]:
        for eqn in self.source.eqns:
            self.add(eqn)
        if self.is_whole:
            self.hold_given_away()
        outvars = [self.read(atom) for atom in self.source.outvars]
        for i, var in self.given:
            outvars[i] = var
        self.program.found_many |= any(self.is_token(atom) and not self.moved(atom)
                                       for atom in self.source.outvars)
        owned = [self.is_owned(atom) for atom in self.source.outvars]
        return _private.with_eqns(jaxpr, self.eqns, outvars=outvars), owned

    def read(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.tied.get(atom, atom)

    def number(self, atom: Atom) -> int | None:
        return None if isinstance(atom, Literal) else self.numbers.get(atom)

    def emit(self, primitive: Primitive, operands: Sequence[Atom], avals: Sequence[Aval],
             **params: Any) -> list[Atom]:
        outvars = [_private.Var(aval) for aval in avals]
        self.eqns.append(_private.new_eqn([self.read(atom) for atom in operands], outvars,
                                          primitive, params, set()))
        return outvars

    def tie(self, tokens: Sequence[Atom], tie: Atom | None) -> None:
        if not tokens or tie is None:
            return
        for token in tokens:
            self.numbers[token] = None if token.aval.shape else next(self.program.announced)
        numbers = [-1 if self.numbers[token] is None else self.numbers[token]
                   for token in tokens]
        new = self.emit(tie_p, [*tokens, tie], [token.aval for token in tokens],
                        numbers=tuple(numbers))
        self.tied.update(zip(tokens, new))
        self.numbers.update((var, self.numbers[token]) for token, var in zip(tokens, new))

    def hold_given_away(self) -> None:
        """Each array of tokens that Python gets is dropped by itself."""
        given: set[_Flow] = set()
        for i, atom in enumerate(self.source.outvars):
            if not self.is_token(atom):
                continue
            if self.is_owned(atom) and self.flows[atom] not in given:
                given.add(self.flows[atom])
                continue
            new, = self.emit(hold_p, [atom], [atom.aval])
            self.given.append((i, new))

    def drop_unused(self, variables: Sequence[Atom]) -> None:
        for var in variables:
            if var in self.owned and not self.flows[var].uses:
                self.drop([var], [])

    def drop(self, tokens: Sequence[Atom], ties: Sequence[Atom]) -> None:
        for token in tokens:
            self.emit(drop_p, [token, *ties], [dropped_of(token.aval)])

    def add(self, eqn: Eqn) -> None:
        moved = [self.moved(atom) for atom in eqn.invars]
        new, owned, ended = self.of(eqn, moved)
        self.eqns.append(new)
        self.owned.update(var for var, is_owned in zip(eqn.outvars, owned)
                          if is_owned and is_token(var.aval))
        self.barrier(eqn)
        self.drop_unused(eqn.outvars)
        if _uses(eqn):
            self.drop_read(eqn, ended)

    def drop_read(self, eqn: Eqn, ended: Sequence[bool]) -> None:
        """Drops what has now been taken for the last time, but was not ended by that."""
        for flow in {self.flows[atom] for atom, is_ended in zip(eqn.invars, ended)
                     if self.is_owned(atom) and not is_ended}:
            self.program.found_many = True
            ties = self.ties.setdefault(flow, [])
            ties += [var for var in eqn.outvars if _is_value(var.aval)]
            if flow.last is eqn:
                self.owned.difference_update(flow.sources)
                self.drop(flow.sources, ties)

    def barrier(self, eqn: Eqn) -> None:
        if eqn.primitive.name != "optimization_barrier":
            return
        tokens = [var for var in eqn.outvars
                  if is_token(var.aval) and self.flows[var].uses]
        self.tie(tokens, _tie_among(eqn.outvars))

    def of(self, eqn: Eqn, moved: list[bool]) -> tuple[Eqn, Sequence[bool], Sequence[bool]]:
        """The equation finished, which of its results are tokens of its own, and which of
        its operands are tokens that it ended."""
        program, name, params = self.program, eqn.primitive.name, eqn.params
        invars = [self.read(atom) for atom in eqn.invars]
        if eqn.primitive is put_p:
            params = {**params, "number": program.number(params["label"]),
                      "bounded": not program.gives_away,
                      "many": program.many or program.gives_away,
                      "fixed": program.fixed}
            return eqn.replace(params=params), [False, True, False], [True]
        if eqn.primitive is take_p:
            params = {**params, "number": program.number(params["label"]),
                      "ends": moved[0], "announced": self.number(invars[0])}
            return eqn.replace(invars=invars, params=params), [False], moved
        if eqn.primitive is drop_p:
            return eqn.replace(invars=invars), [False], [True] * len(invars)
        if name == "scan":
            return self.scan(eqn, invars, moved)
        if name in ("while", "cond"):
            program.found_choice |= any(_mentions(inner, program.seen)
                                        for inner in _private.inner_jaxprs(params))
            return (self.loop if name == "while" else self.cond)(eqn, invars, moved)
        inside = _CALLS.get(name)
        if inside in params:
            is_remat = name in ("remat2", "checkpoint") and params.get("differentiated")
            jaxpr = _private.open_jaxpr(params[inside])
            tie = _tie_index(jaxpr.invars) if is_remat else None
            new, owned = program.jaxpr(params[inside], moved, tie,
                                       [self.number(atom) for atom in invars])
            return eqn.replace(invars=invars, params={**params, inside: new}), owned, moved
        # Others hand tokens on, or make some that nothing is put under.
        inner = {key: self.all_of(value) for key, value in params.items()}
        is_new = not any(self.is_token(atom) for atom in eqn.invars)
        return (eqn.replace(invars=invars, params=inner), [is_new] * len(eqn.outvars),
                [False] * len(invars))

    def all_of(self, value: Any) -> Any:
        """A parameter of an equation that nothing is known of: what is inside keeps its
        tokens."""
        if _private.is_jaxpr(value):
            jaxpr = _private.open_jaxpr(value)
            return self.program.jaxpr(value, [False] * len(jaxpr.invars))[0]
        if isinstance(value, tuple) and any(map(_private.is_jaxpr, value)):
            return tuple(map(self.all_of, value))
        return value

    def scan(self, eqn: Eqn, invars: Sequence[Atom],
             moved: list[bool]) -> tuple[Eqn, Sequence[bool], Sequence[bool]]:
        consts = _private.scan_consts(eqn.params)
        inside = [False] * consts + moved[consts:]
        new, owned = self.program.jaxpr(eqn.params["jaxpr"], inside)
        return (eqn.replace(invars=invars, params={**eqn.params, "jaxpr": new}), owned,
                inside)

    def loop(self, eqn: Eqn, invars: Sequence[Atom],
             moved: list[bool]) -> tuple[Eqn, Sequence[bool], Sequence[bool]]:
        params = eqn.params
        before, body = params["cond_nconsts"], params["body_nconsts"]
        inside = [False] * (before + body) + moved[before + body:]
        new, owned = self.program.jaxpr(params["body_jaxpr"], inside[before:])
        return (eqn.replace(invars=invars, params={**params, "body_jaxpr": new}), owned,
                inside)

    def cond(self, eqn: Eqn, invars: Sequence[Atom],
             moved: list[bool]) -> tuple[Eqn, Sequence[bool], Sequence[bool]]:
        branches, owned = zip(*[self.program.jaxpr(branch, moved[1:])
                                for branch in eqn.params["branches"]])
        return (eqn.replace(invars=invars, params={**eqn.params, "branches": branches}),
                [all(each) for each in zip(*owned)], moved)


def _without_ghosts(eqn: Eqn) -> Eqn:
    """A shard_map makes its ghosts inside: JAX 0.11's XLA crashes where it is given an
    array without bytes."""
    if eqn.primitive.name != "shard_map":
        return eqn
    jaxpr = eqn.params["jaxpr"]
    is_ghost = [is_kept(var.aval) and not is_token(var.aval) for var in jaxpr.invars]
    ghosts = [_private.new_eqn([], [var], ghost_p, dict(aval=var.aval), set())
              for var in itertools.compress(jaxpr.invars, is_ghost)]

    def others(values: Sequence[Any]) -> list[Any]:
        return [value for value, ghost in zip(values, is_ghost) if not ghost]
    inner = _private.with_eqns(jaxpr, [*ghosts, *jaxpr.eqns], invars=others(jaxpr.invars))
    return eqn.replace(invars=others(eqn.invars), params={
        **eqn.params, "jaxpr": inner, "in_specs": tuple(others(eqn.params["in_specs"]))})


def _is_value(aval: Aval) -> bool:
    """Whether there is one in memory that a custom call can have as it is."""
    return isinstance(aval, _private.ShapedArray) and bool(aval.size) and \
        not _private.is_extended(aval.dtype) and not _private.is_packed(aval.dtype)


def _tie_index(variables: Sequence[Atom]) -> int | None:
    """The last that is a value in memory: of a backward pass it is a cotangent."""
    for i in reversed(range(len(variables))):
        if _is_value(variables[i].aval):
            return i
    return None


def _tie_among(variables: Sequence[Atom]) -> Atom | None:
    index = _tie_index(variables)
    return None if index is None else variables[index]


_when_whole: list[Callable[[str, Jaxpr], object]] = []


def when_whole(tell: Callable[[str, Jaxpr], object]) -> None:
    """Has `tell` called with the name and the jaxpr of each program that is finished."""
    _when_whole.append(tell)


def finish(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr of a program, as it is to be lowered."""
    inner = _private.open_jaxpr(jaxpr)
    if not _mentions(inner, {}):
        return jaxpr
    gives_away = any(is_token(atom.aval) for atom in inner.outvars)
    owned = [False] * len(inner.invars)
    program = _Program(False, gives_away, True)
    finished, _ = program.jaxpr(jaxpr, owned, is_whole=True)
    if program.found_many or program.found_choice:
        again = _Program(program.found_many, gives_away, not program.found_choice)
        again.numbers = program.numbers
        finished, _ = again.jaxpr(jaxpr, owned, is_whole=True)
    return finished


def _finish_and_tell(name: str, jaxpr: Jaxpr) -> Jaxpr:
    jaxpr = finish(jaxpr)
    for tell in _when_whole:
        tell(name, jaxpr)
    return jaxpr


_private.before_lowering(_finish_and_tell)
