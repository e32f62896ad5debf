# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Versions of JAX that this module was tested with, and those that compute wrong values:
it warns of what is not the one or is the other."""
import re
import warnings

import jax

OLDEST, NEWEST = "0.10.1", "0.12.0.1"

# version → what is wrong with it, and what is not
WRONG = {
    "0.10.2": "computes wrong values on CPUs, without an error (jax-ml/jax#39103): use 0.10.1, "
              "or 0.11.1 and later",
}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


def warn() -> None:
    """Warns of the version that is loaded, once."""
    why = WRONG.get(jax.__version__)
    if not why and _numbers(jax.__version__) > _numbers(NEWEST):
        why = (f"is newer than those that actmem was tested with, {OLDEST} to {NEWEST}: if "
               "something fails, use one of them")
    if why:
        warnings.warn(f"JAX {jax.__version__} {why}", stacklevel=3)
