# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Measure what the card and its driver can do, to judge other figures by: pinning memory,
copies, and a large product of matrices. Prints a line of JSON; under `actmem run` the
allocated memory is actmem's.
"""
import argparse
import ctypes
import json
import time

from telling import rate

from driver import Cuda


def allocation_rate(cuda, size):
    """Return bytes per second of a second allocation, while the first one exists: so memory
    is pinned anew, and the driver's first preparations do not count."""
    first = cuda.allocate_host(size)
    began = time.perf_counter()
    second = cuda.allocate_host(size)
    took = time.perf_counter() - began
    cuda.call("cuMemFreeHost", second)
    cuda.call("cuMemFreeHost", first)
    return size / took


def copy_rates(cuda, size):
    """Return bytes per second to pinned memory, from it, and within the device."""
    stream, host = cuda.stream(), cuda.allocate_host(size)
    first, second = cuda.allocate(size), cuda.allocate(size)

    def copy(name, to, source):
        cuda.call(name, to, source, ctypes.c_size_t(size), stream)
        cuda.call("cuStreamSynchronize", stream)
    return [rate(lambda ends=ends: copy(*ends), size) for ends in (
        ("cuMemcpyDtoHAsync_v2", host, first), ("cuMemcpyHtoDAsync_v2", first, host),
        ("cuMemcpyDtoDAsync_v2", second, first))]


def product_rate(size):
    """Return FLOP per second of a product of square bfloat16 matrices."""
    import jax
    import jax.numpy as jnp
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    return rate(lambda: jax.block_until_ready(product(a)), 2 * size ** 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--product", type=int, default=0, metavar="SIZE")
    options = parser.parse_args()
    found = {}
    try:
        cuda = Cuda()
        found["allocation"] = allocation_rate(cuda, options.bytes)
        found["out"], found["in"], found["device"] = copy_rates(
            cuda, min(options.bytes, 256 << 20))
    except OSError as error:
        found["missing"] = str(error)
    if options.product:
        try:
            found["product"] = product_rate(options.product)
        except Exception as error:      # of JAX: keep the driver's figures
            found["product_missing"] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
