# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""How long a saved value lives: until it is taken, once; and how what nobody
will take any more is found."""
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import actmem.jax
from models import LAYERS, POLICY, Count, compare, data, layer, scanned, unrolled


def live():
    return actmem.jax.stats()["live_blocks"]


def halves(wrap):
    """Forward and backward pass, each a program of its own."""
    weights, x = data()
    forward = jax.jit(lambda weights, x: jax.vjp(scanned(wrap(layer)),
                                                 weights, x))
    return forward, jax.jit(lambda pullback: pullback(1.0)), (weights, x)


def saving(f):
    return actmem.jax.checkpoint(f, policy=POLICY, offload_argnums=0)


def test_forward_and_backward_in_two_programs():
    def run(wrap):
        forward, backward, inputs = halves(wrap)
        for _ in range(2):
            _, pullback = forward(*inputs)
            gradients = backward(pullback)
        assert backward._cache_size() == 1
        return gradients
    compare(run, offload_argnums=0, puts=2 * 4 * LAYERS)


def test_two_steps_in_flight():
    forward, backward, inputs = halves(saving)
    pullbacks = [forward(*inputs)[1] for _ in range(2)]
    jax.block_until_ready(pullbacks)
    assert live() == 2 * 4 * LAYERS
    assert actmem.jax.stats()["generations"] == 2
    first, second = [backward(pullback) for pullback in reversed(pullbacks)]
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_steps_dispatched_without_waiting():
    weights, x = data()
    step = jax.jit(jax.grad(unrolled(saving(layer))))
    count = Count()
    results = [step(weights, x) for _ in range(8)]
    for result in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, results[0], result)
    assert count("puts_total") == count("takes_total") == 8 * 4 * LAYERS
    assert count("reclaimed_blocks_total") == 0


def test_threads():
    actmem.jax.configure(generations=0)
    weights, x = data()
    step = jax.jit(jax.grad(scanned(saving(layer))))
    wanted = step(weights, x)

    def steps(_):
        return [step(weights, x) for _ in range(10)]
    with ThreadPoolExecutor(4) as threads:
        for results in threads.map(steps, range(4)):
            for result in results:
                jax.tree.map(np.testing.assert_array_equal, wanted, result)


def test_gradient_accumulation():
    weights, _ = data()
    xs = jax.random.normal(jax.random.key(5), (3, *data()[1].shape))

    def run(wrap):
        gradient = jax.grad(unrolled(wrap(layer)))

        def accumulate(weights, xs):
            def add(sum, x):
                return jax.tree.map(jnp.add, sum, gradient(weights, x)), None
            zeros = jax.tree.map(jnp.zeros_like, weights)
            return jax.lax.scan(add, zeros, xs)[0]
        return jax.jit(accumulate)(weights, xs)
    compare(run, offload_argnums=0, puts=3 * 4 * LAYERS)


def test_a_second_take_is_refused():
    forward, backward, inputs = halves(saving)
    _, pullback = forward(*inputs)
    jax.block_until_ready(backward(pullback))
    with pytest.raises(Exception, match=r"layer \(models.py:\d+\) #\d+ is "
                                        r"wanted a second time.* read once"):
        jax.block_until_ready(backward(pullback))


def test_what_only_its_whole_loop_varies_is_refused():
    """Each turn would take what was put once, before the loop."""
    weights, x = data()
    w = jax.tree.map(lambda w: w[0], weights)
    f = saving(layer)
    step = jax.jit(jax.grad(lambda w: jnp.sum(jax.lax.scan(
        lambda product, _: (product * f(x, w), None), x, None, length=3)[0])))
    with pytest.raises(Exception, match="do not call inside a loop what does "
                                        "not depend on the loop"):
        jax.block_until_ready(step(w))
    actmem.jax.reset()


def test_abandoned_forwards_are_reclaimed():
    forward, backward, inputs = halves(saving)
    count = Count()
    pullbacks = [forward(*inputs)[1] for _ in range(5)]
    jax.block_until_ready(pullbacks)
    assert live() == 2 * 4 * LAYERS
    assert count("reclaimed_blocks_total") == 3 * 4 * LAYERS
    assert count("reclaimed_bytes_total") == 3 * count("put_bytes_total") // 5
    with pytest.raises(Exception, match=r"layer \(models.py:\d+\) #\d+ was "
                                        r"reclaimed, since more than 2 .*"
                                        r"configure\(generations=N\) or "
                                        r"ACTMEM_JAX_GENERATIONS"):
        jax.block_until_ready(backward(pullbacks[2]))
    for pullback in pullbacks[3:]:
        jax.block_until_ready(backward(pullback))


def test_the_limit_on_generations_is_a_knob():
    forward, backward, inputs = halves(saving)
    for most, kept in ((5, 5), (1, 1), (0, 5)):
        actmem.jax.configure(generations=most)
        assert actmem.jax.stats()["generations_max"] == most
        pullbacks = [forward(*inputs)[1] for _ in range(5)]
        jax.block_until_ready(pullbacks)
        assert live() == kept * 4 * LAYERS
        for pullback in pullbacks[-kept:]:
            jax.block_until_ready(backward(pullback))
        assert live() == 0
    actmem.jax.configure(generations=4)
    pullbacks = [forward(*inputs)[1] for _ in range(4)]
    actmem.jax.configure(generations=1)
    pullbacks.append(forward(*inputs)[1])
    jax.block_until_ready(pullbacks)
    assert live() == 4 * LAYERS
    jax.block_until_ready(backward(pullbacks[-1]))
    for wrong in (-1, 1 << 63, 1.5, "2"):
        with pytest.raises(ValueError, match="generations="):
            actmem.jax.configure(generations=wrong)


def test_a_step_that_fails_midway():
    """It leaves its forward's values; later steps reclaim them."""
    weights, x = data()

    def check(value, fail):
        if fail:
            raise RuntimeError("not finite")
        return value

    def loss(weights, x, fail):
        value = scanned(saving(layer))(weights, x)
        scale = jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.float32),
                                  jax.lax.stop_gradient(value), fail)
        return value * scale
    step = jax.jit(jax.grad(loss))
    wanted = step(weights, x, False)
    count = Count()
    for _ in range(4):
        with pytest.raises(Exception, match="not finite"):
            jax.block_until_ready(step(weights, x, True))
    left = live()
    assert 0 < left <= 2 * 4 * LAYERS
    jax.tree.map(np.testing.assert_array_equal, wanted,
                 step(weights, x, False))
    assert count("reclaimed_blocks_total") >= 2 * 4 * LAYERS
    left = live()
    assert left <= 4 * LAYERS
    assert actmem.jax.reset() == left
    assert live() == 0


def test_reset_frees_what_is_left():
    forward, backward, inputs = halves(saving)
    pullbacks = [forward(*inputs)[1] for _ in range(2)]
    jax.block_until_ready(pullbacks)
    count = Count()
    assert actmem.jax.reset() == 2 * 4 * LAYERS
    assert count("reset_blocks_total") == 2 * 4 * LAYERS
    assert live() == 0
    with pytest.raises(Exception, match=r"actmem.jax.reset\(\)"):
        jax.block_until_ready(backward(pullbacks[0]))


def test_eager_calls_are_not_limited():
    """Each is an execution of its own, though all are of one function."""
    x, f = jnp.ones((16, 16)), None
    f = actmem.jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)), offload_argnums=0)
    count = Count()
    pullbacks = [jax.vjp(f, x)[1] for _ in range(6)]
    assert live() == 6
    for pullback in pullbacks:
        jax.block_until_ready(pullback(x))
    assert count("reclaimed_blocks_total") == 0
