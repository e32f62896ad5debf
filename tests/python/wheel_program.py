# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A program for a place where the wheel was installed: it uses actmem.jax, and the libraries
of the wheel alone."""
import re
import sys

import jax
import jax.numpy as jnp

import actmem
import actmem.jax

print(actmem.describe())
kept = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0)
x = jnp.arange(4096.0)
found = jax.jit(jax.grad(lambda x: kept(x).sum()))(x)
wanted = jax.grad(lambda x: jnp.sin(jnp.sin(x)).sum())(x)
assert jnp.allclose(found, wanted), (found, wanted)
assert actmem.jax.stats()["put_bytes_total"] == x.nbytes
with open("/proc/self/maps", encoding="utf-8") as maps:
    loaded = set(re.findall(r"/\S*/lib(?:actmem|uring)\S*", maps.read()))
assert len(loaded) == 2 and all(path.startswith(sys.prefix) for path in loaded), loaded
