# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Finds the values of a program that never exist in memory, because the compiler fuses their
computation into the operations that read them. The rules follow those of XLA. Steps(graph,
compiler) lists the operations that remain after fusion, and the values that each of them reads from
memory."""
from __future__ import annotations

import dataclasses

from actmem.plan._graph import PRODUCTS, Graph, Node, Value

# Cheap elementwise operations, which the compiler repeats in each operation that reads the result.
CHEAP = frozenset("""add add_any sub mul neg abs sign max min select_n and or not xor eq ne lt
    le gt ge convert_element_type broadcast_in_dim iota transpose reshape rev slice
    dynamic_slice pad concatenate floor ceil round is_finite shift_left shift_right_logical
    shift_right_arithmetic clamp square integer_pow real imag conj reduce_precision nextafter
    population_count clz copysign gather eq_to le_to lt_to split full one_minus_square""".split())
COSTLY = frozenset("""div exp exp2 expm1 log log1p tanh logistic sin cos tan asin acos atan
    atan2 sinh cosh asinh acosh atanh pow sqrt rsqrt cbrt rem erf erfc erf_inv lgamma digamma
    random_bits threefry2x32 random_wrap random_unwrap""".split())
ELEMENTWISE = CHEAP | COSTLY
# Operations that move elements of the operand to other positions of the result.
MOVING = frozenset("""broadcast_in_dim transpose rev slice dynamic_slice pad concatenate gather
    split""".split())
ENLARGING = frozenset("""broadcast_in_dim iota pad concatenate gather""".split())
SUMS = frozenset("""reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or
    argmax argmin reduce reduce_window""".split())


@dataclasses.dataclass(frozen=True)
class Compiler:
    """The differences between compilers for devices: what a compiler does if a field is true."""

    fuses_sums: bool = True     # fuses elementwise operations into sums
    arranges: bool = False      # copies operands into the order in which a product reads them
    is_wide: bool = False       # runs each operation as early as possible, not in program order
    repeats_costly: bool = False    # computes exp() and the like again for each reader
    casts_products: bool = False    # writes a product in the type and order that its user reads
    fuses_products: bool = False    # fuses a product with elementwise operations before and after
    fuses_unary: bool = False   # fuses unary operations on a product's operands into the product
    hoists_casts: bool = False  # casts operands of a loop before the loop, not in each iteration
    sinks_constants: bool = False   # computes a loop's constant operands in the loop
    fetches_early: bool = False     # copies arguments from the host when the step begins
    multiplies_bf16: bool = False   # casts operands of products from float32 to bfloat16
    splits_products: bool = False   # divides products with a small result: see _splits.py
    turns_matrices: bool = False    # transposes a matrix by reading it in another order
    hides_latency: bool = False     # reorders the steps of a loop: see _order.py
    hosts: str = "outer"        # values that can use the memory of results that do not exist yet:
                                # "outer" (only values outside of loops), "all", or "none"


CPU = Compiler(fuses_sums=False, arranges=True, is_wide=True)
# These settings predict the time of programs on accelerators. The predictions were compared with
# measurements.
PLAIN = Compiler()
# XLA's GPU pipeline computes a product with a Triton kernel. The kernel also transposes and casts
# the result, and applies unary operations, such as tanh(), to the operands. XLA assigns the buffers
# of loop bodies together with all other buffers, and can place temporary values of a loop body in
# the memory of results.
GPU = Compiler(repeats_costly=True, casts_products=True, fuses_unary=True, splits_products=True,
               sinks_constants=True, fetches_early=True, hides_latency=True, turns_matrices=True, hosts="all")
# XLA's TPU pipeline computes the elementwise operations before and after a product inside the
# product's fusion (kOutput). It moves casts of a loop's operands out of the loop, so that it casts
# the stacked weights of all layers at once. It never places temporary values in the memory of
# results.
TPU = Compiler(repeats_costly=True, casts_products=True, fuses_products=True, hoists_casts=True,
               sinks_constants=True, fetches_early=True, multiplies_bf16=True, turns_matrices=True, hosts="none")


@dataclasses.dataclass(eq=False, repr=False)
class Step:
    """One operation that the compiled program runs, with the operations that are fused into it."""

    node: Node
    reads: dict[int, Value] = dataclasses.field(default_factory=dict)
    made: list[Value] = dataclasses.field(default_factory=list)
    inner: list[Node] = dataclasses.field(default_factory=list)     # fused into this step


class Steps:
    """The steps of a graph, in the order in which they run."""

    def __init__(self, graph: Graph, compiler: Compiler) -> None:
        self.compiler = compiler
        self.graph = graph
        self.number = {id(node): i for i, node in enumerate(graph.nodes)}
        self.reach = self._reached()
        self.cheap = {id(node): node.op in CHEAP or _divides_by_a_sum(node) or
                      compiler.repeats_costly and node.op in COSTLY or
                      self._is_elementwise(node) and node.op not in COSTLY for node in graph.nodes}
        self.constant = self._constant()
        self.written = self._written()
        self.ends = {id(self.written[id(node)]): node for node in graph.nodes
                     if id(node) in self.written}
        self.shared: set[int] = set()       # values computed once for all their readers
        self.hosts: dict[int, frozenset[int]] = {}  # node → steps that compute it
        for node in reversed(graph.nodes):
            if self._is_elementwise(node):
                self.shared |= {id(value) for value in node.outputs if self._is_shared(value)}
            self.hosts[id(node)] = self._hosts(node)
        self.made = self._made()
        steps = [self._step(node) for node in self._in_order()
                 if any(id(value) in self.made for value in node.outputs) or not node.outputs]
        self.steps = self._wide(steps) if compiler.is_wide else self._narrow(steps)

    # Values that exist in memory.

    def _written(self) -> dict[int, Value]:
        """Returns, for each product with fused users, the value that is written instead of the
        product's result."""
        found = {}
        for node in self.graph.nodes if self.compiler.casts_products else ():
            if node.op not in PRODUCTS:
                continue
            value, = node.outputs
            while not value.is_output and len({id(user) for user in value.users}) == 1 and \
                    self._ends_product(value.users[0], value):
                value, = value.users[0].outputs
            if value is not node.outputs[0]:
                found[id(node)] = value
        return found

    def _chain(self, product: Node) -> list[Node]:
        """Returns a product and the users that are fused into it, in order."""
        chain, end = [product], self.written[id(product)]
        while chain[-1].outputs[0] is not end:
            chain.append(chain[-1].outputs[0].users[0])
        return chain

    def _is_elementwise(self, node: Node) -> bool:
        """Returns whether an operation computes its result element by element. XLA for TPUs
        replaces a scatter of single elements by a comparison of indices and a select."""
        return node.op in ELEMENTWISE or self.compiler.fuses_products and \
            node.op == "scatter-add" and not node.params["dimension_numbers"].update_window_dims

    def _ends_product(self, user: Node, value: Value) -> bool:
        if self.compiler.fuses_products:
            return user.op == "dynamic_update_slice" or self._is_elementwise(user) and user.op not in ENLARGING and \
                _size(user.outputs[0]) == _size(value)
        return user.op in ("transpose", "reshape") or \
            user.op == "convert_element_type" and user.outputs[0].bytes <= value.bytes

    def _reached(self) -> list[int]:
        """Returns for each node a bit set of the nodes that depend on its results."""
        reach = [0] * len(self.graph.nodes)
        for i in range(len(reach) - 1, -1, -1):
            for value in self.graph.nodes[i].outputs:
                for user in value.users:
                    j = self.number[id(user)]
                    reach[i] |= reach[j] | 1 << j
        return reach

    def _constant(self) -> set[int]:
        """Returns the values that depend on no input and are cheap, such as masks."""
        found = set[int]()
        for node in self.graph.nodes if self.compiler.sinks_constants else ():
            if node.op in CHEAP and all(id(value) in found for value in node.inputs):
                found |= {id(value) for value in node.outputs}
        return found

    def _joins(self, value: Value, user: Node) -> bool:
        """Returns whether the compiler can fuse the computation of `value` into `user`."""
        maker = value.maker
        if user.op == "scan" and id(value) in self.constant:
            return all(each is not value for each in user.inputs[user.consts:])
        if maker is None or not self._is_elementwise(maker) or maker.op == "concatenate":
            return False
        if not (self._is_elementwise(user) or user.op == "dynamic_update_slice" or
                self.compiler.fuses_sums and user.op in SUMS or
                self.compiler.fuses_products and user.op in PRODUCTS or
                self.compiler.fuses_unary and user.op in PRODUCTS and _is_unary(maker)) or \
                id(value) in self.ends:
            return False
        return self.cheap[id(maker)] or user.op == "dynamic_update_slice" or \
            _size(user.outputs[0]) <= _size(value)

    def _hosts(self, node: Node) -> frozenset[int]:
        hosts: set[int] = set()
        for value in node.outputs:
            joined = [user for user in value.users if self._is_joined(value, user)]
            if len(joined) < len(value.users) or value.is_output or not joined:
                hosts.add(id(node))
            hosts.update(*(self.hosts[id(user)] for user in joined))
        return frozenset(hosts)

    def _is_shared(self, value: Value) -> bool:
        users = {id(user): user for user in value.users}
        if value.maker is None or len(users) + value.is_output < 2:
            return False
        if not self.cheap[id(value.maker)]:
            return len(frozenset().union(*(
                self.hosts[id(user)] if self._joins(value, user) else {id(user)}
                for user in users.values()))) > 1
        if _operands(value.maker) <= 1:
            return False
        if value.is_output:
            return True
        known: dict[int, bool] = {}
        return not all(self._joins_on_all_paths(value.maker, user, known)
                       for user in users.values())

    def _joins_on_all_paths(self, maker: Node, user: Node, known: dict[int, bool]) -> bool:
        if user is maker:
            return True
        if id(user) not in known:
            start = self.number[id(maker)]
            known[id(user)] = all(
                self._joins(value, user) and
                (value.maker is maker or id(value) not in self.shared) and
                self._joins_on_all_paths(maker, value.maker, known)
                for value in user.inputs if value.maker is not None and
                (value.maker is maker or self.reach[start] >> self.number[id(value.maker)] & 1))
        return known[id(user)]

    def _is_joined(self, value: Value, user: Node) -> bool:
        return id(value) not in self.shared and self._joins(value, user)

    def _made(self) -> set[int]:
        """Returns the ids of the values that exist in memory. A value does not exist in memory if
        all its readers compute it themselves."""
        made: set[int] = set()
        for node in reversed(self.graph.nodes):
            for value in node.outputs:
                if not self._is_elementwise(node) or value.is_output or id(value) in self.shared \
                        or any(not self._is_joined(value, user) for user in value.users):
                    made.add(id(value))
        for node in self.graph.nodes:
            if id(node) in self.written:
                made -= {id(each.outputs[0]) for each in self._chain(node)}
                made.add(id(self.written[id(node)]))
        # A reshape shares the memory of its operand.
        self.same: dict[int, Value] = {}
        for node in self.graph.nodes:
            if node.op != "reshape" and not self._turns_matrix(node) or \
                    id(node.outputs[0]) not in made:
                continue
            source = self.same.get(id(node.inputs[0]), node.inputs[0])
            if source.maker is None or id(source) in made:
                self.same[id(node.outputs[0])] = source
                made.discard(id(node.outputs[0]))
        return made

    def _turns_matrix(self, node: Node) -> bool:
        """Returns whether XLA stores a transposed matrix in the order of the matrix itself. XLA does
        so for an argument that only loops and products read, and for the result of a loop."""
        if node.op != "transpose" or not self.compiler.turns_matrices or node.outputs[0].is_output:
            return False
        source, result = node.inputs[0], node.outputs[0]
        if sum(size != 1 for size in source.aval.shape) != 2:
            return False
        if source.maker is None:
            return all(user.op in ("scan", *PRODUCTS) for user in result.users)
        return source.maker.op == "scan" and len(source.users) == 1

    # Steps that run.

    def _in_order(self) -> list[Node]:
        """Returns the nodes in order. If the program writes a product's result into a stacked
        array, the write takes the product's place."""
        writes = {id(node): self.written[id(node)].maker for node in self.graph.nodes
                  if id(node) in self.written}
        early = {key: write for key, write in writes.items()
                 if write is not None and write.op == "dynamic_update_slice"}
        late = {id(write) for write in early.values()}
        return [early.get(id(node), node) for node in self.graph.nodes if id(node) not in late]

    def _step(self, node: Node) -> Step:
        step = Step(node, made=[value for value in node.outputs if id(value) in self.made])
        stack = [(value, node) for value in node.inputs]
        seen = set()
        within = set()
        product = self.ends.get(id(node.outputs[0])) if node.outputs else None
        if product is not None:
            # The product's step also computes the users that are fused into it.
            step.node, value, stack = product, product.outputs[0], []
            for user in self._chain(product):
                stack += [(each, user) for each in user.inputs
                          if user is product or each is not value]
                if user is not product:
                    step.inner.append(user)
                    within.add(id(user))
                value, = user.outputs
        while stack:
            value, user = stack.pop()
            if (id(value), id(user)) in seen:
                continue
            seen.add((id(value), id(user)))
            if id(value) in self.same:
                source = self.same[id(value)]
                step.reads[id(source)] = source
            elif self._is_joined(value, user):
                assert value.maker is not None
                if id(value.maker) not in within:
                    within.add(id(value.maker))
                    step.inner.append(value.maker)
                stack += [(each, value.maker) for each in value.maker.inputs]
            else:
                step.reads[id(value)] = value
        return step

    def _wide(self, steps: list[Step]) -> list[Step]:
        """Orders the steps as if each ran as soon as its operands exist. Steps without operands
        come first."""
        makers = {id(value): step for step in steps for value in step.made}
        waits, readers = {}, dict[int, list[Step]]()
        for step in steps:
            before = {id(makers[key]): makers[key] for key in step.reads if key in makers}
            waits[id(step)] = len(before)
            for key in before:
                readers.setdefault(key, []).append(step)
        ready = [step for step in steps if not step.reads]
        ready += [step for step in steps if step.reads and not waits[id(step)]]
        for step in ready:      # the loop appends to `ready`
            for reader in readers.get(id(step), ()):
                waits[id(reader)] -= 1
                if not waits[id(reader)]:
                    ready.append(reader)
        return ready

    @staticmethod
    def _narrow(steps: list[Step]) -> list[Step]:
        """Keeps the program's order, but delays slices of stacked values to their first use."""
        late = {id(value): step for step in steps for value in step.made
                if step.node.op == "dynamic_slice"}
        order: list[Step] = []
        for step in steps:
            if step.node.op == "dynamic_slice" and all(id(value) in late for value in step.made):
                continue
            for key in step.reads:
                if key in late:
                    order.append(late.pop(key))
            order.append(step)
        return order


def _is_unary(node: Node) -> bool:
    """Returns whether an operation has one operand, reads no more bytes than it would write, and
    does not move elements."""
    return node.op not in MOVING and node.op != "reshape" and len(node.inputs) == 1 and \
        _size(node.inputs[0]) == _size(node.outputs[0]) and \
        node.inputs[0].bytes <= node.outputs[0].bytes


def _size(value: Value) -> int:
    return int(getattr(value.aval, "size", 0))


def _operands(node: Node) -> int:
    """Returns how many operands, except broadcasts, are at least as large as the result."""
    return sum(_size(value) >= _size(node.outputs[0]) and
               (value.maker is None or value.maker.op not in ("broadcast_in_dim", "iota"))
               for value in node.inputs)


def _divides_by_a_sum(node: Node) -> bool:
    """Returns whether `node` divides by a broadcast value. XLA then multiplies by the
    reciprocal."""
    if node.op != "div" or len(node.inputs) < 2:
        return False
    by = node.inputs[1]
    return _size(by) < _size(node.outputs[0]) or \
        by.maker is not None and by.maker.op == "broadcast_in_dim"
