# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Versions of JAX that compute wrong values, about which this module warns."""
import warnings

import jax

# version → what is wrong with it, and what is not
WRONG = {
    "0.10.2": "computes wrong values on CPUs, without an error (jax-ml/jax#39103): use 0.10.1, "
              "or 0.11.1 and later",
}


def warn():
    """Of the version that is loaded, once."""
    wrong = WRONG.get(jax.__version__)
    if wrong:
        warnings.warn(f"JAX {jax.__version__} {wrong}", stacklevel=3)
