# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The custom calls of XLA's that lib/xla handles, on one device and on several.

On several devices each puts its own shard, under a token of its own: a token is told to
XLA as one value that all devices have alike, which is never moved. How a value is spread
is for XLA's partitioner to find, also where JAX does not know it; a take is spread as its
put was, so that what a device takes is what it put, and nothing is gathered.
"""
import itertools
import math
import threading
import zlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import SdyShardingRule, custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir

from actmem.jax import _private
from actmem.jax._handlers import PLATFORMS
from actmem.jax._private import Aval, Context, DType, Rule

TOKEN_WORDS = 2


def _site(label: str, number: int | None) -> str:
    return label if number is None else f"{label} #{number}"


def _unpack(value: Any) -> Any:
    words = jax.lax.bitcast_convert_type(value, f"uint{_private.bits_of(value.dtype)}")
    return words.astype(jnp.uint8)


def _pack(value: Any, dtype: DType) -> Any:
    return jax.lax.bitcast_convert_type(value.astype(f"uint{_private.bits_of(dtype)}"), dtype)


# One call on one device. `results` are pairs of shape and dtype.

call_p = Primitive("actmem_call")
call_p.multiple_results = True


@call_p.def_abstract_eval
def _call_abstract(*operands: Aval, target: str, results: Any, attributes: Any) -> list[Aval]:
    like = operands[0]
    spec = jax.sharding.PartitionSpec()
    return [like.update(shape=shape, dtype=np.dtype(dtype), weak_type=False,
                        sharding=like.sharding.update(spec=spec))
            for shape, dtype in results]


def _call_lowered(ctx: Context, *operands: Any, target: str, results: Any,
                  attributes: Any) -> Any:
    attributes = {name: np.array(value, np.int32) if isinstance(value, tuple) else value
                  for name, value in attributes}
    return jax.ffi.ffi_lowering(target, has_side_effect=True)(ctx, *operands, **attributes)


def _refused(ctx: Context, *operands: Any, **params: Any) -> Any:
    platforms = ", ".join(ctx.module_context.platforms)
    raise NotImplementedError(
        f"what actmem.jax keeps is put and taken on {', '.join(PLATFORMS)}, not on "
        f"{platforms}; use jax.checkpoint there")


mlir.register_lowering(call_p, _refused)
for platform in PLATFORMS:
    mlir.register_lowering(call_p, _call_lowered, platform=platform)


def _call(target: str, operands: Sequence[Any], results: Sequence[tuple[Sequence[int], DType]],
          **attributes: Any) -> Any:
    return call_p.bind(*operands, target=target,
                       results=tuple((tuple(shape), np.dtype(dtype))
                                     for shape, dtype in results),
                       attributes=tuple(sorted(attributes.items())))


TOKEN = ((TOKEN_WORDS,), np.uint32)


def put_here(value: Any, site: str, bounded: bool, many: bool, fixed: bool = False,
             layout: int = 0) -> Any:
    if _private.is_packed(value.dtype):
        value = _unpack(value)
    return _call("actmem_put", [value], [TOKEN], site=site, bounded=np.bool_(bounded),
                 many=np.bool_(many), fixed=np.bool_(fixed), layout=np.uint32(layout))[0]


def take_here(token: Any, shape: Sequence[int], dtype: DType, site: str, ends: bool,
              announced: int | None = None, layout: int = 0) -> Any:
    packed = _private.is_packed(dtype)
    attributes = {} if announced is None else {"number": np.int32(announced)}
    value, = _call("actmem_take", [token], [(shape, np.uint8 if packed else dtype)],
                   site=site, ends=np.bool_(ends), layout=np.uint32(layout), **attributes)
    return _pack(value, dtype) if packed else value


def tie_here(*operands: Any, numbers: Sequence[int]) -> Any:
    return _call("actmem_tie", operands, [(token.shape, np.uint32) for token in operands[:-1]],
                 numbers=tuple(numbers))


def hold_here(token: Any) -> Any:
    return _call("actmem_hold", [token], [(token.shape, np.uint32)])[0]


def drop_here(*operands: Any) -> Any:
    return _call("actmem_drop", operands, [((1,), np.uint32)])[0]


# On several.

def _devices_left_to_xla(context: Any) -> int:
    """Over how many devices XLA is to spread this call by itself."""
    mesh = getattr(context, "mesh", None)
    if mesh is not None:
        return math.prod(size for axis, size in mesh.shape.items()
                         if axis not in context.manual_axes)
    return getattr(context, "num_devices", 1)


class _Layouts:
    """How puts of each label, shape and type were spread, by the number of their program:
    XLA's partitioner comes to a put before its takes, and its decision for the first
    holds for all. Values that another program put were spread as such puts were last; if
    not, the handlers tell by the layouts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.known: dict[Hashable, Any] = {}

    def of_put(self, key: Hashable, number: int | None, sharding: Any) -> Any:
        with self.lock:
            sharding = self.known.setdefault((key, number), sharding)
            self.known[key] = sharding
            return sharding

    def of_take(self, key: Hashable, number: int | None, sharding: Any) -> Any:
        with self.lock:
            return self.known.get((key, number), self.known.get(key, sharding))


_layouts = _Layouts()


# The part of a put value that each device has, by label, shape and type: for the program
# of a number, and for the one that was compiled last.
_device_shapes: dict[Hashable, tuple[int, ...] | None] = {}


def _note_device_shape(key: Hashable, number: int | None,
                       shape: tuple[int, ...] | None) -> None:
    _device_shapes[key] = _device_shapes[key, number] = shape


def device_shape(label: str, number: int | None, aval: Aval) -> tuple[int, ...] | None:
    """The part of `aval` that a device has, in the program of that number or, for None, in
    the one compiled last. None if that came compiled from JAX's cache on disk."""
    key = label, aval.shape, str(aval.dtype)
    return _device_shapes.get(key if number is None else (key, number))


def _replicated(sharding: Any) -> Any:
    return type(sharding).get_replicated(sharding._device_assignment)


def _fingerprint(sharding: Any, shape: Sequence[int]) -> int:
    return zlib.crc32(repr((sharding, tuple(shape))).encode())


_TOKEN = "token"        # of a dimension: on all devices


def _rule(operands: Sequence[Sequence[str]],
          results: Sequence[Sequence[str]]) -> SdyShardingRule:
    """Says that dimensions of one name are spread alike. `operands` and `results` have the
    names of each one's dimensions."""
    alone: list[str] = []

    count = itertools.count()

    def named(dimensions: Sequence[str]) -> tuple[str, ...]:
        # Dimensions of tokens have nothing in common, not even their lengths.
        names = tuple(f"{name}{next(count) if name == _TOKEN else i}x"
                      for i, name in enumerate(dimensions))
        alone.extend(name for name in names if name.startswith(_TOKEN))
        return names
    mappings: list[tuple[Any, ...]] = [tuple(map(named, values))
                                       for values in (operands, results)]
    return SdyShardingRule(*mappings, need_replication_factors=tuple(dict.fromkeys(alone)))


def _spread(function: Rule, operands: Sequence[Any], dimensions: Sequence[Sequence[str]],
            results: Sequence[tuple[Sequence[str], Sequence[int]]],
            shardings: Callable[[list[Any]], list[Any]] | None = None) -> Any:
    """`function` on each device's own.

    dimensions  of each operand: the names of its dimensions, for _rule()
    results     the same of each result, and its shape
    shardings   changes those of operands and results, which the function is then given
    """
    call = custom_partitioning(lambda *operands: function(None, *operands))
    names = [name for name, _ in results]

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> tuple[Any, ...]:
        single = not isinstance(result_shape, (list, tuple))
        shapes = [*arg_shapes, *([result_shape] if single else result_shape)]
        own = [_replicated(shape.sharding) if _TOKEN in name else shape.sharding
               for shape, name in zip(shapes, (*dimensions, *names))]
        own = shardings(own) if shardings else own
        out = own[len(arg_shapes):]
        return (mesh, lambda *operands: function(own, *operands),
                out[0] if single else type(result_shape)(out), tuple(own[:len(arg_shapes)]))

    call.def_partition(
        partition, decode_shardings=False,
        infer_sharding_from_operands=lambda mesh, args, result: jax.tree.map(
            lambda shape: _replicated(args[0].sharding), result),
        sharding_rule=_rule(dimensions, names))
    return call(*operands)


def _is_spread(ctx: Context) -> bool:
    return _devices_left_to_xla(ctx.module_context.axis_context) > 1


def _value(rank: int) -> list[str]:
    return ["value"] * rank


def _ghost(rank: int) -> list[str]:
    """The dimensions of a ghost: its value's, and one that has nothing in it."""
    return [*_value(rank), "none"]


def _empty(shape: Sequence[int]) -> jax.Array:
    return jnp.zeros((*shape, 0), jnp.uint8)


def put(ctx: Context, value: Any, label: str, number: int | None, bounded: bool,
        many: bool, fixed: bool) -> Any:
    """The token and the ghost."""
    site = _site(label, number)
    shape, key = value.shape, (label, value.shape, str(value.dtype))
    if not _is_spread(ctx):
        _note_device_shape(key, number, shape)
        return put_here(value, site, bounded, many, fixed), _empty(shape)
    _note_device_shape(key, number, None)

    def decide(own: list[Any]) -> list[Any]:
        spread = _layouts.of_put(key, number, own[0])
        _note_device_shape(key, number, spread.shard_shape(shape))
        return [spread, *own[1:]]

    def on_each(own: list[Any] | None, value: Any) -> tuple[Any, Any]:
        layout, empty = 0, shape
        if own:
            layout = _fingerprint(own[0]._hlo_sharding, shape)
            empty = own[2].shard_shape((*shape, 0))[:-1]
        return put_here(value, site, bounded, many, fixed, layout), _empty(empty)

    return _spread(on_each, [value], [_value(value.ndim)],
                   [([_TOKEN], (TOKEN_WORDS,)), (_ghost(value.ndim),
                                                 (*shape, 0))], decide)


def take(ctx: Context, token: Any, ghost: Any, aval: Aval, label: str, number: int | None,
         ends: bool, announced: int | None) -> Any:
    site = _site(label, number)
    if not _is_spread(ctx):
        return take_here(token, aval.shape, aval.dtype, site, ends, announced, 0)
    key = (label, aval.shape, str(aval.dtype))

    def decide(own: list[Any]) -> list[Any]:
        return [*own[:2], _layouts.of_take(key, number, own[2])]

    def on_each(own: list[Any] | None, token: Any, ghost: Any) -> Any:
        shape, layout = aval.shape, 0
        if own:
            layout = _fingerprint(own[2]._hlo_sharding, shape)
            shape = own[2].shard_shape(shape)
        return take_here(token, shape, aval.dtype, site, ends, announced, layout)

    rank = ghost.ndim - 1
    return _spread(on_each, [token, ghost], [[_TOKEN], _ghost(rank)],
                   [(_value(rank), aval.shape)], decide)


def _tokens(token: Any) -> list[str]:
    return [_TOKEN] * token.ndim


def tie(ctx: Context, tokens: Sequence[Any], tie: Any, numbers: Sequence[int]) -> Any:
    if not _is_spread(ctx):
        return tie_here(*tokens, tie, numbers=numbers)
    return _spread(lambda own, *operands: tie_here(*operands, numbers=numbers),
                   [*tokens, tie], [*map(_tokens, tokens), _value(tie.ndim)],
                   [(_tokens(token), token.shape) for token in tokens])


def hold(ctx: Context, token: Any) -> Any:
    if not _is_spread(ctx):
        return hold_here(token)
    return _spread(lambda own, token: hold_here(token), [token], [_tokens(token)],
                   [(_tokens(token), token.shape)])


def drop(ctx: Context, token: Any, ties: Sequence[Any]) -> Any:
    if not _is_spread(ctx):
        return drop_here(token, *ties)
    names = [[f"tie{i}x"] * tie.ndim for i, tie in enumerate(ties)]
    return _spread(lambda own, *operands: drop_here(*operands), [token, *ties],
                   [_tokens(token), *names], [([_TOKEN], (1,))])
