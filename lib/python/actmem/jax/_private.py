# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The names of JAX that JAX does not promise to keep: the package uses them here alone.
Each is here once, with the versions where it is called otherwise.

A test goes through NAMES, so that a version without one of them is known at once.
"""
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Sharding
from jax._src import ad_checkpoint, core, dispatch, dtypes, sharding_impls, source_info_util
from jax._src.interpreters import ad, batching, mlir, pxla, remat
from jax._src.interpreters import partial_eval as pe
from jax._src.lax import lax as lax_internal
from jax._src.lib import xla_client  # type: ignore[attr-defined]
from jax._src.lib.mlir import ir  # type: ignore[attr-defined]
from jax._src.lib.mlir.dialects import sdy  # type: ignore[attr-defined]

NAMES: tuple[tuple[Any, str], ...] = tuple((owner, name) for owner, names in (
    (core,
     "ShapedArray Var Primitive eval_jaxpr typeof NamedAxisEffect "
     "InternalMutableArrayEffect new_jaxpr_eqn physical_aval jaxprs_in_params "
     "Literal pytype_aval_mappings primal_dtype_to_tangent_dtype mem_kind_to_space is_concrete"),
    (dispatch, "prim_requires_devices_during_lowering"),
    (dtypes, "ExtendedDType float0"),
    (ad, "Zero primitive_jvps"),
    (batching, "primitive_batchers"),
    (mlir,
     "lower_jaxpr_to_module register_lowering lower_fun "
     "register_constant_handler"),
    (pxla, "global_result_handlers shard_arg_handlers shard_args"),
    (pe,
     "partial_eval_jaxpr_custom_rules dce_rules dce_jaxpr Offloadable Saveable "
     "Recompute ensure_enum"),
    (ad_checkpoint, "name_p remat_p"),
    (sharding_impls, "physical_sharding logical_sharding GSPMDSharding"),
    (xla_client, "HloSharding OpSharding"),
    (ir, "BoolAttr IntegerAttr IntegerType"),
    (sdy, "ShardingGroupOp"),
    (lax_internal, "optimization_barrier_p"),
    (source_info_util, "summarize current"),
) for name in names.split())

# JAX promises no types for these.
Aval: TypeAlias = Any           # a shape and a dtype, as jax.typeof() returns
DType: TypeAlias = Any          # NumPy's, or one that extends them
Primitive: TypeAlias = Any
Jaxpr: TypeAlias = Any
Eqn: TypeAlias = Any
Atom: TypeAlias = Any           # a variable of a jaxpr, or a literal
Context: TypeAlias = Any        # of a lowering
Verdict: TypeAlias = Any        # what a policy says of a value
Rule: TypeAlias = Callable[..., Any]

ExtendedDType = dtypes.ExtendedDType
ShapedArray = core.ShapedArray
Var = core.Var
new_eqn = core.new_jaxpr_eqn
physical_aval = core.physical_aval
is_concrete: Rule = core.is_concrete
tangent_dtype: Rule = core.primal_dtype_to_tangent_dtype
physical_sharding = sharding_impls.physical_sharding
logical_sharding = sharding_impls.logical_sharding
name_p = ad_checkpoint.name_p
checkpoint = ad_checkpoint.checkpoint        # JAX's own, whatever jax.checkpoint is
Offloadable = pe.Offloadable
Saveable, Recompute = pe.Saveable, pe.Recompute
ensure_enum = pe.ensure_enum
current_source = source_info_util.current

# jax_remat3, where JAX has it.
has_remat3 = hasattr(jax.config, "jax_remat3")


def zero_tangent(value: Any) -> Any:
    return ad.Zero(  # type: ignore[attr-defined]
        core.typeof(value).to_tangent_aval())


def wants_devices(primitive: Primitive) -> None:
    """JAX tells the lowering of `primitive` which devices it is for."""
    dispatch.prim_requires_devices_during_lowering.add(primitive)


def set_dce_rule(primitive: Primitive, rule: Rule) -> None:
    pe.dce_rules[primitive] = rule


def before_lowering(change: Callable[[str, Jaxpr], Jaxpr],
                    is_donated: Callable[[Aval], bool]) -> None:
    """Has `change` of a whole program's jaxpr lowered in its place. Inputs that are not
    `is_donated` by their type keep their memory, if the program is given it or not."""
    lower = mlir.lower_jaxpr_to_module

    def lower_changed(name: str, jaxpr: Jaxpr, *rest: Any, in_avals: Sequence[Aval],
                      donated_args: Sequence[bool], **named: Any) -> Any:
        donated = [is_given and is_donated(aval)
                   for aval, is_given in zip(in_avals, donated_args, strict=True)]
        return lower(name, change(name, jaxpr), *rest, in_avals=in_avals,
                     donated_args=donated, **named)
    mlir.lower_jaxpr_to_module = lower_changed  # type: ignore[assignment]


def leading_sharding(sharding: Sharding, keep: int, rank: int) -> Sharding:
    """The sharding of a value of that rank whose first `keep` dimensions are sharded as
    those of a value of `sharding`, and whose others are replicated. For shardings that XLA's
    partitioner tells."""
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
    """Has XLA's partitioner give all values of `group` in a module one sharding."""
    if getattr(jax.config, "jax_use_shardy_partitioner"):
        sdy.ShardingGroupOp(value, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), group))


def set_side_effect(result: Any) -> None:
    """Has XLA keep the custom call of jax.experimental.custom_partitioning that `result` is
    of: it drops and merges those without a side effect, and JAX gives them none."""
    operation = result.owner
    if operation.name == "stablehlo.custom_call":
        operation.attributes["has_side_effect"] = ir.BoolAttr.get(True)


def inner_jaxprs(params: Mapping[str, Any]) -> Iterable[Jaxpr]:
    return core.jaxprs_in_params(params)


def scan_consts(params: Mapping[str, Any]) -> int:
    """How many of the operands of a scan are the same in all turns."""
    if "num_consts" in params:      # before 0.11
        return int(params["num_consts"])
    return len(list(params["ft_in"].unpack()[0]))


def scan_carries(params: Mapping[str, Any]) -> int:
    """How many of the operands of a scan go from one turn to the next."""
    if "num_carry" in params:       # before 0.11
        return int(params["num_carry"])
    return len(list(params["ft_in"].unpack()[1]))


def is_literal(atom: Atom) -> bool:
    """Whether an operand is a number written into the jaxpr."""
    return isinstance(atom, core.Literal)


def dce(jaxpr: Jaxpr) -> Jaxpr:
    """A closed jaxpr without what none of its outputs needs, in bodies of loops too."""
    inner = open_jaxpr(jaxpr)
    less, _ = pe.dce_jaxpr(inner, [True] * len(inner.outvars), instantiate=True)
    return less if inner is jaxpr else jaxpr.replace(jaxpr=less)


def name_of(eqn: Eqn) -> str | None:
    """The name that `eqn` gives to a value, or None."""
    name: str | None = None
    if eqn.primitive is name_p:
        name = eqn.params["name"]
    elif eqn.primitive.name == "call_hi_primitive":     # of jax_remat3
        named = next(iter(eqn.params.values()))
        name = named.name if type(named).__name__ == "CheckpointName" else None
    return name


def name_eqn(value: Atom, name: str, out: Atom) -> Eqn:
    """An equation that gives the variable `value` a name, as `out`."""
    jaxpr = open_jaxpr(jax.make_jaxpr(lambda x: ad_checkpoint.checkpoint_name(x, name))(
        jax.ShapeDtypeStruct(value.aval.shape, value.aval.dtype)))
    eqn, = jaxpr.eqns
    return eqn.replace(invars=[value], outvars=[out])


_NO_NAMES: tuple[frozenset[str], frozenset[str], None] = frozenset(), frozenset(), None


def names_of(policy: Any) -> tuple[frozenset[str], frozenset[str], str | None]:
    """The names that a policy of jax.checkpoint_policies saves, those it offloads, and
    where to; none of one that is not made of names."""
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
    """The bits of an element of a type of numbers."""
    if jax.numpy.issubdtype(dtype, jax.numpy.integer):
        return jax.numpy.iinfo(dtype).bits
    return jax.numpy.finfo(dtype).bits


def is_packed(dtype: DType) -> bool:
    """Whether elements are shorter than a byte."""
    return not is_extended(dtype) and dtype != jax.numpy.bool_ and \
        dtype != dtypes.float0 and jax.numpy.issubdtype(dtype, jax.numpy.number) and \
        bits_of(dtype) < 8


def is_extended(dtype: DType) -> bool:
    return isinstance(dtype, dtypes.ExtendedDType)


_PLACE = re.compile(r"([^/\\:]+:\d+)(?::\d+)?(?: \(|$)")


def place_of(source_info: Any) -> str:
    """The line of the program that an equation is of, as file.py:12, or "?"."""
    found = _PLACE.search(source_info_util.summarize(source_info))
    return found[1] if found else "?"


def explicit_shard_shape(aval: Aval) -> tuple[int, ...] | None:
    """The shape that each device has of a value, where its type tells; else None."""
    sharding = aval.sharding
    if sharding.mesh.empty or not sharding.mesh.are_all_axes_explicit:
        return None
    shape: tuple[int, ...] = sharding.shard_shape(aval.shape)
    return shape


def canonical_as_is(kind: type) -> None:
    """Values of the class `kind` are what they are."""
    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(kind, None)
    else:                   # before 0.11
        dtypes.canonicalize_value_handlers[kind] = lambda value: value


def register_array_class(kind: type, shard: Rule) -> None:
    core.pytype_aval_mappings[kind] = lambda value: value.aval
    canonical_as_is(kind)
    pxla.shard_arg_handlers[kind] = shard
    mlir.register_constant_handler(
        kind, lambda value, aval: mlir.get_constant_handler(type(value.base))(
            value.base, core.physical_aval(aval)))


shard_args = pxla.shard_args


def result_handler(aval: Aval, sharding: Sharding, committed: bool) -> Any:
    return pxla.global_result_handlers[core.ShapedArray](aval, sharding, committed)


def open_jaxpr(jaxpr: Jaxpr) -> Jaxpr:
    """The equations of a jaxpr, closed or not: from 0.12 on both are one."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def with_eqns(jaxpr: Jaxpr, eqns: Sequence[Eqn], **changed: Sequence[Atom]) -> Jaxpr:
    """`jaxpr`, closed if it was, of these equations, and these `invars` or `outvars`."""
    inner = open_jaxpr(jaxpr)
    new = inner.replace(eqns=eqns, **changed)
    return new if inner is jaxpr else jaxpr.replace(jaxpr=new)


def is_jaxpr(value: Any) -> bool:
    return hasattr(open_jaxpr(value), "eqns") and hasattr(value, "replace")



def has_effects(eqn: Eqn) -> bool:
    """Whether JAX takes `eqn` for one to run in the forward pass alone."""
    unreal = (core.NamedAxisEffect, core.InternalMutableArrayEffect)
    return any(not isinstance(effect, unreal) for effect in eqn.effects)


def transfer_eqn(value: Atom, memory_kind: str, out: Atom | None = None) -> Eqn:
    """An equation that copies the variable `value` to a memory of JAX's."""
    space = core.mem_kind_to_space(memory_kind)
    jaxpr = open_jaxpr(jax.make_jaxpr(lambda x: jax.device_put(x, space, may_alias=False))(
        jax.ShapeDtypeStruct(value.aval.shape, value.aval.dtype)))
    eqn, = jaxpr.eqns
    out = out or core.Var(value.aval.update(memory_space=space))
    return eqn.replace(invars=[value], outvars=[out])


# Several equations as one, which is theirs again wherever it is interpreted.

together_p = core.Primitive("actmem_together")
together_p.multiple_results = True


def _run_together(*args: Any, jaxpr: Jaxpr) -> Any:
    return core.eval_jaxpr(jaxpr, (), *args)


together_p.bind = _run_together  # type: ignore[method-assign]
together_p.def_abstract_eval(lambda *avals, jaxpr: [var.aval for var in jaxpr.outvars])
mlir.register_lowering(together_p, mlir.lower_fun(_run_together, multiple_results=True))


def _dce_together(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Eqn | None]:
    eqn = rest[-1]
    if not any(used):
        return [False] * len(eqn.invars), None
    jaxpr, used_in = pe.dce_jaxpr(eqn.params["jaxpr"], list(used))
    return used_in, eqn.replace(
        invars=[var for var, is_used in zip(eqn.invars, used_in) if is_used],
        outvars=[var for var, is_used in zip(eqn.outvars, used) if is_used],
        params=dict(jaxpr=jaxpr))


pe.dce_rules[together_p] = _dce_together


def operation(name: str, function: Rule) -> Primitive:
    """An operation of its own in a jaxpr that computes what `function` does of its operands,
    in a tuple; its parameters are the function's by name."""
    primitive = core.Primitive(name)
    primitive.multiple_results = True

    def shapes(*avals: Aval, **params: Any) -> list[Aval]:
        found = jax.eval_shape(lambda *args: function(*args, **params), *(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals))
        return [core.ShapedArray(each.shape, each.dtype) for each in found]
    primitive.def_abstract_eval(shapes)
    primitive.def_impl(lambda *args, **params: jax.jit(
        lambda *args: function(*args, **params))(*args))
    mlir.register_lowering(primitive, mlir.lower_fun(function, multiple_results=True))
    return primitive


def together(eqns: Sequence[Eqn], invars: Sequence[Atom], outvars: Sequence[Atom]) -> Eqn:
    if len(eqns) == 1:
        return eqns[0].replace(invars=invars, outvars=outvars)
    inputs = list(dict.fromkeys(atom for atom in invars if isinstance(atom, core.Var)))
    empty = open_jaxpr(jax.make_jaxpr(lambda: ())())
    jaxpr = empty.replace(invars=inputs, outvars=outvars, eqns=eqns,
                          debug_info=empty.debug_info.with_unknown_names())
    return core.new_jaxpr_eqn(inputs, outvars, together_p, dict(jaxpr=jaxpr), set(),
                              eqns[0].source_info, eqns[0].ctx)


class _Rules(dict[Primitive, Rule]):
    """JAX's rules by primitive, and one for all that have none."""

    rule: Rule | None = None

    def get(self, primitive: Primitive, default: Any = None) -> Any:
        return super().get(primitive, self.rule)


def replace_partial_eval_rules(rule: Rule) -> None:
    pe.partial_eval_jaxpr_custom_rules = rules = _Rules(pe.partial_eval_jaxpr_custom_rules)
    rules.rule = rule


def remat3_result(value: Any, kept: Any, back: Rule) -> tuple[Any, ...]:
    """The result of a rule of jax_remat3."""
    if jax.__version_info__ < (0, 12):
        return value, lambda *args: back(kept, *args)
    return value, kept, back


def replace_remat3_rules(make_rule: Callable[..., Rule]) -> None:
    if not has_remat3:
        return
    # Tokens are tied where they come through a barrier.
    dispatch.prim_requires_devices_during_lowering.add(
        lax_internal.optimization_barrier_p)
    new = jax.__version_info__ >= (0, 12)

    for kind_name, combine in (
            ("CheckpointName", ad_checkpoint.primal_left_tangent_right),
            ("CheckpointNameFwd", lambda taken, computed: taken)):
        kind = getattr(ad_checkpoint, kind_name)

        def named(self: Any, trace: Any, value: Any, *, stock: Rule = kind.remat,
                  kind: Any = kind, combine: Rule = combine) -> Any:
            rule = make_rule(stock, name_p,
                             lambda value: kind(self.name, self.in_avals[0])(value), combine)
            return rule(trace, value, params={"name": self.name},
                        policy_args=self.in_avals if new else ()) or \
                stock(self, trace, value)
        kind.remat = named
    for primitive in (jax.lax.dot_general_p, jax.lax.conv_general_dilated_p):
        stock = remat.rules.get(primitive)
        if stock is None:
            continue

        def computed(trace: Any, *args: Any, stock: Rule = stock,
                     primitive: Primitive = primitive, **params: Any) -> Any:
            rule = make_rule(stock, primitive,
                             lambda *args: primitive.bind(*args, **params),
                             ad_checkpoint.primal_left_tangent_right)
            return rule(trace, *args, params=params,
                        policy_args=[core.typeof(arg) for arg in args]) or \
                stock(trace, *args, **params)
        remat.rules[primitive] = computed


def is_remat(eqn: Eqn) -> bool:
    return eqn.primitive is ad_checkpoint.remat_p


@contextmanager
def every_policy_is(policy: Rule) -> Iterator[None]:
    """While it holds, functions that are traced are rematerialised by `policy`, whatever
    theirs is."""
    bind: Rule = ad_checkpoint.remat_p.bind

    def with_policy(*args: Any, **params: Any) -> Any:
        return bind(*args, **params | ({} if params["differentiated"] else
                                       {"policy": policy}))
    ad_checkpoint.remat_p.bind = with_policy  # type: ignore[method-assign]
    try:
        yield
    finally:
        del ad_checkpoint.remat_p.bind
