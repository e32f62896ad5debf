# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Compares a program's results with those of the same program without offloading.

Some versions of JAX silently compute wrong gradients when activations are offloaded
(docs/offloading.md), so each example compares all of its results.
"""
import hashlib
from typing import NamedTuple

import jax
import numpy as np

# The largest permitted difference, relative to the largest value in the same array. If results
# differ only because numbers are added in a different order, the difference is at most a hundredth
# of this tolerance. If a program wrongly uses the activation of a different layer, the error of a
# gradient is about as large as the gradient.
TOLERANCE = 1e-4


class Comparison(NamedTuple):
    """The result of comparing all arrays. `difference` is the largest difference between two
    elements. `relative` is the largest relative difference of an array: its largest difference
    divided by its largest value."""
    equal: bool
    difference: float
    relative: float
    agrees: bool


def on_host(results):
    """Copies arrays to NumPy, so that the device's memory can be freed. Returns a dictionary from
    path to array."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.device_get(results))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def _bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def digest(arrays):
    """Returns a digest of the names, types, shapes and bits of all arrays."""
    seen = hashlib.sha256()
    for name, array in arrays.items():
        seen.update(f"{name} {array.dtype} {array.shape}".encode())
        seen.update(_bits(array).data)
    return seen.hexdigest()


def _largest(array):
    """Returns the largest absolute value, or NaN if any value is NaN."""
    return max(float(np.max(array, initial=0)), -float(np.min(array, initial=0)))


def compare(arrays, wanted):
    """Compares two results of on_host(). Raises ValueError for arrays that differ in name, type or
    shape. Also raises ValueError if an array of `wanted` is all zeros or not finite, because a
    comparison with it proves nothing."""
    kinds = [{name: (array.dtype, array.shape) for name, array in each.items()}
             for each in (arrays, wanted)]
    if kinds[0] != kinds[1] or not arrays:
        raise ValueError(f"these arrays cannot be compared: {kinds[0]} with {kinds[1]}")
    equal, difference, relative = True, 0.0, 0.0
    for name, right in wanted.items():
        largest = _largest(right)
        if not largest > 0 or not np.isfinite(largest):
            raise ValueError(f"the largest value of {name} is {largest}, so a comparison "
                             "proves nothing")
        if np.array_equal(_bits(arrays[name]), _bits(right)):
            continue
        if not np.isfinite(_largest(arrays[name])):
            return Comparison(False, np.inf, np.inf, False)
        off = _largest(np.subtract(arrays[name], right,
                                   dtype=np.result_type(right, np.float32)))
        equal, difference = False, max(difference, off)
        relative = max(relative, off / largest)
    return Comparison(equal, difference, relative, relative <= TOLERANCE)
