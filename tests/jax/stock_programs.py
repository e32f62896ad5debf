# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs that use JAX alone, for test_import.py: what JAX makes of each before actmem.jax is
imported, after the import, and after actmem.jax has compiled programs of its own; and under
patch(), except those that are drawn by the generator.

Prints what each program differs in, as JSON.
"""
import contextlib
import json
import re
import sys

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable, checkpoint_name as name

from generator import compare, draw

SEEDS = 40
policies = jax.checkpoint_policies
MOVE = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["b"], names_which_can_be_offloaded=["a", "c"],
    offload_src="device", offload_dst="pinned_host")
DOTS = policies.offload_dot_with_no_batch_dims("device", "pinned_host")


def layer(x, w):
    a = name(x @ w, "a")
    b = name(jnp.sin(a), "b")
    return name(jnp.tanh(b @ w) * a, "c")


def own_policy(primitive, *args, **params):
    return Offloadable("device", "pinned_host") if primitive.name == "tanh" else \
        primitive.name == "sin"


def gradient(policy, f=layer, **options):
    wrapped = jax.checkpoint(f, policy=policy, **options)
    return lambda x, w: jax.grad(lambda w: jnp.sum(wrapped(x, w) ** 2))(w)


def debugged(x, w):
    jax.debug.print("{}", x[0, 0])
    return layer(x, w)


def scanned(x, w):
    wrapped = jax.checkpoint(layer, policy=MOVE)
    return jax.grad(lambda w: jnp.sum(jax.lax.scan(
        lambda x, _: (wrapped(x, w), None), x, length=3)[0]))(w)


PROGRAMS = {
    "by name": gradient(MOVE), "dots moved": gradient(DOTS), "own policy": gradient(own_policy),
    "named": gradient(policies.save_only_these_names("a", "c")),
    "dots": gradient(policies.dots_saveable), "nothing": gradient(policies.nothing_saveable),
    "no policy": gradient(None), "everything": gradient(policies.everything_saveable),
    "both": gradient(policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("b"))),
    "no barrier": gradient(MOVE, prevent_cse=False), "debugged": gradient(MOVE, debugged),
    "inside": gradient(policies.save_only_these_names("b"),
                       lambda x, w: jnp.sin(jax.checkpoint(layer, policy=MOVE)(x, w))),
    "scanned": scanned, "evaluated": jax.checkpoint(layer, policy=MOVE),
    "forward": lambda x, w: jax.jvp(jax.checkpoint(layer, policy=MOVE), (x, w), (x, w)),
    "moved": lambda x, w: (jax.device_put(x, jax.memory.Space.Host), w)}
DRAWN = {f"seed {seed}": compare.Program(draw.case(seed)["program"], "patch")
         for seed in range(SEEDS)}


def texts(function, *arguments, platforms=("cpu", "cuda")):
    """The jaxpr and the lowered texts of a program, with the places in the source."""
    traced = jax.jit(function).trace(*arguments)
    found = {"jaxpr": str(traced.jaxpr), **{
        platform: traced.lower(lowering_platforms=(platform,)).as_text(debug_info=True)
        for platform in platforms}}
    return {key: re.sub(r" at 0x[0-9a-f]+", "", text) for key, text in found.items()}


def all_texts(is_patched):
    jax.clear_caches()
    shapes = [jax.ShapeDtypeStruct((16, 16), jnp.float32)] * 2
    found = {key: texts(function, *shapes, platforms=("cpu", "cuda")[:1 + (key != "debugged")])
             for key, function in PROGRAMS.items()}
    for key, program in {} if is_patched else DRAWN.items():
        with jax.set_mesh(program.mesh) if program.is_set else contextlib.nullcontext(), \
                contextlib.suppress(Exception):     # JAX refuses some
            found[key] = texts(program.step, *program.inputs(0))
    return found


def used():
    """Compiles and runs programs of actmem.jax."""
    x = jnp.ones((16, 16))
    wrapped = actmem.jax.checkpoint(layer, policy=DOTS, offload_argnums=0)
    jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x, x))))(x)
    with actmem.jax.patch():
        jax.jit(gradient(MOVE))(x, x)


def patched():
    actmem.jax.patch(min_bytes=0)


if __name__ == "__main__":
    found, original = {}, None
    # In one line: the texts say which line called.
    for when in (None, "imported", "used", "patched"):
        if when == "imported":
            assert "actmem" not in sys.modules
            import actmem.jax
        elif when:
            globals()[when]()
        now = all_texts(when == "patched")
        original = original or now
        found[when] = {key: [what for what in each if each[what] != now.get(key, {}).get(what)]
                       for key, each in original.items() if each != now.get(key) and
                       (when != "patched" or key in PROGRAMS)}
    json.dump({"differ": found, "drawn": len(original.keys() & DRAWN.keys()),
               "copies": {key: original[key]["jaxpr"].count("device_put") for key in PROGRAMS},
               "puts": actmem.jax.stats()["puts_total"]}, sys.stdout)
