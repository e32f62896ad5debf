# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Run one case of layers.py in a process of its own, because XLA reads its flags once.
Prints a line of JSON. --fit compiles instead, and prints how many layers fit."""
import argparse
import json
import os
import re
import statistics
import sys
import time

BEGAN = float(os.environ.get("LAYERS_BEGAN", time.time()))

import host_memory  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import overlap  # noqa: E402
import stack  # noqa: E402

FIT_SHARE = 0.97                    # of the memory that XLA may use
TARGET_SHARE = 0.88                 # of the memory of --target that XLA may use
STEPS_SECONDS = 20
# The name of an instruction that XLA computes again because memory is short.
REMATERIALISED = re.compile(r"^\s*(?:ROOT )?%?[\w.-]+\.remat\d*(?:\.[\w.]*)? = ", re.MULTILINE)
CALL = re.compile(r'custom_call_target="actmem_(\w+)"')


def stock_policy():
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=list(stack.OFFLOADED),
        offload_src="device", offload_dst="pinned_host")


def make_step(sizes, options, policy=None):
    """Return the compiled function's source: the loss and gradients of the whole stack."""
    layer = stack.make_layer(sizes, options.attention)
    if options.method == "recomputed":
        layer = jax.checkpoint(layer, policy=jax.checkpoint_policies.nothing_saveable)
    elif options.method == "stock":
        layer = jax.checkpoint(layer, policy=stock_policy())
    else:
        import actmem.jax
        layer = actmem.jax.checkpoint(layer, policy=policy or
                                      jax.checkpoint_policies.save_only_these_names(
                                          *stack.OFFLOADED))
    return jax.value_and_grad(stack.make_loss(layer, options.form == "unrolled"))


def shapes(sizes, options, sharding=None):
    """Return the shapes of the weights and the batch, on the device of `sharding`."""
    found = jax.eval_shape(lambda: (stack.make_weights(sizes, options.form == "unrolled"),
                                    stack.make_batch(sizes)))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
                        found)


def planned(sizes, options):
    """Return the planner's choice for this program and card, and a description of it."""
    import actmem.jax
    device = jax.devices()[0]
    machine = "h100" if "H100" in device.device_kind else "h200"
    layer = stack.make_layer(sizes, options.attention)
    plan = actmem.jax.plan(stack.make_loss(layer, options.form == "unrolled"),
                           *shapes(sizes, options), machine=machine,
                           device_memory=(device.memory_stats() or {}).get("bytes_limit"))
    return plan.policy, str(plan)


def fit(options):
    """Find how many layers the stock program can have on this card, or on the card that
    --target describes, such that XLA neither runs out of memory nor rematerialises."""
    sizes, tried = stack.MODELS[options.model]._replace(layers=options.layers), []
    sharding, platforms = None, None
    if options.target:
        from jax.experimental import topologies
        with open(options.target, encoding="utf-8") as file:
            target = file.read()
        device = topologies.get_topology_desc(
            platform="cuda", target_config=target, topology="1x1x1").devices[0]
        limit = int(re.search(r"device_memory_size: (\d+)", target)[1]) * TARGET_SHARE
        sharding, platforms = jax.sharding.SingleDeviceSharding(device), ("cuda",)
    else:
        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", float("inf"))
    while True:
        step = jax.jit(make_step(sizes, options)).trace(*shapes(sizes, options, sharding))
        try:
            compiled = step.lower(lowering_platforms=platforms).compile()
            memory = compiled.memory_analysis()
            peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + \
                memory.temp_size_in_bytes - memory.alias_size_in_bytes
            again = len(REMATERIALISED.findall(compiled.as_text()))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            peak, again = None, None
        tried.append({"layers": sizes.layers, "peak_bytes": peak, "rematerialised": again})
        print(f"# {options.model} {options.form}: {tried[-1]}", flush=True)
        if sizes.layers == 1 or peak is not None and not again and peak <= FIT_SHARE * limit:
            return {"layers": sizes.layers, "tried": tried}
        most = sizes.layers - max(1, sizes.layers // 10)
        share = FIT_SHARE * limit / peak if peak else 0.75
        sizes = sizes._replace(layers=max(1, min(most, int(sizes.layers * share))))


def timed(function):
    began = time.perf_counter()
    result = jax.block_until_ready(function())
    return time.perf_counter() - began, result


def calls(text):
    """Return (index, name) of the calls of actmem's handlers in a scheduled program."""
    lines = [line for line in text[text.index("\nENTRY"):].splitlines() if " = " in line]
    return [(i, CALL.search(line)[1]) for i, line in enumerate(lines) if CALL.search(line)]


def late_share(text):
    """Return the share of the puts that XLA scheduled in the last quarter of the forward
    pass or later: about 0.25 if each layer puts its own values, 1 if XLA delayed them."""
    puts = [i for i, name in calls(text) if name == "put"]
    end = next((i for i, name in calls(text) if name == "tie"), None)
    return None if not puts or end is None else sum(put > 0.75 * end for put in puts) / len(puts)


def run(options):
    sizes = stack.MODELS[options.model]._replace(layers=options.layers)
    unrolled = options.form == "unrolled"
    policy, plan = planned(sizes, options) if options.method == "planned" else (None, None)
    step = jax.jit(make_step(sizes, options, policy))
    batch = stack.make_batch(sizes)
    weights = jax.block_until_ready(stack.make_weights(sizes, unrolled))
    compile_s, compiled = timed(lambda: step.lower(weights, batch).compile())
    before = host_memory.mapped()
    first_run_s, (loss, gradients) = timed(lambda: compiled(weights, batch))
    first_step_s = time.time() - BEGAN
    times, deadline = [], time.perf_counter() + STEPS_SECONDS
    while len(times) < options.steps and (len(times) < 3 or time.perf_counter() < deadline):
        del gradients                   # as large as the weights
        took, (loss, gradients) = timed(lambda: compiled(weights, batch))
        times.append(took)
    after = host_memory.mapped()
    samples = stack.sample(gradients, unrolled)
    del gradients
    hidden = overlap.of_step(lambda: compiled(weights, batch)) if options.trace else {}
    text, memory = compiled.as_text(), compiled.memory_analysis()
    found = {"loss": float(loss), "plan": plan, "compile_s": compile_s, "steps": len(times),
             "step_s": statistics.median(times), "step_min_s": min(times),
             "step_max_s": max(times), "first_step_s": first_step_s, "first_run_s": first_run_s,
             "grown": {kind: after[kind] - before[kind] for kind in after},
             "rematerialised": len(REMATERIALISED.findall(text)),
             "memory": {name: getattr(memory, name) for name in (
                 "temp_size_in_bytes", "argument_size_in_bytes", "output_size_in_bytes",
                 "host_temp_size_in_bytes")}, **hidden}
    if unrolled and "actmem_put" in text:
        found["late_puts"] = late_share(text)
    if options.method == "recomputed":
        np.savez(options.gradients, **samples)
    elif os.path.exists(options.gradients):
        found["difference"] = stack.difference(samples, dict(np.load(options.gradients)))
    if "actmem.jax" in sys.modules:
        found["actmem"] = {name: value for name, value in
                           sys.modules["actmem.jax"].stats().items() if isinstance(value, int)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--model", choices=stack.MODELS, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--method", default="stock",
                        choices=("recomputed", "stock", "actmem", "planned"))
    parser.add_argument("--form", choices=("scanned", "unrolled"), required=True)
    parser.add_argument("--attention", choices=("xla", "cudnn"), default="xla")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--gradients", metavar="FILE", default="gradients.npz",
                        help="written by recomputed; others are compared with them")
    parser.add_argument("--trace", action="store_true", help="profile one more step")
    parser.add_argument("--fit", action="store_true", help="find how many layers fit")
    parser.add_argument("--target", metavar="FILE",
                        help="--fit for the card that this XLA target config describes")
    options = parser.parse_args()
    print(json.dumps(fit(options) if options.fit else run(options)), flush=True)


if __name__ == "__main__":
    main()
