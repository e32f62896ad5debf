# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""JAX's private names that this package uses, all in one place. JAX intends jax.extend,
jax.interpreters and jax.core for libraries. The package uses a private name only for a function
that these modules lack.

A test detects versions of JAX that lack one of NAMES.
"""
import inspect
import math
import re
import sys
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import permutations
from types import FrameType, SimpleNamespace
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import ad_checkpoint as public_checkpoint
from jax.extend import core as extension
from jax.extend.core import Literal, Primitive as new_primitive, Var as Var
from jax.extend.core.primitives import (conv_general_dilated_p, dot_general_p,
                                        name_p as name_p, remat_p)
from jax.extend.mlir.dialects import sdy
from jax.extend.source_info_util import current, summarize
from jax.interpreters import ad, mlir
from jax.interpreters.partial_eval import dce_jaxpr, dce_rules
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
from jax._src import ad_checkpoint, core, dispatch, dtypes, sharding_impls
from jax._src.interpreters import mlir as lowering, partial_eval as pe, pxla, remat
from jax._src.lib import xla_client  # type: ignore[attr-defined]

NAMES: tuple[tuple[Any, str], ...] = tuple((owner, name) for owner, names in (
    (ad_checkpoint, "checkpoint"),
    (core, "InternalMutableArrayEffect NamedAxisEffect is_concrete physical_aval "
           "pytype_aval_mappings"),
    (dispatch, "_batched_device_put_impl prim_requires_devices_during_lowering"),
    (dtypes, "ExtendedDType"),
    (lowering, "wrap_with_sharding_op"),
    (pe, "partial_eval_jaxpr_custom_rules"),
    (pxla, "_discharge_refs_jaxpr global_result_handlers shard_arg_handlers shard_args"),
    (sharding_impls, "GSPMDSharding logical_sharding physical_sharding"),
    (xla_client, "HloSharding OpSharding"),
) for name in names.split())
# Names that only some versions of JAX have. Code that uses such a name first checks whether it
# exists.
SOME = {"register_canonicalize_value_handler", "canonicalize_value_handlers", "rules"}

# JAX specifies no stable types for the following objects.
Aval: TypeAlias = Any           # a shape and a dtype, as jax.typeof() returns
DType: TypeAlias = Any          # a NumPy dtype, or an extended dtype
Primitive: TypeAlias = Any
Jaxpr: TypeAlias = Any
Eqn: TypeAlias = Any
Atom: TypeAlias = Any           # a variable of a jaxpr, or a literal
Context: TypeAlias = Any        # the first argument of a lowering rule
Verdict: TypeAlias = Any        # the result of a policy for a value
Rule: TypeAlias = Callable[..., Any]

ExtendedDType = dtypes.ExtendedDType
ShapedArray = jax.core.ShapedArray
new_eqn = extension.new_jaxpr_eqn
tangent_dtype: Rule = extension.primal_dtype_to_tangent_dtype
current_source = current
physical_aval = core.physical_aval
is_concrete: Rule = core.is_concrete
physical_sharding = sharding_impls.physical_sharding
logical_sharding = sharding_impls.logical_sharding
checkpoint = ad_checkpoint.checkpoint        # JAX's own, even if jax.checkpoint is patched
Offloadable = public_checkpoint.Offloadable
Saveable = public_checkpoint.Saveable

# The option jax_remat3 of JAX replaces the implementation of jax.checkpoint. Since JAX 0.12, the
# rules of the new implementation return the saved values and a function of these values.
has_remat3 = jax.__version_info__ >= (0, 12)


def zero_tangent(value: Any) -> Any:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def wants_devices(primitive: Primitive) -> None:
    """Makes JAX pass the devices to the lowering of `primitive`."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def set_dce_rule(primitive: Primitive, rule: Rule) -> None:
    dce_rules[primitive] = rule


def before_lowering(change: Callable[[str, Jaxpr, Sequence[bool]],
                                     tuple[Jaxpr, Sequence[bool]]]) -> None:
    """Makes JAX call `change(name, jaxpr, donated)` for each whole program. `donated` says for each
    input whether the caller donates it. `change` returns the jaxpr that JAX lowers, and for each
    input whether JAX donates it. JAX calls `change` before the lowering, so errors of the lowering
    have no frames of this package in their traceback."""
    discharge = pxla._discharge_refs_jaxpr

    def discharge_and_change(jaxpr: Jaxpr, *rest: Any) -> tuple[Any, ...]:
        jaxpr, aliases, refs, shardings, layouts, donated, *others = \
            discharge(jaxpr, *rest)  # type: ignore[no-untyped-call]
        name = open_jaxpr(jaxpr).debug_info.func_name
        jaxpr, donated = change(f"jit({name})", jaxpr, donated)
        return jaxpr, aliases, refs, shardings, layouts, tuple(donated), *others
    pxla._discharge_refs_jaxpr = discharge_and_change


def tiles_of(sharding: Sharding, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the number of parts into which `sharding` divides each dimension of a value of rank
    `rank`, and the devices of the parts in order. `sharding` must come from XLA's partitioner."""
    hlo = sharding._hlo_sharding    # type: ignore[attr-defined]
    if not hlo.is_tiled():
        return (1,) * rank, ()
    return (tuple(hlo.tile_assignment_dimensions()[:rank]),
            tuple(hlo.tile_assignment_devices()))


def _specs(axes: Mapping[str, int], tiles: Sequence[int]) -> Iterator[list[tuple[str, ...]]]:
    """Yields each assignment of mesh axes to dimensions that divides dimension i into tiles[i]
    parts, for all i. `axes` maps each mesh axis to its size."""
    if not tiles:
        yield []
        return
    for count in range(len(axes) + 1):
        for names in permutations(axes, count):
            if math.prod(axes[name] for name in names) == tiles[0]:
                rest = {name: size for name, size in axes.items() if name not in names}
                for others in _specs(rest, tiles[1:]):
                    yield [names, *others]


def named_sharding(sharding: Sharding, mesh: Mesh, rank: int) -> NamedSharding | None:
    """Returns `sharding`, for a value of rank `rank`, as a sharding by the axes of `mesh`, or None
    if that is impossible. `sharding` must come from XLA's partitioner."""
    for parts in _specs({name: size for name, size in mesh.shape.items() if size > 1},
                        tiles_of(sharding, rank)[0]):
        named = NamedSharding(mesh, PartitionSpec(*(names or None for names in parts)))
        if named.is_equivalent_to(sharding, rank):
            return named
    return None


def leading_sharding(sharding: Sharding, keep: int, rank: int) -> Sharding:
    """Returns a sharding for a value of rank `rank` that shards the first `keep` dimensions as
    `sharding` does, and replicates the others. `sharding` must come from XLA's partitioner."""
    hlo = sharding._hlo_sharding    # type: ignore[attr-defined]
    tiles = hlo.tile_assignment_dimensions()
    if not hlo.is_tiled() or hlo.is_maximal():
        return sharding
    others = hlo.subgroup_types()
    if hlo.replicate_on_last_tile_dim():
        others = [xla_client.OpSharding.Type.REPLICATED]
    dropped = tiles[keep:len(tiles) - len(others)]
    devices = np.array(hlo.tile_assignment_devices()).reshape(
        *tiles[:keep], *[1] * (rank - keep), math.prod(dropped),
        *tiles[len(tiles) - len(others):])
    return sharding_impls.GSPMDSharding(
        sharding._device_assignment, xla_client.HloSharding.subgroup_with_device_ordering(
            devices, [xla_client.OpSharding.Type.REPLICATED, *others]))


def group_shardings(value: Any, group: int) -> None:
    """Adds `value` to the sharding group with the number `group` in the module. The partitioner
    Shardy gives all values of a group the same sharding."""
    if getattr(jax.config, "jax_use_shardy_partitioner"):   # noqa: B009 (it has no type)
        group_type = mlir.ir.IntegerType.get_signless(64)
        sdy.ShardingGroupOp(value, mlir.ir.IntegerAttr.get(group_type, group))


def set_side_effect(result: Any) -> None:
    """Gives a side effect to the custom call that returns `result`.
    jax.experimental.custom_partitioning makes calls without a side effect, and XLA drops or merges
    such calls."""
    operation = result.owner
    if operation.name == "stablehlo.custom_call":
        operation.attributes["has_side_effect"] = mlir.ir.BoolAttr.get(True)


def leave_calls_alone(is_one: Callable[[Aval], bool]) -> None:
    """Makes JAX state no sharding for the result of a custom call if `is_one` returns true for the
    result's type. With a stated sharding, XLA would copy the result."""
    wrap = lowering.wrap_with_sharding_op

    def wrap_others(ctx: Any, value: Any, aval: Aval, *rest: Any, **others: Any) -> Any:
        is_call = isinstance(value, mlir.ir.OpResult) and \
            value.owner.name == "stablehlo.custom_call"
        return value if is_call and is_one(aval) else wrap(ctx, value, aval, *rest, **others)
    lowering.wrap_with_sharding_op = wrap_others    # type: ignore[assignment]


def inner_jaxprs(params: Mapping[str, Any]) -> Iterable[Jaxpr]:
    return extension.jaxprs_in_params(params)


def scan_consts(params: Mapping[str, Any]) -> int:
    """Returns the number of operands of a scan that are the same in all iterations."""
    if "num_consts" in params:      # before 0.11
        return int(params["num_consts"])
    return len(list(params["ft_in"].unpack()[0]))


def scan_carries(params: Mapping[str, Any]) -> int:
    """Returns the number of operands that a scan carries between iterations."""
    if "num_carry" in params:       # before 0.11
        return int(params["num_carry"])
    return len(list(params["ft_in"].unpack()[1]))


def is_literal(atom: Atom) -> bool:
    """Returns whether an operand is a constant in the jaxpr."""
    return isinstance(atom, Literal)


def dce(jaxpr: Jaxpr) -> Jaxpr:
    """Removes from a jaxpr, and from the bodies of its loops, equations that no output needs."""
    inner = open_jaxpr(jaxpr)
    less, _ = dce_jaxpr(inner, [True] * len(inner.outvars), instantiate=True)
    return less if inner is jaxpr else jaxpr.replace(jaxpr=less)


def name_of(eqn: Eqn) -> str | None:
    """Returns the name that `eqn` gives to a value, or None."""
    name: str | None = None
    if eqn.primitive is name_p:
        name = eqn.params["name"]
    elif eqn.primitive.name == "call_hi_primitive":     # of jax_remat3
        named = next(iter(eqn.params.values()))
        name = named.name if type(named).__name__ == "CheckpointName" else None
    return name


def name_eqn(value: Atom, name: str, out: Atom) -> Eqn:
    """Returns an equation that names the variable `value`; its result is `out`."""
    jaxpr = open_jaxpr(jax.make_jaxpr(lambda x: public_checkpoint.checkpoint_name(x, name))(
        jax.ShapeDtypeStruct(value.aval.shape, value.aval.dtype)))
    eqn, = jaxpr.eqns
    return eqn.replace(invars=[value], outvars=[out])


_NO_NAMES: tuple[frozenset[str], frozenset[str], None] = frozenset(), frozenset(), None


def names_of(policy: Any) -> tuple[frozenset[str], frozenset[str], str | None]:
    """Returns the names that a policy of jax.checkpoint_policies saves, the names that it offloads,
    and the memory to which it offloads. For a policy without names, returns empty sets and None."""
    if getattr(policy, "__module__", None) != ad_checkpoint.__name__:
        return _NO_NAMES
    if getattr(policy, "__closure__", None):
        held = inspect.getclosurevars(policy).nonlocals
    else:                   # 0.11
        held = vars(policy)
    if "policy_1" in held:
        saved = [names_of(held[each])[0] for each in ("policy_1", "policy_2")]
        return frozenset().union(*saved), frozenset(), None
    saved = held.get("names_which_can_be_saved", held.get("saveable_names", ()))
    return (frozenset(saved), frozenset(held.get("names_which_can_be_offloaded", ())),
            held.get("offload_dst"))


def bits_of(dtype: DType) -> int:
    """Returns the number of bits of an element of a numeric type."""
    if jax.numpy.issubdtype(dtype, jax.numpy.integer):
        return jax.numpy.iinfo(dtype).bits
    return jax.numpy.finfo(dtype).bits


def is_packed(dtype: DType) -> bool:
    """Returns whether the elements of this type are shorter than a byte."""
    return not is_extended(dtype) and dtype != jax.numpy.bool_ and \
        dtype != jax.dtypes.float0 and jax.numpy.issubdtype(dtype, jax.numpy.number) and \
        bits_of(dtype) < 8


def is_extended(dtype: DType) -> bool:
    return isinstance(dtype, dtypes.ExtendedDType)


_PLACE = re.compile(r"([^/\\:]+:\d+)(?::\d+)? \((.*)\)$")


def place_of(source_info: Any) -> str:
    """Returns the source line of an equation, such as file.py:12, or "?" if the line is unknown."""
    found = _PLACE.search(summarize(source_info))
    return found[1] if found else "?"


def function_of(source_info: Any) -> str:
    """Returns the function that contains an equation, such as Attention.__call__, or "?" if the
    function is unknown."""
    found = _PLACE.search(summarize(source_info))
    return found[2] if found else "?"


def explicit_shard_shape(aval: Aval) -> tuple[int, ...] | None:
    """Returns the shape of each device's part of a value, or None if `aval` states no sharding."""
    sharding = aval.sharding
    if sharding.mesh.empty or not sharding.mesh.are_all_axes_explicit:
        return None
    shape: tuple[int, ...] = sharding.shard_shape(aval.shape)
    return shape


def is_on_host(aval: Any) -> bool:
    """Returns whether a value of this type is in the memory "pinned_host"."""
    return getattr(getattr(aval, "memory_space", None), "name", "") == "Host"


def is_explicit(sharding: Sharding) -> bool:
    """Returns whether an array with this sharding has the sharding in its type."""
    return isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_explicit


def canonical_as_is(kind: type) -> None:
    """Makes JAX use values of the class `kind` without conversion."""
    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(kind, None)
    else:                   # before 0.11
        dtypes.canonicalize_value_handlers[kind] = lambda value: value


def register_array_class(kind: type, shard: Rule) -> None:
    core.pytype_aval_mappings[kind] = lambda value: value.aval
    canonical_as_is(kind)
    pxla.shard_arg_handlers[kind] = shard
    mlir.register_constant_handler(
        kind, lambda value, aval: mlir.ir_constant(value.base, aval=core.physical_aval(aval)))


shard_args = pxla.shard_args


def is_device_put() -> bool:
    """Returns whether jax.device_put() is calling the result handler that called this function."""
    code = dispatch._batched_device_put_impl.__code__
    frame = sys._getframe(2)
    for _ in range(4):
        if frame is None or frame.f_code is code:
            break
        frame = frame.f_back    # type: ignore[assignment]
    return frame is not None and frame.f_code is code


def result_handler(aval: Aval, sharding: Sharding, committed: bool) -> Any:
    return pxla.global_result_handlers[ShapedArray](aval, sharding, committed)


def open_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the open jaxpr in a closed jaxpr, or an open jaxpr itself. Since 0.12, JAX
    has only one kind of jaxpr."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def with_eqns(jaxpr: Jaxpr, eqns: Sequence[Eqn], **changed: Sequence[Atom]) -> Jaxpr:
    """Returns `jaxpr` with the equations `eqns`, and with the `invars` or `outvars` in `changed`.
    The result is a closed jaxpr if `jaxpr` is closed."""
    inner = open_jaxpr(jaxpr)
    new = inner.replace(eqns=eqns, **changed)
    return new if inner is jaxpr else jaxpr.replace(jaxpr=new)


def is_jaxpr(value: Any) -> bool:
    return hasattr(open_jaxpr(value), "eqns") and hasattr(value, "replace")


def has_effects(eqn: Eqn) -> bool:
    """Returns whether `eqn` has an effect that makes JAX run `eqn` in the forward pass only."""
    unreal = (core.NamedAxisEffect, core.InternalMutableArrayEffect)
    return any(not isinstance(effect, unreal) for effect in eqn.effects)


# A primitive that combines several equations, and expands to them when it is interpreted.

together_p = new_primitive("actmem_together")
together_p.multiple_results = True


def _run_together(*args: Any, jaxpr: Jaxpr) -> Any:
    return jax.core.eval_jaxpr(jaxpr, (), *args)


together_p.bind = _run_together  # type: ignore[method-assign]
together_p.def_abstract_eval(lambda *avals, jaxpr: [var.aval for var in jaxpr.outvars])
mlir.register_lowering(together_p, mlir.lower_fun(_run_together, multiple_results=True))


def _dce_together(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Eqn | None]:
    eqn = rest[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    jaxpr, used_in = dce_jaxpr(eqn.params["jaxpr"], list(used))
    return used_in, eqn.replace(
        invars=[var for var, is_used in zip(eqn.invars, used_in) if is_used],
        outvars=[var for var, is_used in zip(eqn.outvars, used) if is_used],
        params=dict(jaxpr=jaxpr))


dce_rules[together_p] = _dce_together


def operation(name: str, function: Rule) -> Primitive:
    """Makes a primitive that computes `function` of its operands. `function` returns a tuple, and
    gets the parameters of the primitive as keyword arguments."""
    primitive = new_primitive(name)
    primitive.multiple_results = True

    def shapes(*avals: Aval, **params: Any) -> list[Aval]:
        found = jax.eval_shape(lambda *args: function(*args, **params), *(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals))
        return [ShapedArray(each.shape, each.dtype) for each in found]
    primitive.def_abstract_eval(shapes)
    primitive.def_impl(lambda *args, **params: jax.jit(
        lambda *args: function(*args, **params))(*args))
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=True))
    return primitive


@cache
def _empty_jaxpr() -> Jaxpr:
    return open_jaxpr(jax.make_jaxpr(lambda: ())())


def _jaxpr_of(eqns: Sequence[Eqn], invars: Sequence[Atom], outvars: Sequence[Atom]) -> Jaxpr:
    """Returns an open jaxpr with these equations, inputs and outputs."""
    empty = _empty_jaxpr()
    return empty.replace(invars=invars, outvars=outvars, eqns=eqns,
                         debug_info=empty.debug_info.with_unknown_names())


def together(eqns: Sequence[Eqn], invars: Sequence[Atom], outvars: Sequence[Atom]) -> Eqn:
    if len(eqns) == 1:
        return eqns[0].replace(invars=invars, outvars=outvars)
    inputs = list(dict.fromkeys(atom for atom in invars if isinstance(atom, Var)))
    jaxpr = _jaxpr_of(eqns, inputs, outvars)
    return new_eqn(inputs, outvars, together_p, dict(jaxpr=jaxpr), set(),
                              eqns[0].source_info, eqns[0].ctx)


# To split an equation into forward and backward pass, JAX looks up a rule by the equation's
# primitive alone. The tables below replace JAX's tables of rules. These tables find the policy
# among the local variables of the calling function, and return JAX's own rule unless the policy
# sends the value to actmem. So no frame of this package is on the stack when JAX runs its own
# rules.

class _Rules(UserDict[Primitive, Rule]):
    def __init__(self, stock: dict[Primitive, Rule],
                 choose: Callable[..., Rule | None]) -> None:
        self.data = stock           # no copy, because libraries may add rules later
        self.choose = choose

    def get(self, primitive: Primitive, default: Any = None) -> Any:
        stock = self.data.get(primitive, default)
        found = sys._getframe(1).f_locals
        if stock is not None or "saveable" not in found or any(found["unks_in"]):
            return stock
        return self.choose(found["saveable"], found["eqn"])


class _Rules3(_Rules):
    """The table for jax_remat3."""

    def __getitem__(self, primitive: Primitive) -> Rule:
        stock = self.data[primitive]
        found = sys._getframe(1).f_locals
        policy = getattr(found.get("self"), "policy", None)
        asked = policy and _asked3(primitive, found["in_vals"], found["params"])
        return asked and self.choose(policy, stock, found["in_vals"][0], *asked) or stock


def replace_partial_eval_rules(choose: Callable[..., Rule | None]) -> None:
    """Makes JAX call `choose(policy, equation)` to get the rule that splits an equation. If
    `choose` returns None, JAX splits the equation in its own way."""
    pe.partial_eval_jaxpr_custom_rules = _Rules(  # type: ignore[assignment]
        pe.partial_eval_jaxpr_custom_rules, choose)


def replace_remat3_rules(choose: Callable[..., Rule | None]) -> None:
    """Makes JAX call `choose(policy, stock, value, primitive, avals, parameters)` to get the rule
    that splits a call of a primitive. `stock` is JAX's own rule, which is used if `choose` returns
    None. `value` is the first argument of the call. JAX also passes `primitive`, `avals` and
    `parameters` to the policy."""
    if has_remat3:
        remat.rules = _Rules3(remat.rules, choose)  # type: ignore[assignment]


def _asked3(primitive: Primitive, args: Sequence[Any],
            params: Mapping[str, Any]) -> tuple[Primitive, Sequence[Aval], Any] | None:
    """Returns the arguments that JAX passes to a policy for this call, or None if JAX asks no
    policy."""
    if primitive in (dot_general_p, conv_general_dilated_p):
        return primitive, [jax.typeof(arg) for arg in args], params
    named: Any = params.get("_prim")
    if type(named).__name__ in ("CheckpointName", "CheckpointNameFwd"):
        return name_p, named.in_avals, {"name": named.name}
    return None


# If a rule of jax_remat3 gets this object in place of a trace, the rule saves the value.
SAVING = SimpleNamespace(policy=lambda *args, **params: Saveable)


def is_remat(eqn: Eqn) -> bool:
    return eqn.primitive is remat_p


@contextmanager
def every_policy_is(policy: Rule) -> Iterator[None]:
    """Returns a context manager within which JAX traces functions under jax.checkpoint with
    `policy` instead of their own policies."""
    bind: Rule = remat_p.bind

    def with_policy(*args: Any, **params: Any) -> Any:
        return bind(*args, **params | ({} if params["differentiated"] else
                                       {"policy": policy}))
    remat_p.bind = with_policy  # type: ignore[method-assign]
    try:
        yield
    finally:
        remat_p.bind = bind  # type: ignore[method-assign]


# Primitives that only call their inner jaxpr, and the parameter that contains this jaxpr. The
# operands of the primitive are the inputs of the jaxpr, in the same order.
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr",
         "core_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
         "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "call_jaxpr"}


def is_nnx_optimizer() -> bool:
    """Returns whether a function of flax's nnx.Optimizer is on the call stack."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "flax.nnx.training.optimizer":
        frame = frame.f_back
    return frame is not None


def _expanded(eqn: Eqn) -> Jaxpr | None:
    """Returns the inner jaxpr of a call. Returns None if `eqn` is not a call, or if the call sets
    the sharding of an operand or result."""
    shardings = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    if any(type(each).__name__ != "UnspecifiedValue" for each in shardings):
        return None
    return eqn.params.get(CALLS.get(eqn.primitive.name))


# The effects of equations that must stay in order.
_ORDERED = {"ReadEffect", "WriteEffect", "AccumEffect", "InternalMutableArrayEffect",
            "OrderedDebugEffect", "OrderedIOEffect"}


def must_stay_in_order(eqn: Eqn) -> bool:
    return any(type(effect).__name__ in _ORDERED for effect in eqn.effects)


def run_eqn(eqn: Eqn, args: Sequence[Any]) -> Sequence[Any]:
    """Computes the results of an equation. The first axis of the arrays in `args`, that of the
    layers, can be shorter than in the equation's operands."""
    inputs = {atom: arg for atom, arg in zip(eqn.invars, args) if not is_literal(atom)}
    jaxpr = _jaxpr_of([eqn], list(inputs), eqn.outvars)
    with jax.enable_checks(False):      # checks would compare the shapes
        results: list[Any] = jax.core.eval_jaxpr(jaxpr, (), *inputs.values())
    return results


def run_jaxpr(jaxpr: Jaxpr, args: Sequence[Any], known: Mapping[Atom, Any] = {},
              expand: bool = False, select: bool = False) -> list[Any]:
    """Computes the results of a closed jaxpr. `known` has the values of variables that need not be
    computed. If `expand` is true, runs the equations of a called function one by one, in place of
    the call. If `select` is true, runs both branches of each lax.cond that has two branches and no
    effect, and selects between their results."""
    inner = open_jaxpr(jaxpr)
    values = dict(zip((*inner.constvars, *inner.invars),
                      (*getattr(jaxpr, "consts", ()), *args), strict=True))
    values.update(known)
    results: Sequence[Any]

    def read(atom: Atom) -> Any:
        return atom.val if is_literal(atom) else values[atom]
    for eqn in inner.eqns:
        if eqn.outvars and all(var in known for var in eqn.outvars):
            continue
        operands, call = list(map(read, eqn.invars)), _expanded(eqn) if expand else None
        if call is not None:
            results = run_jaxpr(call, operands, expand=True, select=select)
        elif select and eqn.primitive.name == "cond" and len(eqn.params["branches"]) == 2 and \
                not eqn.effects:
            is_second = operands[0].astype(bool)
            first, second = (run_jaxpr(branch, operands[1:], expand=True, select=True)
                             for branch in eqn.params["branches"])
            results = [one if one is other else jax.lax.select_n(is_second, one, other)
                       for one, other in zip(first, second)]
        else:
            results = run_eqn(eqn, operands)
        values.update(zip(eqn.outvars, results))
    return list(map(read, inner.outvars))

