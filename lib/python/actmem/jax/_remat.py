# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Rules that split a rematerialised function into forward and backward pass. These rules handle
values that the policy of jax.checkpoint offloads to actmem: the forward pass puts these values into
actmem, and the backward pass takes them out. JAX's own rules handle all other values.

Without the option jax_remat3, JAX splits a jaxpr equation by equation, and asks the policy about
each equation. With jax_remat3, the name primitive and a few other primitives have their own rules.
"""
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from actmem.jax import _finish, _private, _verdicts
from actmem.jax._kept import is_kept
from actmem.jax._private import Atom, Aval, Eqn, Primitive, Rule, Verdict
from actmem.jax._primitives import (PUT, TAKE, ghost_of, label_of, name_and_line, put, put_p,
                                    take, take_p, token_of)

ACTMEM, PATCHED = "actmem", "pinned_host"

# The min_bytes of each actmem.jax.patch() that has not ended. The latest patch is in force.
_patches: list[list[int]] = []
_lock = threading.Lock()


class Kept(_private.Offloadable):
    """A verdict of an actmem.jax.checkpoint policy: the value goes to actmem. But if the value has
    fewer than min_bytes bytes, it stays on the device."""

    min_bytes: int
    label: str | None

    def __new__(cls, min_bytes: int = 0, label: str | None = None) -> "Kept":
        self = super().__new__(cls, "device", ACTMEM)
        self.min_bytes, self.label = min_bytes, label
        return self

    @property
    def dst(self) -> str:
        """Raises an error, because only JAX's own rules read this attribute, and these rules would
        save the value on the device."""
        raise RuntimeError(f"JAX {jax.__version__} split a function of actmem.jax.checkpoint "
                           "without asking actmem: use a version of JAX that actmem supports")


def _in_force() -> int | None:
    """Returns the min_bytes of the patch() in force, or None."""
    return next((patch[0] for patch in _patches[-1:]), None)


def begin_patch(min_bytes: int) -> tuple[list[int], bool]:
    """Begins a patch. Returns the patch, and whether it changes how new programs treat values."""
    patch = [min_bytes]
    with _lock:
        before = _in_force()
        _patches.append(patch)
        return patch, before != min_bytes


def end_patch(patch: list[int]) -> bool:
    """Ends the patch. Returns whether ending the patch changes how new programs treat values."""
    with _lock:
        before = _in_force()
        _patches[:] = [each for each in _patches if each is not patch]
        return before != _in_force()


def _is_ours(verdict: Verdict) -> bool:
    return isinstance(verdict, Kept) or isinstance(verdict, _private.Offloadable) and (
        verdict.dst == ACTMEM or verdict.dst == PATCHED and _in_force() is not None)


def _inner(policy: Rule) -> Rule:
    """Returns the JAX policy that `policy` wraps, or `policy` if it wraps none."""
    inner: Rule = getattr(policy, "inner", policy)
    return inner


def kept_names(policy: Rule) -> frozenset[str]:
    """Returns the names of the values that `policy` keeps in actmem. The set may be empty."""
    saved, offloaded, destination = _private.names_of(_inner(policy))
    if _inner(policy) is not policy:
        return saved if destination is None else offloaded
    is_ours = _is_ours(_private.Offloadable("device", destination or ""))
    return offloaded if is_ours else frozenset()


def _whole_bytes(aval: Aval) -> int:
    aval = _private.physical_aval(aval)
    return int(aval.size * aval.dtype.itemsize)


def _fits(aval: Aval, verdict: Verdict) -> bool:
    """Returns whether to put a value of this type into actmem. Tokens and ghosts (_primitives.py)
    are excluded, because they represent values that are already in actmem. Values of 0 bytes are
    excluded, because the equation that drops a token cannot wait for a value without bytes. The
    number of bytes is computed only if min_bytes is not 0, because a symbolic shape has no known
    number of bytes."""
    is_patched = not isinstance(verdict, Kept) and verdict.dst == PATCHED
    min_bytes = _in_force() if is_patched else getattr(verdict, "min_bytes", 0)
    return isinstance(aval, _private.ShapedArray) and aval.dtype != jax.dtypes.float0 and \
        not is_kept(aval) and 0 not in aval.shape and \
        (not min_bytes or _whole_bytes(aval) >= min_bytes)


def _value_label(primitive: Primitive, params: Mapping[str, Any], source: Any,
           verdict: Verdict) -> str:
    label: str | None = getattr(verdict, "label", None)
    if label:
        return label
    name = params.get("name")
    name = name if isinstance(name, str) else primitive.name
    return label_of(f"{name} in {_private.function_of(source)}", _private.place_of(source))


def _ask(policy: Rule, primitive: Primitive, args: Sequence[Any], params: Mapping[str, Any],
         source: Any, aval: Aval, is_running: bool = False) -> Verdict:
    """Asks `policy` about the result of a primitive, and records the verdict. `aval` is the type of
    the result. `is_running` is true if the function runs outside of a trace. If the policy raises
    an exception, returns None. JAX then calls the policy itself, so that the traceback of the
    exception has no frames of this package."""
    try:
        verdict = policy(primitive, *args, **params)
    except Exception:       # pylint: disable=broad-exception-caught
        return None
    name = params["name"] if primitive is _private.name_p else None
    if not is_running:
        _verdicts.ask(policy, name)
    if name is not None or _is_ours(verdict):
        where = _stock(policy, primitive, args, params, verdict)
        label = _value_label(primitive, params, source, verdict)
        for known, line in ((name or primitive.name, _private.place_of(source)),
                            name_and_line(label)):
            _verdicts.note_stock(known, line, aval, where)
    if name is not None:
        saved, offloaded, _ = _private.names_of(_inner(policy))
        _verdicts.note(name, _private.place_of(source), aval, _where(aval, verdict),
                       saved | offloaded)
    return verdict


def _stock(policy: Rule, primitive: Primitive, args: Sequence[Any], params: Mapping[str, Any],
           verdict: Verdict) -> str | None:
    """Returns the memory in which JAX without actmem would keep the value under `policy`, or None
    if JAX would refuse the policy."""
    if getattr(verdict, "label", None):     # an argument, which JAX keeps
        return _verdicts.DEVICE
    inner = _inner(policy)
    if inner is not policy:
        verdict = bool(inner) and inner(primitive, *args, **params)
    if isinstance(verdict, _private.Offloadable):
        return None if verdict.dst == ACTMEM else str(verdict.dst)
    is_saved = verdict is True or verdict is _private.Saveable
    return _verdicts.DEVICE if is_saved else _verdicts.RECOMPUTED


def _where(aval: Aval, verdict: Verdict) -> str:
    if not isinstance(verdict, _private.Offloadable):
        is_saved = verdict is True or verdict is _private.Saveable
        return _verdicts.DEVICE if is_saved else _verdicts.RECOMPUTED
    if not _is_ours(verdict):
        return str(verdict.dst)
    return _verdicts.ACTMEM if _fits(aval, verdict) else _verdicts.DEVICE


# Without jax_remat3.

def _put_eqns(eqn: Eqn, labels: Mapping[int, str]) -> tuple[list[Eqn], list[Eqn], list[Atom]]:
    """Returns three lists. The first has the equations that compute the results of `eqn`, and the
    equations that put the labelled results into actmem. `labels` maps a result's index to its
    label. The second has the equations that take these results out of actmem. The third has the
    variables that the first list passes to the second."""
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


def _split(eqn: Eqn, verdict: Verdict) -> tuple[Any, ...]:
    """Returns the tuple that JAX expects from a rule. The first two items are the equations of the
    forward pass and of the backward pass. The third item says for each result whether the forward
    pass leaves it unknown, the fourth whether the backward pass computes it. The last item has the
    inputs of the backward pass."""
    count = len(eqn.outvars)
    labels = {i: _value_label(eqn.primitive, eqn.params, eqn.source_info, verdict)
              for i, var in enumerate(eqn.outvars) if _fits(var.aval, verdict)}
    if not labels:          # all are saved on the device
        return eqn, None, [False] * count, [False] * count, []
    known, staged, between = _put_eqns(eqn, labels)
    return (_private.together(known, list(eqn.invars), [*eqn.outvars, *between]),
            _private.together(staged, between, [eqn.outvars[i] for i in labels]),
            [False] * count, [i in labels for i in range(count)], between)


def _rule(policy: Rule, eqn: Eqn) -> Rule | None:
    if not eqn.outvars:
        return None
    verdict = _ask(policy, eqn.primitive, [atom.aval for atom in eqn.invars], eqn.params,
                   eqn.source_info, eqn.outvars[0].aval)
    if not _is_ours(verdict) or _private.has_effects(eqn):
        return None
    return lambda policy, unknown, inst, eqn: _split(eqn, verdict)


# With jax_remat3.

def _rule3(policy: Rule, stock: Rule, value: Any, primitive: Primitive,
           avals: Sequence[Aval], params: Mapping[str, Any]) -> Rule | None:
    source = _private.current_source()
    verdict = _ask(policy, primitive, avals, params, source, jax.typeof(value),
                   _private.is_concrete(value))
    if not _is_ours(verdict):
        return None

    def rule(trace: Any, *args: Any, **own: Any) -> tuple[Any, Any, Rule]:
        """Applies JAX's own rule, and puts the value that this rule saves into actmem. The backward
        pass takes the value out of actmem."""
        result, saved, back = stock(_private.SAVING, *args, **own)
        aval = jax.typeof(saved)
        if not _fits(aval, verdict):
            return result, saved, back
        label = _value_label(primitive, params, source, verdict)
        value, token, ghost = put(saved, label)
        return ([value] if isinstance(result, list) else value, (token, ghost),
                lambda kept, *args: back(take(kept[0], kept[1], label, aval.weak_type), *args))
    return rule


def _install() -> None:
    _private.replace_partial_eval_rules(_rule)
    _private.replace_remat3_rules(_rule3)
    _finish.when_whole(lambda *program: _verdicts.warn_of_idle(kept_names))


_install()
