# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What is saved leaves the program's own memory, unchanged and counted; the
weights stay where they are."""
import ctypes

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal

import actmem
import actmem.jax
from models import (BATCH, FORMS, LAYERS, POLICY, TOKENS, WIDTH, Count, close,
                    data, layer, mappings, scanned, wrappers)

LAYER_BYTES = 4 * BATCH * TOKENS * WIDTH * 4    # q, k, v and the input, f32


@pytest.mark.parametrize("form", FORMS)
def test_temporary_memory_drops(form):
    weights, x = data(layers=5, batch=16, tokens=32)
    saved = 5 * 4 * x.size * 4
    temp, gradients = {}, {}
    for name, wrap in wrappers(offload_argnums=0).items():
        compiled = jax.jit(jax.grad(FORMS[form](wrap(layer)))).lower(
            weights, x).compile()
        temp[name] = compiled.memory_analysis().temp_size_in_bytes
        count = Count()
        gradients[name] = jax.block_until_ready(compiled(weights, x))
    assert count("put_bytes_total") == saved
    # Nearly all that is saved leaves; what a layer needs meanwhile stays.
    assert temp["stock"] - temp["actmem"] > 0.7 * saved
    assert temp["actmem"] < 0.5 * temp["stock"] < 0.5 * temp["plain"] * 1.1
    close(gradients["actmem"], gradients["stock"], 16)


@pytest.mark.parametrize("form", FORMS)
def test_bytes_per_step(form):
    weights, x = data()
    step = jax.jit(jax.grad(FORMS[form](actmem.jax.checkpoint(
        layer, policy=POLICY, offload_argnums=0))))
    for _ in range(2):
        count = Count()
        jax.block_until_ready(step(weights, x))
        stats = actmem.jax.stats()
        assert stats["last_run_put_bytes"] == LAYERS * LAYER_BYTES
        assert stats["last_run_take_bytes"] == LAYERS * LAYER_BYTES
        assert count("put_bytes_total") == LAYERS * LAYER_BYTES
    assert stats["live_bytes_peak"] >= LAYERS * LAYER_BYTES


def test_weights_are_neither_put_nor_stacked():
    weights, x = data()
    jaxpr = jax.make_jaxpr(jax.grad(scanned(actmem.jax.checkpoint(
        layer, policy=POLICY, offload_argnums=0)), (0, 1)))(weights, x)
    forward, backward = [equation for equation in jaxpr.eqns
                         if equation.primitive.name == "scan"]
    # The forward loop hands on its carry and, in memory, tokens.
    kept = [v.aval for v in forward.outvars
            if jax.dtypes.issubdtype(v.aval.dtype, jax.dtypes.extended)]
    assert [aval.shape for aval in kept if aval.dtype.itemsize] == [(LAYERS,)] * 4
    assert [(v.aval.shape, v.aval.dtype) for v in forward.outvars
            if v.aval not in kept] == [(x.shape, x.dtype)]
    # The backward loop uses the weights that were the program's arguments.
    used = [v for v in backward.invars
            if not isinstance(v, Literal) and v in jaxpr.jaxpr.invars]
    assert len(used) == len(weights)


def test_values_come_back_unchanged():
    """Every kind of bits, NaNs with payloads too, below and above the size
    from which a copy is split."""
    actmem.jax.configure(checksum=True)
    count = Count()
    for size in (1, 7, 4096, 262144 - 1, 262144, 3 * 262144 + 5):
        bits = jax.random.bits(jax.random.key(size), (size,), jnp.uint32)
        f = actmem.jax.checkpoint(lambda bits, x: (bits ^ 1, x * jnp.sum(bits)),
                                  offload_argnums=0, min_bytes=0)

        def saved_and_taken(bits, x):
            _, pullback = jax.vjp(lambda x: f(bits, x)[1], x)
            return pullback
        # Calls return before they have run.
        pullback = jax.block_until_ready(jax.jit(saved_and_taken)(bits, 1.0))
        assert actmem.jax.stats()["live_bytes"] == bits.nbytes
        taken, = jax.jit(lambda pullback: pullback(1.0))(pullback)
        assert taken == jnp.sum(bits).astype(jnp.float32)
        del pullback
    assert count("checksums_total") == count("takes_total") == 6


def test_a_changed_byte_is_noticed():
    """So that the test above can fail."""
    actmem.jax.configure(checksum=True)
    x = jnp.ones((64, 64))
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0)
    y, pullback = jax.jit(lambda x: jax.vjp(f, x))(x)
    jax.block_until_ready(y)
    found = list(mappings("activations"))
    assert found
    for start, end in found:
        ctypes.memset(start, 0xa5, end - start)
    with pytest.raises(Exception, match=r"16384 bytes saved at .*<lambda> "
                                        r"\(test_memory.py\).* cannot be read "
                                        r"back: .* its checksum is wrong"):
        jax.block_until_ready(jax.jit(lambda p, y: p(y))(pullback, y))


def test_small_values_stay():
    x = jnp.ones((15, 16))

    def puts(**options):
        f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)),
                                  offload_argnums=0, **options)
        count = Count()
        jax.block_until_ready(jax.grad(lambda x: jnp.sum(f(x)))(x))
        return count("puts_total")
    assert puts() == 0          # 960 bytes
    assert puts(min_bytes=961) == 0
    assert puts(min_bytes=960) == 1
    assert puts(min_bytes=0) == 1


@pytest.mark.without_remat3("JAX keeps what was saved")
def test_regions_go_back():
    x = jnp.ones((64, 64))
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0)
    jax.block_until_ready(jax.grad(lambda x: jnp.sum(f(x)))(x))
    assert actmem.counters()["region_bytes"] > 0
    region, = actmem.regions()
    assert region["length"] == actmem.counters()["region_bytes"] == 16 << 20
    assert sum(region["nodes"].values()) == region["length"]
    assert region["name"] == "activations"
    assert actmem.jax.reset() == 0
    assert actmem.counters()["region_bytes"] == 0
    assert actmem.regions() == []


def test_no_trace_is_made_twice():
    weights, x = data()
    traced = []

    def f(x, w):
        traced.append(None)
        return layer(x, w)
    step = jax.jit(jax.grad(scanned(actmem.jax.checkpoint(
        f, policy=POLICY, offload_argnums=0))))
    first = step(weights, x)
    count = len(traced)
    jax.tree.map(np.testing.assert_array_equal, first, step(weights, x))
    assert len(traced) == count and step._cache_size() == 1
