# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""While JAX traces a program, records what jax.checkpoint policies decide about named values.
_report.py prints the records. Warns if a policy names values to keep in actmem, but no value has
such a name."""
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import TypeAlias

import jax

import actmem
from actmem.jax._private import Aval, Rule

ACTMEM, DEVICE, RECOMPUTED = "actmem", "device", "recomputed"
UNNEEDED = "unneeded"       # the policy offloads the value, but no backward pass needs it
# The input of a checkpointed function, or the carry of a scan: JAX keeps it regardless of the
# policy.
CARRIED = "carried"

# name, source line, shape, dtype
_Key: TypeAlias = tuple[str, str, tuple[int, ...], str]

_lock = threading.Lock()
# The destination of each value, and all names in the policy that chose this destination.
_said: dict[_Key, tuple[str, frozenset[str]]] = {}
# The memory in which JAX without actmem keeps each value, under the same policy. None: JAX refuses
# the policy.
_stock: dict[_Key, str | None] = {}
# The names that JAX has asked each policy about since the last call of warn_of_idle().
_asked: dict[Rule, set[str]] = {}
# Policies that have kept a value: warn_of_idle() skips these policies. JAX does not trace a cached
# function again, so JAX might never ask the function's policy again.
_busy: weakref.WeakSet[Rule] = weakref.WeakSet()
_warned: set[object] = set()


def _verdict_key(name: str, line: str, aval: Aval) -> _Key:
    return name, line, tuple(aval.shape), str(aval.dtype)


def note(name: str, line: str, aval: Aval, where: str, names: frozenset[str]) -> None:
    """Records that a policy sends the value with this name and source line to `where`. `names`
    are all names in the policy."""
    with _lock:
        _said[_verdict_key(name, line, aval)] = where, names


def said(name: str, line: str, aval: Aval) -> tuple[str | None, frozenset[str]]:
    """Returns where the value goes, or None if that is unknown. Also returns all names in the
    policy that was asked about the value."""
    with _lock:
        return _said.get(_verdict_key(name, line, aval), (None, frozenset()))


def note_stock(name: str, line: str, aval: Aval, where: str | None) -> None:
    with _lock:
        _stock[_verdict_key(name, line, aval)] = where


def stock(name: str, line: str, aval: Aval) -> str | None:
    """Returns the memory in which JAX without actmem keeps the value. None: unknown, or JAX
    refuses the policy."""
    return stock_of(_verdict_key(name, line, aval))


def stock_of(key: _Key) -> str | None:
    """Like stock(), but takes a key (name, line, shape, dtype) that all_said() returned."""
    with _lock:
        return _stock.get(key)


def all_said() -> list[tuple[_Key, str]]:
    """Returns the key (name, line, shape, dtype) of each value, and where the value goes."""
    with _lock:
        return [(key, where) for key, (where, _) in _said.items()]


def ask(policy: Rule, name: str | None) -> None:
    """Records that JAX asks `policy` about a value of this name. None: the value has no name."""
    with _lock:
        _asked.setdefault(policy, set()).update([name] if name else [])


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names)))


def warn_of_idle(kept_names: Callable[[Rule], frozenset[str]]) -> None:
    """Warns once about each policy that names values to keep in actmem, but has not kept any so
    far. Checks the policies that JAX has asked since the last call of this function.
    kept_names(policy) returns the names of the values that the policy keeps in actmem."""
    global _asked
    with _lock:
        asked, _asked = _asked, {}
    for policy, had in asked.items():
        wanted = kept_names(policy)
        case = wanted, frozenset(had)
        if wanted & had:
            _busy.add(policy)
        if not wanted or policy in _busy or case in _warned:
            continue
        _warned.add(case)
        found = f"names found: {listed(had)}" if had else "no value in the function has a name"
        warnings.warn(
            f"a policy of jax.checkpoint keeps {listed(wanted)} in actmem, but the function "
            f"names no such value ({found}), so actmem keeps nothing; name values with "
            "jax.ad_checkpoint.checkpoint_name", stacklevel=_users_frame())


_OTHERS = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (actmem, jax))


def _users_frame() -> int:
    """Returns the number of frames from the caller to the first frame outside of JAX and actmem."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_code.co_filename.startswith(_OTHERS):
        frame, level = frame.f_back, level + 1
    return level
