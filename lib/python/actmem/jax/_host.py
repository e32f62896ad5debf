# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Computes an Optax update on the CPUs of the host. The update's state is stored in actmem memory.

The update is traced as if all arrays were on the device. The class Plan then decides where each
equation of the jaxpr runs. The host computes the stored outputs that depend on stored inputs, and
runs all elementwise equations that these outputs need. The host also runs other elementwise
equations if all arrays that these equations read are on the host. All other equations run on the
device, such as those that compute a learning rate or a global norm, and those that process
gradients but are not elementwise.

The equations of one leaf, or of the leaves that one equation combines, form a piece. The host
computes a piece in one call. The call reads blocks of the store, and stores its results in new
blocks. Arrays of the device that a piece needs, such as gradients, are copied to the host before
the piece runs. Results that the device needs are copied back after the piece has run. The
operations of a piece are elementwise, and the host computes them in float32: see
lib/update/update.h.
"""
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actmem.jax import _kept, _primitives, _private
from actmem.jax._calls import Program
from actmem.jax._kept import STATE, STEP
from actmem.jax._private import Atom, Eqn, Jaxpr
from actmem.jax._state import Stored, is_stored, store

# The codes of enum update_code (lib/update/update.h), in the order of the enum.
_CODES = {name: code for code, name in enumerate((
    "add", "sub", "mul", "div", "sqrt", "rsqrt", "neg", "abs", "sign", "min", "max", "select",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_finite", "round_bf16", "floor",
    "ceil"))}
# Operations that need no rounding: their result is one of their operands, or exact.
_EXACT = {"neg", "abs", "sign", "min", "max", "select", "floor", "ceil", "eq", "ne", "lt", "le", "gt",
          "ge", "and", "or", "not", "is_finite"}
# Primitives that return their operand, perhaps rounded.
_ALIKE = {"copy", "copy_p", "stop_gradient", "convert_element_type", "reduce_precision",
          "optimization_barrier"}
_OTHERS = {"select_n", "integer_pow", "square", "clamp", "add_any"}
_TYPES = {np.dtype(np.float32): 0, np.dtype(jnp.bfloat16): 1}
_BFLOAT16, _BOOL = np.dtype(jnp.bfloat16), np.dtype(bool)
VALUES_MAX, ARRAYS_MAX, OPERATIONS_MAX, OPERATION_WORDS = 64, 16, 1024, 5     # as in update.h


def _is_array(atom: Atom) -> bool:
    return not _private.is_literal(atom) and atom.aval.shape != ()


def _is_broadcast(eqn: Eqn) -> bool:
    """Returns whether `eqn` broadcasts a scalar, so that all elements of the result are equal."""
    return eqn.primitive.name == "broadcast_in_dim" and not _is_array(eqn.invars[0])


def _is_known(eqn: Eqn) -> bool:
    """Returns whether the host can compute an equation."""
    if len(eqn.outvars) != 1 or eqn.effects:
        return False
    name, out = eqn.primitive.name, eqn.outvars[0]
    arrays = [atom for atom in eqn.invars if _is_array(atom)]
    if out.aval.shape == () or any(
            atom.aval.dtype not in _TYPES and atom.aval.dtype != _BOOL for atom in (out, *arrays)):
        return False
    if any(atom.aval.shape != out.aval.shape for atom in arrays):
        return False        # all arrays of a call on the host must have the same shape
    if name in ("and", "or", "not") and out.aval.dtype != _BOOL:
        return False
    if name == "convert_element_type" and arrays and out.aval.dtype == _BOOL:
        return False        # needs a comparison with 0, which is not implemented
    if name == "reduce_precision":
        return (eqn.params["exponent_bits"], eqn.params["mantissa_bits"]) in ((8, 7), (8, 23))
    if name == "select_n":
        return len(eqn.invars) == 3 and eqn.invars[0].aval.dtype == _BOOL
    return name in _ALIKE or name in _CODES or name in _OTHERS or _is_broadcast(eqn)


def until_known(wanted: Atom, operands: Callable[[Atom], Sequence[Atom]]) -> None:
    """Computes `wanted`, and all variables that `wanted` needs, by calls of `operands`. When called
    with a variable, `operands` returns those operands of the variable that are not known yet. If
    all are known, `operands` computes the variable and returns an empty sequence."""
    left = [wanted]
    while left:
        more = operands(left[-1])
        if more:
            left += more
        else:
            left.pop()


class Piece(NamedTuple):
    """The part of an update that one call of the host computes.

    inputs, scalars  the arrays and the scalars that the call reads
    outputs          the arrays that the call makes
    """

    inputs: list[Atom]
    scalars: list[Atom]
    outputs: list[Atom]
    program: Program

    def run(self, arrays: Sequence[Any], scalars: Sequence[Any],
            labels: Mapping[Atom, str | None], drops_axis: bool = False) -> list[Any]:
        """Returns the values of `outputs`: a Stored if `labels` has the output's label, else an
        array.

        arrays      an array or a Stored for each of `inputs`
        drops_axis  whether `arrays` lack the axis of the layers that `inputs` and `outputs` have
        """
        label = next((label for atom in self.outputs if (label := labels.get(atom))), None) or \
            next(value.label for value in arrays if is_stored(value))
        leaves = [value if is_stored(value) else
                  store(_primitives.without_derivative(value), f"operand {i} of {label}", STEP)
                  for i, value in enumerate(arrays)]
        names = [labels.get(atom) or f"result {i} of {label}"
                 for i, atom in enumerate(self.outputs)]
        avals = [_private.ShapedArray(atom.aval.shape[int(drops_axis):], atom.aval.dtype)
                 for atom in self.outputs]
        uses = [STEP if labels.get(atom) is None else STATE for atom in self.outputs]
        tokens = _primitives.update_p.bind(
            *(leaf.token for leaf in leaves),
            *(jnp.asarray(scalar).astype(jnp.float32) for scalar in scalars),
            program=self.program, labels=tuple(names), avals=tuple(avals), uses=tuple(uses),
            **_primitives.UPDATE)
        results = [Stored(token, _kept.zeros(aval.shape, _primitives.ghost_of(aval, token.aval).dtype), name)
                   for token, aval, name in zip(tokens, avals, names)]
        return [stored if use == STATE else stored.taken() for stored, use in zip(results, uses)]


class _Writer:
    """Writes the program of a piece (lib/update/update.h). Each value has a number: inputs have the
    first numbers, then come scalars, constants and registers. Several values can use one register
    in turn."""

    def __init__(self, eqns: Sequence[Eqn], inputs: Sequence[Atom], outputs: Sequence[Atom]) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.scalars: list[Atom] = []
        self.constants: list[int] = []
        # The operands of an operation are indices into `values`.
        self.values: list[tuple[str, int]] = []
        self.operations: list[tuple[str, int, list[int]]] = []
        self.known: dict[Any, int] = {}
        for i, atom in enumerate(inputs):
            self.known[atom] = self.value("input", i)
        for eqn in eqns:
            self.known[eqn.outvars[0]] = self.written(eqn)

    def value(self, kind: str, number: int) -> int:
        self.values.append((kind, number))
        return len(self.values) - 1

    def constant(self, number: Any) -> int:
        bits = int(np.float32(number).view(np.int32))
        if ("constant", bits) not in self.known:
            self.known["constant", bits] = self.value("constant", len(self.constants))
            self.constants.append(bits)
        return self.known["constant", bits]

    def read(self, atom: Atom) -> int:
        if _private.is_literal(atom):
            return self.constant(atom.val)
        if atom not in self.known:
            self.known[atom] = self.value("scalar", len(self.scalars))
            self.scalars.append(atom)
        return self.known[atom]

    def emit(self, name: str, *operands: int) -> int:
        result = self.value("register", len(self.operations))
        self.operations.append((name, result, list(operands)))
        return result

    def written(self, eqn: Eqn) -> int:
        """Writes the operations of an equation. Returns the index of the result in `values`."""
        name, out = eqn.primitive.name, eqn.outvars[0]
        operands = list(map(self.read, eqn.invars))
        result, is_exact = operands[0], name in _EXACT
        if name == "convert_element_type" or name == "reduce_precision":
            is_exact = name == "convert_element_type" and eqn.invars[0].aval.dtype != np.float32
            if name == "reduce_precision" and eqn.params["mantissa_bits"] == 7:
                return self.emit("round_bf16", result)
        elif name in _ALIKE or _is_broadcast(eqn):
            is_exact = True
        elif name == "select_n":
            result, is_exact = self.emit("select", operands[0], operands[2], operands[1]), True
        elif name == "integer_pow":
            result = self.power(operands[0], eqn.params["y"], out.aval.dtype)
        elif name == "square":
            result = self.emit("mul", *operands, *operands)
        elif name == "clamp":
            low, middle, high = operands
            result, is_exact = self.emit("min", self.emit("max", middle, low), high), True
        else:
            result = self.emit("add" if name == "add_any" else name, *operands)
        if out.aval.dtype == _BFLOAT16 and not is_exact:
            result = self.emit("round_bf16", result)
        return result

    def power(self, base: int, exponent: int, dtype: Any) -> int:
        """Writes the operations of a power, which multiply in the same order as JAX. Returns the
        index of the result in `values`."""
        def times(left: int, right: int) -> int:
            product = self.emit("mul", left, right)
            return self.emit("round_bf16", product) if dtype == _BFLOAT16 else product
        result, left = None, abs(exponent)
        while left:
            if left & 1:
                result = base if result is None else times(result, base)
            left >>= 1
            if left:
                base = times(base, base)
        if result is None:
            return self.constant(1)
        return self.emit("div", self.constant(1), result) if exponent < 0 else result

    def program(self) -> Program:
        """Returns the program. After the last operation that reads a register's value, another
        value can use the register."""
        results = [self.known[atom] for atom in self.outputs]
        last = {value: i for i, (_, _, operands) in enumerate(self.operations) for value in operands}
        last.update((value, len(self.operations)) for value in results)
        base = {"input": 0, "scalar": len(self.inputs),
                "constant": len(self.inputs) + len(self.scalars)}
        first = base["constant"] + len(self.constants)
        numbers = {value: base[kind] + number for value, (kind, number) in enumerate(self.values)
                   if kind != "register"}
        free: list[int] = []
        count, flat = first, []
        for i, (name, result, operands) in enumerate(self.operations):
            if result not in last:
                continue
            read = [numbers[value] for value in operands]
            free += {numbers[value] for value in operands
                     if last[value] == i and self.values[value][0] == "register"}
            if free:
                numbers[result] = free.pop()
            else:
                numbers[result], count = count, count + 1
            flat += [_CODES[name], numbers[result], *read, *[0] * (3 - len(read))]
        if count > VALUES_MAX or len(self.inputs) > ARRAYS_MAX or len(self.outputs) > ARRAYS_MAX or \
                len(flat) > OPERATIONS_MAX * OPERATION_WORDS:
            raise NotImplementedError(
                f'actmem.optax.offload(on="host"): the update of one leaf uses {count} values, '
                f"{len(self.inputs)} of them arrays, makes {len(self.outputs)}, and has "
                f"{len(flat) // OPERATION_WORDS} operations; the limits are {VALUES_MAX} values, "
                f"{ARRAYS_MAX} arrays and {OPERATIONS_MAX} operations: use on=\"device\"")
        return Program(tuple(flat), tuple(self.constants), tuple(numbers[value] for value in results),
                       tuple(_TYPES[atom.aval.dtype] for atom in (*self.inputs, *self.outputs)))


class Plan:
    """Decides which equations of an open jaxpr run on the host.

    stored   the inputs of the jaxpr that are stored
    wanted   the outputs of the jaxpr that will be stored
    stacks   None, or the variables that are stacks (_layers.py). If `stacks` is not None, `wanted`
             has all outputs that are stacks, and the pieces compute only stacks. The caller
             computes all other variables, even those that depend on stacks.
    pieces   the calls on the host; `piece_of` maps a variable to the piece that computes it
    """

    def __init__(self, jaxpr: Jaxpr, stored: Collection[Atom], wanted: Iterable[Atom],
                 stacks: Collection[Atom] | None = None) -> None:
        self.jaxpr, self.stored = jaxpr, set(stored)
        self.producers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.dependent = set(stored)        # variables that depend on stored inputs
        for eqn in jaxpr.eqns:
            if any(not _private.is_literal(atom) and atom in self.dependent for atom in eqn.invars):
                self.dependent.update(var for var in eqn.outvars if stacks is None or var in stacks)
        wanted = [atom for atom in dict.fromkeys(wanted) if not _private.is_literal(atom)]
        self.inside: set[Atom] = set()      # variables of the host's programs
        self.given: set[Atom] = set()       # variables in `inside` that the device computes
        self.add_needed([atom for atom in wanted if atom in self.dependent])
        if stacks is None:
            self.add_rest()
            needed = self.found_needed(wanted)
        else:
            needed = [atom for atom in wanted if atom in self.inside and atom in self.dependent]
        self.pieces = [self.piece(outputs) for outputs in self.parts(needed)]
        self.piece_of = {atom: piece for piece in self.pieces for atom in piece.outputs}

    def found_needed(self, wanted: Sequence[Atom]) -> list[Atom]:
        """Returns the arrays that the host makes for the store and for the device. The device
        computes booleans itself. The device also converts bfloat16 to float32 itself, so that the
        host copies only 2 bytes for each element."""
        made = {atom for atom in self.inside - self.given if atom in self.dependent}
        on_device: set[Atom] = set()
        while True:
            used = [atom for eqn in self.jaxpr.eqns for atom in eqn.invars
                    if not _private.is_literal(atom) and
                    (made.isdisjoint(eqn.outvars) or not on_device.isdisjoint(eqn.outvars))]
            needed = dict.fromkeys(atom for atom in (*wanted, *used, *self.jaxpr.outvars)
                                   if not _private.is_literal(atom) and atom in made)
            others = {atom for atom in needed if atom.aval.dtype not in _TYPES or
                      atom not in wanted and self.is_widened(atom)}
            if others <= on_device:
                return [atom for atom in needed if atom not in others]
            on_device |= others

    def is_widened(self, atom: Atom) -> bool:
        """Returns whether an array is float32 that was converted from bfloat16."""
        eqn = self.producers[atom]
        return eqn.primitive.name == "convert_element_type" and \
            (eqn.invars[0].aval.dtype, atom.aval.dtype) == (_BFLOAT16, np.dtype(np.float32))

    def add_needed(self, wanted: Sequence[Atom]) -> None:
        """Adds to `inside`: `wanted`, and all arrays that the host needs to compute `wanted`."""
        left = [*wanted]
        while left:
            atom = left.pop()
            if not _is_array(atom) or atom in self.inside:
                continue
            if atom in self.stored:
                self.check_type(atom)
                continue
            self.inside.add(atom)
            eqn = self.producers.get(atom)
            if eqn is not None and _is_known(eqn):
                self.check_scalars(eqn)
                left += eqn.invars
            elif atom in self.dependent:
                self.refuse(eqn)
            else:
                self.check_type(atom)
                self.given.add(atom)

    def check_type(self, atom: Atom) -> None:
        """Refuses an array that the host would have to read, if the host cannot compute with the
        array's type."""
        if atom.aval.dtype not in _TYPES:
            raise NotImplementedError(
                f'actmem.optax.offload(on="host"): the update needs an array of '
                f"{atom.aval.dtype}{list(atom.aval.shape)} on the host, which computes with "
                'float32 and bfloat16: use on="device"')

    def refuse(self, eqn: Eqn) -> None:
        raise NotImplementedError(
            f'actmem.optax.offload(on="host"): {eqn.primitive} at '
            f"{_private.place_of(eqn.source_info)} ({eqn.outvars[0].aval.str_short()}) is not "
            "elementwise, or not in float32 or bfloat16. Use on=\"device\", or keep this part of "
            "the state on the device by mask=")

    def check_scalars(self, eqn: Eqn) -> None:
        """Refuses a scalar that is computed from the state, such as a norm of the state."""
        for atom in eqn.invars:
            if not _private.is_literal(atom) and not _is_array(atom) and atom in self.dependent:
                self.refuse(self.reduction(atom))

    def reduction(self, scalar: Atom) -> Eqn:
        """Returns the equation that reduced an array to this scalar, or to a scalar from which this
        scalar is computed."""
        eqn = self.producers[scalar]
        operands = [atom for atom in eqn.invars
                    if not _private.is_literal(atom) and atom in self.dependent]
        return eqn if any(map(_is_array, operands)) else self.reduction(operands[0])

    def add_rest(self) -> None:
        """Adds to `inside` the results of other equations whose arrays are all on the host."""
        for eqn in self.jaxpr.eqns:
            operands = [atom for atom in eqn.invars if not _private.is_literal(atom)]
            others = [atom for atom in operands
                      if atom not in self.inside and atom not in self.stored]
            if _is_known(eqn) and not self.dependent.isdisjoint(operands) and \
                    all(self.is_uniform(atom) if _is_array(atom) else atom not in self.dependent
                        for atom in others):
                self.inside.update((*eqn.outvars, *filter(_is_array, others)))

    def is_uniform(self, atom: Atom) -> bool:
        """Returns whether an array is a broadcast scalar that does not depend on stored inputs."""
        eqn = self.producers.get(atom)
        return eqn is not None and _is_broadcast(eqn) and atom not in self.dependent

    def is_read(self, atom: Atom) -> bool:
        """Returns whether a piece reads an array, instead of computing it."""
        return atom in self.stored or atom in self.given

    def needs(self, wanted: Sequence[Atom]) -> set[Atom]:
        """Returns the arrays in `wanted`, and all arrays from which the host computes them."""
        found: set[Atom] = set()
        left = list(wanted)
        while left:
            atom = left.pop()
            if _is_array(atom) and atom not in found:
                found.add(atom)
                if not self.is_read(atom):
                    left += self.producers[atom].invars
        return found

    def parts(self, needed: Sequence[Atom]) -> list[list[Atom]]:
        """Divides `needed` into groups. No two groups have an input array in common."""
        parts: list[tuple[list[Atom], set[Atom]]] = []
        for atom in needed:
            found = {other for other in self.needs([atom]) if self.is_read(other)}
            alike = [part for part in parts if not part[1].isdisjoint(found)]
            parts = [part for part in parts if part not in alike]
            parts.append(([other for part in alike for other in part[0]] + [atom],
                          found.union(*(part[1] for part in alike))))
        return [outputs for outputs, _ in parts]

    def piece(self, outputs: Sequence[Atom]) -> Piece:
        found = self.needs(outputs)
        inputs = [atom for atom in (*self.jaxpr.invars, *self.jaxpr.constvars, *self.producers)
                  if atom in found and self.is_read(atom)]
        eqns = [eqn for eqn in self.jaxpr.eqns
                if any(var in found and not self.is_read(var) for var in eqn.outvars)]
        writer = _Writer(eqns, inputs, outputs)
        return Piece(inputs, writer.scalars, list(outputs), writer.program())


class Run:
    """Computes a jaxpr with stored inputs and outputs. The class Plan decides which equations run
    on the host."""

    def __init__(self, jaxpr: Jaxpr, args: Sequence[Any], labels: Sequence[str | None]) -> None:
        self.inner = _private.open_jaxpr(jaxpr)
        self.labels = labels
        self.values: dict[Atom, Any] = dict(zip(
            (*self.inner.constvars, *self.inner.invars), (*getattr(jaxpr, "consts", ()), *args),
            strict=True))
        self.taken: dict[Atom, Any] = {}
        self.label_of = {atom: label for atom, label in zip(self.inner.outvars, labels)
                         if not _private.is_literal(atom) and label is not None}
        self.plan = Plan(self.inner, [var for var, arg in self.values.items() if is_stored(arg)],
                         self.label_of)

    def operands(self, atom: Atom) -> Sequence[Atom]:
        """Returns the unknown operands of a variable. If there are none, computes the variable: see
        until_known()."""
        if _private.is_literal(atom) or atom in self.values:
            return ()
        piece, eqn = self.plan.piece_of.get(atom), self.plan.producers[atom]
        needed = [*piece.inputs, *piece.scalars] if piece else eqn.invars
        missing = [other for other in needed
                   if not _private.is_literal(other) and other not in self.values]
        if missing:
            return missing
        if piece:
            arrays, scalars = ([self.values[other] for other in atoms]
                               for atoms in (piece.inputs, piece.scalars))
            self.values.update(zip(piece.outputs, piece.run(arrays, scalars, self.label_of)))
        else:
            self.values.update(zip(eqn.outvars, _private.run_eqn(
                eqn, list(map(self.array, eqn.invars)))))
        return ()

    def run_last(self, eqn: Eqn) -> None:
        """Runs an equation that no output needs, such as jax.debug.print."""
        for atom in eqn.invars:
            until_known(atom, self.operands)
        _private.run_eqn(eqn, list(map(self.array, eqn.invars)))

    def array(self, atom: Atom) -> Any:
        """Returns the value of a known variable, on the device."""
        if _private.is_literal(atom):
            return atom.val
        value = self.values[atom]
        if not is_stored(value):
            return value
        if atom not in self.taken:
            self.taken[atom] = value.taken()
        return self.taken[atom]

    def output(self, number: int) -> Any:
        atom, label = self.inner.outvars[number], self.labels[number]
        until_known(atom, self.operands)
        if label is None:
            return self.array(atom)
        value = atom.val if _private.is_literal(atom) else self.values[atom]
        if is_stored(value) and value.label == label:
            return value
        return store(self.array(atom), label)

    def results(self) -> list[Any]:
        """Returns the outputs. Computes the last output first, because a backward pass makes the
        last gradient first."""
        results = {i: self.output(i) for i in reversed(range(len(self.labels)))}
        for eqn in self.inner.eqns:
            if eqn.effects and not any(var in self.values for var in eqn.outvars):
                self.run_last(eqn)
        return [results[i] for i in range(len(self.labels))]

