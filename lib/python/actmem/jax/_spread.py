# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A value that is spread over several devices: what each of them is given.

`spread` is the NamedSharding of a value. Each device works on its own shard, under a
token of its own: tokens are one after the other along their first dimension, and so
are what announcements result in. Nothing is gathered.
"""
import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec


def axes(spread):
    """Those that a value still has to be split over."""
    mesh = spread.mesh
    return tuple(axis for axis, kind in zip(mesh.axis_names, mesh.axis_types)
                 if kind != AxisType.Manual)


def devices(spread):
    return int(np.prod([spread.mesh.shape[axis] for axis in axes(spread)]))


def spec(spread, rank):
    return PartitionSpec(*spread.spec[:rank])


def tokens_spec(spread):
    return PartitionSpec(axes(spread))


def visible(spec, mesh):
    """As types have it, which name the axes of `mesh` that are Explicit."""
    kinds = {} if mesh.empty else dict(zip(mesh.axis_names, mesh.axis_types))

    def seen(part):
        names = part if isinstance(part, tuple) else (part,)
        names = tuple(name for name in names
                      if kinds.get(name) == AxisType.Explicit)
        return names if len(names) > 1 else names[0] if names else None
    return PartitionSpec(*[seen(part) for part in spec])


def with_batch(spec, dim, axis):
    """Of a value that has one dimension more, at `dim`, split over `axis`."""
    parts = [*spec, *[None] * (dim - len(spec))]
    return PartitionSpec(*parts[:dim], axis, *parts[dim:])


def batched(spread, axis):
    return spread and NamedSharding(spread.mesh,
                                    with_batch(spread.spec, 0, axis))


def shard_shape(spread, shape):
    return NamedSharding(spread.mesh, spec(spread, len(shape))).shard_shape(shape)


def over_its_devices(value, spread):
    """`value`, for a program that has to learn from it what devices it runs on."""
    if spread is None or not isinstance(spread.mesh, jax.sharding.Mesh) or \
            AxisType.Auto not in spread.mesh.axis_types:
        return value
    return jax.lax.with_sharding_constraint(
        value, NamedSharding(spread.mesh, spec(spread, value.ndim)))


def on_each(function, spread, in_specs, out_specs):
    return jax.shard_map(function, mesh=spread.mesh, in_specs=in_specs,
                         out_specs=out_specs, axis_names=set(axes(spread)),
                         check_vma=False)
