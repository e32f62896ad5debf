# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Runs a case beside stock JAX and compares: results bit by bit, blocks that remain, memory."""
import contextlib
import functools
import gc
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from generator.text import ARGS, source

policies = jax.checkpoint_policies
RUNS = 3
# How many roundings actmem's error may have more than stock's. Custom calls divide what XLA
# fuses, so that it rounds elsewhere, in each of a program's steps.
ROUNDINGS = 4
# How many times stock's error actmem's may be on a GPU, which adds in another order in each kernel.
GPU_ERRORS = 8
# An error of so many times that is no matter of rounding.
FAR = 30
# Inputs that differ by a rounding, for which stock JAX's error is measured. One result can be
# exact by chance: a sum whose order is another one on a mesh then looks like a wrong result.
SAMPLES = 8

# Refusals that the documentation names: the flag that they need, and the form of the message.
DOCUMENTED = {
    "jax_remat3 in JAX 0.11": ("remat3", "supports jax_remat3 only with JAX 0.12 or later"),
    "a value on several devices along a batch, in a scan on an explicit mesh":
        (None, "has duplicate entries"),
    "a vjp function of two programs that spread a value otherwise":
        (None, "was saved with another sharding than the program needs"),
    "a value that is larger than the budget": (None, "but budget= .* is .*; raise it"),
    # Stock JAX does so, too, but under other policies.
    "forward mode over reverse mode of names in nested checkpoints":
        ("remat3", "^AssertionError: $"),
    "a custom_jvp in a custom_vjp in a checkpoint":
        ("custom_vjp3", "^StoreException: Store occupied$"),
}


class Policy:
    """A policy in three ways: of stock JAX that saves on the device, of
    actmem.jax.checkpoint, and of jax.checkpoint that offloads to a memory."""

    def __init__(self, stock, ours=None, offloading=None):
        self.stock = stock
        self.ours = ours or stock
        self.offloading = offloading or (lambda destination: stock)


def names(*which):
    return Policy(policies.save_only_these_names(*which), None, lambda destination:
                  policies.save_and_offload_only_these_names(
                      names_which_can_be_saved=[], names_which_can_be_offloaded=list(which),
                      offload_src="device", offload_dst=destination))


def offload(saved, offloaded):
    def offloading(destination):
        return policies.save_and_offload_only_these_names(
            names_which_can_be_saved=saved, names_which_can_be_offloaded=offloaded,
            offload_src="device", offload_dst=destination)
    return Policy(policies.save_only_these_names(*saved, *offloaded),
                  offloading("pinned_host"), offloading)


def both(first, second):
    return Policy(policies.save_from_both_policies(first.stock, second.stock))


def offloading_dots(destination):
    return policies.offload_dot_with_no_batch_dims("device", destination)


POLICIES = {
    "names": names, "offload": offload, "both": both,
    "everything": Policy(policies.everything_saveable),
    "nothing": Policy(policies.nothing_saveable),
    "dots": Policy(policies.dots_saveable),
    "dots_no_batch": Policy(policies.dots_with_no_batch_dims_saveable),
    "offload_dots": Policy(policies.dots_with_no_batch_dims_saveable,
                           offloading_dots("pinned_host"), offloading_dots),
    "any_but": lambda *which: Policy(policies.save_any_names_but_these(*which)),
}


def stock_checkpoint(f, policy, prevent_cse=True):
    return jax.checkpoint(f, policy=policy and policy.stock, prevent_cse=prevent_cse)


def checkpoint_of(form):
    """checkpoint(f, policy, ...) of a program in that form."""
    def checkpoint(f, policy, offload=(), prevent_cse=True):
        if form == "plain":
            return f
        if form == "ours":
            import actmem.jax       # stock_programs.py draws programs without it
            return actmem.jax.checkpoint(f, policy=policy and policy.ours, min_bytes=0,
                                         offload_argnums=offload, prevent_cse=prevent_cse)
        if form == "stock":
            return stock_checkpoint(f, policy, prevent_cse)
        destination = "actmem" if form == "destination" else "pinned_host"
        return jax.checkpoint(f, policy=policy and policy.offloading(destination),
                              prevent_cse=prevent_cse)
    return checkpoint


def mesh_of(program):
    mesh = program["mesh"]
    if mesh is None:
        return None
    shape = mesh["shape"]
    kind = getattr(AxisType, mesh["kind"])
    return jax.make_mesh(shape, ("d", "m")[:len(shape)], axis_types=(kind,) * len(shape))


def of_weights(form):
    """What the text uses for stored weights: functions that do nothing in stock JAX."""
    if form == "ours":
        import actmem.jax
        return {"STORED": actmem.jax.offload_params, "TAKEN": actmem.jax.value,
                "VALUE_AND_GRAD": actmem.jax.value_and_grad}
    return {"STORED": lambda array: array, "TAKEN": lambda array: array,
            "VALUE_AND_GRAD": jax.value_and_grad}


# Programs.

def names_for(program, form, mesh, is_exact):
    """What the text of a program uses."""
    dtype = jnp.float64 if is_exact else getattr(jnp, program["dtype"])
    columns = "m" if mesh is not None and "m" in mesh.axis_names and \
        program["mesh"]["columns"] else None
    return {"jax": jax, "jnp": jnp, "lax": lax, "functools": functools, "P": P,
            "NamedSharding": NamedSharding, "name": checkpoint_name, "mesh": mesh,
            "checkpoint": checkpoint_of(form), "stock_checkpoint": stock_checkpoint,
            "ROWS": program["rows"], "COLUMNS": program["columns"], "DTYPE": dtype,
            "HALF": jnp.float64 if is_exact else jnp.bfloat16,
            "SUM": jnp.float64 if is_exact else jnp.float32,
            "SPREAD": P("d", columns), **POLICIES, **of_weights(form)}


def _spec(program, mesh, shape, batches, row):
    """How an input of that shape is spread, whose rows are dimension `row`."""
    devices = mesh.shape["d"]
    spec = [None] * len(shape)
    along = row
    if program["mesh"]["over"] == "batch" and batches:
        along = batches[-1]
    if along is not None and shape[along] % devices == 0:
        spec[along] = "d"
    return P(*spec)


def inputs_of(program, mesh, is_exact):
    """A function that makes x, w, s and n, anew with each call. Those of samples other than 0
    differ by a rounding. The exact ones have the same values as others, in float64."""
    rows, columns = program["rows"], program["columns"]
    dtype = getattr(jnp, program["dtype"])
    arrays = []
    for arg in ARGS:
        shape = {"x": [rows, columns], "w": [columns, columns], "s": [rows, columns],
                 "n": [rows]}[arg]
        dims = ["columns" if arg == "w" else "rows", "columns"][:len(shape)]
        for layer in program["layers"]:
            if layer["op"] == "vmap" and layer["over"][arg] is not None:
                shape.insert(layer["over"][arg], layer["size"])
                dims.insert(layer["over"][arg], "batch")
        random = np.random.default_rng(ARGS.index(arg))
        if arg == "n":
            value = random.integers(0, rows, shape).astype(np.int32)
        else:
            value = random.standard_normal(shape) * (columns ** -0.5 if arg == "w" else 1)
            value = value.astype(dtype)
        sharding = None
        if mesh is not None:
            spec = P()
            if arg in program["mesh"]["spread"]:
                row = dims.index("rows") if "rows" in dims else None
                spec = _spec(program, mesh, shape, [
                    i for i, dim in enumerate(dims) if dim == "batch"], row)
            sharding = NamedSharding(mesh, spec)
        arrays.append((value, sharding))

    def inputs(sample):
        random = np.random.default_rng(sample)
        for value, sharding in arrays:
            is_float = value.dtype != np.int32
            if sample and is_float:
                part = jnp.finfo(dtype).eps * random.choice((-1, 1), value.shape)
                value = (value.astype(np.float64) * (1 + part)).astype(dtype)
            value = value.astype(np.float64) if is_exact and is_float else value.copy()
            yield jax.device_put(value, sharding)
    return inputs


class Refused(Exception):
    """JAX, XLA or actmem refused a program."""

    def __init__(self, error):
        text = str(error).split("\n--------------------")[0]
        if "Traceback (most" in text:       # of a callback, that XLA quotes
            text = [line for line in text.splitlines() if re.match(r"[\w.]+: ", line)][-1]
        super().__init__(f"{type(error).__name__}: {text}")


class Program:
    """A program in one form. `run` returns its results as a list of NumPy's arrays."""

    def __init__(self, program, form, is_exact=False):
        self.mesh = mesh_of(program)
        self.is_exact = is_exact
        self.is_set = self.mesh is not None and (
            program["mesh"]["set"] or program["mesh"]["kind"] == "Explicit")
        namespace = names_for(program, form, self.mesh, is_exact)
        exec(compile(source(program), "<program>", "exec"), namespace)
        self.step = namespace["step"]
        self.inputs = inputs_of(program, self.mesh, is_exact)

    def run(self, sample=0):
        with contextlib.ExitStack() as stack:
            if self.is_exact:
                stack.enter_context(jax.enable_x64(True))
            if self.is_set:
                stack.enter_context(jax.set_mesh(self.mesh))
            try:
                results = jax.block_until_ready(self.step(*self.inputs(sample)))
            except Exception as error:
                raise Refused(error) from error
            return [np.asarray(leaf) for leaf in jax.tree.leaves(results)
                    if leaf.dtype != jax.dtypes.float0]


# Comparisons.

def same_bits(got, wanted):
    return len(got) == len(wanted) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(got, wanted))


def _error(values, exact):
    """The largest difference; what is no number in the exact result does not count."""
    counted = np.isfinite(exact)
    differences = np.abs(values.astype(np.float64) - exact)[counted]
    return np.max(differences, initial=0.0)


def unit_of(program):
    """The relative rounding of the coarsest type that a program computes with."""
    text = source(program)
    return float(max(jnp.finfo(dtype).eps for dtype in
                     [program["dtype"]] + ["bfloat16"] * ("HALF" in text)))


def excess(got, stock, exact, unit):
    """(reason, detail) where an error is larger than stock's plus some roundings; or None.
    `stock` and `exact` have the results of each sample, `got` those of sample 0. A rounding is
    `unit`, or what one of the inputs does to the exact result."""
    if [(a.dtype, a.shape) for a in got] != [(a.dtype, a.shape) for a in stock[0]]:
        return "other types", "results of another shape or type"
    near = None
    for i, (a, all_stock, all_exact) in enumerate(zip(got, zip(*stock), zip(*exact))):
        reference = all_exact[0]
        if np.isnan(a.astype(np.float64)).any() != np.isnan(all_stock[0].astype(np.float64)).any():
            return "not a number", f"result {i}: only one has values that are not numbers"
        scale = np.max(np.abs(reference[np.isfinite(reference)]), initial=0.0) or 1.0
        ours = _error(a, reference) / scale
        error = max(map(_error, all_stock, all_exact)) / scale
        error *= GPU_ERRORS if jax.default_backend() == "gpu" else 1
        rounding = max(unit, max(_error(other, reference) for other in all_exact) / scale)
        if ours <= error + ROUNDINGS * rounding:
            continue
        detail = (f"result {i}: error {ours:.2g} of the largest element, stock's {error:.2g}, "
                  f"one rounding {rounding:.2g}")
        if ours > FAR * (error + ROUNDINGS * rounding):
            return "far", detail
        near = "near", detail
    return near


def _shape_of_reason(text):
    """A message without what differs from seed to seed."""
    text = text.split("\n")[0]
    text = re.sub(r"0x[0-9a-f]+|\d[\d.]*", "N", text)
    return re.sub(r"\[[^\]]*\]|\{[^}]*\}|\([^)]*\)", "…", text)[:110]


def _keeps_vjp_in_python(case):
    """With jax_remat3 JAX keeps what a vjp function outside of jit has saved."""
    return "remat3" in case["flags"] and not case["program"]["outside"].startswith("jit")


def _check_ours(case, wanted):
    """(result, detail, results) of the form beside stock, which computed `wanted`."""
    import actmem.jax
    before = actmem.jax.stats()
    try:
        program = Program(case["program"], case["form"])
        most = before["live_bytes_peak"]
        for run in range(RUNS):
            put = actmem.jax.stats()["put_bytes_total"]
            got = program.run()
            if run == 0:
                first = got
            if not same_bits(got, first):
                return "wrong", f"run {run + 1} differs from the first one", got
            gc.collect()
            stats = actmem.jax.stats()
            if stats["live_blocks"] and not _keeps_vjp_in_python(case):
                return "left", (f"{stats['live_blocks']} blocks of {stats['live_bytes']} bytes "
                                f"after run {run + 1}"), got
            if _keeps_vjp_in_python(case):
                actmem.jax.reset()
            most = max(most, stats["put_bytes_total"] - put)
            if stats["live_bytes_peak"] > most:
                return "grew", (f"{stats['live_bytes_peak']} bytes at a time in run {run + 1}, "
                                f"and no run put more than {most}"), got
    except Refused as refusal:
        return "refused", str(refusal), None
    kept = stats["puts_total"] - before["puts_total"]
    if kept and case["form"] in ("plain", "stock"):
        return "wrong", f"{kept} puts of a program that offloads nothing", got
    result = "same" if same_bits(got, wanted) else "differs"
    return result, f"{kept} puts", got


def _run(case, begin_ours):
    import actmem.jax
    program = case["program"]
    try:
        stock = Program(program, "plain" if case["form"] == "plain" else "stock")
        wanted = stock.run()
    except Refused as refusal:
        return {"result": "skipped", "detail": str(refusal),
                "reason": _shape_of_reason(str(refusal))}
    begin_ours()
    patched = case["form"] in ("patch", "stock", "plain")
    try:
        with actmem.jax.patch() if patched else contextlib.nullcontext():
            result, detail, got = _check_ours(case, wanted)
    except NotImplementedError as refusal:      # by patch() itself
        result, detail = "refused", str(refusal)
    if result == "refused":
        for what, (flag, words) in DOCUMENTED.items():
            if flag in (None, *case["flags"]) and re.search(words, detail):
                return {"result": "skipped", "detail": detail, "reason": "documented: " + what}
        return {"result": "error", "detail": detail, "reason": _shape_of_reason(detail)}
    if result == "differs":
        try:
            exact = Program(program, "stock", is_exact=True)
            results = [[one.run(sample) for sample in range(SAMPLES)] for one in (stock, exact)]
        except Refused as refusal:
            return {"result": "skipped", "detail": str(refusal),
                    "reason": "with float64: " + _shape_of_reason(str(refusal))}
        more = excess(got, *results, unit_of(program))
        if more:
            return {"result": "wrong", "reason": more[0], "detail": more[1]}
        result = "close"
    return {"result": result, "detail": detail, "reason": result}


def run(case, begin_ours=lambda: None):
    """Calls begin_ours() when stock JAX has run. Returns a dictionary: `result` is same, close,
    skipped, or a failure: wrong, left, grew or error; `reason` is the same for the same kind of
    skip or failure."""
    import actmem.jax
    flags = [f"jax_{flag}" for flag in case["flags"] if hasattr(jax.config, f"jax_{flag}")]
    for flag in flags:
        jax.config.update(flag, True)
    try:
        verdict = _run(case, begin_ours)
    finally:
        for flag in flags:
            jax.config.update(flag, False)
    gc.collect()
    actmem.jax.reset()
    verdict["flags"] = [flag.removeprefix("jax_") for flag in flags]
    return verdict
