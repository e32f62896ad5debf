# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the tests train, and how they compare: the same function plain, under
jax.checkpoint, and under actmem.jax.checkpoint of the same policy."""
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

import actmem.jax

# With it JAX 0.12 keeps what a vjp outside of jit has saved, stock or not, so that it is
# never dropped.
REMAT3 = getattr(jax.config, "jax_remat3", False)

LAYERS, BATCH, TOKENS, WIDTH = 3, 4, 16, 32
POLICY = jax.checkpoint_policies.save_only_these_names("q", "k", "v")


def normal(seed, *shape):
    """Returns normally distributed values from NumPy. XLA would compile such a generator for
    each shape, which takes longer than the import of JAX."""
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def layer(x, w):
    q = checkpoint_name(x @ w["q"], "q")
    k = checkpoint_name(x @ w["k"], "k")
    v = checkpoint_name(x @ w["v"], "v")
    scores = jnp.einsum("bse,bte->bst", q, k) * x.shape[-1] ** -0.5
    x = x + jnp.einsum("bst,bte->bse", jax.nn.softmax(scores, -1), v)
    return x + jnp.tanh(x @ w["up"]) @ w["down"]


def data(dtype=jnp.float32, layers=LAYERS, batch=BATCH, tokens=TOKENS,
         width=WIDTH):
    weights = {name: (normal(seed, layers, width, width) * width ** -0.5).astype(dtype)
               for seed, name in enumerate(("q", "k", "v", "up", "down"))}
    return weights, normal(5, batch, tokens, width).astype(dtype)


def scanned(f):
    def loss(weights, x):
        x, _ = jax.lax.scan(lambda x, w: (f(x, w), None), x, weights)
        return jnp.mean(x.astype(jnp.float32) ** 2)
    return loss


def unrolled(f):
    def loss(weights, x):
        for i in range(len(weights["q"])):
            x = f(x, jax.tree.map(lambda w: w[i], weights))
        return jnp.mean(x.astype(jnp.float32) ** 2)
    return loss


def trained(f, rate=0.5):
    """A step of a training of layers that have one weight each, compiled when it is
    called: the loss, the gradients, and the weights for the next."""
    loss = scanned(f)

    def step(weights, x):
        value, gradients = jax.value_and_grad(loss)(weights, x)
        return value, gradients, weights - rate * gradients
    return jax.jit(step)


FORMS = {"scanned": scanned, "unrolled": unrolled}


def wrappers(policy=POLICY, static_argnums=(), **options):
    """The three ways to wrap a function, stock and actmem of one policy."""
    options.setdefault("min_bytes", 0)
    stock = options.pop("stock_policy", policy)
    return {
        "plain": lambda f: f,
        "stock": lambda f: jax.checkpoint(f, policy=stock,
                                          static_argnums=static_argnums),
        "actmem": lambda f: actmem.jax.checkpoint(
            f, policy=policy, static_argnums=static_argnums, **options),
    }


def close(got, wanted, rounding):
    """Leaf by leaf: within `rounding` units of the largest element."""
    got, wanted = jax.tree.leaves(got), jax.tree.leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype == jax.dtypes.float0 or a.size == 0:
            continue
        unit = float(jnp.finfo(b.dtype).eps)
        a, b = (np.asarray(value, np.float64) for value in (a, b))
        assert np.abs(b).max() > 0, "a gradient that is 0 shows nothing"
        assert np.abs(a - b).max() <= rounding * unit * np.abs(b).max()


class Count:
    """Puts and takes since it was made."""

    def __init__(self):
        self.before = actmem.jax.stats()

    def __call__(self, name):
        return actmem.jax.stats()[name] - self.before[name]


def compare(result_of, *, rounding=16, puts=None, takes=None, **options):
    """`result_of(wrap)` computes gradients with functions wrapped by `wrap`.
    How many values were put is returned; each was taken, or all together `takes` times."""
    results = {}
    for name, wrap in wrappers(**options).items():
        count = Count()
        results[name] = jax.block_until_ready(result_of(wrap))
        moved = count("puts_total")
        taken = count("takes_total")
        if takes is None or not moved:
            assert moved == taken
            assert count("put_bytes_total") == count("take_bytes_total")
        else:
            assert taken == takes
        assert REMAT3 or actmem.jax.stats()["live_blocks"] == 0
        assert (moved > 0) == (name == "actmem"), (name, moved)
    close(results["actmem"], results["stock"], rounding)
    close(results["actmem"], results["plain"], 16 * rounding)
    if puts is not None:
        assert moved == puts
    return moved


def mappings(name):
    """The mappings of regions of that name: start and end, as the kernel tells."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            found = re.match(rf"(\w+)-(\w+) rw-s .*actmem:{name}", line)
            if found:
                yield [int(part, 16) for part in found.groups()]
