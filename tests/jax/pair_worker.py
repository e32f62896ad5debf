# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One process of a job that jax.distributed joins, for pair_on_driver.py and share.py:

    python pair_worker.py RANK PORT COUNT

It carries out the lines it reads, and answers each by one of JSON:

    actmem alone        a training of its own, on its own device, with its part of the batch
    actmem together     the training of all, on all devices
    stock alone, stock together     the same without actmem, to compare with
    prepare together    compiles both of these: gloo does not wait long for the other one
    array MIB           an array of so much, which it keeps
    reset               drops it, and what a failed step has left

A training saves SAVED_MIB in each process that takes part, and is told as its losses,
or as the words of the error that ended it. Answers tell of memory and of the store.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

MIB = 1 << 20
LAYERS, BATCH, WIDTH, STEPS = 6, 1024, 512, 3
SAVED_MIB = LAYERS * BATCH * WIDTH * 4 // MIB
# The machine may be a slow one. A process that was killed is not to end the other one while
# the tests look at it.
INITIALIZATION_SECONDS, HEARTBEAT_SECONDS, SHUTDOWN_SECONDS = 1800, 3600, 5


def layer(x, w):
    return x + (x * w) * (x * 0.01)


class Trainings:
    def __init__(self, actmem_jax):
        from models import trained      # which needs actmem.jax, and so the devices
        self.step = {"actmem": trained(actmem_jax.checkpoint(layer, offload_argnums=0)),
                     "stock": trained(jax.checkpoint(layer))}
        self.mesh = jax.make_mesh((jax.device_count(),), ("part",))
        self.compiled = {}

    def prepare(self, kind):
        for wrapper, step in self.step.items():
            self.compiled[wrapper, kind] = step.lower(*self.data(kind)).compile()

    def data(self, kind):
        count = jax.device_count() if kind == "together" else 1
        random = np.random.default_rng(1)
        weights = random.standard_normal((LAYERS, WIDTH), np.float32)
        x = random.standard_normal((count * BATCH, WIDTH), np.float32)
        if kind == "alone":
            return jnp.asarray(weights), jnp.asarray(x)
        whole, spread = (jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*axes))
                         for axes in ((), ("part",)))
        return (jax.make_array_from_callback(weights.shape, whole, lambda at: weights[at]),
                jax.make_array_from_callback(x.shape, spread, lambda at: x[at]))

    def losses(self, wrapper, kind):
        weights, x = self.data(kind)
        step = self.compiled.get((wrapper, kind), self.step[wrapper])
        losses = []
        for _ in range(STEPS):
            value, _, weights = step(weights, x)
            losses.append(float(value))
        jax.block_until_ready(weights)
        return losses


def main():
    rank, port, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    jax.distributed.initialize(f"localhost:{port}", count, rank,
                               initialization_timeout=INITIALIZATION_SECONDS,
                               heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
                               shutdown_timeout_seconds=SHUTDOWN_SECONDS)
    import actmem.jax
    trainings = Trainings(actmem.jax)
    kept = []

    def carry_out(what, *details):
        if what == "array":
            kept.append(actmem.jax.empty((int(details[0]), MIB), np.uint8))
        elif what == "reset":
            kept.clear()
            actmem.jax.reset()
        elif what == "prepare":
            trainings.prepare(*details)
        else:
            return trainings.losses(what, *details)
        return None

    print(json.dumps({"devices": jax.device_count(), "backend": actmem.default().backend}),
          flush=True)
    for line in sys.stdin:
        told = {"losses": None, "error": None}
        try:
            told["losses"] = carry_out(*line.split())
        except (actmem.Error, jax.errors.JaxRuntimeError) as error:
            told["error"] = str(error)
        told["region_bytes"] = actmem.counters()["region_bytes"]
        told["store"] = actmem.jax.stats()["store"]
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
