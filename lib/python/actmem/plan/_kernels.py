# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Finds the kernels of a program, and counts their operations. Only the arguments and results of a
kernel are in device memory. A kernel does the same work as the operations that it replaces. This
module knows the kernels of Pallas, cuDNN's attention, and the attention of decoder.py."""
from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable
from typing import Any

import jax

from actmem.jax._private import Aval, Eqn, Jaxpr
from actmem.plan._attention import MADE_OF

CUDNN = "dot_product_attention_"
BACKWARD = 2.5                  # products in the backward pass for each product in the forward pass

Flops = collections.Counter[str]


def is_kernel(eqn: Eqn) -> bool:
    op = eqn.primitive.name
    return op == "pallas_call" or op in MADE_OF or op.startswith(CUDNN)


def flops_of(op: str, params: dict[str, Any], reads: list[Aval],
             count: Callable[[Jaxpr], Flops]) -> Flops:
    """Returns the number of floating point operations by dtype. `count` is the function that counts
    the operations of an inner jaxpr."""
    if op.startswith(CUDNN):
        return _cudnn(op, params, reads)
    if op in MADE_OF:
        return count(jax.make_jaxpr(functools.partial(MADE_OF[op], **params))(*(
            jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in reads)))
    told = params.get("cost_estimate")
    if told is not None:
        return Flops({str(reads[0].dtype): int(told.flops)})
    turns = math.prod(size for size in params["grid_mapping"].grid if isinstance(size, int))
    return Flops({dtype: flops * turns for dtype, flops in count(params["jaxpr"]).items()})


def _cudnn(op: str, params: dict[str, Any], reads: list[Aval]) -> Flops:
    """Counts the operations of cuDNN's attention. Queries have the shape (batch, tokens, heads,
    dim). Keys and values have (batch, keys, heads, dim)."""
    (batch, tokens, heads, dim), (_, keys, _, _), value = (aval.shape for aval in reads[:3])
    flops = 2 * batch * heads * tokens * keys * (dim + value[-1])
    if "CAUSAL" in str(params.get("mask_type")).upper():
        flops //= 2
    if "bwd" in op:
        flops = int(flops * BACKWARD)
    return Flops({str(reads[0].dtype): flops})
