# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Does JAX itself compute what it should here, before anything of ours is judged by it?

Some versions have been wrong on some devices: single operations on GPUs, whole loops
on CPUs, and offloaded residuals of lax.scan. Prints TAP.
"""
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from telling import check, end

def close(got, wanted, name, tolerance=1e-5):
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    error = np.max(np.abs(got - wanted)) / np.max(np.abs(wanted))
    check(error <= tolerance, f"{name} (off by {error:.1e})")


def single_operations():
    close(jnp.ones(4) + 1, np.full(4, 2.0), "ones(4) + 1")
    close(jnp.sqrt(jnp.float32(512)), np.sqrt(512), "sqrt(512)")
    values = np.linspace(-3, 3, 1000, dtype=np.float32)
    close(jnp.arctan(values), np.arctan(values), "arctan of 1000 values")
    normal = np.asarray(jax.random.normal(jax.random.key(0), (10000,)))
    check(np.isfinite(normal).all() and abs(normal.std() - 1) < 0.1, "normal numbers are so")


def batched_products():
    count = 32769
    rows = jnp.stack((jnp.arange(count, dtype=jnp.float32),) + (jnp.zeros(count),) * 2, axis=1)
    matrix = jnp.eye(3, dtype=jnp.float32)
    squares = jax.jit(jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2)))(rows)
    close(squares[-1], (count - 1) ** 2, "a compiled vmap of matrix products")


def offloaded(kind):
    policy = {"plain": None,
              "saved": jax.checkpoint_policies.save_only_these_names("y"),
              "offloaded": jax.checkpoint_policies.save_and_offload_only_these_names(
                  names_which_can_be_saved=[], names_which_can_be_offloaded=["y"],
                  offload_src="device", offload_dst="pinned_host")}[kind]

    def layer(x, w):
        y = checkpoint_name(jnp.sin(x @ w), "y")
        return jnp.tanh(y @ w.T) + x

    if policy:
        layer = jax.checkpoint(layer, policy=policy)

    def loss(ws, x):
        x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)
        return jnp.mean(x ** 2)
    return jax.jit(jax.grad(loss))


def scanned_residuals():
    keys = jax.random.split(jax.random.key(1), 2)
    weights = jax.random.normal(keys[0], (6, 128, 128)) / 12
    x = jax.random.normal(keys[1], (256, 128))
    plain = offloaded("plain")(weights, x)
    close(offloaded("saved")(weights, x), plain, "gradients of a scan, saved", 1e-3)
    close(offloaded("offloaded")(weights, x), plain, "gradients of a scan, offloaded", 1e-3)


def main():
    warnings.simplefilter("ignore")
    jax.config.update("jax_default_matmul_precision", "highest")
    print(f"# JAX {jax.__version__} on {jax.devices()[0].device_kind}", flush=True)
    for test in (single_operations, batched_products, scanned_residuals):
        try:
            test()
        except Exception as error:              # the others are asked all the same
            check(False, f"{test.__name__}: {type(error).__name__}: {str(error)[:200]}")
    return end()


if __name__ == "__main__":
    sys.exit(main())
