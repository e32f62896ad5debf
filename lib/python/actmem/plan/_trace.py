# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Makes graphs of programs. Traces a program under policies of jax.checkpoint, without computing
values.

A loss function is traced once, and its jaxpr is differentiated with a policy. A training step
computes the gradient itself, so the whole step is traced again for a policy. Before and after such
a trace, this module clears JAX's caches, because the caches do not distinguish policies.

graph_saving() traces the program with one policy, which saves no value. _saving.py makes the
graphs of other policies from this graph.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec

from actmem import _wheel
from actmem.jax import _private
from actmem.jax._private import Aval, Eqn, Jaxpr, Rule
from actmem.plan import _saving
from actmem.plan._graph import PRODUCTS, Graph
from actmem.plan._shards import Layout
from actmem.plan._specs import Spec


def graph_of(function: Callable[..., Any], *args: Any, layout: Layout | None = None,
             outputs: Sequence[Spec] = ()) -> Graph:
    """Makes the graph of a function. `args` are arrays, or the shapes of arrays. `outputs` has the
    shardings of the function's last results."""
    jaxpr = _private.dce(jax.make_jaxpr(function)(*args))
    return Graph.of(jaxpr, layout.of(jaxpr, outputs) if layout else None)


def _shape_of(aval: Aval) -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of an argument of this type. If the argument is in the host's
    memory, the result's sharding says so."""
    sharding = None
    if _private.is_on_host(aval):
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("device",))
        sharding = NamedSharding(mesh, PartitionSpec(), memory_kind="pinned_host")
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)


def _eqns(jaxpr: Jaxpr) -> Iterable[Eqn]:
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        yield eqn
        for inner in _private.inner_jaxprs(eqn.params):
            yield from _eqns(inner)


def _changed(jaxpr: Jaxpr, change: Callable[[Eqn], Sequence[Eqn] | None]) -> Jaxpr:
    """Returns a copy of `jaxpr` with changed equations, including those of inner jaxprs.
    change(eqn) returns the equations that replace `eqn`, or None to keep `eqn`."""
    eqns: list[Eqn] = []
    for eqn in _private.open_jaxpr(jaxpr).eqns:
        new = change(eqn)
        if new is None:
            params = {key: _changed(value, change) if _private.is_jaxpr(value) else
                      tuple(_changed(each, change) for each in value)
                      if isinstance(value, tuple) and value and
                      all(map(_private.is_jaxpr, value)) else value
                      for key, value in eqn.params.items()}
            new = [eqn.replace(params=params)]
        eqns += new
    return _private.with_eqns(jaxpr, eqns)


def _has_names(jaxpr: Jaxpr) -> bool:
    return any(_private.name_of(eqn) is not None for eqn in _eqns(jaxpr))


class Program:
    """A function and its arguments: a loss function of parameters and a batch, or a training step.
    graph() makes the graph of the program with its gradient, for a policy."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], mesh: Any = None,
                 specs: Mapping[str, PartitionSpec] | None = None, frozen: int = 0) -> None:
        self.function, self.args = function, args
        if getattr(jax.config, "jax_remat3", False):
            raise ValueError("plans need JAX's default jax.checkpoint, but jax_remat3 is set: plan "
                             "with JAX_REMAT3=0. Programs with jax_remat3 can use the plan's "
                             "policy")
        try:
            self.jaxpr = jax.make_jaxpr(function)(*args)
        except ValueError as error:
            if "set_mesh" not in str(error):
                raise
            raise ValueError(
                f"{name_of(function)} calls jax.set_mesh, which JAX does not allow in a traced "
                "function: call jax.set_mesh before actmem.jax.plan() or, for "
                f"`{_wheel.command('plan')}`, in the function that returns the loss"
                ) from error
        self._recomputing: Graph | None = None      # the graph if no named value is saved
        self.layout = Layout(args, self.jaxpr, mesh, specs)
        remats = [eqn for eqn in _eqns(self.jaxpr) if _private.is_remat(eqn)]
        self.is_step = any(eqn.params["differentiated"] for eqn in remats)
        self.is_checkpointed = bool(remats)
        self.weights = len(jax.tree.leaves(args[0])) if args else 0
        self.frozen = len(jax.tree.leaves(args[1:1 + frozen]))
        self.inputs = len(jax.tree.leaves(args))
        if not self.is_step:
            self._check_loss()

    def _check_loss(self) -> None:
        avals = self.jaxpr.out_avals
        if not avals or avals[0].shape != () or \
                not jax.numpy.issubdtype(avals[0].dtype, jax.numpy.floating):
            kinds = ", ".join(aval.str_short() for aval in avals) or "nothing"
            raise ValueError(f"{name_of(self.function)} returns {kinds}: a plan needs a loss, "
                             "which returns a floating point number, or a step that computes "
                             "the gradient of a checkpointed function")

    def give_names(self, names: Mapping[str, str]) -> None:
        """Gives names to results of the operations in PRODUCTS. `names` maps a source line, such as
        file.py:12, to a name."""
        def name(eqn: Eqn) -> list[Eqn] | None:
            if eqn.primitive.name not in PRODUCTS:
                return None
            given = names.get(_private.place_of(eqn.source_info))
            if given is None:
                return None
            out, = eqn.outvars
            made = _private.Var(out.aval)
            return [eqn.replace(outvars=[made]), _private.name_eqn(made, given, out)]
        self.jaxpr, self._recomputing = _changed(self.jaxpr, name), None

    @property
    def batch(self) -> range:
        """The indices of the inputs that are not weights."""
        return range(self.weights + self.frozen, self.inputs)

    def text(self) -> str:
        """Returns a text that identifies the program. The text omits policies, because a plan
        changes them."""
        jaxpr = self.jaxpr
        if self.is_step:
            with self._traced_with(jax.checkpoint_policies.nothing_saveable):
                jaxpr = jax.make_jaxpr(self.function)(*self.args)
        jaxpr = _changed(jaxpr, lambda eqn: [eqn.replace(params=eqn.params | {
            "policy": None})] if _private.is_remat(eqn) else None)
        return re.sub(r" at 0x[0-9a-f]+", "", str(jaxpr))

    @staticmethod
    @contextmanager
    def _traced_with(policy: Rule) -> Iterator[None]:
        jax.clear_caches()
        try:
            with _private.every_policy_is(policy):
                yield
        finally:
            jax.clear_caches()

    def written(self) -> Graph:
        """Returns the graph of the program as the caller wrote it: a loss without its gradient, or
        a whole step."""
        return Graph.of(self.jaxpr, self.layout.of(self.jaxpr))

    def graph(self, policy: Rule) -> Graph:
        """Returns the graph of the program with its gradient, rematerialised by `policy`."""
        if self.is_step:
            with self._traced_with(policy):
                return graph_of(self.function, *self.args, layout=self.layout)
        jaxpr = self._with(policy)
        # A gradient is sharded like its weight.
        return graph_of(self._gradient(jaxpr), *(
            _shape_of(aval) for aval in jaxpr.in_avals),
            layout=self.layout, outputs=self.layout.inputs[:self.weights])

    def graph_saving(self, names: Iterable[str] = ()) -> Graph:
        """Returns the graph of the program under a policy that saves only the values of these
        names."""
        names = frozenset(names)
        if self._recomputing is None:
            self._recomputing = self.graph(jax.checkpoint_policies.nothing_saveable)
        try:
            return _saving.saving(self._recomputing, names) if names else self._recomputing
        except _saving.Unmatched:
            return self.graph(jax.checkpoint_policies.save_only_these_names(*sorted(names)))

    def _gradient(self, jaxpr: Jaxpr) -> Callable[..., Any]:
        """Returns a function that computes the loss, the other results of the loss function, and
        the gradient with respect to the weights."""
        def loss(weights: Sequence[Any], batch: Sequence[Any]) -> Any:
            value, *rest = jaxpr_as_fun(jaxpr)(*weights, *batch)
            return value, rest
        gradient = jax.value_and_grad(loss, has_aux=True, allow_int=True)
        return lambda *leaves: gradient(leaves[:self.weights], leaves[self.weights:])

    @contextmanager
    def jitted(self, policy: Rule) -> Iterator[Any]:
        """Yields a jitted function that computes the program with its gradient, rematerialised by
        `policy`. The function takes the leaves of the arguments one by one. Trace the function
        within the context, because the policy applies only there."""
        if not self.is_step:
            # A gradient is sharded like its weight.
            weights = tuple(shape.sharding for shape in self.shapes()[:self.weights])
            yield jax.jit(self._gradient(self._with(policy)), out_shardings=(None, weights))
            return
        tree = jax.tree.structure(self.args)

        def step(*leaves: Any) -> Any:
            return self.function(*jax.tree.unflatten(tree, leaves))
        with self._traced_with(policy):
            yield jax.jit(step)

    def compiled(self, policy: Rule, leaves: Sequence[Any]) -> Any:
        """Compiles the program with its gradient, rematerialised by `policy`, for these leaves of
        its arguments. Returns a jax.stages.Compiled that takes the leaves one by one."""
        with self.jitted(policy) as step:
            return step.lower(*leaves).compile()

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """Returns the shape of each argument, with the argument's sharding if it is on several
        devices or in the host's memory."""
        found = []
        for leaf, aval in zip(jax.tree.leaves(self.args), self.jaxpr.in_avals):
            sharding = getattr(leaf, "sharding", None)
            is_shared = isinstance(sharding, NamedSharding) and (
                sharding.mesh.size > 1 or sharding.memory_kind == "pinned_host")
            found.append(jax.ShapeDtypeStruct(aval.shape, aval.dtype,
                                              sharding=sharding if is_shared else None))
        return found

    def _with(self, policy: Rule) -> Jaxpr:
        if self.is_checkpointed:
            return _changed(self.jaxpr, lambda eqn: [eqn.replace(
                params=eqn.params | {"policy": policy})] if _private.is_remat(eqn) else None)

        # Treat the bodies of scans as layers.
        wrapped = []

        def wrap(eqn: Eqn) -> list[Eqn] | None:
            if eqn.primitive.name != "scan" or not _has_names(eqn.params["jaxpr"]):
                return None
            body = eqn.params["jaxpr"]
            layer = jax.checkpoint(jaxpr_as_fun(body), policy=policy, prevent_cse=False)
            wrapped.append(eqn)
            return [eqn.replace(params=eqn.params | {"jaxpr": jax.make_jaxpr(layer)(
                *map(_shape_of, body.in_avals))})]
        jaxpr = _changed(self.jaxpr, wrap)
        if wrapped:
            return jaxpr
        return jax.make_jaxpr(jax.checkpoint(jaxpr_as_fun(self.jaxpr), policy=policy))(
            *map(_shape_of, self.jaxpr.in_avals))


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
