# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Optimizer states of several times the budget, with activations beside them, and with faults of
the disk."""
import pytest

import spilled

# 16 matrices of 256 KiB: a state of 8 MiB, and activations of 1.5 MiB.
MODEL = """
    import optax
    import actmem.optax
    SIDE, LAYERS = 256, 16
    params = {f"w{i:02}": jax.random.normal(jax.random.key(i), (SIDE, SIDE)) / 16
              for i in range(LAYERS)}
    wraps = lambda layer: layer
    def loss(params, x):
        layer = wraps(lambda x, w: jnp.tanh(jnp.tanh(x @ w)))
        for name in sorted(params):
            x = layer(x, params[name])
        return jnp.mean((x - 0.3) ** 2)
    def step_of(tx):
        def step(params, state, x):
            value, grads = jax.value_and_grad(loss)(params, x)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value
        return jax.jit(step, donate_argnums=(0, 1))
    def batch(number):
        return jax.random.normal(jax.random.key(number), (96, SIDE))
    def train(tx, steps):
        now = jax.tree.map(lambda leaf: leaf + 0, params)
        state, step, losses = tx.init(now), step_of(tx), []
        for number in range(steps):
            now, state, value = jax.block_until_ready(step(now, state, batch(number)))
            losses.append(float(value))
        return now, state, losses
    adam = optax.adam(1e-3)
    stored = actmem.optax.offload(adam, group_bytes=2 * 4 * SIDE * SIDE)
"""


def trained(script, tmp_path):
    return spilled.trained(MODEL, script, tmp_path, XLA_FLAGS="")


@pytest.mark.parametrize("with_activations", (False, True))
def test_a_state_of_four_times_the_budget(tmp_path, with_activations):
    """The losses are those of plain Optax, bit by bit. Each byte moves about once per step."""
    seen = trained(f"""
        actmem.open(budget=2 * MIB, spill=SPILL)
        if {with_activations}:
            wraps = lambda layer: actmem.jax.checkpoint(layer, offload_argnums=0)
        _, state, losses = train(stored, 8)
        after = store()
        for leaf in jax.tree.leaves(state, is_leaf=lambda leaf: hasattr(leaf, "value")):
            assert np.isfinite(np.asarray(leaf)).all()
        del state, leaf
        ended = store()
        _, _, wanted = train(adam, 8)
        print(json.dumps([losses, wanted, after, ended, os.listdir(SPILL)]))
    """, tmp_path)
    assert isinstance(seen, list), seen
    losses, wanted, after, ended, left = seen
    assert losses == wanted and losses[-1] < losses[0]
    assert after["memory_bytes_peak"] <= 2 << 20
    assert after["spilled_bytes_total"] >= 8 * (5 << 20)
    moved = after["takes_total"] / 8 * (256 << 10)
    assert after["filled_bytes_total"] <= 8 * moved * 1.25
    for name in ("blocks", "resident_bytes", "spilled_bytes"):
        assert ended[name] == 0, ended
    assert left == []


def test_a_flipped_bit_in_a_spilled_block(tmp_path):
    """The step fails, and the error message names the leaf."""
    error, after = trained("""
        actmem.open(budget=2 * MIB, spill=SPILL)
        actmem.jax.configure(checksum=True)
        now, state, _ = train(stored, 3)
        while store()["spilled_bytes"] < 5 * MIB:
            time.sleep(0.01)
        for file in files():
            with open(file, "r+b") as opened:
                for at in range(100, os.stat(file).st_size, 4096):
                    opened.seek(at)
                    byte = opened.read(1)
                    opened.seek(at)
                    opened.write(bytes([byte[0] ^ 1]))
                opened.flush()
                os.fsync(opened.fileno())
        error = message(step_of(stored), now, state, batch(9))
        del state, now
        actmem.jax.reset()
        print(json.dumps([error, store()["blocks"]]))
    """, tmp_path)
    assert "of the optimizer state" in error and "cannot be read back" in error, error
    assert "checksum" in error or "changed" in error, error
    assert after == 0


def test_a_disk_that_is_full(tmp_path):
    """init() fails with the limit and its knob; with a larger one the same program goes on."""
    error, again, blocks = trained("""
        actmem.open(budget=2 * MIB, spill=SPILL, spill_limit=2 * MIB)
        error = message(stored.init, params)
        actmem.jax.reset()
        blocks = store()["blocks"]
        small = {name: leaf for name, leaf in params.items() if name < "w04"}
        again = message(stored.init, small)
        print(json.dumps([error, again, blocks]))
    """, tmp_path)
    assert "of the optimizer state" in error and "ACTMEM_SPILL_LIMIT" in error, error
    assert again is None and blocks == 0


def test_a_budget_that_nothing_extends(tmp_path):
    error = trained("""
        actmem.open(budget=2 * MIB)
        print(json.dumps(message(stored.init, params)))
    """, tmp_path)
    assert "of the optimizer state" in error and "ACTMEM_SPILL" in error, error
    assert "ACTMEM_BUDGET" in error, error
