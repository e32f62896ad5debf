# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""JAX's cache on disk finds a program again after its source file has changed elsewhere.

It does not find programs whose values XLA's partitioner spreads: their text has a pointer of
jax.experimental.custom_partitioning.
"""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(__file__)

PROGRAM = """
import json, sys
sys.path[:0] = {path!r}
import conftest
import jax, jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import AxisType, PartitionSpec as P
import actmem.jax

events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))

{lines}
class Attention:
    def __call__(self, w, x):
        q = checkpoint_name(x @ w, "q")
        return jnp.sin(checkpoint_name(jnp.sin(q) @ w, "k"))

{lines}
def other(w, x):
    return jnp.cos(checkpoint_name(jnp.sin(x @ w), "q"))

def step_of(f, **options):
    wrapped = actmem.jax.checkpoint(f, offload_argnums=1, **options)
    step = jax.grad(lambda w, x: jnp.sum(jax.lax.scan(
        lambda x, _: (wrapped(w, x), None), x, length=3)[0]))
    if {devices} > 1:
        mesh = jax.make_mesh(({devices},), ("data",), axis_types=(AxisType.Auto,))
        step = jax.shard_map(lambda w, x, step=step: jax.lax.psum(step(w, x), "data"),
                             mesh=mesh, in_specs=(P(), P("data")), out_specs=P(),
                             check_vma=False)
    return jax.jit(step)

names = jax.checkpoint_policies.save_only_these_names("q", "k")
w, x = jnp.ones((64, 64)), jnp.ones((32, 64))
puts = [0]
for step in (step_of(Attention(), policy=names), step_of(other, policy=names),
             step_of(lambda w, x: jnp.sin(x @ w),
                     policy=jax.checkpoint_policies.dots_saveable)):
    events.clear()
    jax.block_until_ready(step(w, x))
    puts.append(actmem.jax.stats()["puts_total"])
    print(json.dumps([events.count("/jax/compilation_cache/cache_hits"),
                      events.count("/jax/compilation_cache/cache_misses"),
                      puts[-1] - puts[-2]]))
"""


def run(folder, lines, devices):
    """Hits, misses and puts of each program."""
    path = folder / "program.py"
    path.write_text(PROGRAM.format(path=[HERE], lines=lines, devices=devices))
    ended = subprocess.run([sys.executable, str(path)], capture_output=True, text=True,
                           check=False, env={
        **os.environ, "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"})
    assert not ended.returncode, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("devices", [1, 4])
def test_lines_that_are_added(tmp_path, devices):
    first = run(tmp_path, "", devices)
    second = run(tmp_path, "# One line of comment,\n# and another.\n", devices)
    assert len(first) == 3
    assert [misses > 0 and puts >= 6 * devices for _, misses, puts in first] == [True] * 3
    assert [(hits > 0, misses, puts) for hits, misses, puts in second] == [
        (True, 0, puts) for _, _, puts in first]
