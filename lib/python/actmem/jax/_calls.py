# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The XLA custom calls that lib/xla handles, on one device and on several. A put stores a value in
actmem memory, and a take returns the value: see _kept.py for tokens and ghosts.

On several devices, each device puts its own shard into actmem memory, and gets its own tokens. The
contents of a token differ between devices. But XLA treats a token as one value that is equal on all
devices, so XLA never moves the token. An array of tokens is sharded like the batch of the value.
XLA's partitioner chooses the sharding of a value, and JAX does not always know this sharding. In a
program, each take gets the sharding of the put with the same label (the value's name in error
messages). So each device gets its own shard back, and XLA gathers nothing.
"""
import itertools
import math
import re
import threading
import zlib
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import SdyShardingRule, custom_partitioning
from jax.extend.core import Primitive
from jax.extend.mlir.dialects import stablehlo
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, Sharding

from actmem.jax import _private
from actmem.jax._handlers import PLATFORMS
from actmem.jax._kept import TOKEN_WORDS
from actmem.jax._private import Aval, Context, DType, Rule


def site_of(label: str) -> str:
    """Returns the site of a label: the label without its line number. JAX finds a compiled program
    on disk by the program's text, which contains the site. So the site must not change if a user
    adds lines above a function."""
    return re.sub(r":\d+\)$", ")", label)


def _site(label: str, number: int | None) -> str:
    return site_of(label) if number is None else f"{site_of(label)} #{number}"


def _unpack(value: Any) -> Any:
    words = jax.lax.bitcast_convert_type(value, f"uint{_private.bits_of(value.dtype)}")
    return words.astype(jnp.uint8)


def _pack(value: Any, dtype: DType) -> Any:
    return jax.lax.bitcast_convert_type(value.astype(f"uint{_private.bits_of(dtype)}"), dtype)


class Program(NamedTuple):
    """A program that the host runs for an update; lib/update/update.h has the operations' codes.

    operations  five numbers for each operation: code, result, and three operands
    constants   the bits of float32 numbers
    outputs     for each output, the number of its value
    types       the type of each input, then of each output: 0 for float32, 1 for bfloat16
    """

    operations: tuple[int, ...]
    constants: tuple[int, ...]
    outputs: tuple[int, ...]
    types: tuple[int, ...]


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
        f"actmem.jax supports {', '.join(PLATFORMS)}, but not {platforms}; on {platforms}, use "
        "jax.checkpoint with jax.checkpoint_policies.save_and_offload_only_these_names")


def _call_lowered_for_cuda(ctx: Context, *operands: Any, **params: Any) -> Any:
    """Lowers a call, with a barrier between its results and the rest of the program. Without the
    barrier, XLA fuses the call with the operation that stacks the call's result with those of a
    loop's other iterations. Because of this fusion, JAX 0.11.1 and 0.11.2 run the call twice."""
    if params["target"] == "actmem_ghost":      # XLA would replace the barrier by a constant
        return _call_lowered(ctx, *operands, **params)
    return stablehlo.OptimizationBarrierOp(_call_lowered(ctx, *operands, **params)).results


mlir.register_lowering(call_p, _refused)
for platform in PLATFORMS:
    mlir.register_lowering(call_p, _call_lowered_for_cuda if platform == "cuda" else
                           _call_lowered, platform=platform)


def _call(target: str, operands: Sequence[Any], results: Sequence[tuple[Sequence[int], DType]],
          **attributes: Any) -> Any:
    return call_p.bind(*operands, target=target,
                       results=tuple((tuple(shape), np.dtype(dtype))
                                     for shape, dtype in results),
                       attributes=tuple(sorted(attributes.items())))


TOKEN = ((TOKEN_WORDS,), np.uint32)


def put_here(value: Any, site: str, bounded: bool, many: bool, layout: int = 0,
             batch: int = 0) -> Any:
    if _private.is_packed(value.dtype):
        value = _unpack(value)
    token = _call("actmem_put", [value], [TOKEN], site=site, batch=np.int32(batch),
                  bounded=np.bool_(bounded), many=np.bool_(many), layout=np.uint32(layout))[0]
    if not batch:
        return token
    # The third word of a token is the index of the token's example in the batch.
    shape = (*value.shape[:batch], TOKEN_WORDS)
    number, *_, word = (jax.lax.broadcasted_iota(np.uint32, shape, i)
                        for i in range(len(shape)))
    for i in range(1, batch):
        number = number * shape[i] + jax.lax.broadcasted_iota(np.uint32, shape, i)
    return token + jnp.where(word == 2, number, 0)


def take_here(token: Any, shape: Sequence[int], dtype: DType, site: str, ends: bool,
              announced: int | None = None, layout: int = 0) -> Any:
    packed = _private.is_packed(dtype)
    attributes = {} if announced is None else {"number": np.int32(announced)}
    value, = _call("actmem_take", [token], [(shape, np.uint8 if packed else dtype)],
                   site=site, ends=np.bool_(ends), layout=np.uint32(layout), **attributes)
    return _pack(value, dtype) if packed else value


def tie_here(*operands: Any, numbers: Sequence[int]) -> Any:
    return _call("actmem_tie", operands,
                 [(token.shape, np.uint32) for token in operands[:len(numbers)]],
                 numbers=tuple(numbers))


def update_here(tokens: Sequence[Any], scalars: Sequence[Any], program: "Program",
                sites: Sequence[str], ends: Sequence[bool], bounded: Sequence[bool],
                many: Sequence[bool]) -> Any:
    words = [jnp.zeros(TOKEN_WORDS, jnp.uint32).at[0].set(
        jax.lax.bitcast_convert_type(scalar, jnp.uint32)) for scalar in scalars]
    return _call("actmem_update", [*tokens, *words], [TOKEN] * len(sites),
                 operations=program.operations, constants=program.constants,
                 values=program.outputs, types=program.types, ends=tuple(map(int, ends)),
                 bounded=tuple(map(int, bounded)), many=tuple(map(int, many)),
                 **{f"site{i}": site for i, site in enumerate(sites)})


def hold_here(token: Any) -> Any:
    return _call("actmem_hold", [token], [(token.shape, np.uint32)])[0]


def drop_here(*operands: Any) -> Any:
    return _call("actmem_drop", operands, [((1,), np.uint32)])[0]


def ghost_here(token: Any, shape: Sequence[int]) -> Any:
    return _call("actmem_ghost", [token], [((*shape, 0), np.uint8)])[0]


# Calls on several devices.

def _devices_left_to_xla(context: Any) -> int:
    """Returns the number of devices over which XLA itself must partition this call."""
    mesh = getattr(context, "mesh", None)
    if mesh is not None:
        return math.prod(size for axis, size in mesh.shape.items()
                         if axis not in context.manual_axes)
    return getattr(context, "num_devices", 1)


# In one program, all calls of put() and take() with the same label, shape and type share one
# sharding group and one sharding.
_lock = threading.Lock()
_groups: dict[Hashable, int] = {}
_shardings: dict[Hashable, Any] = {}
# The sharding in the latest call of put() in any program. The keys have the value's label, shape
# and type, and the devices.
_latest: dict[Hashable, Any] = {}


def _group_of(key: Hashable) -> int:
    with _lock:
        return _groups.setdefault(key, len(_groups))


def _sharding_of(key: Hashable, sharding: Any) -> Any:
    """Returns the sharding of `key`: the one that was passed to the first call with this key."""
    with _lock:
        return _shardings.setdefault(key, sharding)


def latest_sharding(label: str, shape: Sequence[int], dtype: DType,
                    like: Sharding) -> Sharding | None:
    """Returns the sharding in the latest put() of `label` on the devices of `like`, in terms of the
    axes of the mesh of `like`. Returns None if this sharding is unknown, for example because JAX
    did not compile the program that stores the value, but loaded the compiled program from a
    cache."""
    latest = _sharding_elsewhere((label, tuple(shape), str(dtype)), like)
    if latest is like or not isinstance(like, NamedSharding) or not isinstance(like.mesh, Mesh):
        return None
    return _private.named_sharding(latest, like.mesh, len(shape))


def _sharding_elsewhere(key: Hashable, sharding: Any) -> Any:
    """Guesses the sharding with which another program stores the value of this key. Returns the
    sharding in the latest put() with this key on the devices of `sharding`, or `sharding` if there
    was no such call. If the guess is wrong, the program that takes the value fails."""
    with _lock:
        return _latest.get((key, sharding._device_assignment), sharding)


# Marks a value as a member of a sharding group. Without the group, nothing would connect the put of
# a value with the takes of this value, because XLA drops ghosts (which have no bytes) before it
# chooses shardings.

alike_p = Primitive("actmem_alike")
alike_p.def_abstract_eval(lambda value, *, group: value)


def _alike_lowered(ctx: Context, value: Any, *, group: int) -> list[Any]:
    # Inside shard_map, the put and the take of a value are in different function bodies, and a
    # sharding group must not include values of several bodies.
    if not getattr(ctx.module_context.axis_context, "manual_axes", ()):
        _private.group_shardings(value, group)
    return [value]


mlir.register_lowering(alike_p, _alike_lowered)


# The shape of each device's part of a value that was put into actmem. The keys have the value's
# label, shape and type. A key with the number of a program is for that program, and a key without a
# number is for the program that was compiled last.
_device_shapes: dict[Hashable, tuple[int, ...] | None] = {}


def _note_device_shape(key: Hashable, number: int | None,
                       shape: tuple[int, ...] | None) -> None:
    _device_shapes[key] = _device_shapes[key, number] = shape


def device_shape(label: str, number: int | None, aval: Aval) -> tuple[int, ...] | None:
    """Returns the shape of each device's part of `aval`. `number` selects the program; None
    selects the program compiled last. Returns None if JAX loaded that program from its cache on
    disk."""
    key = label, aval.shape, str(aval.dtype)
    return _device_shapes.get(key if number is None else (key, number))


def _replicated(sharding: Any) -> Any:
    return type(sharding).get_replicated(sharding._device_assignment)


def _fingerprint(sharding: Any, shape: Sequence[int], batch: int) -> int:
    """Returns a number that identifies the sharding of a value. The put and all takes of a value
    compute the same number, even if they are in different programs and XLA expresses the sharding
    in different forms. The number is never 0, because 0 marks a value on one device. The number
    depends on how the batch is sharded, but not on the lengths of the batch's dimensions, because a
    take can return fewer examples than the put stored."""
    tiles, devices = _private.tiles_of(sharding, len(shape))
    if max(tiles[:batch], default=1) == 1:
        tiles = tiles[batch:]
    where = (tiles, devices) if max(tiles, default=1) > 1 else None
    return zlib.crc32(repr((where, tuple(shape[batch:]))).encode()) or 1


_WORDS = "words"        # the dimension of a token's words; the words differ between devices
_VALUE, _NONE, _TIE = "value", "none", "tie"


def _sharding_rule(operands: Sequence[Sequence[str]],
                   results: Sequence[Sequence[str]]) -> SdyShardingRule:
    """Returns a rule that shards dimensions of the same name alike. `operands` and `results`
    have the names of the dimensions of each operand and result."""
    alone: list[str] = []
    count = itertools.count()

    def named(dimensions: Sequence[str]) -> tuple[str, ...]:
        # Give each dimension of words a name of its own: the words of different tokens are
        # unrelated, and even the length of this dimension may differ.
        names = tuple(f"{name}{next(count) if name == _WORDS else i}x"
                      for i, name in enumerate(dimensions))
        alone.extend(name for name in names if name.startswith(_WORDS))
        return names
    mappings: list[tuple[Any, ...]] = [tuple(map(named, values))
                                       for values in (operands, results)]
    return SdyShardingRule(*mappings, need_replication_factors=tuple(dict.fromkeys(alone)))


spread_p = Primitive("actmem_spread")
spread_p.multiple_results = True


@spread_p.def_abstract_eval
def _spread_abstract(*operands: Aval, results: Any, **params: Any) -> list[Aval]:
    like = operands[0]
    sharding = like.sharding.update(spec=jax.sharding.PartitionSpec())
    return [like.update(shape=shape, dtype=np.dtype(dtype), weak_type=False,
                        sharding=sharding) for _, shape, dtype in results]


def _spread_lowered(ctx: Context, *operands: Any, function: Rule,
                    dimensions: Sequence[Sequence[str]], results: Any,
                    shardings: Rule | None) -> Any:
    names = [name for name, *_ in results]

    call = custom_partitioning(lambda *operands: tuple(function(None, *operands)))

    def partition(mesh: Any, arg_shapes: Any, result_shape: Any) -> tuple[Any, ...]:
        own = [shape.sharding for shape in (*arg_shapes, *result_shape)]
        own = [_private.leading_sharding(sharding, len(name) - 1, len(name))
               if name[-1:] == (_WORDS,) else sharding
               for sharding, name in zip(own, (*dimensions, *names))]
        own = shardings(own) if shardings else own
        out = own[len(arg_shapes):]

        def on_each(*operands: Any) -> Any:
            # Without this context, JAX would annotate these operations with shardings of the
            # program's mesh.
            with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
                return tuple(function(own, *operands))
        return mesh, on_each, tuple(out), tuple(own[:len(arg_shapes)])

    call.def_partition(
        partition, decode_shardings=False,
        infer_sharding_from_operands=lambda mesh, args, result: jax.tree.map(
            lambda shape: _replicated(args[0].sharding), result),
        sharding_rule=_sharding_rule(dimensions, names))
    lowered = mlir.lower_fun(call, multiple_results=True)(ctx, *operands)
    _private.set_side_effect(lowered[0])
    return lowered


mlir.register_lowering(spread_p, _refused)
for platform in PLATFORMS:
    mlir.register_lowering(spread_p, _spread_lowered, platform=platform)
_private.wants_devices(spread_p)


def _spread(function: Rule, operands: Sequence[Any], dimensions: Sequence[Sequence[str]],
            results: Sequence[tuple[Sequence[str], Sequence[int], DType]],
            shardings: Rule | None = None) -> Any:
    """Calls `function` on each device with that device's shards. XLA neither drops nor merges
    the call.

    function    Called with the shardings of operands and results (None on a single device) and
                the operands. It returns a sequence of results.
    dimensions  The names of each operand's dimensions, for _sharding_rule().
    results     For each result: the names of its dimensions, its shape and its dtype.
    shardings   Called with the list of shardings of operands and results; returns a list of
                shardings that replaces this list.
    """
    return spread_p.bind(
        *operands, function=function, shardings=shardings,
        dimensions=tuple(map(tuple, dimensions)),
        results=tuple((tuple(name), tuple(shape), np.dtype(dtype))
                      for name, shape, dtype in results))


def _is_spread(ctx: Context) -> bool:
    return _devices_left_to_xla(ctx.module_context.axis_context) > 1


def _value(rank: int) -> list[str]:
    return [_VALUE] * rank


def _ghost(rank: int) -> list[str]:
    """Returns the dimension names of a ghost: those of its value, and the name of the dimension of
    length zero."""
    return [*_value(rank), _NONE]


def _tokens(rank: int) -> list[str]:
    """Returns the dimension names of tokens: those of the batch, and the name of the dimension of
    the four words."""
    return [*_value(rank), _WORDS]


def _empty(shape: Sequence[int]) -> jax.Array:
    return jnp.zeros((*shape, 0), jnp.uint8)


def _shared_key(label: str, number: int | None, shape: Sequence[int],
                dtype: DType) -> tuple[Hashable, ...]:
    return label, number, tuple(shape), str(dtype)


def _for_tokens(sharding: Any, tokens: Any, rank: int, batch: int) -> Any:
    """Returns the sharding to use for a value. XLA's partitioner chose `sharding` for the value and
    `tokens` for its tokens. If `tokens` divides the batch, and `sharding` divides it differently, a
    device would get tokens of examples that another device stored. In that case, the result divides
    the batch as `tokens` does. In all other cases, the result is `sharding`."""
    def parts(sharding: Any) -> Any:
        tiles, devices = _private.tiles_of(sharding, batch)
        return tiles, np.sort(np.reshape(devices, (*tiles, -1))).tolist()
    if max(_private.tiles_of(tokens, batch)[0], default=1) == 1 or \
            parts(tokens) == parts(sharding):
        return sharding
    return _private.leading_sharding(tokens, batch, rank)


def _sharded_alike(key: tuple[Hashable, ...], rank: int, batch: int, value: int,
                   received: bool) -> Rule:
    """Returns a function that computes the shardings for put() or take(). The tokens and the ghost
    get the sharding of the value. `value` is the index of the value in the list of operands and
    results. All calls with the same `key` share one sharding. If `received` is true, the value is a
    state that is an input of the program; such a state keeps its sharding."""
    label, number, *kind = key

    def alike(own: list[Any]) -> list[Any]:
        sharding = _for_tokens(own[value], own[1 if value == 0 else 0], rank, batch)
        if number is None or received:
            sharding = _sharding_elsewhere((label, *kind), sharding)
        if number is not None:
            sharding = _sharding_of(key, sharding)
        if value == 0:
            with _lock:
                _latest[(label, *kind), sharding._device_assignment] = sharding
        tokens = _private.leading_sharding(sharding, batch, batch + 1)
        ghost = _private.leading_sharding(sharding, rank, rank + 1)
        # put() has a value, tokens and a ghost; take() has tokens, a ghost and a value.
        return [sharding, tokens, ghost] if value == 0 else [tokens, ghost, sharding]
    return alike


def put(ctx: Context, value: Any, label: str, batch: int, number: int | None, bounded: bool,
        many: bool, received: bool) -> Any:
    """Puts a value into actmem. Returns the value's tokens and ghost."""
    site = _site(label, number)
    shape, key = value.shape, (label, value.shape, str(value.dtype))
    if not _is_spread(ctx):
        _note_device_shape(key, number, shape)
        return put_here(value, site, bounded, many, batch=batch), _empty(shape)
    _note_device_shape(key, number, None)
    shared = _shared_key(label, number, shape, value.dtype)
    value = alike_p.bind(value, group=_group_of(shared))

    def on_each(own: list[Any] | None, value: Any) -> tuple[Any, Any]:
        layout = 0
        if own:
            _note_device_shape(key, number, value.shape)
            layout = _fingerprint(own[0], shape, batch)
        return (put_here(value, site, bounded, many, layout, batch),
                _empty(value.shape))

    return _spread(on_each, [value], [_value(value.ndim)],
                   [(_tokens(batch), (*shape[:batch], TOKEN_WORDS), np.uint32),
                    (_ghost(value.ndim), (*shape, 0), np.uint8)],
                   _sharded_alike(shared, value.ndim, batch, 0, received))


def take(ctx: Context, token: Any, ghost: Any, aval: Aval, label: str, number: int | None,
         ends: bool, announced: int | None, received: bool) -> Any:
    site = _site(label, number)
    if not _is_spread(ctx):
        return take_here(token, aval.shape, aval.dtype, site, ends, announced, 0)
    rank, batch = len(aval.shape), token.ndim - 1
    shared = _shared_key(label, number, aval.shape, aval.dtype)

    def on_each(own: list[Any] | None, token: Any, ghost: Any) -> tuple[Any]:
        layout = _fingerprint(own[2], aval.shape, batch) if own else 0
        return take_here(token, ghost.shape[:-1], aval.dtype, site, ends, announced, layout),

    value, = _spread(on_each, [token, ghost], [_tokens(batch), _ghost(rank)],
                     [(_value(rank), aval.shape, aval.dtype)],
                     _sharded_alike(shared, rank, batch, 2, received))
    return value if number is None else alike_p.bind(value, group=_group_of(shared))


def _alone(token: Any, number: int = 0) -> list[str]:
    """Returns dimension names for tokens of a call other than put() or take(). `number` makes the
    names of different operands different; a result has the names of its operand."""
    return [f"tokens{number}d"] * (token.ndim - 1) + [_WORDS]


def _ties(ties: Sequence[Any]) -> list[list[str]]:
    """Returns the dimension names of ties: operands that a call waits for without reading their
    values."""
    return [[f"{_TIE}{i}d"] * tie.ndim for i, tie in enumerate(ties)]


def tie(ctx: Context, tokens: Sequence[Any], ties: Sequence[Any], numbers: Sequence[int]) -> Any:
    if not _is_spread(ctx):
        return tie_here(*tokens, *ties, numbers=numbers)
    names = [_alone(token, i) for i, token in enumerate(tokens)]
    return _spread(lambda own, *operands: tie_here(*operands, numbers=numbers),
                   [*tokens, *ties], [*names, *_ties(ties)],
                   [(name, token.shape, token.dtype) for name, token in zip(names, tokens)])


def hold(ctx: Context, token: Any) -> Any:
    if not _is_spread(ctx):
        return hold_here(token)
    return _spread(lambda own, token: (hold_here(token),), [token], [_alone(token)],
                   [(_alone(token), token.shape, token.dtype)])[0]


def update(ctx: Context, tokens: Sequence[Any], scalars: Sequence[Any], program: Program,
           labels: Sequence[str], numbers: Sequence[int | None], ends: Sequence[bool],
           bounded: Sequence[bool], many: Sequence[bool]) -> Any:
    """Computes an update on the host. Returns the tokens of the new values."""
    if _is_spread(ctx):
        raise NotImplementedError('actmem.optax.offload(on="host") works on one device')
    return update_here(tokens, scalars, program, list(map(_site, labels, numbers)), ends, bounded,
                       many)


def drop(ctx: Context, token: Any, ties: Sequence[Any]) -> Any:
    if not _is_spread(ctx):
        return drop_here(token, *ties)
    return _spread(lambda own, *operands: (drop_here(*operands),), [token, *ties],
                   [_alone(token), *_ties(ties)], [([_WORDS], (1,), np.uint32)])[0]


def ghost(ctx: Context, token: Any, shape: Sequence[int]) -> Any:
    """Returns a ghost of this shape as the result of a call. XLA replaces an array without bytes by
    a constant, unless the array is the result of a call. In the program's text, the constant would
    have two characters for each element of the value, so the compiler would be slow."""
    if not _is_spread(ctx):
        return ghost_here(token, shape)

    def on_each(own: list[Any] | None, token: Any) -> tuple[Any]:
        return ghost_here(token, own[1].shard_shape((*shape, 0))[:-1] if own else shape),
    return _spread(on_each, [token], [_alone(token)],
                   [(_ghost(len(shape)), (*shape, 0), np.uint8)])[0]
