# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the CUDA driver gives without a framework: pinned memory by cuMemHostAlloc, its
copies to the device and back, beside which others are judged.

As a program it prints that as JSON, with the rate of a large product of matrices; with
`actmem run` before it, of memory that is actmem's.
"""
import argparse
import ctypes
import json
import sys
import time

from telling import rate

NON_BLOCKING = 1
PORTABLE = 1


class Cuda:
    """libcuda.so.1, with the primary context of device 0; OSError without."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        function = getattr(self.library, name, None)
        if function is None:
            raise OSError(f"libcuda.so.1 has no {name}")
        result = function(*arguments)
        if result:
            raise OSError(f"{name}: CUDA error {result}")

    def allocate_host(self, size):
        pointer = ctypes.c_void_p()
        self.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), PORTABLE)
        return pointer

    def allocation_rate(self, size):
        """In bytes per second, of what is pinned anew: of a second allocation while there
        is a first, before which what is made once is made."""
        first = self.allocate_host(size)
        began = time.perf_counter()
        second = self.allocate_host(size)
        took = time.perf_counter() - began
        self.call("cuMemFreeHost", second)
        self.call("cuMemFreeHost", first)
        return size / took

    def copy_rates(self, size):
        """To pinned memory and from it, in bytes per second, the best of some."""
        device, stream = ctypes.c_uint64(), ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(size))
        host = self.allocate_host(size)
        try:
            return tuple(self._rate(size, stream, name, *ends) for name, ends in (
                ("cuMemcpyDtoHAsync_v2", (host, device)),
                ("cuMemcpyHtoDAsync_v2", (device, host))))
        finally:
            self.call("cuMemFreeHost", host)
            self.call("cuMemFree_v2", device)
            self.call("cuStreamDestroy_v2", stream)

    def device_rate(self, size):
        """Of copies within the device's memory, in bytes per second."""
        stream, pair = ctypes.c_void_p(), (ctypes.c_uint64(), ctypes.c_uint64())
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        for memory in pair:
            self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
        try:
            return self._rate(size, stream, "cuMemcpyDtoDAsync_v2", *pair)
        finally:
            for memory in pair:
                self.call("cuMemFree_v2", memory)
            self.call("cuStreamDestroy_v2", stream)

    def _rate(self, size, stream, name, to, source):
        def copy():
            self.call(name, to, source, ctypes.c_size_t(size), stream)
            self.call("cuStreamSynchronize", stream)
        return rate(copy, size)


def product_rate(size):
    """FLOP per second of a product of square bfloat16 matrices."""
    import jax
    import jax.numpy as jnp
    a = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    product = jax.jit(lambda a: a @ a)
    jax.block_until_ready(product(a))
    return rate(lambda: jax.block_until_ready(product(a)), 2 * size ** 3)


def cudnn_attends():
    """Whether cuDNN's attention works here and gives what XLA's gives."""
    import jax
    import jax.numpy as jnp
    q, k, v = (jax.random.normal(jax.random.key(i), (2, 256, heads, 128), jnp.bfloat16)
               for i, heads in enumerate((4, 2, 2)))

    def gradients(implementation):
        return jax.jit(jax.grad(lambda *qkv: jnp.sum(jax.nn.dot_product_attention(
            *qkv, is_causal=True, implementation=implementation).astype(jnp.float32) ** 2),
            argnums=(0, 1, 2)))(q, k, v)

    try:
        pairs = zip(gradients("cudnn"), gradients("xla"))
        return all(float(jnp.linalg.norm((a - b).astype(jnp.float32)) /
                         jnp.linalg.norm(b.astype(jnp.float32))) < 0.03 for a, b in pairs)
    except Exception as error:          # of whatever kind: XLA's then
        print(f"# cuDNN's attention: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return False


def device_bytes():
    import jax
    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("bytes_limit")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--product", type=int, default=0, metavar="SIZE")
    options = parser.parse_args()
    found = {}
    try:
        cuda = Cuda()
        found["allocation"] = cuda.allocation_rate(options.bytes)
        found["out"], found["in"] = cuda.copy_rates(min(options.bytes, 256 << 20))
        found["device"] = cuda.device_rate(min(options.bytes, 256 << 20))
    except OSError as error:
        found["missing"] = str(error)
    if options.product:
        try:
            found["device_bytes"] = device_bytes()
            found["product"] = product_rate(options.product)
            found["attention"] = "cudnn" if cudnn_attends() else "xla"
        except Exception as error:      # of JAX: what the driver gave stays
            found["product_missing"] = f"{type(error).__name__}: {str(error)[:200]}"
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
