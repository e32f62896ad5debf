# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program as the planner uses it: the equations of a jaxpr in order. Calls are inlined, and
changes of shape are omitted. Bodies of loops are graphs of their own.

`Graph.of(jaxpr)` makes a graph; memory.py and work.py read it.
"""
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from actmem.jax import _private
from actmem.jax._private import Atom, Aval, Eqn, Jaxpr
from actmem.plan._kernels import is_kernel
from actmem.plan._shards import Shards

# Operations that only give the bytes of an operand another shape or name.
SAME = frozenset("""reshape squeeze expand_dims name copy copy_p stop_gradient
    optimization_barrier sharding_constraint pvary bitcast_convert_type mesh_cast
    optimization_barrier_p layout_constraint""".split())
CALLS = frozenset("""jit pjit closed_call core_call remat checkpoint remat2 custom_jvp_call
    custom_vjp_call custom_vjp_call_jaxpr custom_lin remat_call xla_call
    custom_jvp_call_jaxpr actmem_together""".split())

PRODUCTS = ("dot_general", "conv_general_dilated")

WINDOW = 32         # number of elementwise products that XLA adds up at once


def local_shape(aval: Aval) -> tuple[int, ...]:
    """Returns the shape of each device's part of a value, or the whole shape if the value has no
    sharding."""
    shape = _private.explicit_shard_shape(aval) if hasattr(aval, "sharding") else None
    return tuple(aval.shape if shape is None else shape)


def bytes_of(aval: Aval) -> int:
    """Returns the size in bytes of a value on one device; 0 for types without bytes, such as
    tokens, and for values in the host's memory."""
    if not hasattr(aval, "shape") or not hasattr(aval, "dtype") or \
            aval.dtype.name == "float0" or _private.is_on_host(aval):
        return 0
    if _private.is_extended(aval.dtype):
        aval = _private.physical_aval(aval)
    return int(math.prod(local_shape(aval)) * aval.dtype.itemsize)


@dataclasses.dataclass(eq=False, repr=False)
class Value:
    bytes: int
    aval: Aval
    maker: Node | None = None       # None: an input
    number: int = -1                # index of the input
    users: list[Node] = dataclasses.field(default_factory=list)
    is_output: bool = False
    names: tuple[str, ...] = ()     # names that the program gives the value
    again: tuple[str, ...] = ()     # names that a recomputation gives the value


@dataclasses.dataclass(eq=False, repr=False)
class Node:
    """An operation on values. `bodies` has the graphs of the jaxprs inside a loop or a cond."""

    op: str
    inputs: list[Value]
    outputs: list[Value]
    params: dict[str, Any]
    where: Any                      # source line
    bodies: list[Graph] = dataclasses.field(default_factory=list)
    length: int = 1
    consts: int = 0                 # number of a loop's inputs that are equal in all iterations
    carries: int = 0                # number of the values that a loop carries between iterations
    reads: list[Any] = dataclasses.field(default_factory=list)   # types of all operands
    turn: int = 0                   # number of the node's recomputation, from 1; 0: none
    is_kernel: bool = False         # see _kernels.py
    between: dict[str, int] = dataclasses.field(default_factory=dict)   # see _shards.py


@dataclasses.dataclass(eq=False, repr=False)
class Graph:
    inputs: list[Value]
    outputs: list[Value | None]     # None: a constant
    nodes: list[Node]
    # The names that the forward pass gives to values, in the order of the program.
    named: list[tuple[str, Value]] = dataclasses.field(default_factory=list)

    @staticmethod
    def of(jaxpr: Jaxpr, shards: Shards | None = None) -> Graph:
        """Makes the graph of a jaxpr, closed or not. Merges equal operations."""
        return _Maker(shards).graph(jaxpr)

    def copy(self) -> Graph:
        """Returns a copy with nodes and values of its own, which can be changed."""
        values: dict[int, Value] = {}

        def of(value: Value) -> Value:
            found = values.get(id(value))
            if found is None:
                found = values[id(value)] = dataclasses.replace(value, maker=None, users=[])
            return found
        inputs = [of(value) for value in self.inputs]
        nodes = []
        for node in self.nodes:
            copy = dataclasses.replace(node, inputs=[of(value) for value in node.inputs],
                                       outputs=[of(value) for value in node.outputs],
                                       bodies=[body.copy() for body in node.bodies])
            for value in copy.inputs:
                value.users.append(copy)
            for value in copy.outputs:
                value.maker = copy
            nodes.append(copy)
        return Graph(inputs, [value and of(value) for value in self.outputs], nodes,
                     [(name, of(value)) for name, value in self.named])

    @property
    def is_step(self) -> bool:
        """Whether the graph has a forward and a backward pass, as the body of a loop over
        microbatches has."""
        turns = {node.turn for node in self.nodes if node.turn}
        return len(turns) > 1 or any(
            body.is_step or any(inner.turn for inner in body.nodes)
            for node in self.nodes if node.op == "scan" and not node.turn
            for body in node.bodies)


class _Maker:
    def __init__(self, shards: Shards | None) -> None:
        self.shards = shards
        self.nodes: list[Node] = []
        self.named: list[tuple[str, Value]] = []
        self.seen: dict[Any, Node] = {}
        # Values in a recomputation with prevent_cse. Barriers keep XLA from merging the operations
        # that read these values with equal operations outside of the recomputation.
        self.apart: set[int] = set()
        self.prevents_cse = False
        self.is_in_jvp = False          # in a function of jax.custom_jvp
        self.number = 0
        self.turn = 0

    def graph(self, jaxpr: Jaxpr) -> Graph:
        inner = _private.open_jaxpr(jaxpr)
        outer = self.nodes, self.seen, self.apart, self.named
        self.nodes, self.seen, self.apart, self.named = [], {}, set(), []
        # Constants come last, so that each argument has the same index as its input in the graph.
        variables = [*inner.invars, *inner.constvars]
        inputs = [self._value(var, i) for i, var in enumerate(variables)]
        env = dict(zip(variables, inputs))
        outputs = self._run(inner, env)
        for value in outputs:
            if value is not None:
                value.is_output = True
        graph = Graph(inputs, outputs, self.nodes, self.named)
        _add_in_place(graph)
        self.nodes, self.seen, self.apart, self.named = outer
        return graph

    def _aval(self, atom: Atom) -> Aval:
        """Returns the type of a device's part of a value."""
        return self.shards.local(atom) if self.shards else atom.aval

    def _value(self, atom: Atom, number: int = -1) -> Value:
        aval = self._aval(atom)
        return Value(bytes_of(aval), aval, None, number)

    def _read(self, env: dict[Any, Value | None], atom: Any) -> Value | None:
        return None if _private.is_literal(atom) else env[atom]

    def _run(self, jaxpr: Jaxpr, env: dict[Any, Any]) -> list[Value | None]:
        for eqn in jaxpr.eqns:
            args = [self._read(env, atom) for atom in eqn.invars]
            for var, value in zip(eqn.outvars, self._eqn(eqn, args)):
                env[var] = value
        return [self._read(env, atom) for atom in jaxpr.outvars]

    def _eqn(self, eqn: Eqn, args: list[Value | None]) -> Sequence[Value | None]:
        op = eqn.primitive.name
        if op in SAME or self._is_same(op, eqn, args):
            name = _private.name_of(eqn)
            if name is not None and args[0] is not None:
                if self.turn:
                    # A policy sees only the call of a custom_jvp function, and cannot save values
                    # in it. Otherwise, make a new value, because the derivative can also need the
                    # unnamed value.
                    return args if self.is_in_jvp else [self._named(args[0], name)]
                args[0].names += (name,)
                self.named.append((name, args[0]))
            return args
        inner = None if is_kernel(eqn) else self._called(op, eqn)
        if inner is not None:
            if not eqn.params.get("differentiated"):
                was_in_jvp, self.is_in_jvp = self.is_in_jvp, self.is_in_jvp or \
                    op.startswith("custom_jvp_call")
                results = self._call(inner, args)
                self.is_in_jvp = was_in_jvp
                return results
            outer = self.apart, self.turn, self.prevents_cse
            self.number += 1
            self.turn = self.number
            self.prevents_cse = bool(eqn.params.get("prevent_cse"))
            if self.prevents_cse:
                self.apart = {id(value) for value in args if value is not None}
            results = self._call(inner, args)
            self.apart, self.turn, self.prevents_cse = outer
            return results
        if op == "device_put" and len(args) > 1:
            return self._put(eqn, args)
        return self._node(op, eqn, args)

    def _put(self, eqn: Eqn, args: list[Value | None]) -> list[Value]:
        """Makes one node for each array, because XLA copies the arrays independently."""
        outputs = [self._value(var) for var in eqn.outvars]
        for value, output in zip(args, outputs):
            self._add(Node("device_put", [] if value is None else [value], [output], eqn.params,
                           eqn.source_info))
        return outputs

    @staticmethod
    def _is_same(op: str, eqn: Eqn, args: list[Value | None]) -> bool:
        if op == "convert_element_type":
            return bool(eqn.invars[0].aval.dtype == eqn.outvars[0].aval.dtype)
        if op in ("broadcast_in_dim", "transpose") and args[0] is not None:
            a, b = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
            # If only dimensions of length 1 are added or moved, the bytes stay in the same order.
            return [size for size in a if size != 1] == [size for size in b if size != 1] \
                and (op != "transpose" or _keeps_order(eqn))
        return op == "call_hi_primitive"

    @staticmethod
    def _called(op: str, eqn: Eqn) -> Jaxpr | None:
        if op not in CALLS:
            return None
        for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
            if key in eqn.params and _private.is_jaxpr(eqn.params[key]):
                return eqn.params[key]
        return next(iter(_private.inner_jaxprs(eqn.params)), None)

    def _call(self, jaxpr: Jaxpr, args: list[Value | None]) -> Sequence[Value | None]:
        inner = _private.open_jaxpr(jaxpr)
        consts = [self._value(var) for var in inner.constvars]
        env = dict(zip([*inner.constvars, *inner.invars], [*consts, *args]))
        return self._run(inner, env)

    def _node(self, op: str, eqn: Eqn, args: list[Value | None]) -> Sequence[Value]:
        if op in PRODUCTS:
            args = [value and self._arranged(value, *order)
                    for value, order in zip(args, _orders(eqn))]
        elif op == "reduce_sum" and args[0] is not None:
            args = [self._summed(args[0], eqn)]
        product = self.shards and self.shards.products.get(id(eqn))
        if product:
            args = [self._gathered(value, aval) if value and is_gathered else value
                    for value, aval, is_gathered in zip(args, product.reads, product.gathered)]
        key = self._key(op, eqn, args)
        if key is not None and key in self.seen:
            return self.seen[key].outputs
        inputs = [value for value in args if value is not None]
        outputs = [self._value(var) for var in eqn.outvars]
        node = Node(op, inputs, outputs, eqn.params, eqn.source_info,
                    is_kernel=is_kernel(eqn))
        node.reads = [self._aval(atom) for atom in eqn.invars]
        if product:
            node.reads, node.between = product.reads, product.between
        if op == "scan":
            node.length = eqn.params["length"]
            node.consts = _private.scan_consts(eqn.params)
            node.carries = _private.scan_carries(eqn.params)
            node.bodies = [_turn(self.graph(eqn.params["jaxpr"]), node)]
            # One input for each operand, including constants.
            node.inputs = [value or self._value(atom)
                           for value, atom in zip(args, eqn.invars)]
        elif not node.is_kernel and (
                op in ("while", "cond") or list(_private.inner_jaxprs(eqn.params))):
            jaxprs = list(_private.inner_jaxprs(eqn.params))
            if not op.startswith(("reduce", "scatter", "argm", "cum", "sort")):
                node.bodies = [self.graph(jaxpr) for jaxpr in jaxprs]
        self._add(node)
        if any(id(value) in self.apart for value in inputs):
            self.apart |= {id(value) for value in outputs}
        if key is not None:
            self.seen[key] = node
        return outputs

    def _arranged(self, value: Value, order: list[int], shape: tuple[int, ...],
                  is_matrix: bool) -> Value:
        """Returns `value` as a product reads it: a copy if the order of dimensions differs."""
        if is_matrix:
            return value
        moved = [i for i in order if shape[i] != 1]
        is_moved = moved != sorted(moved)
        key = ("arrange", id(value), id(value) in self.apart and self.number,
               *((tuple(order), shape) if is_moved else ()))
        if key not in self.seen:
            node = Node("transpose" if is_moved else "reshape", [value],
                        [Value(value.bytes, value.aval)],
                        {"permutation": tuple(order),
                         "shape": tuple(shape[i] for i in order)}, None)
            self._add(node)
            self.seen[key] = node
            if id(value) in self.apart:
                self.apart.add(id(node.outputs[0]))
        return self.seen[key].outputs[0]

    def _gathered(self, value: Value, aval: Aval) -> Value:
        """Returns `value` gathered from all devices."""
        gathered = Value(bytes_of(aval), aval)
        self._add(Node("gathered", [value], [gathered], {}, None))
        if id(value) in self.apart:
            self.apart.add(id(gathered))
        return gathered

    def _named(self, value: Value, name: str) -> Value:
        named = Value(value.bytes, value.aval, again=(name,))
        self._add(Node("reshape", [value], [named], {"prevent_cse": self.prevents_cse}, None))
        if id(value) in self.apart:
            self.apart.add(id(named))
        return named

    def _summed(self, value: Value, eqn: Eqn) -> Value:
        """If `eqn` adds up more than WINDOW elementwise products, returns the partial sums that XLA
        computes first. Otherwise returns `value`."""
        out = self._aval(eqn.outvars[0])
        taken = eqn.invars[0].aval.size // max(eqn.outvars[0].aval.size, 1)
        if taken <= WINDOW or value.maker is None or \
                value.maker.op not in ("mul", "square", "integer_pow"):
            return value
        key = "sum", id(value), tuple(eqn.params["axes"])
        if key not in self.seen:
            node = Node("reduce_window", [value], [Value(
                out.size * out.dtype.itemsize * -(-taken // WINDOW), out)], {}, None)
            self._add(node)
            self.seen[key] = node
        return self.seen[key].outputs[0]

    def _add(self, node: Node) -> None:
        node.turn = self.turn
        for value in node.outputs:
            value.maker = node
        for value in node.inputs:
            value.users.append(node)
        self.nodes.append(node)

    def _key(self, op: str, eqn: Eqn, args: list[Value | None]) -> Any:
        """Returns a key that equal operations share; None if this operation must not be merged."""
        if _private.has_effects(eqn) or op in ("scan", "while", "cond") or is_kernel(eqn):
            return None
        atoms = tuple(id(value) if value is not None else
                      (str(getattr(atom, "val", None)), str(atom.aval))
                      for value, atom in zip(args, eqn.invars))
        try:
            is_apart = any(id(value) in self.apart for value in args)
            return op, atoms, is_apart and self.number, str(sorted(
                (key, str(value)) for key, value in eqn.params.items() if key != "sharding"))
        except TypeError:
            return None


def _keeps_order(eqn: Eqn) -> bool:
    shape = eqn.invars[0].aval.shape
    moved = [i for i in eqn.params["permutation"] if shape[i] != 1]
    return moved == sorted(moved)


def _add_in_place(graph: Graph) -> None:
    """Replaces a scatter into zeros, and the addition of the scatter's result to another value, by
    a scatter into that other value."""
    for node in list(graph.nodes):
        if node.op != "scatter-add" or len(node.inputs[0].users) != 1 or \
                not _is_constant(node.inputs[0]) or len(node.outputs[0].users) != 1:
            continue
        add, = node.outputs[0].users
        if add.op not in ("add", "add_any") or len(add.inputs) != 2 or \
                node.outputs[0].is_output:
            continue
        other = add.inputs[add.inputs[0] is node.outputs[0]]
        zeros, others = node.inputs[0], list(node.inputs[1:])
        if zeros.maker is not None:
            graph.nodes.remove(zeros.maker)
        for value in others:
            value.users = [add if user is node else user for user in value.users]
        add.op, add.inputs, add.params = "scatter-add", [other, *others], node.params
        graph.nodes.remove(node)


def _is_constant(value: Value) -> bool:
    return value.maker is not None and value.maker.op == "broadcast_in_dim" and \
        not value.maker.inputs


def _orders(eqn: Eqn) -> list[tuple[list[int], tuple[int, ...], bool]]:
    """Returns for each operand of a product: the order in which the product reads the operand's
    dimensions, the operand's shape, and whether the operand is a matrix. Products read matrices in
    either order."""
    if "window_strides" in eqn.params:
        dims = eqn.params["dimension_numbers"]
        (batch, feature, *spaces), (out, into, *window) = dims.lhs_spec, dims.rhs_spec
        return [([batch, *spaces, feature], eqn.invars[0].aval.shape, False),
                ([*window, into, out], eqn.invars[1].aval.shape, False)]
    (lhs_sums, rhs_sums), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    orders = []
    for atom, sums, batch, is_left in ((eqn.invars[0], lhs_sums, lhs_batch, True),
                                       (eqn.invars[1], rhs_sums, rhs_batch, False)):
        free = [i for i in range(atom.aval.ndim) if i not in sums and i not in batch]
        order = [*batch, *free, *sums] if is_left else [*batch, *sums, *free]
        orders.append((order, atom.aval.shape, not batch and len(free) <= 1 and len(sums) == 1))
    return orders


def _turn(body: Graph, loop: Node) -> Graph:
    """Adds to the body of a scan the steps that read slices of stacked inputs and write slices of
    stacked results. Returns the body."""
    slices, updates = [], []
    for i in range(loop.consts + loop.carries, len(body.inputs)):
        part = body.inputs[i]
        body.inputs[i] = stack = Value(part.bytes * loop.length, part.aval, None, i)
        part.maker = Node("dynamic_slice", [stack], [part], {}, None)
        stack.users = [part.maker]
        slices.append(part.maker)
    carried = {id(value) for value in body.outputs[:loop.carries]}
    for i in range(loop.carries, len(body.outputs)):
        value = body.outputs[i]
        if value is None:
            continue
        value.is_output = id(value) in carried
        update = Node("dynamic_update_slice", [value], [], {}, None)
        body.outputs[i] = stacked = Value(0, value.aval, update, is_output=True)
        update.outputs = [stacked]
        value.users.append(update)
        updates.append(update)
    body.nodes = [*slices, *body.nodes, *updates]
    return body
