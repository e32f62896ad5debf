# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Training steps whose AdamW has its state in actmem, or its weights and gradients too, against
the bound of such a step.

    state.py [--smoke] BUILD DIRECTORY

At the end, the program prints the table of docs/state.md on standard error.

Both run under `actmem run --malloc`: with the C library's malloc, page faults in XLA's temporary
memory take longer than the copies. On a CPU, copies use the processors that compute. So the bound
is the time of a step of plain Optax plus that of copying the state twice, or the time in which the
disk reads and writes what does not fit in memory, if that is longer. Each round measures the parts
of its bound too: the step with the state on the device, memcpy() by all processors, and reads and
writes at the same time with direct I/O. A step that spills and ends with its update has a longer
bound: the gradients exist only after the backward pass, so the disk's work is added to the time of
plain Optax, unless the copies take longer. With a delayed update, the disk works during the forward
pass. The more tokens a step has, the longer this pass is. A step with
stored weights copies 10 times their bytes: the weights and their gradients are taken three times and
once, and put once each, and the state, twice as long, is taken and put once. If the host updates, it
copies twice the bytes of the weights: the gradients are put, and the updates taken. With stored
weights, it copies three times: weights are taken twice, and gradients put.
"""
import concurrent.futures
import functools
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

import heading
import numpy as np

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
MIB = 1 << 20
AIM = 1 / 1.05
PIECE = 4 * MIB
FEW, MANY = 512, 2048   # tokens in a step
# With a quarter of the state in memory, a group is 1/8 of the budget: one is read while others are
# updated and written.
GROUPS = {False: 4, True: 32}
HEAD = ("State in memory", "Tokens", "Update", "Step, s", "Bound, s", "Ratio")
STEPS = 3       # of ours at a time, because the disk may go on writing after one


def seconds_of(function, *args):
    began = time.perf_counter()
    function(*args)
    return time.perf_counter() - began


def copies(pool, arrays):
    """Copies the first array to the second one and back, with all processors."""
    pieces = [[array[i::os.cpu_count()] for i in range(os.cpu_count())]
              for array in (one.reshape(-1, PIECE) for one in arrays)]

    def copy(to, source):
        for i in range(len(to)):
            np.copyto(to[i], source[i])
    return sum(seconds_of(lambda: list(pool.map(copy, *pair)))
               for pair in (pieces, pieces[::-1]))


def disk(pool, directory, total):
    """Reads and writes `total` bytes each, at the same time."""
    if not total:
        return 0
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        descriptor = os.open(file.name, flags)
        try:
            buffers = [mmap.mmap(-1, PIECE) for _ in range(4)]
            for at in range(0, 2 * total, PIECE):
                os.pwrite(descriptor, buffers[0], at)

            def work(number):
                for at in range(number // 2 * PIECE, total, 2 * PIECE):
                    if number % 2:
                        os.pwrite(descriptor, buffers[number], at)
                    else:
                        os.preadv(descriptor, [buffers[number]], total + at)
            return seconds_of(lambda: list(pool.map(work, range(4))))
        finally:
            os.close(descriptor)


def loss(parameters, x):
    import jax.numpy as jnp
    for name in sorted(parameters):
        x = jnp.tanh(x @ parameters[name])
    return jnp.mean((x - 0.3) ** 2)


def scanned_loss(value, parameters, x):
    """The same for stacked layers, which `value` takes. The backward pass recomputes them."""
    import jax
    import jax.numpy as jnp
    layer = jax.checkpoint(lambda x, w: (jnp.tanh(x @ value(w)), None))
    return jnp.mean((jax.lax.scan(layer, x, parameters)[0] - 0.3) ** 2)


def at_the_end(tx, loss=loss):
    """Returns a step that ends with its update."""
    import jax
    import optax

    def step(parameters, state, x):
        updates, state = tx.update(jax.grad(loss)(parameters, x), state, parameters)
        return optax.apply_updates(parameters, updates), state
    return step


def delayed(tx):
    """Returns a step that begins with the update of the previous one."""
    import jax

    def step(parameters, state, x):
        gradients, parameters, state = tx.run(jax.grad(loss), parameters, state, x)
        return parameters, tx.keep(gradients, state, parameters)
    return step


def with_weights(optimizer):
    """Returns a step whose weights and gradients are stored, too."""
    import actmem.jax
    loss = functools.partial(scanned_loss, actmem.jax.value)

    def step(parameters, state, x):
        _, gradients = actmem.jax.value_and_grad(loss)(parameters, x)
        return optimizer.apply(gradients, state, parameters)
    return step


def program_of(tx, step, parameters):
    import jax
    program = jax.jit(step, donate_argnums=(0, 1))
    state = tx.init(parameters)

    def run(x):
        nonlocal parameters, state
        parameters, state = jax.block_until_ready(program(parameters, state, x))
    return run


def programs_of(parameters, group_bytes, method, on_host):
    """Returns a step of plain Optax, one with actmem, and how many copies of the weights it makes."""
    import jax
    import jax.numpy as jnp
    import optax

    import actmem.jax
    import actmem.optax
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    optimizer = actmem.optax.offload(tx, on="host") if on_host else (
        actmem.optax.delayed if method == "--delayed" else actmem.optax.offload)(
        tx, group_bytes=group_bytes)
    if method == "--weights":
        stack = jnp.stack(list(parameters.values()))
        plain = at_the_end(tx, functools.partial(scanned_loss, lambda w: w))
        return (program_of(tx, plain, stack), program_of(
            optimizer, with_weights(optimizer), actmem.jax.offload_params(stack)), 3 if on_host else 10)
    step = (delayed if method == "--delayed" else at_the_end)(optimizer)
    return (program_of(tx, at_the_end(tx), jax.tree.map(jnp.copy, parameters)),
            program_of(optimizer, step, parameters), 2 if on_host else 4)


def measure(directory, leaves, side, rounds, tokens, is_spilled, method, on_host):
    import jax

    import actmem.jax
    parameters = {f"w{i:03}": jax.random.normal(jax.random.key(i), (side, side)) * 0.02
                  for i in range(leaves)}
    x = jax.random.normal(jax.random.key(leaves), (tokens, side))
    state_bytes = 2 * sum(leaf.nbytes for leaf in parameters.values())
    peer, ours, copied = programs_of(parameters, state_bytes // GROUPS[is_spilled], method, on_host)
    arrays = [np.ones(state_bytes, np.uint8) for _ in range(2)]
    pool = concurrent.futures.ThreadPoolExecutor(max(4, os.cpu_count()))
    ours_seconds, bounds = [], []

    def store():
        return actmem.jax.stats()["store"]
    for _ in range(4):
        ours(x)
        peer(x)
    copies(pool, arrays)
    before = store()
    for _ in range(rounds):
        ours_seconds.append(seconds_of(lambda: [ours(x) for _ in range(STEPS)]) / STEPS)
        after = store()
        moved = max(0, state_bytes - after["budget_bytes"]) if is_spilled else 0
        plain, copying = seconds_of(peer, x), copies(pool, arrays) * copied / 4
        disk_seconds = disk(pool, directory, moved)
        bounds.append(max(plain + copying, disk_seconds) if method == "--delayed" else
                      plain + max(copying, disk_seconds))
    filled = (after["filled_bytes_total"] - before["filled_bytes_total"]) / rounds / STEPS
    what = "weights, gradients and state" if method == "--weights" else \
        "a quarter of the state" if is_spilled else "the state"
    print(json.dumps({
        "bench": f"a step with {what} in memory" + ", delayed" * (method == "--delayed") +
        ", updated by the host" * on_host + f", {tokens} tokens",
        "peer_name": "the bound", "unit": "ns/B", "bytes": state_bytes,
        "aim": None if is_spilled and tokens == FEW else AIM,
        "row": ["a quarter" if is_spilled else "all, weights and gradients, too"
                if method == "--weights" else "all", f"{tokens:,}",
                "delayed" if method == "--delayed" else
                "at the end" + ", by the host" * on_host],
        "ours_seconds": ours_seconds, "peer_seconds": bounds}), flush=True)
    print(f"{leaves} leaves, state {state_bytes // MIB} MiB, read from the disk in each step "
          f"{filled / MIB:.0f} MiB; {statistics.median(ours_seconds):.3f} s, bound "
          f"{statistics.median(bounds):.3f} s", file=sys.stderr)


def row_of(told):
    """Returns a row of the table for a line of JSON."""
    ours, bounds = told["ours_seconds"], told["peer_seconds"]
    ratio = statistics.median(a / b for a, b in zip(ours, bounds))
    return (*told["row"], f"{statistics.median(ours):.2f}", f"{statistics.median(bounds):.2f}",
            f"{ratio:.2f}")


def main():
    smoke = "--smoke" in sys.argv
    build, directory = sys.argv[-2:]
    leaves, side, rounds = (4, 512, 2) if smoke else (16, 2048, 12)
    if "--inside" in sys.argv:
        tokens = MANY if "--many" in sys.argv else FEW
        measure(directory, leaves, side, rounds // 2 if tokens > FEW else rounds, tokens,
                bool(os.environ.get("ACTMEM_SPILL")),
                next((word for word in sys.argv if word in ("--delayed", "--weights")), None),
                "--host" in sys.argv)
        return 0
    state = 2 * leaves * side * side * 4
    settings = {"JAX_PLATFORMS": "cpu", "ACTMEM_ALLOW": "any", "ACTMEM_QUIET": "1",
                "PYTHONPATH": os.path.join(TREE, "lib", "python")}
    spilled = {"ACTMEM_BUDGET": str(max(state // 4, 4 * MIB)), "ACTMEM_SPILL": directory}
    status, rows = 0, []
    for more, how in (({}, []), ({}, ["--host"]), ({}, ["--weights"]), ({}, ["--weights", "--host"]),
                      (spilled, []), (spilled, ["--delayed"]), (spilled, ["--many"]),
                      (spilled, ["--delayed", "--many"])):
        result = subprocess.run(
            [os.path.join(build, "bin", "actmem"), "run", "--malloc", "--allow", "any", "--",
             sys.executable, __file__, *sys.argv[1:-2], "--inside", *how, build, directory],
            env=os.environ | settings | more, stdout=subprocess.PIPE, text=True, check=False)
        print(result.stdout, end="", flush=True)
        status |= result.returncode
        rows += [row_of(json.loads(line)) for line in result.stdout.splitlines()
                 if line.startswith("{")]
    print(heading.line("make bench-state"), heading.table(HEAD, *rows), sep="\n\n", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
