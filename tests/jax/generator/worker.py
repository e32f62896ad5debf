# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""A process that runs cases: reads one on each line of its standard input, as JSON, and
writes the verdict, before it null as soon as stock JAX has run. What JAX prints goes to
standard error."""
import faulthandler
import gc
import importlib.metadata
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
TREE = os.path.dirname(os.path.dirname(TESTS))
CLEAR_AFTER = 40        # cases, so that memory stays bounded
# XLA's emitters for fusions, which take more than half of the time, have a flag before 0.11.
VERSION = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2]))
IS_OLD = VERSION < (0, 11) and os.environ["JAX_PLATFORMS"] == "cpu"
FLAGS = " --xla_cpu_use_fusion_emitters=false" if IS_OLD else ""


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    os.environ["XLA_FLAGS"] += FLAGS
    sys.path[:0] = [os.path.join(TREE, "lib", "python"), TESTS]
    sys.dont_write_bytecode = True
    import warnings
    warnings.simplefilter("ignore")
    import jax
    from generator import compare
    gc.collect()
    gc.freeze()

    def reply(value):
        print(json.dumps(value), file=replies, flush=True)
    reply({"jax": jax.__version__})
    for count, line in enumerate(sys.stdin):
        began = time.monotonic()
        verdict = compare.run(json.loads(line), lambda: reply(None))
        verdict["seconds"] = round(time.monotonic() - began, 3)
        reply(verdict)
        if count % CLEAR_AFTER == CLEAR_AFTER - 1:
            jax.clear_caches()


main()
