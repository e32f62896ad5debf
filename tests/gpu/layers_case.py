# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""One case of layers.py, in a process of its own: XLA takes its flags once. Prints a
line of JSON."""
import argparse
import json
import os
import statistics
import sys
import time

BEGAN = float(os.environ.get("LAYERS_BEGAN", time.time()))

import jax                          # noqa: E402
import jax.numpy as jnp             # noqa: E402
import numpy as np                  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

import host_memory                  # noqa: E402
import link                         # noqa: E402
import order                        # noqa: E402
import overlap                      # noqa: E402
import stack                        # noqa: E402

REPEATS = 5


def wrapper(method, names):
    """How a function is checkpointed, to offload what is named so."""
    if method == "remat":
        return lambda f: jax.checkpoint(f, policy=jax.checkpoint_policies.nothing_saveable)
    if method == "stock":
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=list(names),
            offload_src="device", offload_dst="pinned_host")
        return lambda f: jax.checkpoint(f, policy=policy)
    import actmem.jax
    policy = jax.checkpoint_policies.save_only_these_names(*names)
    return lambda f: actmem.jax.checkpoint(f, policy=policy)


def timed(function):
    began = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - began, result


def put_rates(size):
    """Of jax.device_put to pinned_host and back, in bytes per second."""
    device = jax.devices()[0]
    on_device = jax.sharding.SingleDeviceSharding(device, memory_kind="device")
    on_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    there = jax.block_until_ready(jnp.ones(size // 4, jnp.float32))
    best_out = best_in = 0.0
    for _ in range(REPEATS):
        took, here = timed(lambda: jax.device_put(there, on_host))
        best_out = max(best_out, size / took)
        took, back = timed(lambda here=here: jax.device_put(here, on_device))
        best_in = max(best_in, size / took)
    if not np.array_equal(np.asarray(back[:1024]), np.ones(1024, np.float32)):
        raise ValueError("what came back by device_put is not what was put")
    return best_out, best_in


def round_trip_rate(method, size):
    """Of a value that goes out and comes back, one after the other, the same way as the
    layers' do: its bytes twice, per second."""
    @wrapper(method, ["y"])
    def function(x):
        return jnp.sum(jnp.sin(checkpoint_name(jnp.sin(x), "y")))

    step = jax.jit(jax.grad(function))
    x = jnp.ones(size // 4, jnp.float32)
    jax.block_until_ready(step(x))
    return 2 * size / min(timed(lambda: step(x))[0] for _ in range(REPEATS))


def run(options):
    sizes = stack.MODELS[options.model]._replace(layers=options.layers)
    unrolled = options.form == "unrolled"
    layer = wrapper(options.method, stack.OFFLOADED)(stack.make_layer(sizes, options.attention))
    step = jax.jit(jax.value_and_grad(stack.make_loss(layer, unrolled)))
    batch = stack.make_batch(sizes)
    weights = jax.block_until_ready(stack.make_weights(sizes, unrolled))

    began = time.perf_counter()
    compiled = step.lower(weights, batch).compile()
    compile_s = time.perf_counter() - began
    before = host_memory.mapped()
    first_run_s, (loss, gradients) = timed(lambda: compiled(weights, batch))
    first_step_s = time.time() - BEGAN
    times, deadline = [], time.perf_counter() + options.seconds
    while len(times) < options.steps and (len(times) < 3 or time.perf_counter() < deadline):
        del gradients                   # as large as the weights
        took, (loss, gradients) = timed(lambda: compiled(weights, batch))
        times.append(took)
    grown = host_memory.growth(before, host_memory.mapped())
    samples = stack.sample(gradients, unrolled)
    del gradients
    hidden = overlap.of_step(lambda: compiled(weights, batch), options.trace) \
        if options.trace else {}
    del weights
    found = {"loss": float(loss), "step_s": statistics.median(times), "step_min_s": min(times),
             "step_max_s": max(times), "steps": len(times), "first_step_s": first_step_s,
             "compile_s": compile_s, "first_run_s": first_run_s, "grown": grown,
             "memory": memory_of(compiled), **hidden}
    if unrolled and options.method == "actmem":
        found["late_puts"] = order.late_share(compiled.as_text())
    if options.compare:
        reference = dict(np.load(options.compare))
        found["difference"] = stack.difference(samples, reference)
    if options.save:
        np.savez(options.save, **samples)
    rates(options, found)
    if options.method == "actmem":
        import actmem.jax
        found["actmem"] = {name: value for name, value in actmem.jax.stats().items()
                           if isinstance(value, int)}
    return found


def memory_of(compiled):
    analysis = compiled.memory_analysis()
    return {name: getattr(analysis, name, None) for name in (
        "temp_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes",
        "host_temp_size_in_bytes")}


def rates(options, found):
    """Each where it can be had; the driver's own, of as many bytes, beside them."""
    size = options.copy_bytes
    for names, measure in (
            (("put_out", "put_in"), lambda: put_rates(size)),
            (("driver_out", "driver_in"), lambda: link.Cuda().copy_rates(size)),
            (("round_trip",), lambda: (round_trip_rate(options.method, size),))):
        if names == ("round_trip",) and options.method == "remat":
            continue
        try:
            found.update(zip(names, measure()))
        except Exception as error:      # of JAX or the driver: the times stay
            found[f"{names[0]}_missing"] = f"{type(error).__name__}: {str(error)[:200]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=stack.MODELS, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--method", choices=("remat", "stock", "actmem"), required=True)
    parser.add_argument("--form", choices=("scanned", "unrolled"), required=True)
    parser.add_argument("--attention", choices=("xla", "cudnn"), default="xla")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20, help="for the steps")
    parser.add_argument("--copy-bytes", type=int, default=256 << 20)
    parser.add_argument("--save", metavar="FILE", help="gradients, to compare others with")
    parser.add_argument("--compare", metavar="FILE")
    parser.add_argument("--trace", metavar="FILE", help="JAX's profile of one step more")
    print(json.dumps(run(parser.parse_args())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
