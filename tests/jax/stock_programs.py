# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Programs that use JAX alone, for test_import.py: what JAX makes of each before actmem.jax is
imported, after the import, and after actmem.jax has compiled programs of its own.

Prints what each program differs in, as JSON.
"""
import contextlib
import json
import re
import sys

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable, checkpoint_name as name
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

policies = jax.checkpoint_policies
MOVE = policies.save_and_offload_only_these_names(
    names_which_can_be_saved=["b"], names_which_can_be_offloaded=["a", "c"],
    offload_src="device", offload_dst="pinned_host")
DOTS = policies.offload_dot_with_no_batch_dims("device", "pinned_host")
PROGRAMS = {}


def program(**options):
    """Adds a program, which is a function of `x` and `w`."""
    def add(function):
        PROGRAMS[function.__name__] = function, options
        return function
    return add


def layer(x, w):
    a = name(x @ w, "a")
    b = name(jnp.sin(a), "b")
    return name(jnp.tanh(b @ w) * a, "c")


def of_policy(policy, f=layer, **options):
    wrapped = jax.checkpoint(f, policy=policy, **options)
    return lambda x, w: jax.grad(lambda w: jnp.sum(wrapped(x, w) ** 2))(w)


def opaque(primitive, *args, **params):
    return Offloadable("device", "pinned_host") if primitive.name == "tanh" else \
        primitive.name == "sin"


for key, policy in {
        "by_name": MOVE, "dots_moved": DOTS, "named": policies.save_only_these_names("a", "c"),
        "dots": policies.dots_saveable, "dots_alone": policies.dots_with_no_batch_dims_saveable,
        "nothing": policies.nothing_saveable, "no_policy": None,
        "everything": policies.everything_saveable, "own": opaque,
        "both": policies.save_from_both_policies(
            policies.dots_saveable, policies.save_only_these_names("b")),
        "but": policies.save_any_names_but_these("a")}.items():
    PROGRAMS[key] = of_policy(policy), {}

PROGRAMS["no_barrier"] = of_policy(MOVE, prevent_cse=False), {}
PROGRAMS["twice"] = of_policy(MOVE, jax.checkpoint(layer, policy=policies.dots_saveable)), {}
PROGRAMS["inside"] = of_policy(policies.save_only_these_names("b"),
                               lambda x, w: jnp.sin(jax.checkpoint(layer, policy=MOVE)(x, w))), {}
PROGRAMS["scanned_inside"] = of_policy(MOVE, lambda x, w: jax.lax.scan(
    lambda x, _: (layer(x, w), None), x, length=3)[0]), {}
PROGRAMS["chosen"] = of_policy(MOVE, lambda x, w: jax.lax.cond(
    x[0, 0] > 0, lambda: jnp.sin(x @ w), lambda: jnp.cos(x))), {}
PROGRAMS["jit_inside"] = of_policy(MOVE, jax.jit(layer)), {}
PROGRAMS["dropped_out"] = of_policy(MOVE, lambda x, w: layer(x, w) * jax.random.bernoulli(
    jax.random.key(0), 0.5, x.shape)), {}
PROGRAMS["debugged"] = of_policy(MOVE, lambda x, w: (
    jax.debug.print("{}", x[0, 0]), layer(x, w))[1]), {"platforms": ["cpu"]}
PROGRAMS["donated"] = of_policy(MOVE), {"donate_argnums": 1}


@program()
def scanned(x, w):
    wrapped = jax.checkpoint(layer, policy=MOVE)
    return jax.grad(lambda w: jnp.sum(jax.lax.scan(
        lambda x, _: (wrapped(x, w), None), x, length=3)[0]))(w)


@program()
def looped(x, w):
    gradient = of_policy(MOVE)
    return jax.lax.while_loop(lambda state: state[0] < 3, lambda state: (
        state[0] + 1, state[1] - gradient(x, state[1])), (0, w))


@program()
def mapped(x, w):
    return jax.vmap(of_policy(MOVE), in_axes=(None, 0))(x, jnp.stack([w, w]))


@program()
def mapped_inside(x, w):
    return of_policy(MOVE, jax.vmap(layer, in_axes=(0, None)))(jnp.stack([x, x]), w)


@program()
def forward(x, w):
    return jax.jvp(jax.checkpoint(layer, policy=MOVE), (x, w), (x, w))


@program()
def second(x, w):
    return jax.jvp(lambda w: of_policy(policies.dots_saveable)(x, w), (w,), (w,))


@program()
def custom(x, w):
    @jax.custom_vjp
    def f(x, w):
        return layer(x, w)
    f.defvjp(lambda x, w: (layer(x, w), (name(x @ w, "a"), w)),
             lambda kept, g: (g @ kept[1].T * kept[0], kept[0].T @ g))
    return of_policy(MOVE, f)(x, w)


@program()
def custom_forward(x, w):
    return of_policy(MOVE, lambda x, w: jax.nn.relu(jax.nn.logsumexp(layer(x, w), -1)))(x, w)


@program()
def evaluated(x, w):
    return jax.checkpoint(layer, policy=MOVE)(x, w)


@program()
def no_checkpoint(x, w):
    return jax.grad(lambda w: jnp.sum(layer(x, w)))(w)


@program(mesh=AxisType.Auto)
def spread(x, w):
    return of_policy(MOVE)(x, w)


@program(mesh=AxisType.Explicit)
def spread_explicitly(x, w):
    return of_policy(MOVE)(x, w)


@program(mesh=AxisType.Auto)
def on_each(x, w):
    return jax.shard_map(lambda x, w: jax.lax.psum(of_policy(MOVE)(x, w), "data"),
                         in_specs=(P("data"), P()), out_specs=P())(x, w)


@program()
def moved(x, w):
    return jax.device_put(x, jax.memory.Space.Host), w


def texts(function, options):
    """The jaxpr and the lowered texts of a program, with the places in the source."""
    options = dict(options)
    kind, platforms = options.pop("mesh", None), options.pop("platforms", ("cpu", "cuda"))
    x, w = (jax.ShapeDtypeStruct((16, 16), jnp.float32) for _ in range(2))
    mesh = jax.make_mesh((4,), ("data",), axis_types=(kind or AxisType.Auto,))
    if kind:
        x = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P("data")))
    with jax.set_mesh(mesh) if kind else contextlib.nullcontext():
        traced = jax.jit(function, **options).trace(x, w)
        found = {"jaxpr": str(traced.jaxpr), **{
            platform: traced.lower(lowering_platforms=(platform,)).as_text(debug_info=True)
            for platform in platforms}}
    return {key: re.sub(r" at 0x[0-9a-f]+", "", text) for key, text in found.items()}


def all_texts():
    jax.clear_caches()
    return {key: texts(*each) for key, each in PROGRAMS.items()}


def used():
    """Compiles and runs programs of actmem.jax."""
    x = jnp.ones((16, 16))
    wrapped = actmem.jax.checkpoint(layer, policy=DOTS, offload_argnums=0)
    jax.jit(jax.grad(lambda x: jnp.sum(wrapped(x, x))))(x)
    with actmem.jax.patch():
        jax.jit(of_policy(MOVE))(x, x)


def patched():
    actmem.jax.patch(min_bytes=0)


if __name__ == "__main__":
    found, original = {}, None
    # In one line: the texts say which line called.
    for when in (None, "imported", "used", "patched"):
        if when == "imported":
            import actmem.jax
        elif when:
            globals()[when]()
        now = all_texts()
        original = original or now
        found[when] = {key: [what for what in each if each[what] != now[key][what]]
                       for key, each in original.items() if each != now[key]}
    json.dump({"programs": list(PROGRAMS), "differ": found,
               "copies": {key: each["jaxpr"].count("device_put")
                          for key, each in original.items()},
               "puts": actmem.jax.stats()["puts_total"]}, sys.stdout)
