# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One value into actmem memory and out again, whatever its type and however
it is spread over devices.

Keys travel as their words and elements of less than a byte as bytes, since
only whole bytes are copied. Of a value on several devices each device puts
its own shard, under a token of its own; nothing is gathered.
"""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from actmem.jax import _spread
from actmem.jax._primitives import announce_p, put_p, take_p


class Form(NamedTuple):
    """What is needed, besides its token, to have a value again."""
    shape: tuple                # as it travels
    dtype: Any
    weak_type: bool
    key_impl: Any               # of a PRNG key
    packed_dtype: Any           # of elements shorter than a byte
    sharding: Any               # None: on one device


def _bits(dtype):
    return jnp.iinfo(dtype).bits if jnp.issubdtype(dtype, jnp.integer) else \
        jnp.finfo(dtype).bits


def is_packed(dtype):
    return dtype != jnp.bool_ and jnp.issubdtype(dtype, jnp.number) and \
        _bits(dtype) < 8


def bytes_of(aval):
    """Of a value of this type in all, at one byte or more per element."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        aval = jax.eval_shape(jax.random.key_data, aval)
    return int(np.prod(aval.shape, dtype=np.int64)) * np.dtype(aval.dtype).itemsize


def _unpack(value, dtype):
    words = jax.lax.bitcast_convert_type(value, f"uint{_bits(dtype)}")
    return words.astype(jnp.uint8)


def _pack(value, dtype):
    return jax.lax.bitcast_convert_type(value.astype(f"uint{_bits(dtype)}"),
                                        dtype)


def _refuse(label, why):
    raise ValueError(f"actmem.jax.checkpoint of {label}: {why}")


def _given_sharding(value, sharding, label):
    if callable(sharding):
        sharding = sharding(jax.typeof(value))
        if sharding is None:
            return None
    if not isinstance(sharding, NamedSharding):
        _refuse(label, f"sharding= is, or returned, {sharding!r}, which is no "
                       "jax.sharding.NamedSharding")
    if not fits(value, sharding):
        _refuse(label, f"a value of shape {value.shape} cannot be spread as "
                       f"{sharding.spec} over {dict(sharding.mesh.shape)}; "
                       "pass a function of the value's type as sharding=")
    return sharding


def fits(value, sharding):
    spec = sharding.spec
    if any(part is not None for part in spec[value.ndim:]):
        return False
    try:
        sharding = NamedSharding(sharding.mesh,
                                 PartitionSpec(*spec[:value.ndim]))
        sharding.shard_shape(value.shape)
    except ValueError:
        return False
    return True


def sharding_of(value, sharding, label):
    """How `value` is spread over devices, or None if it is not; refuses, in
    words, where that cannot be known."""
    if sharding is not None:
        return _given_sharding(value, sharding, label)
    if not isinstance(value, jax.core.Tracer):
        own = getattr(value, "sharding", None)
        if own is None or own.num_devices == 1:
            return None
        if isinstance(own, NamedSharding):
            return own
        _refuse(label, f"a value is spread over devices as {own!r}; place it "
                       "by a jax.sharding.NamedSharding")
    own = jax.typeof(value).sharding
    types = {} if own.mesh.empty else dict(zip(own.mesh.axis_names,
                                               own.mesh.axis_types))
    auto = int(np.prod([own.mesh.shape[axis] for axis, kind in types.items()
                        if kind == AxisType.Auto]))
    if auto > 1:
        _refuse(label, f"a mesh of {auto} devices has axes of type Auto, so "
                       "how values are spread over them is not known while "
                       "tracing; pass sharding=, or make the axes Explicit")
    if AxisType.Explicit in types.values():
        return own
    return None


def put(value, site, sharding):
    """The token of `value`, and its form."""
    weak_type = jax.typeof(value).weak_type
    key_impl = packed_dtype = None
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        key_impl = jax.random.key_impl(value)
        value = jax.random.key_data(value)
        weak_type = False
    if is_packed(value.dtype):
        packed_dtype = value.dtype
        value = _unpack(value, packed_dtype)
    spread = sharding_of(value, sharding, site.label)
    form = Form(value.shape, value.dtype, weak_type, key_impl, packed_dtype,
                spread)
    value = _spread.over_its_devices(value, spread)
    return put_p.bind(value, site=site, spread=spread), form


def _tie_specs(ties, sharding):
    """The ties that every device can look at without moving anything, with
    their specs."""
    kept = []
    for tie in ties:
        own = jax.typeof(tie).sharding
        if own.mesh == sharding.mesh and not own.mesh.empty and \
                AxisType.Explicit in own.mesh.axis_types:
            kept.append((tie, own.spec))
        elif fits(tie, sharding):
            kept.append((tie, _spread.spec(sharding, tie.ndim)))
    if ties and not kept:
        tie = min(ties, key=lambda tie: tie.size)
        kept.append((tie, PartitionSpec()))
    return kept


def _looked_at(ties, spread):
    """The ties that a take or an announcement has, and their specs."""
    if spread is None:
        return ties, ()
    kept = _tie_specs(ties, spread)
    return [tie for tie, _ in kept], tuple(spec for _, spec in kept)


def _announce(tokens, ties, spread, numbers):
    ties, specs = _looked_at(ties, spread)
    return announce_p.bind(*tokens, *ties, numbers=numbers, spread=spread,
                           tie_specs=specs)


def take(token, ties, form, tie=None, announced=None):
    """The value of `token`, not before `ties` are there; its block is freed.
    `tie`, `announced`: if it was announced, the result of that, and as what."""
    first = () if tie is None else (tie,)
    ties, specs = _looked_at(ties, form.sharding)
    value = take_p.bind(token, *first, *ties, shape=form.shape,
                        dtype=form.dtype, weak_type=form.weak_type,
                        spread=form.sharding, tie_specs=specs,
                        announced=announced)
    if form.packed_dtype is not None:
        value = _pack(value, form.packed_dtype)
    if form.key_impl is not None:
        value = jax.random.wrap_key_data(value, impl=form.key_impl)
    return value


def take_all(tokens, ties, forms, site):
    """The values of `tokens`, which were put at `site`, not before `ties` are
    there."""
    together = {}       # those of the same devices
    for i, form in enumerate(forms):
        spread = form.sharding
        key = spread and (spread.mesh, _spread.axes(spread))
        together.setdefault(key, []).append(i)
    values = [None] * len(tokens)
    for members in together.values():
        announced = [None] * len(members)
        # Outside of jit each take is an execution of its own.
        if len(members) > 1 and isinstance(tokens[members[0]], jax.core.Tracer):
            announced = _announce([tokens[i] for i in members], ties,
                                  forms[members[0]].sharding, tuple(members))
        for i, tie in zip(members, announced):
            values[i] = take(tokens[i], ties, forms[i], tie,
                             None if tie is None else (site, i))
    return values
