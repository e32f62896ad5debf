# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One process of two_processes.py: trains its share of each batch, with gradients that
all processes add up, and prints its losses.

Both may use the one GPU of a machine, and NCCL adds up nothing between two processes on
one: that is done by JAX's CPU devices, of which each process has one.
"""
import argparse
import json
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS, SHARE, TOKENS, WIDTH = 8, 8, 128, 64
RATE = 5.0
NAMES = ("q", "k", "v")
STEP_BYTES = LAYERS * len(NAMES) * SHARE * TOKENS * WIDTH * 4       # of one share


def layer(x, w):
    q, k, v = (checkpoint_name(x @ w[name], name) for name in NAMES)
    scores = jnp.einsum("bse,bte->bst", q, k) * WIDTH ** -0.5
    x = x + jnp.einsum("bst,bte->bse", jax.nn.softmax(scores, -1), v)
    return x + jnp.tanh(x @ w["up"]) @ w["down"]


def checkpointed(method):
    if method == "stock":
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=list(NAMES),
            offload_src="device", offload_dst="pinned_host")
        return jax.checkpoint(layer, policy=policy)
    import actmem.jax
    return actmem.jax.checkpoint(
        layer, policy=jax.checkpoint_policies.save_only_these_names(*NAMES), min_bytes=0)


def data(shares):
    keys = jax.random.split(jax.random.key(0), 7)
    weights = {name: jax.random.normal(key, (LAYERS, WIDTH, WIDTH)) * 0.3 * WIDTH ** -0.5
               for name, key in zip((*NAMES, "up", "down"), keys)}
    x, y = (jax.random.normal(key, (shares, SHARE, TOKENS, WIDTH)) for key in keys[5:])
    return weights, x, y


class Together:
    """Adds up values of all processes, on their CPU devices."""

    def __init__(self, count):
        cpus = sorted(jax.devices("cpu"), key=lambda device: device.process_index)
        self.mesh = Mesh(np.array(cpus[:count]), ("process",))
        self.own = jax.local_devices(backend="cpu")[0]
        self.by_process = NamedSharding(self.mesh, PartitionSpec("process"))
        self.total = jax.jit(lambda tree: jax.tree.map(lambda a: jnp.sum(a, 0), tree),
                             out_shardings=NamedSharding(self.mesh, PartitionSpec()))
        self.count = count

    def _spread(self, value):
        own = jax.device_put(value, self.own)[None]
        return jax.make_array_from_single_device_arrays(
            (self.count, *value.shape), self.by_process, [own])

    def sum(self, tree):
        total = self.total(jax.tree.map(self._spread, tree))
        return jax.tree.map(lambda a: np.asarray(a.addressable_data(0)), total)


def train(options):
    # A GPU would round the operands of its products to 10 bits.
    jax.config.update("jax_default_matmul_precision", "highest")
    shares = 2
    weights, x, y = data(shares)
    function = checkpointed(options.method)

    def loss(weights, x, y):
        x, _ = jax.lax.scan(lambda x, w: (function(x, w), None), x, weights)
        return jnp.mean((x - y) ** 2)

    step = jax.jit(jax.value_and_grad(loss))
    together = Together(2) if options.processes == 2 else None
    own = [options.process] if together else range(shares)
    times, losses = [], []
    for _ in range(options.steps):
        began = time.monotonic()
        results = [step(weights, x[i], y[i]) for i in own]
        value, gradients = jax.tree.map(lambda *each: sum(np.asarray(a) for a in each), *results)
        if together:
            value, gradients = together.sum((value, gradients))
        weights = jax.tree.map(lambda w, g: np.asarray(w) - RATE * g / shares, weights, gradients)
        losses.append(float(value) / shares)
        times.append(time.monotonic() - began)
    return losses, times


def regions():
    import actmem
    return [{name: region[name] for name in ("length", "allocated_bytes", "named", "path")}
            for region in actmem.regions()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--process", type=int, default=0)
    parser.add_argument("--port", type=int)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--method", choices=("stock", "actmem"), default="actmem")
    options = parser.parse_args()
    if options.processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{options.port}", options.processes,
                                   options.process, heartbeat_timeout_seconds=10,
                                   shutdown_timeout_seconds=5)
    losses, times = train(options)
    told = {"losses": losses, "times": times, "process": options.process,
            "devices": [str(device) for device in jax.local_devices()]}
    if options.method == "actmem":
        import actmem.jax
        stats = actmem.jax.stats()
        told["stats"] = {name: stats[name] for name in (
            "live_bytes", "live_bytes_peak", "put_bytes_total", "take_bytes_total")}
        told["spilled_bytes_total"] = stats["store"]["spilled_bytes_total"]
    told["regions"] = regions()
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
