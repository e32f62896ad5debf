# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""How long a saved value lives: until its last take, or until nobody has its token any
more; and how what nobody will take is found."""
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import actmem.jax
from models import LAYERS, POLICY, Count, compare, data, layer, normal, scanned, unrolled


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
        del pullback
        return gradients
    compare(run, offload_argnums=0, puts=2 * 4 * LAYERS)


def test_a_pullback_called_again():
    """What it takes lives as long as it."""
    forward, backward, inputs = halves(saving)
    _, pullback = forward(*inputs)
    first = jax.block_until_ready(backward(pullback))
    assert live() == 4 * LAYERS
    second = backward(pullback)
    del pullback
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert live() == 0


@pytest.mark.parametrize("program", [jax.lax.optimization_barrier, lambda pullback: pullback])
def test_a_pullback_that_a_program_hands_on(program):
    forward, backward, inputs = halves(saving)
    _, pullback = forward(*inputs)
    wanted = backward(pullback)
    again = jax.jit(program)(pullback)
    del pullback
    assert live() == 4 * LAYERS
    jax.tree.map(np.testing.assert_array_equal, wanted, backward(again))
    del again
    assert live() == 0


def test_a_pullback_called_in_a_loop():
    """One put, and a take in each turn."""
    weights, x = data()

    def run(wrap):
        def rows(weights, x):
            y, pullback = jax.vjp(lambda x: unrolled(wrap(layer))(weights, x), x)
            return jax.lax.map(lambda scale: pullback(scale * y)[0], jnp.arange(1., 4.))
        return jax.jit(rows)(weights, x)
    compare(run, offload_argnums=0, puts=4 * LAYERS, takes=3 * 4 * LAYERS)


def test_steps_that_keep_pullbacks():
    """Blocks of pullbacks that are gone are dropped by what runs next."""
    forward, _, inputs = halves(saving)
    pullbacks = []
    for _ in range(5):
        pullbacks = [*pullbacks[-1:], forward(*inputs)[1]]
        jax.block_until_ready(pullbacks)
    assert live() == 2 * 4 * LAYERS
    del pullbacks
    assert live() == 0


def test_the_limit_on_generations_is_checked():
    for most in (5, 0):
        actmem.jax.configure(generations=most)
        assert actmem.jax.stats()["generations_max"] == most
    for wrong in (-1, 1 << 63, 1.5, "2"):
        with pytest.raises(ValueError, match="generations="):
            actmem.jax.configure(generations=wrong)


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
    xs = normal(5, 3, *data()[1].shape)

    def run(wrap):
        gradient = jax.grad(unrolled(wrap(layer)))

        def accumulate(weights, xs):
            def add(sum, x):
                return jax.tree.map(jnp.add, sum, gradient(weights, x)), None
            zeros = jax.tree.map(jnp.zeros_like, weights)
            return jax.lax.scan(add, zeros, xs)[0]
        return jax.jit(accumulate)(weights, xs)
    compare(run, offload_argnums=0, puts=3 * 4 * LAYERS)


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


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("first", ["original", "copy"])
def test_tokens_of_device_put_are_their_own(first, donate):
    """Python may delete either first."""
    forward, backward, inputs = halves(saving)
    _, original = forward(*inputs)
    copy = jax.device_put(original, donate=donate)
    if first == "copy" and not donate:
        del copy
        left = original
        del original
    else:
        del original
        left = copy
        del copy
    assert live() == 4 * LAYERS
    jax.block_until_ready(backward(left))
    del left
    assert live() == 0
