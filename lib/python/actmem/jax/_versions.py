# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The range of JAX versions that this package was tested with, and versions that compute wrong
values. check() warns of newer versions and of those that compute wrong values, and refuses
versions that cannot work."""
import os
import re
import sys
import warnings
from importlib.util import find_spec

import jax

OLDEST, NEWEST = "0.10.1", "0.12.0.1"
# The version of XLA's handler interface that lib/xla/ffi.c states. XLA accepts handlers of its own
# version or of an earlier version. XLA refuses handlers of a later version when a program first
# runs.
FFI_MAJOR, FFI_MINOR = 0, 3

# version → the defect and its remedy
WRONG = {
    "0.10.2": "computes wrong values on CPUs, without an error (jax-ml/jax#39103): use 0.10.1, "
              "or 0.11.1 and later",
}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


def _ffi() -> tuple[int, int] | None:
    """Returns the version of XLA's handler interface in jaxlib. None: jaxlib has no header."""
    spec = find_spec("jaxlib")
    header = os.path.join(os.path.dirname((spec and spec.origin) or ""),
                          "include", "xla", "ffi", "api", "c_api.h")
    try:
        with open(header, encoding="utf-8") as file:
            found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", file.read()))
        return int(found["MAJOR"]), int(found["MINOR"])
    except (OSError, KeyError):
        return None


def check() -> None:
    """Raises an error if actmem cannot work with the loaded version of JAX. Warns if this version
    computes wrong values, or is newer than NEWEST. check() must run before this package uses names
    of JAX that the loaded version may lack."""
    version, tested = jax.__version__, f"{OLDEST} to {NEWEST}"
    if _numbers(version) < _numbers(OLDEST):
        raise ImportError(f"actmem.jax does not work with JAX {version}, only with JAX "
                          f"{tested}; pip install 'jax>={OLDEST}'")
    ffi = _ffi()
    if ffi and (ffi[0] != FFI_MAJOR or ffi[1] < FFI_MINOR):
        raise ImportError(
            f"actmem's handlers need version {FFI_MAJOR}.{FFI_MINOR} of XLA's FFI, but the "
            f"jaxlib of JAX {version} has {ffi[0]}.{ffi[1]}: use JAX {tested}")
    why = WRONG.get(version)
    if not why and _numbers(version) > _numbers(NEWEST):
        why = (f"is newer than the versions that actmem was tested with, {tested}: "
               "if something fails, use a tested version")
    if why:
        warnings.warn(f"JAX {version} {why}", stacklevel=3)
    from actmem._start.with_jax import wrong_flag
    wrong = wrong_flag(version)
    # If actmem_with_jax is loaded, `actmem run` has already printed this warning.
    if wrong and "actmem_with_jax" not in sys.modules:
        warnings.warn(wrong, stacklevel=3)
