# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The two primitives, put and take, and what JAX's transformations do to them.

    token = put_p.bind(value, site=Site)
    value = take_p.bind(token, *ties, shape=, dtype=, weak_type=)

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


def _of_shape(aval, shape, dtype, weak_type):
    spec = jax.sharding.PartitionSpec(*[None] * len(shape))
    return aval.update(shape=shape, dtype=np.dtype(dtype), weak_type=weak_type,
                       sharding=aval.sharding.update(spec=spec))


@put_p.def_abstract_eval
def _put_abstract(value, *, site):
    return _of_shape(value, (TOKEN_WORDS,), np.uint32, False)


@take_p.def_abstract_eval
def _take_abstract(token, *ties, shape, dtype, weak_type):
    return _of_shape(token, shape, dtype, weak_type)


@partial(jax.jit, static_argnames="site")
def _put_now(value, *, site):
    return put_p.bind(value, site=site)


@partial(jax.jit, static_argnames=("shape", "dtype", "weak_type"))
def _take_now(token, *ties, **type_of_value):
    return take_p.bind(token, *ties, **type_of_value)


@put_p.def_impl
def _put_impl(value, *, site):
    with jax.disable_jit(False):
        return _put_now(value, site=site.eager())


@take_p.def_impl
def _take_impl(token, *ties, **type_of_value):
    with jax.disable_jit(False):
        return _take_now(token, *ties, **type_of_value)


# A batch is put whole, under one token, which is handed on in as many copies
# as there are elements; so a take knows a batch by its token.

def _put_batched(values, dims, *, site):
    (value,), (dim,) = values, dims
    token = put_p.bind(jnp.moveaxis(value, dim, 0), site=site)
    return jnp.broadcast_to(token, (value.shape[dim], TOKEN_WORDS)), 0


def _take_batched(values, dims, *, shape, dtype, weak_type):
    token, *ties = values
    dim = dims[0]
    if dim is None:         # only a tie is batched
        return take_p.bind(token, *ties, shape=shape, dtype=dtype,
                           weak_type=weak_type), None
    tokens = jnp.moveaxis(token, dim, 0)
    size = tokens.shape[0]
    if size == 0:
        return jnp.zeros((0, *shape), dtype), 0
    return take_p.bind(tokens[0], *ties, shape=(size, *shape), dtype=dtype,
                       weak_type=weak_type), 0


batching.primitive_batchers[put_p] = _put_batched
batching.primitive_batchers[take_p] = _take_batched


def _put_jvp(primals, tangents, *, site):
    raise NotImplementedError(
        f"actmem.jax.checkpoint of {site.label}: its gradient is to be "
        "differentiated again (hessian, jvp of grad, grad of grad), which "
        "values kept in actmem do not allow; use jax.checkpoint there")


def _take_jvp(primals, tangents, **type_of_value):
    value = take_p.bind(*primals, **type_of_value)
    return value, ad.Zero.from_primal_value(value)


ad.primitive_jvps[put_p] = _put_jvp
ad.primitive_jvps[take_p] = _take_jvp


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

    def lower(ctx, token, *ties, shape, dtype, weak_type):
        return call(ctx, token, *ties)
    return lower


def _refuse_platform(ctx, *operands, **params):
    platforms = ", ".join(ctx.module_context.platforms)
    raise NotImplementedError(
        f"actmem.jax.checkpoint does not run on {platforms}, only on "
        f"{', '.join(PLATFORMS)}; use jax.checkpoint there")


def _register():
    for primitive in (put_p, take_p):
        mlir.register_lowering(primitive, _refuse_platform)
    for platform in PLATFORMS:
        mlir.register_lowering(put_p, _put_lowering("actmem_put"),
                               platform=platform)
        mlir.register_lowering(take_p, _take_lowering("actmem_take"),
                               platform=platform)


_register()
