# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes an Optax update of stacked weights, one layer at a time.

A stack is an array whose first axis is that of the layers: a stored weight, the weight's state, or
the weight's gradient. Gradients can also be on the device. The update is traced as if all arrays
were on the device. run() then computes the update in a scan over the layers. An iteration takes the
weights, the gradients and the state of one layer from the store, runs the equations on these, and
stores the results. The arrays in an iteration keep the axis of the layers, with length 1, so most
equations run as they were traced.

Such a scan works only if the update treats the layers alike. Each equation must compute an element
of a stack only from elements of the same layer, and from values that are not stacks. A reduction
over all layers needs an earlier, separate scan, which computes a value for each layer. run() then
combines these values. The sum of the squares of a stored gradient, for the global norm, needs no
scan, because the backward pass has computed the sum for each layer.
"""
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actmem.jax import _choices, _host, _params, _private, _update
from actmem.jax._private import Atom, Eqn, Jaxpr
from actmem.jax._state import is_stored, store

# Primitives that compute each element of the result from the operands' elements at the same
# position.
_ELEMENTWISE = {
    "abs", "acos", "acosh", "add", "add_any", "and", "asin", "asinh", "atan", "atan2", "atanh",
    "bitcast_convert_type", "cbrt", "ceil", "clamp", "complex", "conj", "convert_element_type", "copy", "copy_p",
    "cos", "cosh", "div", "eq", "erf", "erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt",
    "imag", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne",
    "neg", "nextafter", "not", "or", "pow", "real", "reduce_precision", "rem",
    "round", "rsqrt", "select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical",
    "sign", "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor"}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": jnp.sum, "reduce_prod": jnp.prod, "reduce_max": jnp.max, "reduce_min": jnp.min,
    "reduce_and": jnp.all, "reduce_or": jnp.any}


def _is_over_layers(eqn: Eqn) -> bool:
    """Returns whether an equation whose operands are stacks reduces along the axis of the
    layers."""
    return eqn.primitive.name in _REDUCTIONS and 0 in eqn.params["axes"]


def _keeps_layers(eqn: Eqn, stacks: Mapping[Atom, int]) -> bool:
    """Returns whether each layer of the results needs only the same layer of the operands."""
    name, params = eqn.primitive.name, eqn.params
    is_as_long = eqn.outvars[0].aval.shape[:1] == eqn.invars[0].aval.shape[:1]
    if name in _ELEMENTWISE or name in _REDUCTIONS and 0 not in params["axes"]:
        return True
    if name == "broadcast_in_dim":
        return bool(params["broadcast_dimensions"][:1] == (0,) and is_as_long)
    if name == "transpose":
        return bool(params["permutation"][0] == 0)
    if name == "squeeze":
        return 0 not in params["dimensions"]
    if name == "reshape":
        return bool(params["dimensions"] is None and is_as_long)
    if name == "dot_general":
        _, (left, right) = params["dimension_numbers"]
        return all(atom in stacks for atom in eqn.invars) and left[:1] == right[:1] == (0,)
    return False


def _has_squared_type(atom: Atom) -> bool:
    return atom.aval.dtype in _params.SQUARED


def _is_square(eqn: Eqn) -> bool:
    name = eqn.primitive.name
    return name == "square" or name == "integer_pow" and eqn.params["y"] == 2 or \
        name == "mul" and eqn.invars[0] is eqn.invars[1]


class _Layers:
    """The jaxpr of an update with stacks among its inputs.

    stacks    the number of layers of each variable that is a stack
    level     for each variable, the number of successive reductions over all layers on which the
              variable depends
    """

    def __init__(self, jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None],
                 layers: Sequence[int | None], given: Sequence[int | None]) -> None:
        self.jaxpr, self.inner = jaxpr, _private.open_jaxpr(jaxpr)
        self.labels = labels
        self.given: dict[Atom, Any] = dict(zip(self.inner.invars, args, strict=True))
        self.values: dict[Atom, Any] = dict(zip(self.inner.constvars, getattr(jaxpr, "consts", ())))
        self.stacks: dict[Atom, int] = {var: count for var, count in zip(self.inner.invars, given)
                                        if count is not None}
        self.values.update((var, arg) for var, arg in self.given.items()
                           if not is_stored(arg) and var not in self.stacks)
        self.level: dict[Atom, int] = {}
        self.producers = {var: eqn for eqn in self.inner.eqns for var in eqn.outvars}
        self.reductions: dict[Atom, Eqn] = {}
        for eqn in self.inner.eqns:
            self.classify(eqn)
        self.outputs = {i: count for i, count in enumerate(layers) if count is not None}
        self.outputs.update((i, self.stacks[atom]) for i, atom in enumerate(self.inner.outvars)
                            if not _private.is_literal(atom) and atom in self.stacks)

    def classify(self, eqn: Eqn) -> None:
        atoms = [atom for atom in eqn.invars if not _private.is_literal(atom)]
        level = max((self.level.get(atom, 0) for atom in atoms), default=0)
        counts = {self.stacks[atom] for atom in atoms if atom in self.stacks}
        if counts and _is_over_layers(eqn):
            level += 1
            self.reductions[eqn.outvars[0]] = eqn
        elif counts and len(counts) == 1 and _keeps_layers(eqn, self.stacks):
            self.stacks.update((var, *counts) for var in eqn.outvars)
        elif counts:
            raise NotImplementedError(
                f"{eqn.primitive} at {_private.place_of(eqn.source_info)} needs several layers at "
                "once: actmem.optax updates the stacked weights of offload_params() layer by layer. "
                "Give these weights a transformation that treats each element alike, such as "
                "optax.adamw or optax.lion, or keep them on the device")
        self.level.update((var, level) for var in eqn.outvars)

    # Values that are not stacks, but that the scans need.

    def value(self, wanted: Atom) -> Any:
        """Returns the value of a variable that is not a stack."""
        _host.until_known(wanted, self.value_operands)
        return wanted.val if _private.is_literal(wanted) else self.values[wanted]

    def value_operands(self, atom: Atom) -> Sequence[Atom]:
        """Returns the unknown operands of a variable. If there are none, computes the variable: see
        until_known()."""
        if _private.is_literal(atom) or atom in self.values:
            return ()
        if atom in self.given:
            self.values[atom] = self.given[atom].taken()
            return ()
        if atom in self.reductions:
            self.reduce(self.level[atom])
            return ()
        eqn = self.producers[atom]
        missing = [operand for operand in eqn.invars
                   if not _private.is_literal(operand) and operand not in self.values]
        if not missing:
            operands = [operand.val if _private.is_literal(operand) else self.values[operand]
                        for operand in eqn.invars]
            self.values.update(zip(eqn.outvars, _private.run_eqn(eqn, operands)))
        return missing

    def reduce(self, level: int) -> None:
        """Finds the reductions that have this `level`, and computes each of them over all
        layers."""
        eqns = []
        for var, eqn in self.reductions.items():
            if self.level[var] != level:
                continue
            squares = self.squares(eqn)
            if squares is None:
                eqns.append(eqn)
            else:
                self.values[var] = jnp.sum(squares).astype(var.aval.dtype)
        for count in sorted({self.stacks[eqn.invars[0]] for eqn in eqns}):
            chosen = [eqn for eqn in eqns if self.stacks[eqn.invars[0]] == count]
            parts = self.scan(count, [eqn.invars[0] for eqn in chosen], partial(_each, chosen))
            for eqn, part in zip(chosen, parts):
                self.values[eqn.outvars[0]] = _REDUCTIONS[eqn.primitive.name](part, axis=0).astype(
                    eqn.outvars[0].aval.dtype)

    def squares(self, eqn: Eqn) -> Any:
        """Returns the sum of squares of each layer, if an equation adds up the squares of a stored
        gradient and the backward pass has computed these sums. Otherwise returns None."""
        if eqn.primitive.name != "reduce_sum" or len(eqn.params["axes"]) < eqn.invars[0].aval.ndim:
            return None
        producer = self.producers.get(self.term(eqn.invars[0]))
        if producer is None or not _is_square(producer):
            return None
        gradient = self.given.get(self.widened(producer.invars[0]))
        return gradient.squares if isinstance(gradient, _params.Gradient) and \
            gradient.dtype in _params.SQUARED else None

    def term(self, atom: Atom) -> Atom:
        """Returns the variable from which `atom` is computed only by conversions of the type and by
        additions of 0. Optax adds the squares of the imaginary parts, which are 0 for real
        gradients."""
        while (eqn := self.producers.get(atom)) is not None and (
                eqn.primitive.name == "convert_element_type" and _has_squared_type(atom) and
                _has_squared_type(eqn.invars[0]) or
                eqn.primitive.name == "add" and self.is_zero(eqn.invars[1])):
            atom = eqn.invars[0]
        return atom

    def widened(self, atom: Atom) -> Atom:
        """If `atom` is float32 that was converted from a bfloat16 variable, returns this variable,
        else `atom`."""
        eqn = self.producers.get(atom)
        return eqn.invars[0] if eqn is not None and \
            eqn.primitive.name == "convert_element_type" and atom.aval.dtype == jnp.float32 and \
            eqn.invars[0].aval.dtype == jnp.bfloat16 else atom

    def is_zero(self, atom: Atom) -> bool:
        """Returns whether a variable is a constant 0, a broadcast 0, or the square of such a 0."""
        if _private.is_literal(atom):
            return bool(np.all(np.asarray(atom.val) == 0))
        eqn = self.producers.get(atom)
        return eqn is not None and (eqn.primitive.name == "broadcast_in_dim" or _is_square(eqn)) and \
            self.is_zero(eqn.invars[0])

    # Scans.

    def scan(self, count: int, wanted: Sequence[Atom], function: Callable[[list[Any]], Any],
             kept: Container[Atom] = ()) -> Any:
        """Calls `function` for each layer with the layer's slices of the variables `wanted`.
        `function` gets the variables in `kept` as stored arrays, and all others as arrays on the
        device. Returns the stacked results."""
        sliced = self.needed(wanted, count)
        xs = {atom: self.given[atom] if atom in self.stacks else self.values[atom]
              for atom in sliced}

        def body(_: None, slices: list[Any]) -> tuple[None, Any]:
            parts = {atom: part if atom in kept else
                     (part.taken() if is_stored(part) else part)[None]
                     for atom, part in zip(xs, slices)}
            return None, function([self.slice(atom, count, parts) for atom in wanted])
        return jax.lax.scan(body, None, list(xs.values()), length=count)[1]

    def is_broadcast(self, atom: Atom) -> bool:
        """Returns whether a variable is a value that was broadcast to all layers."""
        eqn = self.producers.get(atom)
        return eqn is not None and eqn.primitive.name == "broadcast_in_dim" and \
            atom not in self.stacks and 0 not in eqn.params["broadcast_dimensions"]

    def needed(self, wanted: Sequence[Atom], count: int) -> list[Atom]:
        """Returns the variables that a scan iterates over. Also computes all other values that the
        scan needs."""
        found: dict[Atom, None] = {}
        seen: set[tuple[Atom, bool]] = set()
        left = [(atom, True) for atom in wanted]
        while left:
            atom, is_layered = left.pop()
            if _private.is_literal(atom) or (atom, is_layered) in seen:
                continue
            seen.add((atom, is_layered))
            if atom in self.stacks and atom not in self.given or is_layered and \
                    self.is_broadcast(atom):
                eqn = self.producers[atom]
                left += [(operand, operand.aval.shape[:1] == (count,) and atom in self.stacks)
                         for operand in eqn.invars]
            elif atom in self.stacks:
                found[atom] = None
            else:
                self.value(atom)
                if is_layered:
                    found[atom] = None
        return list(found)

    def slice(self, wanted: Atom, count: int, parts: dict[Atom, Any]) -> Any:
        """Returns one layer of the variable `wanted`. `parts` maps the variables that are already
        computed to their values in this layer."""
        def layer_operands(atom: Atom) -> Sequence[Atom]:
            if _private.is_literal(atom) or atom in parts:
                return ()
            eqn = self.producers[atom]
            operands = [self.operand(operand, atom, count, parts) for operand in eqn.invars]
            missing = [operand for operand, value in zip(eqn.invars, operands) if value is None]
            if not missing:
                parts.update(zip(eqn.outvars, _private.run_eqn(_of_one_layer(eqn), operands)))
            return missing
        _host.until_known(wanted, layer_operands)
        return wanted.val if _private.is_literal(wanted) else parts[wanted]

    def operand(self, atom: Atom, of: Atom, count: int, parts: Mapping[Atom, Any]) -> Any:
        """Returns the part of an operand that one layer of the variable `of` needs, or None if this
        part has not been computed yet."""
        if _private.is_literal(atom):
            return atom.val
        is_layered = atom in self.stacks or of in self.stacks and atom.aval.shape[:1] == (count,)
        return parts.get(atom) if is_layered else self.values[atom]

    def results(self, group_bytes: int | None, depth: int) -> list[Any]:
        results: dict[int, Any] = {}
        for count in sorted(set(self.outputs.values())):
            numbers = [i for i, other in self.outputs.items() if other == count]
            results.update((i, self.given[self.inner.outvars[i]]) for i in numbers
                           if self.is_unchanged(i))
            changed = [i for i in numbers if i not in results]
            if group_bytes is None:
                results.update(zip(changed, self.on_host(count, changed)))
                continue

            def put(slices: list[Any], changed: list[int] = changed) -> list[Any]:
                labels = [self.labels[i] for i in changed]
                return [part[0] if label is None else store(part[0], label)
                        for part, label in zip(slices, labels)]
            results.update(zip(changed, self.scan(
                count, [self.inner.outvars[i] for i in changed], put)))
        rest = [i for i in range(len(self.labels)) if i not in self.outputs]
        results.update(zip(rest, self.run_rest(rest, group_bytes, depth)))
        return [results[i] for i in range(len(self.labels))]

    def on_host(self, count: int, outputs: Sequence[int]) -> list[Any]:
        """Computes `outputs`, which are stacks, on the host, layer by layer."""
        atoms = [self.inner.outvars[i] for i in outputs]
        labels = {atom: self.labels[i] for i, atom in zip(outputs, atoms)}
        stored = {var for var in self.stacks if is_stored(self.given.get(var))}
        plan = _host.Plan(self.inner, stored, atoms, self.stacks)
        scalars = [[self.value(atom) for atom in piece.scalars] for piece in plan.pieces]
        inputs = list(dict.fromkeys(atom for piece in plan.pieces for atom in piece.inputs))
        others = [atom for atom in atoms if atom not in plan.piece_of]

        def layer(slices: list[Any]) -> list[Any]:
            found = {atom: part if is_stored(part) else part[0]
                     for atom, part in zip([*inputs, *others], slices)}
            results = {}
            for atom in others:
                # Store a copy, because a piece can also read the stored value.
                part = found[atom].taken() if is_stored(found[atom]) else found[atom]
                results[atom] = part if (label := labels[atom]) is None else store(part, label)
            for piece, values in zip(plan.pieces, scalars):
                results.update(zip(piece.outputs, piece.run(
                    [found[atom] for atom in piece.inputs], values, labels, drops_axis=True)))
            return [results[atom] for atom in atoms]
        results: list[Any] = self.scan(count, [*inputs, *others], layer, stored.intersection(inputs))
        return results

    def is_unchanged(self, output: int) -> bool:
        """Returns whether an output is a stored input with the same label."""
        atom = self.inner.outvars[output]
        return not _private.is_literal(atom) and is_stored(self.given.get(atom)) and \
            self.given[atom].label == self.labels[output]

    def run_rest(self, rest: Sequence[int], group_bytes: int | None, depth: int) -> list[Any]:
        """Computes the outputs that are not stacks."""
        for atom in self.reductions:
            self.value(atom)
        known = {var: value for var, value in self.values.items() if var in self.producers}
        inputs = [var for var in self.given if var not in self.stacks]
        eqns = [eqn for eqn in self.inner.eqns if not any(var in known or var in self.stacks
                                                          for var in eqn.outvars)]
        jaxpr = _private.dce(_private.with_eqns(
            self.jaxpr, eqns, invars=[*inputs, *known],
            outvars=[self.inner.outvars[i] for i in rest]))
        return _update.run(jaxpr, [*(self.given[var] for var in inputs), *known.values()],
                           [self.labels[i] for i in rest], group_bytes, depth)


def _each(eqns: Sequence[Eqn], operands: Sequence[Any]) -> list[Any]:
    return [_private.run_eqn(eqn, [operand])[0] for eqn, operand in zip(eqns, operands)]


def _of_one_layer(eqn: Eqn) -> Eqn:
    """Returns the equation, with its shape parameter changed to that of a stack of one layer."""
    for name in ("shape", "new_sizes"):
        shape = eqn.params.get(name)
        if shape:
            eqn = eqn.replace(params={**eqn.params, name: (1, *shape[1:])})
    return eqn


def run(jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None],
        layers: Sequence[int | None], given: Sequence[int | None], group_bytes: int | None,
        depth: int = 0) -> list[Any]:
    """Computes the update, as _update.run() does. `layers` has the number of layers of each output
    that is a stack, and None for other outputs. `given` has the number of layers, or None, of each
    input."""
    if not any(layers) and not any(given):
        return _update.run(jaxpr, args, labels, group_bytes, depth)
    jaxpr = _update.prepared(jaxpr, select=True)
    chosen = _update.choice(jaxpr, args, labels) if depth < _update.MOST_CHOICES else None
    if chosen is None:
        return _Layers(jaxpr, args, labels, layers, given).results(group_bytes, depth)

    def branch(is_true: bool, *args: Any) -> list[Any]:
        return run(_choices.assuming(jaxpr, chosen, is_true), args, labels, layers, given,
                   group_bytes, depth + 1)
    value, = run(_choices.only(jaxpr, [chosen]), args, [None], [None], given, group_bytes)
    outputs: list[Any] = jax.lax.cond(value, partial(branch, True), partial(branch, False), *args)
    return outputs
