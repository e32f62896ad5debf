# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""report() returns a table that shows where each named value of a step goes. If ACTMEM_JAX_REPORT
is set, the process prints one table for each program when the process ends.

The program contains an equation for each value that it puts into actmem. For other values, the
recorded decisions of the policies say where these values go (_verdicts.py). The program shows how
often each value occurs.
"""
from __future__ import annotations

import atexit
import collections
import ctypes
import dataclasses
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

import actmem
from actmem import _native
from actmem.jax import _calls, _finish, _handlers, _private, _verdicts
from actmem.jax._handlers import stats
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr
from actmem.jax._primitives import batch_first, label_of, name_and_line, put_p

_UNKNOWN = "?"
# Destinations whose bytes are not added up, because values that go there need no memory of their
# own: a layer's input (carried) is often the result of the previous layer, and would count twice.
_NOWHERE = (_verdicts.RECOMPUTED, _verdicts.UNNEEDED, _verdicts.CARRIED)


@dataclasses.dataclass(frozen=True)
class Row:
    """The values of one name, source line and type.

    name, line  such as "q" and "model.py:31"
    shape, dtype
                of the whole value, over all devices
    device_bytes
                bytes of each device's part; None if only XLA knows the sharding
    times       occurrences in a step: one for each iteration of a scan; None in a loop
                with an unknown number of iterations
    goes        "actmem", "device", "recomputed", or another memory of JAX, such as "pinned_host".
                "unneeded": the policy offloads the value, but no backward pass needs it, so actmem
                does not store the value. "carried": the policy does not save the value, but JAX
                keeps the value on the device, because it is the input of a layer or the carry of a
                scan
    stock       where the value would go in JAX without actmem, with the same policy. None if this
                is unknown, or if JAX refuses the policy
    """
    name: str
    line: str
    shape: tuple[int, ...]
    dtype: str
    device_bytes: int | None
    times: int | None
    goes: str
    stock: str | None

    @property
    def total(self) -> int | None:
        """The bytes of all occurrences on each device, or None if unknown."""
        if self.device_bytes is None or self.times is None:
            return None
        return self.device_bytes * self.times


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of report(); print() shows it as a table.

    rows         a Row for each name, line and type, the largest first
    unknown      names in a policy that no value of the program has
    temp_bytes   temporary memory that XLA needs on each device, or None if unknown
    budget_bytes limit on host memory for all devices of this process; the store spills values
                 beyond this limit to files. 0: no limit
    """
    rows: tuple[Row, ...]
    unknown: tuple[str, ...]
    temp_bytes: int | None
    budget_bytes: int

    def device_bytes(self, goes: str) -> int:
        """Returns how many bytes of values go to the destination `goes` in a step, on each
        device."""
        return sum(row.total or 0 for row in self.rows if row.goes == goes)

    def __str__(self) -> str:
        lines = _table(self.rows)
        for goes in dict.fromkeys(row.goes for row in self.rows):
            total = self.device_bytes(goes)
            if total and goes not in _NOWHERE:
                lines.append(f"{goes}: {_words(total)} on each device per step")
        kept = self.device_bytes(_verdicts.ACTMEM) * jax.local_device_count()
        if 0 < self.budget_bytes < kept:
            lines.append(f"spilled: up to {_words(kept - self.budget_bytes)} of the bytes in "
                         f"actmem, because the budget is {_words(self.budget_bytes)}")
        if self.temp_bytes is not None:
            lines.append(f"XLA's own temporary memory: {_words(self.temp_bytes)} on each "
                         "device")
        if self.unknown:
            lines.append(f"names in a policy that no value has: {', '.join(self.unknown)}")
        return "\n".join(lines)


def _words(count: int | None) -> str:
    if count is None:
        return _UNKNOWN
    if count < 1024:
        return f"{count} B"
    for unit, size in (("KiB", 1 << 10), ("MiB", 1 << 20)):
        if count < size << 10:
            return f"{count / size:.1f} {unit}"
    return f"{count / (1 << 30):.1f} GiB"


_HEAD = ("name", "line", "value", "per device", "times", "in all", "goes to", "stock JAX")
_RIGHT = (3, 4, 5)


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return ["JAX asked no policy about a named value"]
    cells = [_HEAD] + [
        (row.name, row.line, f"{row.dtype}{list(row.shape)}".replace(" ", ""),
         _words(row.device_bytes), _UNKNOWN if row.times is None else str(row.times),
         _words(row.total), row.goes, row.stock or _UNKNOWN) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join(text.rjust(width) if i in _RIGHT else text.ljust(width)
                      for i, (text, width) in enumerate(zip(line, widths))).rstrip()
            for line in cells]


@dataclasses.dataclass(frozen=True)
class _Value:
    name: str
    line: str
    aval: Aval
    goes: str
    is_local: bool      # inside shard_map: `aval` is one device's part
    label: str = ""                 # the label under which actmem stores the value, or ""
    number: int | None = None       # the number of the program that stores the value

    @property
    def stock(self) -> str | None:
        if self.goes == _verdicts.UNNEEDED:
            return self.goes
        where = _verdicts.stock(self.name, self.line, self.aval)
        return self.goes if self.goes == _verdicts.CARRIED else where

    def device_shape(self, is_alone: bool) -> tuple[int, ...] | None:
        """Returns the shape of each device's part, or None if it is unknown."""
        if self.goes == _verdicts.ACTMEM:
            return _calls.device_shape(self.label, self.number, self.aval)
        if is_alone or self.is_local:
            return tuple(self.aval.shape)
        return _private.explicit_shard_shape(self.aval)


# JAX keeps some values on the device although no policy saves them: inputs of checkpointed
# functions, and values that a scan stacks for its backward pass.

def _variables(atoms: Iterable[Atom]) -> list[Atom]:
    return [atom for atom in atoms if not _private.is_literal(atom)]


def _kept_in(jaxpr: Jaxpr, kept: Iterable[Atom]) -> set[Atom]:
    """Returns the variables in `kept`, the inputs of recomputations in `jaxpr`, and all variables
    that are other names for these values."""
    eqns = _private.open_jaxpr(jaxpr).eqns
    found = set(kept)
    for eqn in eqns:
        if _private.is_remat(eqn) and eqn.params["differentiated"]:
            found.update(_variables(eqn.invars))
    names = [_variables([*eqn.invars, *eqn.outvars]) for eqn in eqns
             if _private.name_of(eqn) is not None]
    for same in [*names, *reversed(names)]:
        if not found.isdisjoint(same):
            found.update(same)
    return found


def _kept_inside(eqn: Eqn, jaxpr: Jaxpr, kept: set[Atom]) -> list[Atom]:
    """Returns the variables of `jaxpr`, an inner jaxpr of `eqn`, whose values JAX keeps."""
    inner = _private.open_jaxpr(jaxpr)
    if eqn.primitive.name == "scan":
        consts, carries = _private.scan_consts(eqn.params), _private.scan_carries(eqn.params)
        stacked = _kept_in(jaxpr, _variables(inner.outvars[carries:]))
        return [*stacked, *_variables(
            after for before, after in zip(inner.invars[consts:consts + carries], inner.outvars)
            if before in stacked)]
    if (len(inner.invars), len(inner.outvars)) != (len(eqn.invars), len(eqn.outvars)):
        return []
    return [within for within, outside in zip([*inner.invars, *inner.outvars],
                                              [*eqn.invars, *eqn.outvars])
            if not _private.is_literal(within) and not _private.is_literal(outside)
            and outside in kept]


class _Found:
    """The values that a program names, or puts into actmem, and how often each occurs."""

    def __init__(self, *jaxprs: Jaxpr) -> None:
        self.values: collections.Counter[_Value] = collections.Counter()
        self.unbounded: set[_Value] = set()          # those in loops of unknown length
        self.names: set[str] = set()
        self.meant: set[str] = set()
        for jaxpr in jaxprs:
            self.walk(jaxpr, 1)

    def walk(self, jaxpr: Jaxpr, times: int, is_again: bool = False,
             is_unbounded: bool = False, is_local: bool = False,
             kept: Iterable[Atom] = ()) -> None:
        """Adds the values of `jaxpr`. The variables `kept` stay on the device regardless of the
        policy."""
        found = _kept_in(jaxpr, kept)
        for eqn in _private.open_jaxpr(jaxpr).eqns:
            kind, params = eqn.primitive.name, eqn.params
            value = self.value(eqn, is_again, is_local, found)
            if value:
                self.values[value] += times
                self.unbounded.update([value] if is_unbounded else [])
            for inner in _private.inner_jaxprs(params):
                self.walk(inner, times * (params["length"] if kind == "scan" else 1),
                          is_again or params.get("differentiated", False),
                          is_unbounded or kind == "while", is_local or kind == "shard_map",
                          _kept_inside(eqn, inner, found))

    def value(self, eqn: Eqn, is_again: bool, is_local: bool,
              kept: set[Atom]) -> _Value | None:
        """Returns the value that `eqn` names, or puts into actmem. Returns None if `eqn` does
        neither, or if JAX asked no policy about the value. Also returns None if `eqn` names a value
        that another equation puts into actmem, or names the value again in a recomputation."""
        aval = eqn.outvars[0].aval if eqn.outvars else None
        if eqn.primitive is put_p:
            name, line = name_and_line(eqn.params["label"])
            aval = batch_first(aval, eqn.params["batch"])
            self.heard(name, line, aval)
            return _Value(name, line, aval, _verdicts.ACTMEM if eqn.params["wanted"] else
                          _verdicts.UNNEEDED, is_local, eqn.params["label"],
                          eqn.params["number"])
        given = _private.name_of(eqn)
        if given is None:
            return None
        line = _private.place_of(eqn.source_info)
        goes = self.heard(given, line, aval)
        if is_again or goes in (None, _verdicts.ACTMEM):
            return None
        if goes == _verdicts.RECOMPUTED and not kept.isdisjoint(_variables(
                [*eqn.invars, *eqn.outvars])):
            goes = _verdicts.CARRIED
        return _Value(given, line, aval, goes, is_local)

    def heard(self, name: str, line: str, aval: Aval) -> str | None:
        goes, meant = _verdicts.said(name, line, aval)
        self.names.add(name)
        self.meant |= meant
        return goes

    def rows(self, is_alone: bool) -> tuple[Row, ...]:
        rows = []
        put = {dataclasses.replace(value, goes=_verdicts.UNNEEDED) for value in self.values
               if value.goes == _verdicts.ACTMEM}
        for value, times in self.values.items():
            if value in put:        # the value is unneeded here, but another equation stores it
                continue
            shape = value.device_shape(is_alone)
            rows.append(Row(
                value.name, value.line, tuple(value.aval.shape), str(value.aval.dtype),
                None if shape is None else math.prod(shape) * value.aval.dtype.itemsize,
                None if value in self.unbounded else times, value.goes, value.stock))
        return tuple(sorted(rows, key=lambda row: -(row.total or 0)))

    def report(self, is_alone: bool, temp_bytes: int | None) -> Report:
        return _report(self.rows(is_alone), self.meant - self.names, temp_bytes)


def _report(rows: Iterable[Row], unknown: Iterable[str], temp_bytes: int | None) -> Report:
    return Report(tuple(rows), tuple(sorted(unknown)), temp_bytes,
                  stats()["store"]["budget_bytes"])


def _devices_of(compiled: jax.stages.Compiled) -> set[jax.Device]:
    return {device for sharding in jax.tree.leaves(
        (compiled.input_shardings, compiled.output_shardings))
        for device in sharding.device_set}


def report(step: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Returns a table of the named values of a step. For each value, the table shows the bytes on
    each device, the number of occurrences, the source line that names the value, and where the
    value is between the forward and the backward pass.

    report() compiles the step, but does not run it. The table lists all values that go to actmem.
    It also lists other values that jax.ad_checkpoint.checkpoint_name names, if JAX asked a policy
    about these values. The table omits unnamed values that a policy saves on the device.

    Args:
      step: A function, jitted or not, that computes gradients.
      *args: Arguments as for a call of `step`. jax.ShapeDtypeStruct can replace arrays.
      **kwargs: Keyword arguments for `step`.

    Returns:
      A Report. print() shows it as a table, and `rows` has the data.

    Raises:
      TypeError: `step` is not a function. Tracing and compiling `step` may raise other errors.

    Warns:
      UserWarning: A policy has names that match no value of the program.

    Example:
      >>> import jax, actmem.jax
      >>> layer = actmem.jax.checkpoint(lambda x: jax.numpy.sin(x * x), offload_argnums=0)
      >>> step = jax.grad(lambda x: layer(x).sum())
      >>> told = actmem.jax.report(step, jax.ShapeDtypeStruct((64, 256), "float32"))
      >>> [(row.goes, row.shape, row.total) for row in told.rows]
      [('actmem', (64, 256), 65536)]
    """
    if not hasattr(step, "trace"):
        if not callable(step):
            raise TypeError(f"report needs a function, not {step!r}")
        step = jax.jit(step)
    traced = step.trace(*args, **kwargs)
    compiled = traced.lower().compile()
    analysis = compiled.memory_analysis()
    told = _Found(traced.jaxpr).report(len(_devices_of(compiled)) <= 1,
                                       analysis and analysis.temp_size_in_bytes)
    if told.unknown:
        warnings.warn(f"policies of this step have names that no value has: "
                      f"{_verdicts.listed(told.unknown)}", stacklevel=2)
    return told


# The reports that are printed at the end of the process.

class _Programs:
    """Collects each program that puts values into actmem, after _finish.py has completed the
    program."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.found: list[tuple[str, _Found]] = []       # name and values of each program
        self.outside: list[Jaxpr] = []  # jaxprs that put values into actmem outside of jit

    def add(self, name: str, jaxpr: Jaxpr) -> None:
        found = _Found(jaxpr)
        if "_put_now" in name:
            self.outside.append(jaxpr)
        elif any(value.goes == _verdicts.ACTMEM for value in found.values):
            self.found.append((name, found))

    def tell(self) -> None:
        if os.getpid() != self.process:
            return
        if self.outside:
            found = _Found(*self.outside)
            found.unbounded.update(found.values)
            self.found.append(("outside of jit", found))
        had = {key[0] for key, _ in _verdicts.all_said()}
        which = f" of process {jax.process_index()}" if jax.process_count() > 1 else ""
        told = [(name, _report(found.rows(jax.local_device_count() == 1),
                               found.meant - found.names - had, None))
                for name, found in self.found]
        told += [("others", _report(self.others(), (), None))]
        # Print equal reports once: a program may be compiled several times.
        texts = dict.fromkeys(f"actmem: {name}{which}\n{report}"
                              for name, report in told if report.rows)
        if texts:
            print(*texts, sep="\n", file=sys.stderr)
        tell_nothing()

    def others(self) -> list[Row]:
        """Returns rows for values that JAX asked policies about, but that are in no program."""
        found = {(value.name, value.line) for _, found in self.found
                 for value in found.values}
        rows = []
        for (name, line, shape, dtype), goes in _verdicts.all_said():
            if (name, line) in found:
                continue
            goes = _verdicts.UNNEEDED if goes == _verdicts.ACTMEM else goes
            stock = _verdicts.stock(name, line, jax.ShapeDtypeStruct(shape, dtype))
            rows.append(Row(name, line, shape, dtype, None, None, goes,
                            goes if goes == _verdicts.UNNEEDED else stock))
        return rows


# Whether this process kept any value in actmem. In `actmem run`, _start/with_jax.py calls
# tell_nothing() when the process ends.

class _Kept:
    """`puts` is true if a program of this process puts values into actmem. `is_said` is true if
    tell_nothing() has printed its line."""
    puts = is_said = False

    @classmethod
    def see(cls, name: str, jaxpr: Jaxpr) -> None:
        cls.puts = cls.puts or _puts(jaxpr, set())

    @classmethod
    def anything(cls) -> bool:
        """Returns whether actmem kept anything. Checks `puts` and counters, because `puts` covers
        neither arrays nor programs that another process exported with jax.export."""
        counts = _native.initialized(_handlers.Stats)
        arrays = _native.initialized(_handlers.ArrayStats)
        _handlers.library.actmem_xla_stats(ctypes.byref(counts))
        _handlers.library.actmem_xla_array_stats(ctypes.byref(arrays))
        return cls.puts or bool(_native.as_dict(counts)["puts_total"] or
                                _native.as_dict(arrays)["blocks_total"])


def _puts(jaxpr: Jaxpr, seen: set[int]) -> bool:
    """Returns whether `jaxpr`, or a jaxpr inside it, stores a value in actmem."""
    inner = _private.open_jaxpr(jaxpr)
    if id(inner) in seen:
        return False
    seen.add(id(inner))
    return any(eqn.params["wanted"] if eqn.primitive is put_p else
               any(_puts(each, seen) for each in _private.inner_jaxprs(eqn.params))
               for eqn in inner.eqns)


def tell_nothing() -> None:
    """Prints a line on stderr if this process kept nothing in actmem. Prints this line at most
    once."""
    if _Kept.is_said or _Kept.anything():
        return
    _Kept.is_said = True
    print(f"actmem: this program kept no activation in actmem: {_why_nothing()} "
          "(ACTMEM_QUIET=1 omits this line)", file=sys.stderr)


def _why_nothing() -> str:
    values: dict[str, dict[str, None]] = {}
    small: dict[str, None] = {}
    for key, goes in _verdicts.all_said():
        label = label_of(*key[:2])
        values.setdefault(goes, {})[label] = None
        if goes == _verdicts.DEVICE and _verdicts.stock_of(key) == "pinned_host":
            small[label] = None
    if values.get(_verdicts.ACTMEM):
        return (f"policies of jax.checkpoint offload {_some(values[_verdicts.ACTMEM])}, but no "
                "backward pass uses these values; offload a value that a backward pass uses")
    if small:
        return (f"policies of jax.checkpoint offload {_some(small)}, but patch() leaves such "
                "small values on the device; patch(min_bytes=0) keeps all in actmem")
    by_jax = {goes: labels for goes, labels in values.items()
              if goes not in (_verdicts.DEVICE, _verdicts.RECOMPUTED)}
    if by_jax:
        count = sum(map(len, by_jax.values()))
        return (f"JAX itself offloads {count} named value{'s' * (count > 1)} to "
                f"{', '.join(sorted(by_jax))}; with `actmem run --offload` or actmem.jax.patch(), "
                "values that go to pinned_host go to actmem")
    named = _some(dict.fromkeys(label for labels in values.values() for label in labels))
    return ("no policy of jax.checkpoint offloads a value" +
            (f", although values have names: {named}" if named else "") +
            "; use a policy that offloads values, such as "
            "jax.checkpoint_policies.save_and_offload_only_these_names")


def _some(labels: Iterable[str], most: int = 4) -> str:
    """Lists the first `most` labels, and the number of further labels."""
    every = list(labels)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


_finish.when_whole(_Kept.see)
if actmem._is_on("ACTMEM_JAX_REPORT"):
    _programs = _Programs()
    _finish.when_whole(_programs.add)
    atexit.register(_programs.tell)
