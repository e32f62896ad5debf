# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""What the examples say of memory, and of results that are wrong."""
import argparse
import contextlib
import functools
import io
import json
import pathlib
import subprocess
import sys
import tempfile

import jax
import numpy as np

import harness  # noqa: F401 (takes the build's folder from the command line)
from tap import case, main

from offloading import compare, memory, report, stack, tutorial


def layer(x, weights):
    return x @ weights[0] @ weights[1]


@functools.cache
def gradient_arrays():
    """Not to be written into."""
    return compare.on_host(stack.gradient(layer)(*stack.weights_and_input(stack.SMALL)))


def refuses(arrays, wanted, words):
    try:
        compare.compare(arrays, wanted)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no error that says '{words}'")


@case
def the_same_arrays_are_equal_bit_by_bit():
    arrays = gradient_arrays()
    assert len(arrays) == 2
    again = gradient_arrays.__wrapped__()
    assert again is not arrays and compare.compare(again, arrays) == (True, 0, 0, True)


@case
def rounding_agrees_and_is_told():
    wanted = gradient_arrays()
    arrays = dict(wanted)
    name, array = next(iter(wanted.items()))
    arrays[name] = array * np.float32(1 + 2**-20)
    told = compare.compare(arrays, wanted)
    assert told.agrees and not told.equal, told
    assert 2**-21 < told.relative < 2**-19, told
    assert np.isclose(told.difference, told.relative * np.abs(array).max()), told


@case
def another_layers_gradient_is_noticed_in_any_of_the_arrays():
    wanted = gradient_arrays()
    for name, array in wanted.items():
        told = compare.compare(wanted | {name: np.roll(array, 1, axis=0)}, wanted)
        assert not told.agrees and not told.equal and told.relative > 0.1, (name, told)


def gradient_reading(order):
    """Of the stack, by hand: `order(i, n)` is the layer whose input the i-th one reads in
    the backward pass."""
    weights, x = stack.weights_and_input(stack.SMALL)
    layers = [[w[i] for w in weights] for i in range(stack.SMALL.layers)]
    inputs = [x]
    for each in layers:
        inputs.append(layer(inputs[-1], each))
    cotangent, gradients = inputs[-1], []
    for i in reversed(range(len(layers))):
        pull = jax.vjp(layer, inputs[order(i, len(layers))], layers[i])[1]
        cotangent, gradient = pull(cotangent)
        gradients.insert(0, gradient)
    return compare.on_host(tuple(map(jax.numpy.stack, zip(*gradients))))


@case
def inputs_that_come_back_in_the_wrong_order_are_noticed():
    right = compare.compare(gradient_reading(lambda i, n: i), gradient_arrays())
    assert right.agrees, right
    forwards = compare.compare(gradient_reading(lambda i, n: n - 1 - i), gradient_arrays())
    assert not forwards.agrees and forwards.relative > 0.1, forwards


@case
def a_single_element_that_is_off_is_noticed():
    wanted = gradient_arrays()
    for name, array in wanted.items():
        spoilt = array.copy()
        spoilt[-1, -1, -1] += 2 * compare.TOLERANCE * np.abs(array).max()
        told = compare.compare(wanted | {name: spoilt}, wanted)
        assert not told.agrees and told.relative < 3 * compare.TOLERANCE, (name, told)


@case
def what_is_not_finite_never_agrees():
    wanted = gradient_arrays()
    name, array = list(wanted.items())[-1]
    for value in (np.nan, np.inf, -np.inf):
        spoilt = array.copy()
        spoilt[0, 0, 0] = value
        assert not compare.compare(wanted | {name: spoilt}, wanted).agrees, value
        refuses(wanted, wanted | {name: spoilt}, "proves nothing")


@case
def integers_are_compared_too_and_zeros_have_signs():
    one, other = ({"count": np.int32(3), "w": np.float32([0.0, sign * 0.0, 1.0])}
                  for sign in (1, -1))
    assert compare.compare(one, one).equal
    assert compare.compare(other, one) == (False, 0, 0, True)
    told = compare.compare(one | {"count": np.int32(4)}, one)
    assert told.difference == 1 and not told.agrees, told


@case
def what_shows_nothing_is_refused():
    wanted = gradient_arrays()
    name, array = next(iter(wanted.items()))
    for other in ({}, {name: array}, wanted | {"more": array}, wanted | {name: array[1:]},
                  wanted | {name: array.astype(np.float16)}):
        refuses(other, wanted, "cannot be compared")
    refuses({}, {}, "cannot be compared")
    refuses(wanted, wanted | {name: np.zeros_like(array)}, "proves nothing")


@case
def a_digest_is_of_names_types_and_all_bits():
    arrays = gradient_arrays()
    name, array = list(arrays.items())[-1]
    spoilt = array.copy()
    spoilt.view(np.uint32)[-1, -1, -1] ^= 1
    others = (arrays | {name: spoilt}, {name: array}, arrays | {name: array.view(np.int32)},
              {f"{key}.": value for key, value in arrays.items()})
    digests = [compare.digest(each) for each in (arrays, *others)]
    assert len(set(digests)) == len(digests) == 5, digests
    assert compare.digest(gradient_arrays.__wrapped__()) == digests[0]


def reported(broken):
    """What a program says, and its exit status, whose second row is `broken`."""
    weights, x = stack.weights_and_input(stack.SMALL)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.json")
        options = argparse.Namespace(way="plain", small=True, json=path)
        rows = report.Report("test", options, stack.SMALL)
        rows.run("kept", stack.gradient(layer), weights, x)
        rows.run("second", stack.gradient(broken), weights, x)
        with contextlib.redirect_stdout(io.StringIO()) as told:
            status = rows.finish()
        return status, " ".join(told.getvalue().split()), json.loads(path.read_text())


@jax.custom_vjp
def forgetful(x, weights):
    return layer(x, weights)


def forgetful_backward(residuals, cotangent):
    """As if the layer's input had come back as that of other samples of the batch."""
    x, weights = residuals
    return jax.vjp(layer, jax.numpy.roll(x, 1, axis=0), weights)[1](cotangent)


forgetful.defvjp(lambda x, weights: (layer(x, weights), (x, weights)), forgetful_backward)


@case
def a_program_whose_gradients_are_wrong_fails_and_says_so():
    status, text, document = reported(forgetful)
    assert status == 1 and document["ok"] is False, document
    assert "second: NOT the results of 'kept'" in text, text
    assert "wrong: 'second'. Some versions of JAX" in text and jax.__version__ in text, text
    first, second = document["rows"]
    assert first["agrees"] and not second["agrees"], document
    assert second["digest"] != first["digest"], document


def overflowing(x, weights):
    return layer(x, weights) * np.float32(np.inf)


FAILING = """
import argparse, pathlib, sys
from offloading import report, stack
rows = report.Report("test", argparse.Namespace(way="plain", small=True,
                                                json=pathlib.Path(sys.argv[1])), stack.SMALL)
layer = lambda x, weights: x @ weights[0] @ weights[1]
rows.run("kept", stack.gradient(layer), *stack.weights_and_input(stack.SMALL))
raise RuntimeError("the second row fails")
"""


@case
def a_row_that_fails_does_not_take_those_before_along():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "report.json")
        run = subprocess.run([sys.executable, "-B", "-c", FAILING, path], text=True,
                             capture_output=True, check=False)
        assert run.returncode == 1 and "the second row fails" in run.stderr, run
        document = json.loads(path.read_text())
    assert [row["name"] for row in document["rows"]] == ["kept"] and "kept" in run.stdout, run
    assert document["unfinished"] and not document["ok"], document


@case
def what_is_not_finite_is_null_in_the_document():
    status, text, document = reported(overflowing)
    second = document["rows"][1]
    assert status == 1 and not second["agrees"], document
    assert second["difference"] is None and second["relative"] is None, document
    assert "inf of the largest value" in text, text


@case
def a_program_whose_gradients_are_right_does_not():
    status, text, document = reported(jax.checkpoint(layer))
    assert status == 0 and document["ok"] is True, document
    assert "wrong" not in text and "NOT" not in text, text
    assert all(row["agrees"] for row in document["rows"]), document


def table(size, tutorials):
    """Lines of a table whose rows have `size` bytes in temp, twice that in arguments."""
    row = {f"{kind}_bytes": 0 for kind in memory.DEVICE}
    row |= {"temp_bytes": size, "argument_bytes": 2 * size, "total_bytes": 3 * size,
            "host_total_bytes": 4 * size, "actmem_bytes": 5 * size}
    return [line.split() for line in memory.table(
        [row | {"name": f"row{n}", "tutorial": each} for n, each in enumerate(tutorials)]
    ).splitlines()]


@case
def the_table_has_the_tutorials_sizes_below_a_rows_own():
    head, _, *lines = table(3 << 18, [tutorial.KEPT, None, tutorial.BOTH])
    assert head[:2] == ["MiB", "temp"], head
    own = "0.75 1.50 0.00 0.00 2.25 3.00 3.75".split()
    theirs = ["in", "the", "tutorial"]
    assert lines == [["row0", *own], [*theirs, *"17.25 20.25 – – 57.50 – –".split()],
                     ["row1", *own], ["row2", *own],
                     [*theirs, *"4.75 0.25 – – 25.00 – –".split()]], lines
    head, _, row, theirs = table(1 << 30, [tutorial.OPTIMIZER_KEPT])
    assert head[0] == "GiB" and row[1:4] == ["1.00", "2.00", "0.00"], (head, row)
    assert theirs[3:] == "2.11 2.49 – – 4.59 – –".split(), theirs


main()
