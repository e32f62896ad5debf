# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Writes a program as Python.

A program is a dictionary (see draw.py). Its `body` is a list of statements, and each
changes x, an array of ROWS by COLUMNS. w (COLUMNS by COLUMNS) is the weight, s (as x)
is an activation that the whole program shares, and n holds ROWS integers below ROWS.
A statement with `bodies` defines functions, which get the variables of its `args` and
close over the others. compare.py defines the names that the text uses.
"""

# Statements without a body.
LEAVES = {
    "sin dot": "x = jnp.sin(x @ w)",
    "tanh": "x = jnp.tanh(x) * s",
    "add": "x = x + jnp.sin(s)",
    "double sin": "x = jnp.sin(jnp.sin(x))",
    "softmax": "x = jax.nn.softmax(x)",
    "select": "x = jnp.where(s > 0, jnp.cos(x), x * s)",
    "select rows": "x = jnp.where((n > 0)[:, None], jnp.sin(x), x)",
    "gather": "x = jnp.sin(x)[n]",
    "scatter": "x = x.at[n].add(jnp.sin(x) * s)",
    "slice": "x = lax.dynamic_update_slice_in_dim(x, jnp.sin("
             "lax.dynamic_slice_in_dim(x, n[0], 2)), n[1], 0)",
    "roll": "x = jnp.concatenate([jnp.cos(x[1:]), x[:1]])",
    "center": "x = x - jnp.mean(x * x, 0)",
    "product": "x = x @ jnp.tanh(s.T @ x) / ROWS",
    "transpose": "x = jnp.sin(x.T).T * x",
    "integers": "x = x * jnp.sin(n.astype(DTYPE))[:, None]",
    "signs": "x = x * name(jnp.where(s > 0, 1, -2), 'a').astype(DTYPE) * jnp.tanh(x)",
    "half": "x = jnp.sin(name(x.astype(HALF), 'b')).astype(DTYPE) * x",
    "stop": "x = jnp.sin(x) + lax.stop_gradient(jnp.cos(x))",
    "sort": "x = jnp.sin(jnp.sort(x, 0))",
    "flip": "x = jnp.cos(x) + jnp.flip(x, 1)",
    "scalar": "x = x * name(jnp.sin(jnp.sum(x)), 'c')",
    "dropout": "x = jnp.where(jax.random.bernoulli(jax.random.key(n[0]), 0.7, x.shape), "
               "jnp.sin(x), 0)",
    "constraint": "x = lax.with_sharding_constraint(x, NamedSharding(mesh, SPREAD))",
}

ARGS = "xwsn"


def _tuple(items):
    return "(" + "".join(f"{item}, " for item in items).strip() + ")"


def policy_text(policy):
    """Such as names('a', 'b'), of ["names", "a", "b"]."""
    if policy is None:
        return "None"
    kind, *rest = policy
    if not rest:
        return kind
    if kind == "both":
        rest = [policy_text(item) for item in rest]
    else:
        rest = [repr(item) for item in rest]
    return f"{kind}({', '.join(rest)})"


def stacked(arg, size, axis):
    """Text of an array of `size` variants of an argument."""
    variants = {"n": [arg, f"{arg}[::-1]", f"{arg}[:1] + 0 * {arg}"]}.get(
        arg, [arg, f"jnp.cos({arg})", f"-{arg}"])
    return f"jnp.stack([{', '.join(variants[:size])}], {axis})"


class _Writer:
    def __init__(self):
        self.lines = []
        self.depth = 0
        self.functions = 0

    def say(self, line):
        self.lines.append("    " * self.depth + line)

    def body(self, statements):
        for statement in statements:
            self.statement(statement)

    def define(self, statements, args, title=None):
        self.functions += title is None
        title = title or f"f{self.functions}"
        self.say(f"def {title}({', '.join(args)}):")
        self.depth += 1
        self.body(statements)
        self.say("return x")
        self.depth -= 1
        return title

    def statement(self, it):
        op = it["op"]
        if op in LEAVES:
            self.say(LEAVES[op])
        elif op == "name":
            self.say(f"x = name(x, {it['name']!r})")
        else:
            args = it.get("args", ARGS)
            functions = [self.define(body, args) for body in it["bodies"]]
            getattr(self, "_" + op)(it, args, *functions)

    def _checkpoint(self, it, args, f):
        options = ""
        if it["offload"]:
            options += f", offload={_tuple(args.index(arg) for arg in it['offload'])}"
        if not it["prevent_cse"]:
            options += ", prevent_cse=False"
        kind = "checkpoint" if it["kind"] == "subject" else "stock_checkpoint"
        self.say(f"x = {kind}({f}, {policy_text(it['policy'])}{options})({', '.join(args)})")

    def _scan(self, it, args, f):
        length = it["length"]
        call = f"{f}({', '.join(args)})"
        over = "w" if "w" in args else "k"
        scaled = call if over == "w" else f"{f}({', '.join(['x * k', *args[1:]])})"
        values = stacked("w", length, 0) if over == "w" else \
            f"jnp.arange(1, {length + 1}).astype(DTYPE) / 2"
        options = ", reverse=True" if it["reverse"] else ""
        options += f", unroll={it['unroll']}" if it["unroll"] > 1 else ""
        if it["form"] == "layers":
            self.say(f"x, _ = lax.scan(lambda x, {over}: ({scaled}, None), x, {values}{options})")
        elif it["form"] == "experts":
            self.say(f"x, _ = lax.scan(lambda y, {over}: (y + {scaled}, None), "
                     f"jnp.zeros_like(x), {values}{options})")
        elif it["form"] == "outputs":
            self.say(f"x, y = lax.scan(lambda x, {over}: (jnp.sin(x), {scaled}), "
                     f"x, {values}{options})")
            self.say("x = x + jnp.mean(y, 0)")
        else:
            self.say(f"x = jnp.mean(lax.map(lambda {over}: {scaled}, {values}), 0)")

    def _fori(self, it, args, f):
        self.say(f"x = lax.fori_loop(0, {it['length']}, lambda i, x: {f}({', '.join(args)}), x)")

    def _while(self, it, args, f):
        call = f"{f}({', '.join(args)})"
        if it["descends"]:
            call = f"x - 0.1 * jax.grad(lambda x: jnp.sum({call}))(x)"
        self.say("_, y = lax.while_loop(lambda iy: iy[0] < 2 + n[0] % 2, lambda iy: (")
        self.say(f"    iy[0] + 1, (lambda x: {call})(iy[1])), (0, lax.stop_gradient(x)))")
        self.say("x = x * lax.stop_gradient(jnp.cos(y))")

    def _cond(self, it, args, f, g):
        on = {"n": "n[0] > 1", "s": "s[0, 0] > 0", "x": "jnp.sum(x) > 0",
              "w": "w[0, 0] > 0"}[it["on"]]
        self.say(f"x = lax.cond({on}, {f}, {g}, {', '.join(args)})")

    def _switch(self, it, args, *functions):
        self.say(f"x = lax.switch(n[0] % {len(functions)}, [{', '.join(functions)}], "
                 f"{', '.join(args)})")

    def _vmap(self, it, args, f):
        over = it["over"]
        values = [stacked(arg, it["size"], over[arg]) if over[arg] is not None else arg
                  for arg in args]
        self.say(f"y = jax.vmap({f}, {_tuple(over[arg] for arg in args)}, {it['out']})("
                 f"{', '.join(values)})")
        self.say(f"x = jnp.mean(y, {it['out']})" if it["mean"] else
                 f"x = lax.index_in_dim(y, 1, {it['out']}, False)")

    def _jit(self, it, args, f):
        self.say(f"x = jax.jit({f})({', '.join(args)})")

    def _inner(self, it, args, f):
        call = f"{f}({', '.join(args)})"
        how = it["how"]
        if how == "grad":
            self.say(f"x = x + jax.grad(lambda x: jnp.sum({call}))(x)")
        elif how == "jvp":
            self.say(f"x = sum(jax.jvp(lambda x: {call}, (x,), (jnp.cos(s),)))")
        elif how == "linearize":
            self.say(f"y, push = jax.linearize(lambda x: {call}, x)")
            self.say("x = y + push(jnp.cos(s)) * push(y)")
        else:
            self.say(f"y, pull = jax.vjp(lambda x: {call}, x)")
            self.say("x = pull(y)[0] + pull(jnp.cos(y))[0]" if how == "vjp twice" else
                     f"x = jnp.mean(jax.vmap(pull, {it['axis']}, {it['axis']})("
                     f"{stacked('y', 2, it['axis'])})[0], {it['axis']})")

    def _custom_vjp(self, it, args, f):
        self.say(f"g = jax.custom_vjp({f})")
        if it["keeps"] == "vjp":
            self.say(f"g.defvjp(functools.partial(jax.vjp, {f}), lambda pull, y: pull(y))")
        else:
            self.say(f"g.defvjp(lambda *args: ({f}(*args), args), "
                     f"lambda args, y: jax.vjp({f}, *args)[1](y))")
        self.say(f"x = g({', '.join(args)})")

    def _custom_jvp(self, it, args, f):
        self.say(f"g = jax.custom_jvp({f})")
        self.say(f"g.defjvp(functools.partial(jax.jvp, {f}))")
        self.say(f"x = g({', '.join(args)})")

    def _shard_map(self, it, args, f):
        specs = {"x": "P('d')", "w": "P()", "s": "P('d')", "n": "P('d')"}
        self.say(f"x = jax.shard_map({f}, mesh=mesh, in_specs="
                 f"{_tuple(specs[arg] for arg in args)}, out_specs=P('d'))({', '.join(args)})")


# What a program derives from model(x, w, s, n), by name: the lines of core(x, w, s, n).
DERIVATIONS = {
    "grad": ["return jax.grad(loss, (0, 1, 2))(x, w, s, n)"],
    "grad of one": ["return jax.grad(loss, ONE)(x, w, s, n)"],
    "value and grad": ["return jax.value_and_grad(loss, (0, 1))(x, w, s, n)"],
    "vjp twice": ["y, pull = jax.vjp(lambda x, w, s: model(x, w, s, n), x, w, s)",
                  "return y, pull(y), pull(jnp.cos(y))"],
    "vmapped vjp": ["y, pull = jax.vjp(lambda x, w, s: model(x, w, s, n), x, w, s)",
                    "return jax.vmap(pull, AXIS)(jnp.stack([y, jnp.cos(y)], AXIS))"],
    "mapped vjp": ["y, pull = jax.vjp(lambda x, w, s: model(x, w, s, n), x, w, s)",
                   "return lax.map(pull, jnp.stack([y, jnp.cos(y)]))"],
    "jvp": ["return jax.jvp(lambda x, w: model(x, w, s, n), (x, w), (jnp.cos(x), jnp.sin(w)))"],
    "linearize": ["y, push = jax.linearize(lambda x: model(x, w, s, n), x)",
                  "return y, push(x), push(jnp.cos(x))"],
    "hvp, forward over reverse": [
        "return jax.jvp(lambda x, w: jax.grad(loss, (0, 1))(x, w, s, n), (x, w), "
        "(jnp.cos(x), jnp.sin(w)))"],
    "hvp, reverse over reverse": [
        "return jax.grad(lambda x, w: jnp.vdot(jax.grad(loss, ONE)(x, w, s, n), "
        "jnp.cos((x, w)[ONE])), (0, 1))(x, w)"],
    "hvp, reverse over forward": [
        "return jax.grad(lambda x, w: jax.jvp(lambda w: loss(x, w, s, n), (w,), "
        "(jnp.cos(w),))[1], (0, 1))(x, w)"],
    "jacrev": ["return jax.jacrev(lambda x: jnp.sum(model(x, w, s, n), 0))(x)"],
    "hessian": ["return jax.hessian(lambda w: loss(x, w, s, n))(w)"],
    "weights": [
        "layer = jax.checkpoint(lambda x, w: (model(x, TAKEN(w), s, n), None))",
        "def loss(weights):",
        "    x_, _ = lax.scan(layer, x, weights)",
        "    return jnp.sum(x_.astype(SUM) ** 2)",
        "weights = STORED(jnp.stack([w, jnp.sin(w), jnp.cos(w)]))",
        "value, gradients = VALUE_AND_GRAD(loss)(weights)",
        "return value, TAKEN(gradients)"],
}

# Those whose results all have a dimension.
WITHOUT_SCALARS = set(DERIVATIONS) - {"value and grad"}


def _layers(writer, program):
    for layer in program["layers"]:
        if layer["op"] == "vmap":
            writer.say(f"core = jax.vmap(core, {_tuple(layer['over'][arg] for arg in ARGS)}, "
                       f"{layer['out']})")
        elif layer["op"] == "map":
            writer.say("core = (lambda one: lambda x, w, s, n: lax.map("
                       "lambda x: one(x, w, s, n), jnp.stack([x, jnp.cos(x)])))(core)")
        else:
            writer.say("core = jax.jit(core)")


def source(program):
    """The program as Python, which defines step(x, w, s, n)."""
    writer = _Writer()
    writer.define(program["body"], ARGS, "model")
    outside, derivation = program["outside"], program["derivation"]
    if outside == "two programs":
        writer.say("forward = jax.jit(lambda x, w, s, n: jax.vjp(")
        writer.say("    lambda x, w, s: model(x, w, s, n), x, w, s))")
        writer.say("backward = jax.jit(lambda pull, y: pull(y))")
        writer.say("def step(x, w, s, n):")
        writer.say("    y, pull = forward(x, w, s, n)")
        writer.say("    return y, backward(pull, y), backward(pull, jnp.cos(y))")
        return "\n".join(writer.lines) + "\n"
    if outside == "eager, jitted model":
        writer.say("model = jax.jit(model)")
    lines = [line.replace("ONE", str(program["one"])).replace("AXIS", str(program["axis"]))
             for line in DERIVATIONS[derivation]]
    if any("loss" in line for line in lines) and derivation != "weights":
        writer.say("def loss(x, w, s, n):")
        writer.say("    return jnp.sum(model(x, w, s, n).astype(SUM) ** 2)")
    writer.say("def core(x, w, s, n):")
    for line in lines:
        writer.say("    " + line)
    _layers(writer, program)
    writer.say({"jit": "step = jax.jit(core)",
                "jit, donated": "step = jax.jit(core, donate_argnums=(0, 1))"}.get(
                    outside, "step = core"))
    return "\n".join(writer.lines) + "\n"
