# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The rules by which JAX splits a rematerialised function into its passes, where the policy
of jax.checkpoint offloads a value to actmem: with a put in the forward and a take in the
backward pass. All else of such a function is JAX's own business.

Without jax_remat3 JAX splits a jaxpr, equation by equation, and asks the policy of each;
the rule is looked up by primitive. With it, names and a few other primitives have rules of
their own, which are wrapped here.
"""
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

from actmem.jax import _finish, _private, _verdicts
from actmem.jax._kept import is_kept
from actmem.jax._private import Atom, Aval, Eqn, Primitive, Rule, Verdict
from actmem.jax._primitives import (PUT, TAKE, ghost_of, label_of, put, put_p, take,
                                    take_p, token_of)

ACTMEM = "actmem"

# The destination that patch() has taken over, or none.
_taken_over: set[str] = set()


class Kept(_private.Offloadable):
    """The word of a policy of actmem.jax.checkpoint on a value that goes to actmem. Values
    of fewer bytes stay on the device."""

    min_bytes: int
    label: str | None

    def __new__(cls, min_bytes: int = 0, label: str | None = None) -> "Kept":
        self = super().__new__(cls, "device", ACTMEM)
        self.min_bytes, self.label = min_bytes, label
        return self


def take_over(destination: str) -> None:
    _taken_over.add(destination)


def give_back(destination: str) -> None:
    _taken_over.discard(destination)


def _is_ours(verdict: Verdict) -> bool:
    return isinstance(verdict, _private.Offloadable) and \
        (verdict.dst == ACTMEM or verdict.dst in _taken_over)


def _inner(policy: Rule) -> Rule:
    """A policy of JAX's, also of one of actmem.jax.checkpoint."""
    inner: Rule = getattr(policy, "inner", policy)
    return inner


def kept_names(policy: Rule) -> frozenset[str]:
    """The names that `policy` keeps in actmem, as far as it is made of names."""
    saved, offloaded, destination = _private.names_of(_inner(policy))
    if _inner(policy) is not policy:
        return offloaded or saved
    return offloaded if destination == ACTMEM or destination in _taken_over else frozenset()


def bytes_of(aval: Aval) -> int:
    aval = _private.physical_aval(aval)
    return int(aval.size * aval.dtype.itemsize)


def _fits(aval: Aval, verdict: Verdict) -> bool:
    """Whether to put a value of this type. A token or ghost stands for a value that was put,
    a symbolic shape has no number of bytes, and without bytes nothing can come after a take."""
    min_bytes = getattr(verdict, "min_bytes", 0)
    return isinstance(aval, _private.ShapedArray) and aval.dtype != jax.dtypes.float0 and \
        not is_kept(aval) and 0 not in aval.shape and \
        (not min_bytes or bytes_of(aval) >= min_bytes)


def _label(primitive: Primitive, params: Mapping[str, Any], source: Any,
           verdict: Verdict) -> str:
    label: str | None = getattr(verdict, "label", None)
    if label:
        return label
    name = params.get("name")
    name = name if isinstance(name, str) else primitive.name
    return label_of(name, _private.place_of(source))


def _ask(policy: Rule, primitive: Primitive, args: Sequence[Any], params: Mapping[str, Any],
         source: Any, aval: Aval, is_running: bool = False) -> Verdict:
    """Asks `policy` of the result of a primitive, which is of type `aval`, and notes the
    verdict. Where the function is running, programs are whole before it is."""
    verdict = _private.ensure_enum(policy(primitive, *args, **params))
    name = params["name"] if primitive is _private.name_p else None
    if not is_running:
        _verdicts.ask(policy, name)
    if name is not None:
        saved, offloaded, _ = _private.names_of(_inner(policy))
        _verdicts.note(name, _private.place_of(source), aval, _where(aval, verdict),
                       saved | offloaded)
    return verdict


def _where(aval: Aval, verdict: Verdict) -> str:
    if not isinstance(verdict, _private.Offloadable):
        return _verdicts.DEVICE if verdict is _private.Saveable else _verdicts.RECOMPUTED
    if not _is_ours(verdict):
        return str(verdict.dst)
    return _verdicts.ACTMEM if _fits(aval, verdict) else _verdicts.DEVICE


# Without jax_remat3.

def _residuals(inst: Sequence[bool], eqn: Eqn) -> list[Atom]:
    return [atom for atom, is_there in zip(eqn.invars, inst)
            if not is_there and not isinstance(atom, Literal)]


def _recomputed(eqn: Eqn, inst: Sequence[bool]) -> tuple[Any, ...]:
    count = len(eqn.outvars)
    return eqn, eqn, [False] * count, [True] * count, _residuals(inst, eqn)


def _saved(eqn: Eqn) -> tuple[Any, ...]:
    count = len(eqn.outvars)
    return eqn, None, [False] * count, [False] * count, []


def _put_eqns(eqn: Eqn, labels: Mapping[int, str]) -> tuple[list[Eqn], list[Eqn], list[Atom]]:
    """Equations that compute what `eqn` does and put those results that have a label,
    those that take them, and the variables between."""
    outvars = list(eqn.outvars)
    is_name = eqn.primitive is _private.name_p
    puts: list[Eqn] = []
    takes: list[Eqn] = []
    between: list[Atom] = []
    for i, label in labels.items():
        out = eqn.outvars[i]
        if is_name:
            value, = eqn.invars
        else:
            value = outvars[i] = _private.Var(out.aval)
        token = _private.Var(token_of(out.aval, label))
        ghost = _private.Var(ghost_of(out.aval))
        puts.append(_private.new_eqn([value], [out, token, ghost], put_p,
                                     dict(label=label, **PUT), set(), eqn.source_info,
                                     eqn.ctx))
        takes.append(_private.new_eqn(
            [token, ghost], [out], take_p,
            dict(label=label, weak_type=out.aval.weak_type, **TAKE), set(),
            eqn.source_info, eqn.ctx))
        between += [token, ghost]
    return puts if is_name else [eqn.replace(outvars=outvars), *puts], takes, between


def _moved_eqns(eqn: Eqn, verdict: Verdict) -> tuple[list[Eqn], list[Eqn], list[Atom]]:
    """The same for another memory of JAX's, which `verdict` names."""
    outvars = [_private.Var(out.aval) for out in eqn.outvars]
    known: list[Eqn] = [eqn.replace(outvars=outvars)]
    staged: list[Eqn] = []
    between: list[Atom] = []
    for value, out in zip(outvars, eqn.outvars):
        there = _private.transfer_eqn(value, verdict.dst)
        between += there.outvars
        known += [there, _private.transfer_eqn(value, verdict.src, out)]
        staged.append(_private.transfer_eqn(there.outvars[0], verdict.src, out))
    return known, staged, between


def _offloaded(eqn: Eqn, verdict: Verdict) -> tuple[Any, ...]:
    if _is_ours(verdict):
        labels = {i: _label(eqn.primitive, eqn.params, eqn.source_info, verdict)
                  for i, var in enumerate(eqn.outvars) if _fits(var.aval, verdict)}
        if not labels:
            return _saved(eqn)
        known, staged, between = _put_eqns(eqn, labels)
        back = [eqn.outvars[i] for i in labels]
        is_back = [i in labels for i in range(len(eqn.outvars))]
    else:
        known, staged, between = _moved_eqns(eqn, verdict)
        back, is_back = list(eqn.outvars), [True] * len(eqn.outvars)
    return (_private.together(known, list(eqn.invars), [*eqn.outvars, *between]),
            _private.together(staged, between, back),
            [False] * len(eqn.outvars), is_back, between)


def _rule(saveable: Rule, unknown: Sequence[bool], inst: Sequence[bool],
          eqn: Eqn) -> tuple[Any, ...]:
    count = len(eqn.outvars)
    if any(unknown):
        return None, eqn, [True] * count, [True] * count, _residuals(inst, eqn)
    verdict = _ask(saveable, eqn.primitive, [atom.aval for atom in eqn.invars], eqn.params,
                   eqn.source_info, eqn.outvars[0].aval)
    if _private.has_effects(eqn) or verdict is _private.Saveable:
        return _saved(eqn)
    if not isinstance(verdict, _private.Offloadable):
        return _recomputed(eqn, inst)
    return _offloaded(eqn, verdict)


# With jax_remat3.

def _rule3(stock: Rule, primitive: Primitive, compute: Rule, combine: Rule) -> Rule:
    """The rule of `primitive`, which `compute`s, where its value goes to actmem, and
    JAX's else. `combine` is what becomes of the value that was taken and of the one that
    was computed again, which has the tangent."""

    def rule(trace: Any, *args: Any, params: Mapping[str, Any],
             policy_args: Sequence[Any]) -> tuple[Any, ...] | None:
        if trace.policy is None:
            return None
        source = _private.current_source()
        verdict = _ask(trace.policy, primitive, policy_args, params, source,
                       jax.typeof(args[0]), _private.is_concrete(args[0]))
        if not _is_ours(verdict):
            return None
        value = compute(*args)
        aval = jax.typeof(value)
        if not _fits(aval, verdict):
            return _private.remat3_result(
                value, value, lambda value, *args: combine(value, compute(*args)))
        label = _label(primitive, params, source, verdict)
        value, token, ghost = put(value, label)

        def back(kept: tuple[Any, Any], *args: Any) -> Any:
            return combine(take(*kept, label, aval.weak_type), compute(*args))
        return _private.remat3_result(value, (token, ghost), back)
    return rule


def _install() -> None:
    _private.replace_partial_eval_rules(_rule)
    _private.replace_remat3_rules(_rule3)
    _finish.when_whole(lambda *program: _verdicts.warn_of_idle(kept_names))


_install()
