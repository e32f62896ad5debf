# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Completes a program after JAX's transformations, before JAX lowers it for XLA.

A put stores a value in a block and returns a token; a take returns the token's value (_kept.py).
JAX differentiates, batches and splits puts and takes like other primitives. This module then
follows each token through the resulting program. A token is one reference to its block. lib/xla
frees the block when the last reference is dropped. So each reference has one owner, which drops the
reference once:

* A jaxpr owns the tokens that its equations create, such as the token of a put, and the input
  tokens that its caller gives away. Tokens that a jaxpr returns belong to its caller.
* If the only use of a token is a take, the take also drops the token (the take "ends" the token).
  If the program takes a token's value several times, or in each iteration of a loop, a separate
  equation drops the token after its last use.
* If an equation selects, gathers or copies tokens, its results are new references (hold). The
  operands of such an equation are dropped after their last use, like other tokens.
* Python owns the tokens that a program receives or returns, and drops these tokens when their array
  is deleted (_tokens.py). But if the caller of a program donates the tokens of a state (_state.py),
  the program owns these tokens.

This module also adds ties and numbers:

* The token of a take may pass through the barrier of a rematerialisation. A tie then makes the take
  wait for a value of the backward pass that passes through the same barrier. Without a tie, XLA:CPU
  would run the take right after the put of the value, because XLA:CPU drops barriers.
* Programs that store values with the same label (the value's name in error messages) get different
  numbers, so that the handlers can count the unfinished executions of each program separately.
"""
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

from actmem.jax import _private
from actmem.jax._calls import site_of
from actmem.jax._kept import STEP, is_ghost, is_kept, is_state, is_token
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr, Primitive
from actmem.jax._primitives import (drop_p, dropped_of, ghost_p, hold_p, mark_p, put_p,
                                    result_ghost_p, take_p, tie_p, update_p)

_numbers: dict[str, Iterator[int]] = {}     # site_of(label) → number of the next program
_numbers_lock = threading.Lock()

# Primitives with one inner jaxpr, and the parameter that contains this jaxpr. The inputs of the
# jaxpr are the operands of the primitive, in the same order.
_CALLS = _private.CALLS | {"remat2": "jaxpr", "checkpoint": "jaxpr", "eval_jaxpr": "call_jaxpr",
                           "shard_map": "jaxpr", "run_state": "jaxpr",
                           "actmem_together": "jaxpr"}


# Primitives that return all elements of their operand, in another order or shape.
_ALIKE = {"reshape", "transpose", "squeeze", "broadcast_in_dim", "rev", "copy", "copy_p",
          "sharding_constraint", "reshard", "mesh_cast", "pvary", "pcast"}


def _hands_on(eqn: Eqn) -> bool:
    """Returns whether `eqn` only passes on the tokens of its operands to its results."""
    name = eqn.primitive.name
    return name == "optimization_barrier" or eqn.primitive in (tie_p, mark_p) or \
        name in _ALIKE and eqn.invars[0].aval.size == eqn.outvars[0].aval.size


def _is_unwanted(eqn: Eqn) -> bool:
    """Returns whether `eqn` is a put that stores nothing, because no take needs its value."""
    return eqn.primitive is put_p and not eqn.params["wanted"]


def _mentions(jaxpr: Jaxpr, seen: dict[int, bool]) -> bool:
    """Returns whether `jaxpr`, or a jaxpr inside it, creates, uses or passes on tokens."""
    jaxpr = _private.open_jaxpr(jaxpr)
    if id(jaxpr) not in seen:
        seen[id(jaxpr)] = any(is_token(var.aval) for var in jaxpr.invars) or any(
            eqn.primitive in (put_p, take_p, update_p) or
            any(is_token(atom.aval) for atom in (*eqn.invars, *eqn.outvars)) or
            any(_mentions(inner, seen) for inner in _private.inner_jaxprs(eqn.params))
            for eqn in jaxpr.eqns)
    return seen[id(jaxpr)]


def _labels_of_puts(jaxpr: Jaxpr) -> Iterator[str]:
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        if eqn.primitive is put_p:
            yield eqn.params["label"]
        elif eqn.primitive is update_p:
            yield from eqn.params["labels"]
        for inner in _private.inner_jaxprs(eqn.params):
            yield from _labels_of_puts(inner)


class _Program:
    def __init__(self, puts: set[str], received: set[str], many: bool, gives_away: bool) -> None:
        self.puts = puts            # labels of the values that the program stores
        self.received = received    # labels of the states that the program gets
        self.many = many            # true if the program can take some value more than once
        self.gives_away = gives_away    # true if it returns tokens other than those of states
        self.found_many = False
        self.numbers: dict[str, int] = {}
        self.announced = itertools.count()
        self.seen: dict[int, bool] = {}

    def number(self, label: str) -> int:
        site = site_of(label)
        if site not in self.numbers:
            with _numbers_lock:
                self.numbers[site] = next(_numbers.setdefault(site, itertools.count(1)))
        return self.numbers[site]

    def jaxpr(self, jaxpr: Jaxpr, owned_in: Sequence[bool], tie: int | None = None,
              numbers: Sequence[int | None] | None = None) -> Jaxpr:
        """Returns the completed `jaxpr`, which drops the tokens that it owns, except those that it
        returns. The jaxpr's caller owns the returned tokens.

        owned_in  For each input, whether it is an array of tokens that the caller gives away.
        tie       The index of the input to which the jaxpr ties all its input tokens, or None.
        numbers   For each input, the number under which a tie announced the take of the input's
                  value, or None. A tie announces takes, so that lib/xla can copy the blocks to the
                  device before the takes run.
        """
        inner = _private.open_jaxpr(jaxpr)
        if not _mentions(inner, self.seen):
            return jaxpr
        return _Body(self, inner, owned_in, tie, numbers).finished(jaxpr)


class _Flow:
    """The tokens of a variable, and of the other variables of one jaxpr that have the same
    tokens."""

    def __init__(self, source: Atom) -> None:
        self.source = source
        self.uses = 0
        self.last: Eqn = None       # the last use of the tokens; None if the jaxpr returns them


class _Body:
    """One jaxpr of a program."""

    def __init__(self, program: _Program, jaxpr: Jaxpr, owned_in: Sequence[bool],
                 tie: int | None, numbers: Sequence[int | None] | None) -> None:
        self.program = program
        self.source = _private.with_eqns(jaxpr, [_without_ghosts(eqn)
                                                 for eqn in jaxpr.eqns])
        self.eqns: list[Eqn] = []
        self.renamed: dict[Atom, Atom] = {}     # variable → the tied or held tokens
        self.ties: dict[_Flow, list[Atom]] = {}
        self.numbers: dict[Atom, int | None] = dict(
            zip(jaxpr.invars, numbers or [None] * len(jaxpr.invars)))
        self.flows: dict[Atom, _Flow] = {}
        self.follow()
        self.owned = {var for var, owned in zip(jaxpr.invars, owned_in)
                      if owned and is_token(var.aval)}
        if tie is not None:
            self.tie([var for var in jaxpr.invars if is_token(var.aval)],
                     jaxpr.invars[tie])
        self.drop_unused(jaxpr.invars)

    @staticmethod
    def is_token(atom: Atom) -> bool:
        return not isinstance(atom, Literal) and is_token(atom.aval)

    def follow(self) -> None:
        self.flows.update((var, _Flow(var)) for var in (*self.source.constvars,
                                                        *self.source.invars))
        for eqn in self.source.eqns:
            self.flows.update((var, _Flow(var)) for var in eqn.outvars)
            count = len(eqn.params["numbers"] if eqn.primitive is tie_p else eqn.invars)
            tokens = [(i, self.flows[atom]) for i, atom in enumerate(eqn.invars[:count])
                      if self.is_token(atom)]
            for i, flow in tokens:
                if _hands_on(eqn):
                    self.flows[eqn.outvars[i]] = flow
                else:
                    flow.uses += 1
                    flow.last = eqn
        for atom in self.source.outvars:
            if self.is_token(atom):
                self.flows[atom].uses += 1
                self.flows[atom].last = None

    def is_owned(self, atom: Atom) -> bool:
        return self.is_token(atom) and self.flows[atom].source in self.owned

    def moved(self, atom: Atom) -> bool:
        """Returns whether this jaxpr owns the tokens `atom` and uses them only once."""
        return self.is_owned(atom) and self.flows[atom].uses == 1

    def finished(self, jaxpr: Jaxpr) -> Jaxpr:
        for eqn in self.source.eqns:
            self.add(eqn)
        outvars = list(map(self.read, self.source.outvars))
        for i, atom in reversed(list(enumerate(self.source.outvars))):
            if not self.is_token(atom) or self.moved(atom):
                continue
            self.program.found_many = True
            flow = self.flows[atom]
            is_first = not any(self.is_token(other) and self.flows[other] is flow
                               for other in self.source.outvars[:i])
            if self.is_owned(atom) and is_first:
                outvars[i] = self.after(outvars[i], self.ties.get(flow, ()))
            else:
                outvars[i] = self.hold(atom)
                self.ties.setdefault(flow, []).append(outvars[i])
        return _private.with_eqns(jaxpr, self.eqns, outvars=outvars)

    def after(self, token: Atom, ties: Sequence[Atom]) -> Atom:
        """Returns the token, tied to `ties`. The new token exists only after `ties` exist, so a
        call that ends the new token cannot run before `ties` are computed."""
        for tie in ties:
            token, = self.emit(tie_p, [token, tie], [token.aval], numbers=(-1,))
        return token

    def read(self, atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else self.renamed.get(atom, atom)

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
        self.renamed.update(zip(tokens, new))
        self.numbers.update((var, self.numbers[token]) for token, var in zip(tokens, new))

    def tied(self, eqn: Eqn, invars: Sequence[Atom]) -> Eqn:
        """Completes a tie of the traced program: announces the takes of the tied tokens."""
        numbers = [-1 if var.aval.shape else next(self.program.announced)
                   for var in eqn.outvars]
        self.numbers.update((var, None if number < 0 else number)
                            for var, number in zip(eqn.outvars, numbers))
        return eqn.replace(invars=invars, params={"numbers": tuple(numbers)})

    def hold(self, atom: Atom) -> Atom:
        """Makes new references to the blocks of the tokens `atom`."""
        new, = self.emit(hold_p, [atom], [atom.aval])
        return new

    def drop_unused(self, variables: Sequence[Atom]) -> None:
        for var in variables:
            if var in self.owned and not self.flows[var].uses:
                self.drop(var, [])

    def drop(self, token: Atom, ties: Sequence[Atom]) -> None:
        self.owned.remove(token)
        self.emit(drop_p, [token, *ties], [dropped_of(token.aval)])

    def add(self, eqn: Eqn) -> None:
        moved = [self.moved(atom) for atom in eqn.invars]
        new, ended = self.of(eqn, moved)
        self.eqns.append(new)
        if _hands_on(eqn):
            self.barrier(eqn)
            return
        made = [] if _is_unwanted(eqn) else \
            [var for var in eqn.outvars if is_token(var.aval)]
        # The caller of an exported program owns the tokens that the program returns.
        is_choice = made and eqn.primitive is not update_p and any(map(self.is_token, eqn.invars)) and \
            not any(_private.inner_jaxprs(eqn.params)) and eqn.primitive.name != "call_exported"
        if is_choice:       # one of JAX's array operations selects among tokens
            self.program.found_many = True
            self.renamed.update([(var, self.hold(var)) for var in made])
        self.owned.update(made)
        self.drop_unused(made)
        self.drop_read(eqn, ended)

    def drop_read(self, eqn: Eqn, ended: Sequence[bool]) -> None:
        """Drops the tokens whose last use is `eqn`, unless `eqn` ends them."""
        for flow in {self.flows[atom] for atom, is_ended in zip(eqn.invars, ended)
                     if self.is_owned(atom) and not is_ended}:
            self.program.found_many = True
            ties = self.ties.setdefault(flow, [])
            ties += [self.read(var) for var in eqn.outvars if _can_tie(var.aval)]
            if flow.last is eqn:
                self.drop(flow.source, ties)

    def barrier(self, eqn: Eqn) -> None:
        if eqn.primitive.name != "optimization_barrier":
            return
        tokens = [var for var in eqn.outvars
                  if is_token(var.aval) and self.flows[var].uses]
        self.tie(tokens, _tie_among(eqn.outvars))

    def of(self, eqn: Eqn, moved: list[bool]) -> tuple[Eqn, Sequence[bool]]:
        """Returns the completed equation, and for each operand, whether the equation ends the
        operand's tokens."""
        program, name, params = self.program, eqn.primitive.name, eqn.params
        invars = [self.read(atom) for atom in eqn.invars]
        if eqn.primitive is put_p:
            is_given = program.gives_away or params["use"] != STEP
            params = {**params, "number": program.number(params["label"]),
                      "bounded": not is_given, "many": program.many or is_given,
                      "received": params["label"] in program.received}
            return eqn.replace(params=params), moved
        if eqn.primitive is update_p:
            return self.update(eqn, invars, moved), moved
        if eqn.primitive is tie_p:
            return self.tied(eqn, invars), moved
        if eqn.primitive is take_p:
            label = params["label"]
            params = {**params, "ends": moved[0],
                      "number": program.number(label) if label in program.puts else None,
                      "announced": self.number(invars[0]),
                      "received": label in program.received}
            return eqn.replace(invars=invars, params=params), moved
        if eqn.primitive is drop_p:
            return eqn.replace(invars=invars), moved
        if name == "scan":
            return self.scan(eqn, invars, moved), moved
        if name in ("while", "cond"):
            return (self.loop if name == "while" else self.cond)(eqn, invars, moved), moved
        inside = _CALLS.get(name)
        if inside in params:
            self.given(eqn, invars)
            is_remat = name in ("remat2", "checkpoint") and params.get("differentiated")
            jaxpr = _private.open_jaxpr(params[inside])
            tie = _tie_index(jaxpr.invars) if is_remat else None
            new = program.jaxpr(params[inside], list(map(self.is_owned, eqn.invars)), tie,
                                [self.number(atom) for atom in invars])
            return eqn.replace(invars=invars, params={**params, inside: new}), moved
        inner = {key: self.all_of(value) for key, value in params.items()}
        return eqn.replace(invars=invars, params=inner), [False] * len(invars)

    def update(self, eqn: Eqn, invars: list[Atom], moved: Sequence[bool]) -> Eqn:
        program, params = self.program, eqn.params
        are_given = [program.gives_away or use != STEP for use in params["uses"]]
        tokens = sum(map(self.is_token, eqn.invars))
        return eqn.replace(invars=invars, params={
            **params, "numbers": tuple(map(program.number, params["labels"])),
            "bounded": tuple(not is_given for is_given in are_given),
            "many": tuple(program.many or is_given for is_given in are_given),
            "ends": tuple(moved[:tokens])})

    def all_of(self, value: Any) -> Any:
        """Completes a parameter of an equation whose primitive this module does not know. Jaxprs in
        the parameter do not drop their input tokens."""
        if _private.is_jaxpr(value):
            jaxpr = _private.open_jaxpr(value)
            return self.program.jaxpr(value, [False] * len(jaxpr.invars))
        if isinstance(value, tuple) and any(map(_private.is_jaxpr, value)):
            items = list(map(self.all_of, value))
            return value._make(items) if hasattr(value, "_make") else tuple(items)
        return value

    def carried(self, eqn: Eqn, invars: list[Atom], moved: list[bool], first: int,
                count: int) -> None:
        """Makes new references to tokens that a loop carries from one iteration to the next, unless
        this jaxpr gives its own references to the loop. Each iteration owns the carried tokens that
        it gets."""
        for i in range(first, first + count):
            if self.is_token(eqn.invars[i]) and not moved[i]:
                invars[i] = self.hold(eqn.invars[i])

    def given(self, eqn: Eqn, invars: list[Atom]) -> None:
        """Makes new references, for a call, to tokens that this jaxpr owns and also uses elsewhere.
        Without the new references, this jaxpr would drop the tokens as soon as the call's results
        exist. But XLA inlines the call, so the results may exist before the call has taken the
        values of its tokens."""
        for i, atom in enumerate(eqn.invars):
            if self.is_owned(atom) and not self.moved(atom):
                number = self.number(invars[i])
                invars[i] = self.hold(atom)
                self.numbers[invars[i]] = number
                self.ties.setdefault(self.flows[atom], []).append(invars[i])

    def scan(self, eqn: Eqn, invars: list[Atom], moved: list[bool]) -> Eqn:
        consts, carries = (count(eqn.params) for count in (_private.scan_consts,
                                                           _private.scan_carries))
        self.carried(eqn, invars, moved, consts, carries)
        self.shared(eqn, invars, moved, consts + carries)
        moved[:consts] = [False] * consts
        new = self.program.jaxpr(eqn.params["jaxpr"], [
            *moved[:consts], *[True] * carries, *moved[consts + carries:]])
        return eqn.replace(invars=invars, params={**eqn.params, "jaxpr": new})

    def shared(self, eqn: Eqn, invars: list[Atom], moved: list[bool], first: int) -> None:
        """Gives a scan references to tokens that it iterates over, if this jaxpr owns these tokens
        and also uses them elsewhere. The last scan gets the jaxpr's own references, so its
        iterations free the blocks one by one. Other scans get new references. `first` is the index
        of the first operand that the scan iterates over."""
        flows = [self.flows[atom] if self.is_token(atom) else None for atom in eqn.invars]
        for i in range(first, len(invars)):
            flow = flows[i]
            if flow is None or moved[i] or not self.is_owned(eqn.invars[i]):
                continue
            self.program.found_many = moved[i] = True
            ties = self.ties.setdefault(flow, [])
            if flow.last is eqn and flows.count(flow) == 1:
                self.owned.remove(flow.source)
                invars[i] = self.after(invars[i], ties)
            else:
                invars[i] = self.hold(eqn.invars[i])
                ties.append(invars[i])

    def loop(self, eqn: Eqn, invars: list[Atom], moved: list[bool]) -> Eqn:
        params = eqn.params
        tested, body = params["cond_nconsts"], params["body_nconsts"]
        consts, carries = tested + body, len(invars) - tested - body
        self.carried(eqn, invars, moved, consts, carries)
        moved[:consts] = [False] * consts
        test = self.program.jaxpr(params["cond_jaxpr"], [False] * (tested + carries))
        new = self.program.jaxpr(params["body_jaxpr"], [*[False] * body, *[True] * carries])
        return eqn.replace(invars=invars, params={**params, "cond_jaxpr": test,
                                                  "body_jaxpr": new})

    def cond(self, eqn: Eqn, invars: list[Atom], moved: list[bool]) -> Eqn:
        branches = tuple(self.program.jaxpr(branch, moved[1:])
                         for branch in eqn.params["branches"])
        return eqn.replace(invars=invars, params={**eqn.params, "branches": branches})


def _without_ghosts(eqn: Eqn) -> Eqn:
    """Creates ghosts inside the shard_map that uses them, instead of passing ghosts to the
    shard_map. A ghost is an array without bytes (_kept.py), and XLA in JAX 0.11 crashes if a
    shard_map gets such an array."""
    if eqn.primitive.name != "shard_map":
        return eqn
    jaxpr = eqn.params["jaxpr"]
    are_ghosts = [is_ghost(var.aval) for var in jaxpr.invars]
    ghosts = [_private.new_eqn([], [var], ghost_p, dict(aval=var.aval), set())
              for var in itertools.compress(jaxpr.invars, are_ghosts)]

    def others(values: Sequence[Any]) -> list[Any]:
        return [value for value, ghost in zip(values, are_ghosts) if not ghost]
    inner = _private.with_eqns(jaxpr, [*ghosts, *jaxpr.eqns], invars=others(jaxpr.invars))
    return eqn.replace(invars=others(eqn.invars), params={
        **eqn.params, "jaxpr": inner, "in_specs": tuple(others(eqn.params["in_specs"]))})


def _with_result_ghosts(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program with a new ghost in place of each ghost that it returns, because the
    compiler would be slow if returned ghosts were constants (_calls.ghost())."""
    inner = _private.open_jaxpr(jaxpr)
    token = next((atom for atom in inner.outvars if is_token(atom.aval)), None)
    if token is None:
        return jaxpr
    eqns, outvars = list(inner.eqns), list(inner.outvars)
    for i, atom in enumerate(outvars):
        if is_ghost(atom.aval):
            outvars[i] = _private.Var(atom.aval)
            eqns.append(_private.new_eqn([token], [outvars[i]], result_ghost_p,
                                         dict(aval=atom.aval), set()))
    return _private.with_eqns(jaxpr, eqns, outvars=outvars)


def is_value(aval: Aval) -> bool:
    """Returns whether values of this type have a form in memory that a custom call can read."""
    return isinstance(aval, _private.ShapedArray) and bool(aval.size) and \
        not _private.is_extended(aval.dtype) and not _private.is_packed(aval.dtype)


def _can_tie(aval: Aval) -> bool:
    return is_value(aval) or is_token(aval) and bool(aval.size)


def _tie_index(variables: Sequence[Atom]) -> int | None:
    """Returns the index of the last variable that is_value() accepts. In a backward pass, that
    variable is a cotangent."""
    for i in reversed(range(len(variables))):
        if is_value(variables[i].aval):
            return i
    return None


def _tie_among(variables: Sequence[Atom]) -> Atom | None:
    index = _tie_index(variables)
    return None if index is None else variables[index]


_when_whole: list[Callable[[str, Jaxpr], object]] = []


def when_whole(tell: Callable[[str, Jaxpr], object]) -> None:
    """Registers `tell` to be called with the name and the jaxpr of each completed program."""
    _when_whole.append(tell)


def finish(jaxpr: Jaxpr, donated: Sequence[bool]) -> Jaxpr:
    """Returns the jaxpr of a whole program, ready to be lowered. `donated` is the result of
    _may_donate(): for each input, whether it is donated."""
    inner = _private.open_jaxpr(jaxpr)
    if not _mentions(inner, {}):
        return jaxpr
    gives_away = any(is_token(atom.aval) and not is_state(atom.aval) for atom in inner.outvars)
    owned = [is_given and is_token(var.aval) for var, is_given in zip(inner.invars, donated)]
    puts = set(_labels_of_puts(jaxpr))
    received = {var.aval.dtype.of[2] for var in (*inner.constvars, *inner.invars)
                if is_state(var.aval)}
    program = _Program(puts, received, False, gives_away)
    finished = program.jaxpr(jaxpr, owned)
    if program.found_many:
        again = _Program(puts, received, True, gives_away)
        again.numbers = program.numbers
        finished = again.jaxpr(jaxpr, owned)
    return _with_result_ghosts(finished)


def _may_donate(jaxpr: Jaxpr, donated: Sequence[bool]) -> Sequence[bool]:
    """Returns for each input whether to donate it. Ghosts are not donated, because they have no
    memory. The only tokens that are donated are those of states. The program owns donated tokens,
    so JAX must delete their arrays. But JAX deletes a donated array only if an output reuses the
    array's memory. So if the caller donates more arrays of states' tokens than the program returns,
    none of these arrays is donated."""
    def count(variables: Sequence[Atom]) -> int:
        return sum(is_state(var.aval) for var in variables)
    inner = _private.open_jaxpr(jaxpr)
    states = count([var for var, is_given in zip(inner.invars, donated) if is_given])
    owns_states = states <= count(inner.outvars)
    return [is_given and (not is_kept(var.aval) or is_state(var.aval) and owns_states)
            for var, is_given in zip(inner.invars, donated)]


def _finish_and_tell(name: str, jaxpr: Jaxpr,
                     donated: Sequence[bool]) -> tuple[Jaxpr, Sequence[bool]]:
    donated = _may_donate(jaxpr, donated)
    jaxpr = finish(jaxpr, donated)
    for tell in _when_whole:
        tell(name, jaxpr)
    return jaxpr, donated


_private.before_lowering(_finish_and_tell)
