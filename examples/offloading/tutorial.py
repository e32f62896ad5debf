# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The sizes that "JAX Memories and Host Offloading" prints for programs like these.

https://docs.jax.dev/en/latest/notebooks/host-offloading.html, as of 2025. The page's
metadata name a Tesla T4. The page prints sizes with two decimals, and does not print the
sizes of outputs and aliases.
"""
MIB, GIB = 1 << 20, 1 << 30


def _sizes(unit, temp, arguments, total):
    return {"temp_bytes": round(temp * unit), "argument_bytes": round(arguments * unit),
            "total_bytes": round(total * unit)}


KEPT = _sizes(MIB, 17.25, 20.25, 57.50)
ACTIVATIONS = _sizes(MIB, 6.50, 20.25, 46.75)
BOTH = _sizes(MIB, 4.75, 0.25, 25.00)
OPTIMIZER_KEPT = _sizes(GIB, 2.11, 2.49, 4.59)
# The tutorial prints 0.96 MB, but the unit is GiB: it divided the bytes by 1024 three times.
OPTIMIZER = _sizes(GIB, 1.91, 0.96, 2.87)
