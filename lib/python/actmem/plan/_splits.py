# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Products that XLA's GPU pipeline divides along the summed dimension (split-K).

A product with a small result has too few tiles for all multiprocessors. XLA then divides the
operands into parts, multiplies all parts at the same time, and adds up the partial results. The
partial results need memory. The cost model and its constants are those of XLA's splitk_rewriter.cc.
"""
from __future__ import annotations

import math

from actmem.plan._graph import Node, Value

PARTS = (1, 2, 4, 8, 16, 32, 64, 128)
CORES, CACHE = 132, 50 << 20    # multiprocessors and L2 bytes of H100 and H200
TILE = 212                      # rows and columns of a tile
STEP = 442                      # bytes of each row that a tile multiplies at once
SUM_BYTES = 4                   # bytes of an element of a partial result
# XLA counts time in operations. A key of PER_ELEMENT is the length in bytes of an operand's
# element. If the operands' elements have different lengths, the key is the longer length. Products
# of float32 are divided as if XLA computed each in several products of a shorter type.
PER_ELEMENT = {2: 2 + 4.73313, 4: 12 + 4.73313}
# If CORES tiles together read and write fewer bytes than CACHED * CACHE, each of these bytes costs
# PER_CACHED_BYTE, otherwise PER_BYTE.
PER_BYTE, PER_CACHED_BYTE = 2842.3, 1846.31
CACHED = 2.19872
SUM_LAUNCH, SUM_PER_BYTE = 2.74228e9, 677.076


def partial_bytes(product: Node) -> int:
    """Returns the size in bytes of the partial results of a product; 0 if XLA does not divide the
    product."""
    if product.op != "dot_general" or len(product.inputs) != 2:
        return 0
    (sums, other_sums), (batch, other_batch) = product.params["dimension_numbers"]
    if len(sums) != 1 or len(other_sums) != 1:
        return 0
    left, right = (aval.shape for aval in product.reads)
    depth = int(left[sums[0]])
    many = math.prod(int(left[i]) for i in batch)
    rows = math.prod(int(size) for i, size in enumerate(left) if i not in (*sums, *batch))
    columns = math.prod(int(size) for i, size in enumerate(right)
                        if i not in (*other_sums, *other_batch))
    sizes = [_itemsize(value) for value in product.inputs]
    each_costs = PER_ELEMENT.get(max(sizes), PER_ELEMENT[2])
    written = int(product.outputs[0].aval.dtype.itemsize)

    def cost(parts: int) -> float:
        tiles = many * parts * -(-rows // TILE) * -(-columns // TILE)
        each = -(-depth // parts)
        multiplied = TILE * TILE * -(-each * max(sizes) // STEP) * STEP * SUM_BYTES
        moved = TILE * each * sum(sizes) + TILE * TILE * (SUM_BYTES if parts > 1 else written)
        moves = moved * (PER_CACHED_BYTE if moved * CORES < CACHED * CACHE else PER_BYTE)
        whole = max(multiplied * each_costs, moves) * -(-tiles // CORES)
        if parts == 1:
            return whole
        return whole + SUM_LAUNCH + SUM_PER_BYTE * many * rows * columns * (
            parts * SUM_BYTES + written)

    parts = min(PARTS, key=cost)
    return many * parts * rows * columns * SUM_BYTES if parts > 1 else 0


def _itemsize(value: Value) -> int:
    """Returns the size in bytes of an element before the casts that XLA fuses into the product."""
    while value.maker is not None and value.maker.op == "convert_element_type" and \
            value.maker.inputs:
        value = value.maker.inputs[0]
    return int(value.aval.dtype.itemsize)
