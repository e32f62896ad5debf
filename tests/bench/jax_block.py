# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Blocks put into actmem memory and taken out again inside a jitted function, as
actmem.jax does it in forward and backward passes, beside memcpy of the same bytes.

    jax_block.py [--smoke]

As in a training step, all blocks of it are put before the first is taken, the last
one first. The function is given its arguments' memory for its results, and memcpy
(numpy's) has memory that is there, too: neither side pays for pages of its own.
memcpy is one thread's, while XLA's pool copies blocks of 1 MiB and more by several.
"""
import argparse
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, os.path.join(TREE, "lib", "python"))
sys.dont_write_bytecode = True

MIB = 1 << 20
SIZES_MIB = (1, 2, 4, 8)
BLOCKS = 16
ROUNDS = 41
AIM = 0.9


def leave_out(why):
    print(json.dumps({"bench": "jax_block", "left_out": str(why)}))
    sys.exit(0)


try:
    import jax  # noqa: E402
    import jax.numpy as jnp  # noqa: E402
    import numpy as np  # noqa: E402

    import actmem  # noqa: E402
    import actmem.jax  # noqa: E402
    from actmem.jax._calls import put_here, take_here, tie_here  # noqa: E402
except (ImportError, OSError) as error:
    leave_out(f"{error}; `make build/venv/.ready` and `make` provide it")


def make_step(site):
    def step(*values):
        tokens = [put_here(value, site, bounded=True, many=False) for value in values]
        # None is taken before the last is there, as in a backward pass.
        tokens = tie_here(*tokens, tokens[-1], numbers=range(BLOCKS))
        return [take_here(token, value.shape, value.dtype, site, ends=True)
                for token, value in zip(reversed(tokens), reversed(values))][::-1]
    return jax.jit(step, donate_argnums=tuple(range(BLOCKS)))


def seconds(run):
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def measure(mib, rounds):
    words = mib * MIB // 4
    step = make_step(f"jax_block_{mib}m #1")
    held = [[jnp.arange(words, dtype=jnp.uint32) + i for i in range(BLOCKS)]]
    arrays = [np.arange(words, dtype=np.uint32) + i for i in range(BLOCKS)]
    kept = [np.ones(words, np.uint32) for _ in range(BLOCKS)]

    def ours():
        held[0] = jax.block_until_ready(step(*held[0]))

    def peer():
        for block, array in zip(kept, arrays):
            np.copyto(block, array)
        for block, array in zip(reversed(kept), reversed(arrays)):
            np.copyto(array, block)

    ours()
    peer()
    pairs = []
    for number in range(rounds):
        # Each is first as often as the other.
        if number % 2:
            pairs.append((seconds(peer), seconds(ours))[::-1])
        else:
            pairs.append((seconds(ours), seconds(peer)))
    if not all(np.array_equal(a, b) for a, b in zip(held[0], arrays)):
        raise SystemExit("jax_block.py: a block came back changed")
    gib = 2 * BLOCKS * mib / 1024
    middle = sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]
    times = [sorted(side)[len(pairs) // 2] for side in zip(*pairs)]
    print(json.dumps({
        "bench": f"jax_block_{mib}m", "peer_name": "memcpy", "unit": "GiB/s", "aim": AIM,
        "ours": gib / times[0], "peer": gib / times[1], "ratio": middle[1] / middle[0]}),
        flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    try:
        actmem.open(allow="thp,4k,unlocked")
    except OSError as error:
        leave_out(error)
    print(f"# {actmem.describe()}", file=sys.stderr)
    for mib in SIZES_MIB[:1] if args.smoke else SIZES_MIB:
        measure(mib, 3 if args.smoke else ROUNDS)


if __name__ == "__main__":
    main()
