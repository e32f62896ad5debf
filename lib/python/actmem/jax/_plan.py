# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A checkpointed call, split into its forward and its backward pass, with
the decision for each value between them: kept as it is, or in actmem.

jax.checkpoint inside jax.vjp does the splitting, so that what is saved and
what is recomputed is what the same policy gives without actmem. Arguments
are handed on as the same objects: a loop over layers then uses its weights
again instead of stacking copies of them.
"""
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import Offloadable
from jax.extend.core import Literal

from actmem.jax._transfer import bytes_of, put, take_all


# Before patch() can replace it.
_stock_checkpoint = jax.checkpoint


class Settings(NamedTuple):
    policy: Any
    prevent_cse: Any
    min_bytes: int
    sharding: Any
    offloaded_only: bool        # what the policy saves on the device stays


class Residuals:
    """What goes from the forward to the backward pass: tokens and plain
    values. Two are of one structure if they are of one plan and form."""

    def __init__(self, values, plan, forms):
        self.values, self.plan, self.forms = values, plan, forms


jax.tree_util.register_pytree_node(
    Residuals, lambda node: (node.values, (node.plan, node.forms)),
    lambda meta, values: Residuals(list(values), *meta))


class _Policy:
    """Saves what the given policy offloads, and remembers that it did."""

    def __init__(self, policy):
        self.policy = policy
        self.offloads = False

    def __call__(self, primitive, *avals, **params):
        verdict = self.policy(primitive, *avals, **params)
        if isinstance(verdict, Offloadable):
            self.offloads = True
            return True
        return verdict


def _inner_jaxpr(equation):
    """The body whose results are those of `equation`, or None."""
    for value in equation.params.values():
        for candidate in value if isinstance(value, tuple) else (value,):
            jaxpr = getattr(candidate, "jaxpr", candidate)
            outvars = getattr(jaxpr, "outvars", ())
            if hasattr(jaxpr, "eqns") and len(outvars) == len(equation.outvars):
                return jaxpr
    return None


def _maker(jaxpr, var):
    """The equation that the policy was asked about when it saved `var`."""
    while True:
        found = [equation for equation in jaxpr.eqns
                 if any(var is out for out in equation.outvars)]
        if not found:
            return None
        equation, = found
        if equation.primitive.name == "reduce_precision":
            var = equation.invars[0]
            continue
        inner = _inner_jaxpr(equation)
        if inner is None:
            return equation
        index = [var is out for out in equation.outvars].index(True)
        jaxpr, var = inner, inner.outvars[index]


def _inputs_of(jaxpr, var):
    """The inputs of `jaxpr` that `var` is computed from."""
    wanted = {var}
    for equation in reversed(jaxpr.eqns):
        if any(out in wanted for out in equation.outvars):
            wanted.update(atom for atom in equation.invars
                          if not isinstance(atom, Literal))
    return wanted.intersection(jaxpr.invars)


class Plan:
    """`run` takes and returns lists. `groups` tells for each argument which
    argument of the caller it is a part of, or None for a closed-over value;
    `activations` are the indices of those that may live in actmem."""

    def __init__(self, run, args, groups, activations, site, settings):
        self.site = site
        self.settings = settings
        policy = settings.policy and _Policy(settings.policy)
        inside = _stock_checkpoint(run, policy=policy,
                                   prevent_cse=settings.prevent_cse)
        closed, shapes = jax.make_jaxpr(
            lambda *args: jax.vjp(inside, *args), return_shape=True)(*args)
        self.forward = closed
        self.pullback = jax.tree.structure(shapes[1])
        jaxpr = closed.jaxpr
        count = len(jaxpr.outvars) - self.pullback.num_leaves
        self.outputs = count

        # Residual i is child self.sources[i]; each value is one child.
        saved, self.sources = {}, []
        for var in jaxpr.outvars[count:]:
            key = id(var)
            saved.setdefault(key, (len(saved), var))
            self.sources.append(saved[key][0])
        self.saved = [var for _, var in saved.values()]
        self.first = [self.sources.index(i) for i in range(len(self.saved))]

        mixed = bool(policy and policy.offloads) or settings.offloaded_only
        self.offloaded = [self._goes(var, jaxpr, policy, mixed, activations)
                          for var in self.saved]
        self.anchors = [self._anchors(var, jaxpr, groups) if goes else []
                        for var, goes in zip(self.saved, self.offloaded)]

    def _goes(self, var, jaxpr, policy, mixed, activations):
        aval = var.aval
        if isinstance(var, Literal) or var in jaxpr.constvars or \
                not isinstance(aval, jax.core.ShapedArray) or \
                aval.dtype == jax.dtypes.float0 or \
                bytes_of(aval) < self.settings.min_bytes:
            return False
        if var in jaxpr.invars:
            return jaxpr.invars.index(var) in activations
        if not mixed:
            return True
        maker = policy and _maker(jaxpr, var)
        return bool(maker) and isinstance(
            policy.policy(maker.primitive, *[atom.aval for atom in maker.invars],
                          **maker.params), Offloadable)

    def _anchors(self, var, jaxpr, groups):
        """Arguments to make a saved value depend on, one for each argument
        of the caller that it is not computed from.

        A loop computes once what does not depend on its variables. A value
        that is put must be put in every turn, since each turn takes one.
        """
        inputs = _inputs_of(jaxpr, var)
        used = {group for arg, group in zip(jaxpr.invars, groups)
                if arg in inputs}
        smallest = {}
        for i, arg in enumerate(jaxpr.invars):
            group = groups[i]
            if group is None or group in used or \
                    jax.dtypes.issubdtype(arg.aval.dtype, jax.dtypes.extended):
                continue
            if group not in smallest or \
                    arg.aval.size < jaxpr.invars[smallest[group]].aval.size:
                smallest[group] = i
        return list(smallest.values())

    def run_forward(self, args):
        results = jax.core.eval_jaxpr(self.forward.jaxpr, self.forward.consts,
                                      *args)
        values, forms = [], []
        for i, goes in enumerate(self.offloaded):
            value, form = results[self.outputs + self.first[i]], None
            if goes:
                anchors = [args[j] for j in self.anchors[i]]
                if anchors:
                    value, *_ = jax.lax.optimization_barrier((value, *anchors))
                value, form = put(value, self.site, self.settings.sharding)
            values.append(value)
            forms.append(form)
        return results[:self.outputs], Residuals(values, self, tuple(forms))

    def run_backward(self, residuals, cotangents):
        avals = self.forward.out_avals[:self.outputs]
        cotangents = [ct if hasattr(ct, "dtype") else jnp.asarray(ct, aval.dtype)
                      for ct, aval in zip(cotangents, avals)]
        ties = [ct for ct in cotangents if ct.dtype != jax.dtypes.float0]
        values, forms = list(residuals.values), residuals.forms
        gone = [i for i, form in enumerate(forms) if form is not None]
        taken = take_all([values[i] for i in gone], ties,
                         [forms[i] for i in gone], self.site)
        for i, value in zip(gone, taken):
            values[i] = value
        pullback = jax.tree.unflatten(
            self.pullback, [values[source] for source in self.sources])
        return pullback(cotangents)
