# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The primitives put and take, and what JAX's transformations do to them.

    token = put_p.bind(value, site=Site, spread=)
    value = take_p.bind(token, *ties, shape=, dtype=, weak_type=, spread=,
                        tie_specs=, announced=None)

`spread` is None, or how the value is spread over several devices, each of which then has
a token of its own; `tie_specs` is how ties are, and () if `spread` is None.

On a GPU a take has to wait until the device has come to it, to read its token. Takes that
come together are announced, so that one wait serves all of them:

    announced = announce_p.bind(*tokens, *ties, numbers=(0, 1, ...), spread=, tie_specs=)
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

from actmem.jax import _spread
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


def _of_shape(aval, shape, dtype, weak_type, spec=()):
    mesh = aval.sharding.mesh
    spec = [*_spread.visible(spec, mesh), *[None] * (len(shape) - len(spec))]
    return aval.update(shape=shape, dtype=np.dtype(dtype), weak_type=weak_type,
                       sharding=aval.sharding.update(
                           spec=jax.sharding.PartitionSpec(*spec)))


def _of_words(aval, count, spread):
    """One row, or one for each device."""
    if spread is None:
        return _of_shape(aval, (count,), np.uint32, False)
    return _of_shape(aval, (_spread.devices(spread), count), np.uint32, False,
                     _spread.tokens_spec(spread))


@put_p.def_abstract_eval
def _put_abstract(value, *, site, spread):
    return _of_words(value, TOKEN_WORDS, spread)


@take_p.def_abstract_eval
def _take_abstract(token, *ties, shape, dtype, weak_type, spread, tie_specs,
                   announced):
    spec = () if spread is None else _spread.spec(spread, len(shape))
    return _of_shape(token, shape, dtype, weak_type, spec)


@announce_p.def_abstract_eval
def _announce_abstract(*values, numbers, spread, tie_specs):
    return [_of_words(token, 1, spread) for token in values[:len(numbers)]]


@partial(jax.jit, static_argnames=("site", "spread"))
def _put_now(value, *, site, spread):
    return put_p.bind(_spread.over_its_devices(value, spread), site=site,
                      spread=spread)


@partial(jax.jit, static_argnames=("shape", "dtype", "weak_type", "spread",
                                   "tie_specs", "announced"))
def _take_now(token, *ties, **params):
    return take_p.bind(token, *ties, **params)


@put_p.def_impl
def _put_impl(value, *, site, spread):
    with jax.disable_jit(False):
        return _put_now(value, site=site.eager(), spread=spread)


# Each take is an execution of its own, and finds nothing that another one announced.

@take_p.def_impl
def _take_impl(token, *ties, announced, **params):
    ties = ties[1:] if announced else ties
    with jax.disable_jit(False):
        return _take_now(token, *ties, announced=None, **params)


@announce_p.def_impl
def _announce_impl(*values, numbers, spread, tie_specs):
    shape = (1,) if spread is None else (_spread.devices(spread), 1)
    return [jnp.zeros(shape, np.uint32) for _ in numbers]


# A batch is put whole, under one token, which is handed on in as many copies
# as there are elements; so a take knows a batch by its token. Where the elements
# are on several devices, each of these puts its own.

def _batch_axis(batch):
    """What the mesh calls the dimension that a vmap goes over, if anything."""
    return batch.spmd_name or batch.explicit_mesh_axis


def _tie_specs_batched(batch, tie_specs, dims):
    """Of the last operands."""
    first = len(dims) - len(tie_specs)
    return tuple(spec if dim is None else
                 _spread.with_batch(spec, dim, _batch_axis(batch))
                 for spec, dim in zip(tie_specs, dims[first:]))


def _first(value, dim):
    return value if dim is None else jnp.moveaxis(value, dim, 0)[0]


def _put_batched(batch, values, dims, *, site, spread):
    (value,), (dim,) = values, dims
    if dim is None:
        return put_p.bind(value, site=site, spread=spread), None
    token = put_p.bind(jnp.moveaxis(value, dim, 0), site=site,
                       spread=_spread.batched(spread, _batch_axis(batch)))
    return jnp.broadcast_to(token, (batch.size, *token.shape)), 0


def _take_batched(batch, values, dims, *, shape, spread, tie_specs, announced,
                  **params):
    token, *ties = values
    dim = dims[0]
    if dim is not None and token.shape[dim] == 0:
        return jnp.zeros((0, *shape), params["dtype"]), 0
    params.update(announced=announced,
                  tie_specs=_tie_specs_batched(batch, tie_specs, dims))
    if announced:
        ties[0] = _first(ties[0], dims[1])
    if dim is None:         # only a tie is batched
        return take_p.bind(token, *ties, shape=shape, spread=spread,
                           **params), None
    return take_p.bind(_first(token, dim), *ties, shape=(batch.size, *shape),
                       spread=_spread.batched(spread, _batch_axis(batch)),
                       **params), 0


def _announce_batched(batch, values, dims, *, numbers, spread, tie_specs):
    count = len(numbers)
    tokens, ties = values[:count], values[count:]
    unbatched = [None] * count
    if any(dim is not None and token.shape[dim] == 0
           for token, dim in zip(tokens, dims)):
        # There are no takes either.
        return _announce_impl(*values, numbers=numbers, spread=spread,
                              tie_specs=tie_specs), unbatched
    tokens = [_first(token, dim) for token, dim in zip(tokens, dims)]
    return announce_p.bind(
        *tokens, *ties, numbers=numbers, spread=spread,
        tie_specs=_tie_specs_batched(batch, tie_specs, dims)), unbatched


batching.fancy_primitive_batchers[put_p] = _put_batched
batching.fancy_primitive_batchers[take_p] = _take_batched
batching.fancy_primitive_batchers[announce_p] = _announce_batched


def _put_jvp(primals, tangents, *, site, spread):
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
        params={**equation.params,
                "numbers": tuple(numbers[i] for i in kept)})


pe.dce_rules[announce_p] = _announce_fewer


def _devices_left_to_xla(context):
    """Over how many devices XLA is to spread this call by itself."""
    mesh = getattr(context, "mesh", None)
    if mesh is not None:
        return int(np.prod([size for axis, size in mesh.shape.items()
                            if axis not in context.manual_axes]))
    return getattr(context, "num_devices", 1)


def _lower(ctx, function, operands, multiple_results=False):
    return mlir.lower_fun(function, multiple_results)(ctx, *operands)


def _put_lowering(target):
    call = jax.ffi.ffi_lowering(target, has_side_effect=True)

    def put_shard(value, site):
        return put_p.bind(value, site=site, spread=None)[None]

    def lower(ctx, value, *, site, spread):
        if spread is not None:
            return _lower(ctx, _spread.on_each(
                partial(put_shard, site=site), spread,
                _spread.spec(spread, len(ctx.avals_in[0].shape)),
                _spread.tokens_spec(spread)), [value])
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

    def take_shard(token, *ties, announced, **params):
        if announced:
            ties = (ties[0][0], *ties[1:])
        return take_p.bind(token[0], *ties, announced=announced, spread=None,
                           tie_specs=(), **params)

    def lower(ctx, token, *ties, shape, dtype, weak_type, spread, tie_specs,
              announced):
        if spread is not None:
            each = _spread.tokens_spec(spread)
            return _lower(ctx, _spread.on_each(
                partial(take_shard, shape=_spread.shard_shape(spread, shape),
                        dtype=dtype, weak_type=weak_type, announced=announced),
                spread, (each, *((each,) if announced else ()), *tie_specs),
                _spread.spec(spread, len(shape))), [token, *ties])
        if announced is None:
            return call(ctx, token, *ties)
        site, number = announced
        return call(ctx, token, *ties, site=str(site), number=np.int32(number))
    return lower


def _announce_lowering(target):
    call = jax.ffi.ffi_lowering(target, has_side_effect=True)

    def announce_shard(*values, numbers):
        tokens, ties = values[:len(numbers)], values[len(numbers):]
        announced = announce_p.bind(*[token[0] for token in tokens], *ties,
                                    numbers=numbers, spread=None, tie_specs=())
        return [tie[None] for tie in announced]

    def lower(ctx, *values, numbers, spread, tie_specs):
        if spread is not None:
            each = _spread.tokens_spec(spread)
            return _lower(ctx, _spread.on_each(
                partial(announce_shard, numbers=numbers), spread,
                ((each,) * len(numbers) + tie_specs), each), values, True)
        return call(ctx, *values, numbers=np.array(numbers, np.int32))
    return lower


def _no_announce(ctx, *values, numbers, spread, tie_specs):
    """Where a token can be read at any time."""
    return [mlir.ir_constant(np.zeros(aval.shape, np.uint32))
            for aval in ctx.avals_out]


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
