# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Draws a case from a seed: a program, the form that is compared with stock JAX, and flags.
The same seed is the same case with every version of JAX; on a GPU the values are larger."""
import random

from generator.text import ARGS, WITHOUT_SCALARS

# What is compared with stock JAX. ours: actmem.jax.checkpoint. patch: jax.checkpoint whose
# policy offloads to pinned_host, under patch(). destination: one that offloads to "actmem".
# stock, plain: stock checkpoints that offload nothing, or none at all, under patch().
FORMS = {"ours": 45, "patch": 25, "destination": 12, "stock": 4, "plain": 3}
FLAGS = {(): 55, ("remat3",): 20, ("custom_vjp3",): 10, ("remat3", "custom_vjp3"): 15}
DTYPES = {"float32": 70, "bfloat16": 18, "float16": 12}
NAMES = "abc"
# Blocks in each other that were once wrong together; some programs begin with such a chain.
CHAINS = (
    *2 * (("checkpoint", "custom_vjp", "checkpoint"),), ("custom_vjp", "checkpoint", "cond"),
    ("checkpoint", "scan", "checkpoint"), ("checkpoint", "cond", "checkpoint"),
    ("scan", "checkpoint", "checkpoint"), ("scan", "cond", "checkpoint"),
    ("checkpoint", "scan", "cond"), ("checkpoint", "switch", "checkpoint"),
    ("vmap", "checkpoint", "vmap", "checkpoint"), ("checkpoint", "inner", "checkpoint"))
SMALL = {"rows": 3, "columns": 4}
# XLA's compiler for GPUs treats slices of 128 bytes, and multiples of it, in another way.
ALIGNED = {"rows": 8, "columns": 32}
# A few values of which are more than workers.BUDGET.
LARGE = {"rows": 2048, "columns": 64}


class _Draw:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.is_on_mesh = False     # of type Auto: the others constrain by types
        self.is_local = False       # in shard_map, where x is a part
        self.chain = list(self.pick(CHAINS)) if self.chance(0.25) else []

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, items):
        return self.random.choice(list(items))

    def weighted(self, weights):
        return self.random.choices(list(weights), list(weights.values()))[0]

    # Bodies.

    def policy(self):
        names = self.random.sample(NAMES, self.random.randint(1, 3))
        kind = self.weighted({"names": 45, "offload": 18, "offload_dots": 9, "everything": 9,
                              "dots": 6, "dots_no_batch": 3, "nothing": 2, "any_but": 4,
                              "both": 2, None: 4})
        if kind is None:
            return None
        if kind == "offload":
            split = self.random.randint(0, len(names) - 1)
            return [kind, names[:split], names[split:]]
        if kind == "both":
            return [kind, ["names", *names], ["dots"]]
        return [kind, *names] if kind in ("names", "any_but") else [kind]

    def leaves(self, count):
        for _ in range(count):
            op = self.weighted({"sin dot": 30, "tanh": 12, "double sin": 12, "add": 5,
                                "softmax": 4, "select": 6, "select rows": 3, "gather": 4,
                                "scatter": 2, "slice": 4, "roll": 3, "center": 3,
                                "product": 4, "transpose": 3, "integers": 3, "signs": 3,
                                "half": 3, "stop": 2, "sort": 1, "flip": 2, "scalar": 3,
                                "dropout": 1, "constraint": 8 if self.is_on_mesh else 0})
            if not (op == "constraint" and self.is_local):
                yield {"op": op}
            if self.chance(0.5):
                yield {"op": "name", "name": self.pick(NAMES)}

    def args(self):
        return "x" + "".join(arg for arg in ARGS[1:] if self.chance(0.6))

    def body(self, depth, inside):
        """Statements around a block, which has one in its turn, `depth` times: many things in
        each other are compiled faster than many beside each other."""
        statements = []
        if depth == 0 or self.chance(0.2):
            statements += self.leaves(self.pick((1, 1, 1, 2)))
        if depth > 0:
            statements.append(self.block(depth - 1, inside))
        if self.chance(0.05):
            statements.append(self.block(0, inside))
        elif self.chance(0.12):
            statements += self.leaves(1)
        return statements

    def block(self, depth, inside):
        op = self.chain.pop(0) if self.chain else self.weighted({
            "checkpoint": 25 if inside else 40, "scan": 18, "fori": 3,
            "while": 0 if self.is_local else 4, "cond": 12,
            "switch": 0 if self.is_local else 4, "vmap": 14, "jit": 4, "inner": 8, "custom_vjp": 9,
            "custom_jvp": 3,
            "shard_map": 6 if self.is_on_mesh and not self.is_local else 0})
        whole = op in ("custom_vjp", "custom_jvp", "shard_map")
        it = {"op": op, "args": ARGS if whole else self.args()}
        was_local = self.is_local
        self.is_local |= op == "shard_map"
        count = {"cond": 2, "switch": 3}.get(op, 1)
        # Devices that take other branches wait for each other's collectives forever.
        it |= {"on": "w"} if op == "cond" and self.is_local else {}
        it["bodies"] = [self.body(depth if i == 0 or self.chance(0.4) else 0,
                                  inside or op == "checkpoint") for i in range(count)]
        self.is_local = was_local
        getattr(self, "_" + op, lambda it: None)(it)
        return it

    def _checkpoint(self, it):
        it["kind"] = "subject" if self.chance(0.75) else "stock"
        it["policy"] = self.policy()
        if self.chance(0.4) and any(inner["op"] == "custom_vjp" for inner in it["bodies"][0]):
            it["policy"] = ["everything"]       # what the rule keeps, too
        it["prevent_cse"] = self.chance(0.8)
        is_subject = it["kind"] == "subject"
        it["offload"] = "".join(arg for arg in it["args"] if is_subject and self.chance(
            {"x": 0.6, "s": 0.4, "n": 0.2, "w": 0.1}[arg]))

    def _scan(self, it):
        it["form"] = self.weighted({"layers": 50, "experts": 25, "outputs": 12, "map": 12})
        it["length"] = self.random.randint(2, 3)
        it["reverse"] = self.chance(0.15)
        it["unroll"] = 2 if self.chance(0.15) else 1

    def _fori(self, it):
        it["length"] = self.random.randint(2, 3)

    def _while(self, it):
        it["descends"] = self.chance(0.7)

    def _cond(self, it):
        it.setdefault("on", self.weighted({"n": 45, "s": 35, "x": 20}))
        if self.chance(0.3):    # values of the same names in both branches
            it["bodies"][1] = [*it["bodies"][0], {"op": "double sin"}]

    def _axes(self, args):
        over = {arg: self.pick((0, 1) if arg == "n" else (0, 1, 2)) if self.chance(0.55)
                else None for arg in args}
        if all(axis is None for axis in over.values()):
            over[args[0]] = self.pick((0, 1))
        return over

    def _vmap(self, it):
        it["over"] = self._axes(it["args"])
        it["out"] = self.pick((0, 1, 2))
        it["size"] = self.random.randint(2, 3)
        it["mean"] = self.chance(0.7)

    def _inner(self, it):
        it["how"] = self.weighted({"grad": 30, "vjp twice": 30, "vmapped vjp": 25, "jvp": 8,
                                   "linearize": 7})
        it["axis"] = self.pick((0, 1, 2))

    def _custom_vjp(self, it):
        it["keeps"] = "vjp" if self.chance(0.6) else "arguments"

    # Programs.

    def mesh(self):
        shape = self.pick(([1], [2], [2], [4], [4], [2, 2]))
        return {"shape": shape, "kind": "Auto" if self.chance(0.75) else "Explicit",
                "set": self.chance(0.6), "spread": self.pick(("x", "xs", "xsn", "s", "w", "")),
                "over": "batch" if self.chance(0.25) else "rows",
                "columns": self.chance(0.3)}

    def layers(self, derivation, outside):
        layers = []
        for _ in range(self.weighted({0: 52, 1: 42, 2: 6})):
            op = self.weighted({"vmap": 80, "map": 12, "jit": 8})
            layer = {"op": op}
            if op == "vmap":
                layer["over"] = self._axes(ARGS)
                layer["size"] = self.random.randint(2, 3)
                layer["out"] = self.pick((0, 1, -1)) if derivation in WITHOUT_SCALARS else 0
            layers.append(layer)
        return layers

    def program(self):
        mesh = self.mesh() if self.chance(0.3) else None
        self.is_on_mesh = mesh is not None and mesh["kind"] == "Auto"
        body = self.body(len(self.chain) or self.weighted({1: 22, 2: 38, 3: 30, 4: 10}), False)
        if not any(has_subject(statement) for statement in body):
            it = {"op": "checkpoint", "args": self.args(), "bodies": [body]}
            self._checkpoint(it)
            it["kind"] = "subject"
            body = [it]
        if self.is_on_mesh and self.chance(0.6):
            body.insert(0, {"op": "constraint"})
        derivation = self.weighted({
            "grad": 40, "grad of one": 10, "value and grad": 8, "vjp twice": 12,
            "vmapped vjp": 8, "mapped vjp": 3, "jvp": 2, "linearize": 3,
            "hvp, forward over reverse": 7, "hvp, reverse over reverse": 4,
            "hvp, reverse over forward": 1, "jacrev": 3, "hessian": 1})
        is_called = "vjp" in derivation     # a vjp function, more than once
        outside = self.weighted({
            "jit": 45 if is_called else 78, "jit, donated": 7, "eager": 15 if is_called else 6,
            "eager, jitted model": 12 if is_called else 5, "two programs": 20 if is_called else 3})
        rows = self.pick((8, 8, 4, 6, 30)) if mesh else SMALL["rows"]
        return {**SMALL, "rows": rows, "dtype": self.weighted(DTYPES), "mesh": mesh,
                "body": body, "derivation": derivation, "one": self.pick((0, 1)),
                "axis": self.pick((0, 1, 2)), "outside": outside,
                "layers": [] if outside == "two programs" else
                self.layers(derivation, outside)}


def has_subject(it):
    """Whether the statement has a checkpoint that is compared with stock."""
    return it.get("kind") == "subject" or any(
        has_subject(inner) for body in it.get("bodies", ()) for inner in body)


def statements(body):
    for it in body:
        yield it
        for inner in it.get("bodies", ()):
            yield from statements(inner)


def case(seed, gpu=False):
    draw = _Draw(seed)
    program = draw.program()
    form = draw.weighted(FORMS)
    flags = list(draw.weighted(FLAGS))
    spills = form in ("ours", "patch", "destination") and draw.chance(0.15) and \
        program["mesh"] is None and program["derivation"] not in ("jacrev", "hessian")
    if form == "ours" and program["mesh"] is None and draw.chance(0.3):
        # The program is one layer of several, whose weights are stored.
        program.update(derivation="weights", layers=[], outside=draw.pick(("jit", "jit", "eager")))
    if spills or gpu:
        program.update(LARGE if spills else ALIGNED)
    return {"program": program, "form": form, "flags": flags, "spills": spills}
