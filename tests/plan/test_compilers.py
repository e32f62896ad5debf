# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The memory that is predicted for GPUs and TPUs follows what XLA's compilers do with a program. Each
test has a program in which one rule decides how many bytes are needed. tests/aot/pairs compares the
predictions with the compilers."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from actmem.plan import _fusion, _order, _splits, _trace, memory
from actmem.plan.memory import TPU, Shared, foresee

f32, bf16 = jnp.float32, jnp.bfloat16
LAYERS, ROWS, WIDTH = 8, 64, 256
MATRIX = WIDTH * WIDTH * 4              # bytes in float32
ROW_BYTES = ROWS * WIDTH * 4
# XLA divides products as small as these, which would hide the other rules.
GPU = dataclasses.replace(memory.GPU, splits_products=False)


def shape(*sizes, dtype=f32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def matrix_on_host():
    mesh = jax.make_mesh((1,), ("device",), (AxisType.Auto,), devices=jax.devices()[:1])
    on_host = NamedSharding(mesh, PartitionSpec(), memory_kind="pinned_host")
    return jax.ShapeDtypeStruct((WIDTH, WIDTH), f32, sharding=on_host)


# Rows and two matrices.
IN_BF16 = [shape(rows, WIDTH, dtype=bf16) for rows in (ROWS, WIDTH, WIDTH)]


def temporary(function, *args, compiler, **options):
    return foresee(_trace.graph_of(function, *args), compiler=compiler, **options).temporary


def scanned(x, weights):
    return jax.lax.scan(lambda x, w: (jnp.sin(x @ w.astype(bf16)), None), x, weights)[0]


def test_a_tpu_casts_all_weights_before_a_loop_and_a_gpu_those_of_a_layer():
    args = shape(ROWS, WIDTH, dtype=bf16), shape(LAYERS, WIDTH, WIDTH)
    least = ROW_BYTES // 2
    assert LAYERS * MATRIX // 2 <= temporary(scanned, *args, compiler=TPU) <= \
        LAYERS * MATRIX // 2 + 2 * least
    assert MATRIX // 2 <= temporary(scanned, *args, compiler=GPU) <= MATRIX // 2 + 2 * least


def test_a_cast_that_enlarges_stays_in_the_loop():
    def run(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.sin(x @ w.astype(f32)), None), x, weights)[0]
    args = shape(ROWS, WIDTH), shape(LAYERS, WIDTH, WIDTH, dtype=bf16)
    assert temporary(run, *args, compiler=TPU) <= 2 * ROW_BYTES


def test_a_tpu_computes_what_is_elementwise_inside_products():
    def run(x, w, v):
        return jnp.sin((x * jnp.exp(x)) @ w) @ v
    assert temporary(run, *IN_BF16, compiler=TPU) == ROW_BYTES // 2
    assert temporary(run, *IN_BF16, compiler=dataclasses.replace(GPU, hosts="none")) == ROW_BYTES


def test_a_tpu_stores_what_only_products_read_in_bfloat16():
    def layer(x, w):
        return x @ w, None

    def run(x, weights):
        return jax.grad(lambda weights: jnp.sum(jax.lax.scan(layer, x, weights)[0]))(weights)
    args = shape(ROWS, WIDTH), shape(LAYERS, WIDTH, WIDTH)
    with_float32 = dataclasses.replace(TPU, multiplies_bf16=False)
    # The input of each layer, and all weights.
    assert temporary(run, *args, compiler=TPU) - \
        temporary(run, *args, compiler=with_float32) == LAYERS * (MATRIX - ROW_BYTES) // 2

    def summed(x, w):
        return jnp.cumsum(x, 0) @ w
    assert temporary(summed, *args[:1], shape(WIDTH, WIDTH), compiler=TPU) == ROW_BYTES

    def exact(x, weights):
        with jax.default_matmul_precision("highest"):
            return run(x, weights)
    assert temporary(exact, *args, compiler=TPU) == temporary(run, *args, compiler=with_float32)


def test_exp_is_computed_again_for_each_reader():
    def run(x, w, v):
        y = jnp.exp(x)
        return (y @ w) * (y @ v)
    once = dataclasses.replace(TPU, repeats_costly=False)
    assert temporary(run, *IN_BF16, compiler=once) - \
        temporary(run, *IN_BF16, compiler=TPU) == ROW_BYTES // 2


def test_a_product_is_written_in_the_type_of_its_user():
    def run(x, w):
        return jnp.sum(jnp.sort((x @ w).astype(bf16)))
    args = shape(ROWS, WIDTH), shape(WIDTH, WIDTH)
    with_float32 = dataclasses.replace(GPU, casts_products=False)
    assert temporary(run, *args, compiler=with_float32) - \
        temporary(run, *args, compiler=GPU) == ROW_BYTES // 2


def test_values_of_a_loop_use_the_memory_of_results_that_come_later():
    def run(x, w):
        y = jax.lax.scan(lambda y, w: (jnp.sin(y @ w), None), x, w)[0]
        return y.T @ y
    args = shape(ROWS, WIDTH), shape(LAYERS, WIDTH, WIDTH)
    outer = dataclasses.replace(GPU, hosts="outer")
    # The layer's part of the weights is as large as the result.
    assert temporary(run, *args, compiler=outer) - temporary(run, *args, compiler=GPU) == MATRIX


def test_a_tpu_keeps_the_memory_of_results_free():
    def run(x, w, v):
        y = jnp.sin(x @ w) @ v
        return y.T @ y
    assert temporary(run, *IN_BF16, compiler=TPU) == ROW_BYTES
    assert temporary(run, *IN_BF16, compiler=dataclasses.replace(TPU, hosts="all")) == \
        ROW_BYTES // 2


def test_a_result_that_a_scatter_changes_takes_over_no_operand():
    """Else the gradient of a loss would need its logits once, and not twice."""
    def run(x, w, index):
        logits = x @ w
        def loss(logits):
            right = jnp.take_along_axis(logits, index[:, None], 1)[:, 0]
            return jnp.sum(jax.nn.logsumexp(logits, -1) - right)
        return jnp.einsum("rv,dv->rd", jax.grad(loss)(logits), w)
    args = shape(ROWS, WIDTH), shape(WIDTH, 16 * WIDTH), shape(ROWS, dtype=jnp.int32)
    logits = ROWS * 16 * WIDTH * 4
    assert 2 * logits <= temporary(run, *args, compiler=GPU) < 2.1 * logits
    # A TPU compares indices instead, inside the product.
    assert logits <= temporary(run, *args, compiler=TPU) < 1.1 * logits


def test_masks_are_computed_inside_of_loops():
    def run(x, weights):
        mask = jnp.broadcast_to(jnp.tril(jnp.ones((WIDTH, WIDTH), bool)), (64, WIDTH, WIDTH))
        return jax.lax.scan(lambda x, w: (x @ w + jnp.sum(jnp.where(mask, x[0, 0], 0)), None),
                            x, weights)[0]
    args = shape(ROWS, WIDTH), shape(LAYERS, WIDTH, WIDTH)
    kept = dataclasses.replace(TPU, sinks_constants=False)
    assert temporary(run, *args, compiler=kept) - temporary(run, *args, compiler=TPU) == \
        64 * WIDTH * WIDTH


def test_a_loop_adds_up_gradients_in_the_memory_of_the_result():
    def run(w, batches):
        def add(total, x):
            return total + jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w), None
        return jax.lax.scan(add, jnp.zeros_like(w), batches)[0]
    args = shape(WIDTH, WIDTH), shape(4, 8, WIDTH)
    # One gradient, that of a microbatch.
    assert MATRIX <= temporary(run, *args, compiler=GPU) < 1.5 * MATRIX


def test_transposed_matrices_of_loops_are_no_copies():
    """As with an embedding that is also the head: a loop reads the matrix and makes its gradient,
    both transposed."""
    def add(total, x, head):
        return total + jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(head), None

    def run(w, batches, rows, is_tied=True):
        head = w.T if is_tied else w
        total = jax.lax.scan(lambda total, x: add(total, x, head), jnp.zeros_like(head),
                             batches)[0]
        return (total.T if is_tied else total).at[rows].add(1.0)
    args = shape(WIDTH, WIDTH), shape(4, 8, WIDTH), shape(8, dtype=jnp.int32)
    plain = temporary(functools.partial(run, is_tied=False), *args, compiler=GPU)
    assert MATRIX <= temporary(run, *args, compiler=GPU) == plain
    for off in dataclasses.replace(GPU, turns_matrices=False), memory.CPU:
        assert temporary(run, *args, compiler=off) >= plain + MATRIX // 2

    # Another operation than a loop or a product needs the matrix in its own order.
    def both(w, batches, rows):
        return run(w, batches, rows), jnp.sum(w + w.T, 1)
    assert temporary(both, *args, compiler=GPU) == plain + MATRIX

    def copies(function):
        graph = _trace.graph_of(function, *args)
        return sum(step.node.op == "transpose" for step in _fusion.Steps(graph, GPU).steps)
    assert copies(run) == 0
    # Results are in the order of the program, and so is a matrix that another operation reads.
    assert copies(lambda w, *_: w.T) == 1

    def read_twice(w, batches, rows):
        total = jax.lax.scan(lambda total, x: add(total, x, w), jnp.zeros_like(w), batches)[0]
        return total.T.at[rows].add(1.0), jnp.sum(total, 1)
    assert copies(read_twice) == 1


@pytest.mark.parametrize("compiler", (GPU, TPU))
def test_state_on_the_host_needs_no_device_memory_until_it_is_fetched(compiler):
    state = matrix_on_host()
    device, host = jax.memory.Space.Device, jax.memory.Space.Host

    def run(x, state):
        state = jax.device_put(state, device)
        return jnp.sum(x @ state), jax.device_put(state + 1, host)
    found = foresee(_trace.graph_of(run, shape(ROWS, WIDTH), state), compiler=compiler)
    assert found.arguments == ROW_BYTES and found.outputs < 100, found
    # The new state does not take over the fetched one's memory.
    assert 2 * MATRIX <= found.temporary <= 2 * MATRIX + ROW_BYTES, found


@pytest.mark.parametrize("compiler", (GPU, TPU))
def test_the_update_of_state_on_the_host_comes_last(compiler):
    states = [matrix_on_host()] * 2

    def run(x, y, states):
        # Both sums are as large as the state that is added to them.
        sums = jnp.sort(jnp.outer(x, x)), jnp.sort(jnp.outer(y, y))
        fetched = jax.device_put(states, jax.memory.Space.Device)
        return [jnp.sum(jnp.sort(a + b), 1) for a, b in zip(sums, fetched)]
    graph = _trace.graph_of(run, shape(WIDTH), shape(WIDTH), states)
    found = foresee(graph, compiler=compiler).temporary
    # Both states are there, and at any time one sum and what is computed from it.
    assert 4 * MATRIX <= found < 5 * MATRIX, found


@pytest.mark.parametrize("compiler", (GPU, TPU))
def test_long_programs_and_copies_of_mixed_values(compiler):
    """One device_put copies values on the host and on the device."""
    state = matrix_on_host()
    device = jax.memory.Space.Device

    def run(together, x, state, count):
        for _ in range(2000):
            x = jnp.sort(x)
        if together:
            state, count = jax.device_put((state, count), device)
        else:
            state = jax.device_put(state, device)
        return jnp.sort(state + x) + count
    found = [foresee(_trace.graph_of(functools.partial(run, together), shape(WIDTH, WIDTH), state,
                                     shape()), compiler=compiler).temporary
             for together in (False, True)]
    assert 2 * MATRIX <= found[0] <= found[1] <= found[0] + 4, found       # the count


def test_a_gpu_fetches_state_when_the_step_begins():
    state = matrix_on_host()

    def run(x, state):
        y = jnp.sin(jnp.outer(x, x) @ jnp.outer(x, x))      # before the state is used
        return jnp.sum(y), jnp.sum(jax.device_put(state, jax.memory.Space.Device) @ x)
    graph = _trace.graph_of(run, shape(WIDTH), state)
    late = dataclasses.replace(GPU, fetches_early=False)
    assert foresee(graph, compiler=GPU).temporary - foresee(graph, compiler=late).temporary == \
        MATRIX


def test_donated_arguments_are_no_place_for_other_values():
    def run(w, x):
        return w + jnp.sum(jnp.sort(x @ w))
    graph = _trace.graph_of(run, shape(WIDTH, WIDTH), shape(ROWS, WIDTH))
    assert foresee(graph, MATRIX, GPU).temporary - foresee(graph, 0, GPU).temporary >= \
        ROW_BYTES - 8


def test_devices_store_parts_of_shared_weights_and_add_up_whole_gradients():
    def run(w, x):
        return jnp.sum(x), jnp.outer(jnp.sum(jnp.sin(x @ w), 0), x[0])
    graph = _trace.graph_of(run, shape(WIDTH, WIDTH), shape(ROWS, WIDTH))
    whole, part = (foresee(graph, compiler=TPU, shared=Shared(1, 0, devices))
                   for devices in (1, 8))
    assert whole.arguments - part.arguments == whole.outputs - part.outputs == MATRIX * 7 // 8
    assert part.temporary - whole.temporary >= MATRIX - 2 * ROW_BYTES


@pytest.mark.parametrize("dtype, rows, depth, columns, parts", [
    # From programs that XLA 0.12.0.1 compiled for an H100 and an H200.
    (f32, 256, 1024, 256, 8), (f32, 256, 256, 1024, 1), (f32, 256, 4096, 1024, 8),
    (f32, 4096, 256, 1024, 1), (bf16, 8192, 5120, 13824, 1)])
def test_a_gpu_divides_products_with_a_small_result(dtype, rows, depth, columns, parts):
    graph = _trace.graph_of(jnp.matmul, shape(rows, depth, dtype=dtype),
                            shape(depth, columns, dtype=dtype))
    product = next(node for node in graph.nodes if node.op == "dot_general")
    assert _splits.partial_bytes(product) == (parts > 1) * parts * rows * columns * 4


def test_partial_results_need_memory():
    args = shape(256, 1024), shape(1024, 256)
    for compiler, more in ((GPU, 0), (memory.GPU, 8 * 256 * 256 * 4)):
        assert temporary(jnp.matmul, *args, compiler=compiler) == more


def gradients_of_layers(x, weights):
    """The gradients of layers whose weights have the type of their products."""
    def layer(x, weights):
        up, down = weights
        return jnp.tanh(x @ up) @ down, None

    def loss(weights, x):
        return jnp.sum(jax.lax.scan(jax.checkpoint(layer, prevent_cse=False), x, weights)[0])
    return jax.grad(loss)(weights, x)


def test_a_gpu_runs_a_loop_in_the_order_of_xlas_scheduler():
    """XLA 0.12.0.1 runs this program on an H200 in the same order: the slices first, the gradients
    of weights before the product that ends the iteration, and their copies at the end."""
    stack = shape(LAYERS, WIDTH, WIDTH, dtype=bf16)
    graph = _trace.graph_of(gradients_of_layers, shape(ROWS, WIDTH, dtype=bf16), (stack, stack))
    body = [node for node in graph.nodes if node.op == "scan"][-1].bodies[0]
    steps = _order.hiding(_fusion.Steps(body, GPU).steps)
    written = {id(value) for step in steps for value in step.reads.values()
               if step.node.op == "dynamic_update_slice"}
    assert [step.node.op for step in steps] == [
        *["dynamic_slice"] * 3, *["dot_general"] * 2, steps[5].node.op, *["dot_general"] * 3,
        *["dynamic_update_slice"] * 2]
    assert [id(step.made[0]) in written for step in steps[3:9]] == [
        False, False, False, True, True, False]


def test_a_gpu_fuses_operations_on_one_operand_into_products():
    def run(x, up, down):
        hidden = x @ up
        return jnp.tanh(hidden) @ down, jnp.sin(hidden) @ down
    args = shape(ROWS, WIDTH), shape(WIDTH, 4 * WIDTH), shape(4 * WIDTH, WIDTH)
    assert temporary(run, *args, compiler=GPU) == 4 * ROW_BYTES


def test_a_step_that_reads_two_results_of_one_step_is_scheduled():
    def run(x):
        def layer(x, _):
            a, b = jax.lax.fori_loop(0, 3, lambda _, both: (both[1] + 1, both[0] * 2), (x, x))
            return jnp.sin(a) * b, None
        return jax.lax.scan(layer, x, None, length=LAYERS)[0]
    assert temporary(run, shape(ROWS, WIDTH), compiler=GPU) >= 2 * ROW_BYTES


def test_a_gpu_copies_values_to_the_host_beside_other_steps():
    """So a value that leaves is in memory until the end of the iteration."""
    def run(x, weights):
        def layer(x, w):
            x = x @ w
            return x, jax.device_put(x, jax.memory.Space.Host)
        return jax.lax.scan(layer, x, weights)
    args = shape(ROWS, WIDTH), shape(LAYERS, WIDTH, WIDTH)
    body = next(node for node in _trace.graph_of(run, *args).nodes if node.op == "scan").bodies[0]
    ops = [step.node.op for step in _order.hiding(_fusion.Steps(body, GPU).steps)]
    assert ops == ["dynamic_slice", "dot_general", "device_put", "dynamic_update_slice"]
