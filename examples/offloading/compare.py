# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Whether a program's results are those of the program that offloads nothing.

Some versions of JAX compute wrong gradients when activations are offloaded, and say
nothing (docs/offloading.md), so each example compares all it has computed.
"""
import hashlib
from typing import NamedTuple

import jax
import numpy as np

# Of the largest value in the same array. Sums in another order differ by a hundredth
# of it or less; with another layer's activation a gradient is off by about its size.
TOLERANCE = 1e-4


class Comparison(NamedTuple):
    """Over all arrays; relative differences are to the largest value of each."""
    equal: bool
    difference: float
    relative: float
    agrees: bool


def on_host(results):
    """As NumPy arrays, by their paths; a device's memory can be given back then."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(results))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def digest(arrays):
    """Of names, types and all bits."""
    seen = hashlib.sha256()
    for name, array in arrays.items():
        seen.update(f"{name} {array.dtype} {array.shape}".encode())
        seen.update(_bits(array).data)
    return seen.hexdigest()


def _largest(array):
    """Whatever its sign; NaN if one is there."""
    return max(float(np.max(array, initial=0)), -float(np.min(array, initial=0)))


def compare(arrays, wanted):
    """Of two answers of on_host(). Arrays that are not alike in name, type and shape, or
    nothing but zeros, show nothing: ValueError."""
    kinds = [{name: (array.dtype, array.shape) for name, array in each.items()}
             for each in (arrays, wanted)]
    if kinds[0] != kinds[1] or not arrays:
        raise ValueError(f"these arrays cannot be compared: {kinds[0]} with {kinds[1]}")
    equal, difference, relative = True, 0.0, 0.0
    for name, right in wanted.items():
        largest = _largest(right)
        if not largest > 0 or not np.isfinite(largest):
            raise ValueError(f"the largest value of {name} is {largest}: it shows nothing")
        if np.array_equal(_bits(arrays[name]), _bits(right)):
            continue
        if not np.isfinite(_largest(arrays[name])):
            return Comparison(False, np.inf, np.inf, False)
        off = _largest(np.subtract(arrays[name], right,
                                   dtype=np.result_type(right, np.float32)))
        equal, difference = False, max(difference, off)
        relative = max(relative, off / largest)
    return Comparison(equal, difference, relative, relative <= TOLERANCE)
