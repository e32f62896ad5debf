# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The primitives put and take, and what JAX's transformations do to them.

    token = put_p.bind(value, site=Site)
    value = take_p.bind(token, *ties, shape=, dtype=, weak_type=)

On a GPU a take has to wait until the device has come to it, to read its token. Takes that
come together are announced, so that one wait serves all of them:

    announced = announce_p.bind(*tokens, *ties, numbers=(0, 1, ...))
    value = take_p.bind(token, announced[i], *ties, ..., announced=(Site, numbers[i]))

They carry no JAX effect, so that JAX may drop them, batch them, nest them in
custom derivatives and checkpoints; but the custom calls they become have a
side effect for XLA, which then neither merges two puts, nor moves one out of
a loop. A token, uint32[2], is unique: one traced body runs many times.
"""
import itertools
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from actmem.jax._handlers import PLATFORMS

TOKEN_WORDS = 2


class Site:
    """Where values are put: a call of a checkpointed function.

    A numbered site is a call in a program that is compiled. Calls outside of
    any share the site of their function, and since each of them is an
    execution of its own, what they abandon cannot be told from what they
    still need: their generations are not limited.
    """

    _numbers = {}
    _lock = threading.Lock()

    def __init__(self, label, number=None):
        self.label = label
        self.number = number

    @classmethod
    def numbered(cls, label):
        with cls._lock:
            counter = cls._numbers.setdefault(label, itertools.count(1))
            return cls(label, next(counter))

    def eager(self):
        return Site(self.label)

    @property
    def bounded(self):
        return self.number is not None

    def __str__(self):
        return f"{self.label} #{self.number}" if self.bounded else self.label

    __repr__ = __str__

    def __eq__(self, other):
        return (isinstance(other, Site) and
                (self.label, self.number) == (other.label, other.number))

    def __hash__(self):
        return hash((self.label, self.number))


put_p = Primitive("actmem_put")
take_p = Primitive("actmem_take")
announce_p = Primitive("actmem_announce")
announce_p.multiple_results = True


def _of_shape(aval, shape, dtype, weak_type):
    spec = jax.sharding.PartitionSpec(*[None] * len(shape))
    return aval.update(shape=shape, dtype=np.dtype(dtype), weak_type=weak_type,
                       sharding=aval.sharding.update(spec=spec))


@put_p.def_abstract_eval
def _put_abstract(value, *, site):
    return _of_shape(value, (TOKEN_WORDS,), np.uint32, False)


@take_p.def_abstract_eval
def _take_abstract(token, *ties, shape, dtype, weak_type, announced=None):
    return _of_shape(token, shape, dtype, weak_type)


@announce_p.def_abstract_eval
def _announce_abstract(*values, numbers):
    return [_of_shape(token, (1,), np.uint32, False)
            for token in values[:len(numbers)]]


@partial(jax.jit, static_argnames="site")
def _put_now(value, *, site):
    return put_p.bind(value, site=site)


@partial(jax.jit, static_argnames=("shape", "dtype", "weak_type"))
def _take_now(token, *ties, **params):
    return take_p.bind(token, *ties, **params)


@put_p.def_impl
def _put_impl(value, *, site):
    with jax.disable_jit(False):
        return _put_now(value, site=site.eager())


# Each take is an execution of its own, and finds nothing that another one announced.

@take_p.def_impl
def _take_impl(token, *ties, announced=None, **params):
    with jax.disable_jit(False):
        return _take_now(token, *ties, **params)


@announce_p.def_impl
def _announce_impl(*values, numbers):
    return [jnp.zeros((1,), np.uint32) for _ in numbers]


# A batch is put whole, under one token, which is handed on in as many copies
# as there are elements; so a take knows a batch by its token.

def _put_batched(values, dims, *, site):
    (value,), (dim,) = values, dims
    token = put_p.bind(jnp.moveaxis(value, dim, 0), site=site)
    return jnp.broadcast_to(token, (value.shape[dim], TOKEN_WORDS)), 0


def _take_batched(values, dims, *, shape, **params):
    token, *ties = values
    dim = dims[0]
    if dim is None:         # only a tie is batched
        return take_p.bind(token, *ties, shape=shape, **params), None
    tokens = jnp.moveaxis(token, dim, 0)
    size = tokens.shape[0]
    if size == 0:
        return jnp.zeros((0, *shape), params["dtype"]), 0
    return take_p.bind(tokens[0], *ties, shape=(size, *shape), **params), 0


def _announce_batched(values, dims, *, numbers):
    count = len(numbers)
    tokens, ties = values[:count], values[count:]
    unbatched = [None] * count
    if any(dim is not None and token.shape[dim] == 0
           for token, dim in zip(tokens, dims)):
        # There are no takes either.
        return [jnp.zeros((1,), np.uint32)] * count, unbatched
    tokens = [token if dim is None else jnp.moveaxis(token, dim, 0)[0]
              for token, dim in zip(tokens, dims)]
    return announce_p.bind(*tokens, *ties, numbers=numbers), unbatched


batching.primitive_batchers[put_p] = _put_batched
batching.primitive_batchers[take_p] = _take_batched
batching.primitive_batchers[announce_p] = _announce_batched


def _put_jvp(primals, tangents, *, site):
    raise NotImplementedError(
        f"actmem.jax.checkpoint of {site.label}: its gradient is to be "
        "differentiated again (hessian, jvp of grad, grad of grad), which "
        "values kept in actmem do not allow; use jax.checkpoint there")


def _take_jvp(primals, tangents, **params):
    value = take_p.bind(*primals, **params)
    return value, ad.Zero.from_primal_value(value)


def _announce_jvp(primals, tangents, **params):
    results = announce_p.bind(*primals, **params)
    return results, [ad.Zero.from_primal_value(result) for result in results]


ad.primitive_jvps[put_p] = _put_jvp
ad.primitive_jvps[take_p] = _take_jvp
ad.primitive_jvps[announce_p] = _announce_jvp


def _announce_fewer(used, equation):
    """Whose takes are dropped are not announced: their puts are dropped, too."""
    numbers = equation.params["numbers"]
    kept = [i for i, is_used in enumerate(used) if is_used]
    if not kept:
        return [False] * len(equation.invars), None
    used_operands = [*used, *[True] * (len(equation.invars) - len(numbers))]
    return used_operands, equation.replace(
        invars=[var for var, is_used in zip(equation.invars, used_operands)
                if is_used],
        outvars=[equation.outvars[i] for i in kept],
        params={"numbers": tuple(numbers[i] for i in kept)})


pe.dce_rules[announce_p] = _announce_fewer


def _devices_left_to_xla(context):
    """Over how many devices XLA is to spread this call by itself."""
    mesh = getattr(context, "mesh", None)
    if mesh is not None:
        return int(np.prod([size for axis, size in mesh.shape.items()
                            if axis not in context.manual_axes]))
    return getattr(context, "num_devices", 1)


def _put_lowering(target):
    call = jax.ffi.ffi_lowering(target, has_side_effect=True)

    def lower(ctx, value, *, site):
        devices = _devices_left_to_xla(ctx.module_context.axis_context)
        if devices > 1:
            raise ValueError(
                f"actmem.jax.checkpoint of {site.label}: the program runs on "
                f"{devices} devices, but how its values are spread over them "
                "is not known here, and XLA would gather them on every "
                "device; pass sharding=, or use a mesh with explicit axes")
        return call(ctx, value, site=str(site), bounded=np.bool_(site.bounded))
    return lower


def _take_lowering(target):
    call = jax.ffi.ffi_lowering(target, has_side_effect=True)

    def lower(ctx, token, *ties, shape, dtype, weak_type, announced=None):
        if announced is None:
            return call(ctx, token, *ties)
        site, number = announced
        return call(ctx, token, *ties, site=str(site), number=np.int32(number))
    return lower


def _announce_lowering(target):
    call = jax.ffi.ffi_lowering(target, has_side_effect=True)

    def lower(ctx, *values, numbers):
        return call(ctx, *values, numbers=np.array(numbers, np.int32))
    return lower


def _no_announce(ctx, *values, numbers):
    """Where a token can be read at any time."""
    return [mlir.ir_constant(np.zeros((1,), np.uint32)) for _ in numbers]


def _refuse_platform(ctx, *operands, **params):
    platforms = ", ".join(ctx.module_context.platforms)
    raise NotImplementedError(
        f"actmem.jax.checkpoint does not run on {platforms}, only on "
        f"{', '.join(PLATFORMS)}; use jax.checkpoint there")


def _register():
    for primitive in (put_p, take_p, announce_p):
        mlir.register_lowering(primitive, _refuse_platform)
    for platform, targets in PLATFORMS.items():
        mlir.register_lowering(put_p, _put_lowering("actmem_put"),
                               platform=platform)
        mlir.register_lowering(take_p, _take_lowering("actmem_take"),
                               platform=platform)
        announce = _announce_lowering("actmem_announce") \
            if "actmem_announce" in targets else _no_announce
        mlir.register_lowering(announce_p, announce, platform=platform)


_register()
