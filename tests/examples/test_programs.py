# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The examples of offloading as they are run: alone, under `actmem run`, and with
actmem.jax, on a CPU and at small sizes."""
import functools
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import ACTMEM, BUILD, clean_environment
from tap import case, main

import jax

import offload_activations
import offload_optimizer
import offload_parameters
from offloading import memory, stack

FOLDER = os.path.dirname(os.path.realpath(offload_activations.__file__))
UNDER_RUN = (ACTMEM, "run", "--allow", "any", "--")
OF_INPUTS = stack.SMALL.layers * stack.SMALL.batch * stack.SMALL.width * 4
OF_WEIGHTS = 2 * stack.SMALL.layers * stack.SMALL.width * stack.SMALL.hidden * 4
WIDTH = offload_optimizer.SMALL.width
OF_LAYERS = offload_optimizer.LAYERS * 4 * WIDTH ** 2


def run(program, *arguments, prefix=(), python=(), **variables):
    return subprocess.run(
        [*prefix, sys.executable, "-B", *python, os.path.join(FOLDER, f"{program}.py"),
         "--small", *arguments], env=clean_environment(**variables),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)


def ended_well(program, *arguments, **options):
    """What it prints and what it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        result = run(program, "--json", path, *arguments, **options)
        told = f"{result.args}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        assert result.returncode == 0, told
        assert os.listdir(folder) == ["report.json"], os.listdir(folder)
        with open(path, encoding="utf-8") as file:
            return result, json.load(file)


@functools.cache
def plainly(program):
    """Where no actmem could be imported."""
    return ended_well(program)


def check(program, text, document, names):
    """The rows and their table; that all results are those of the first."""
    rows = {row["name"]: row for row in document["rows"]}
    assert list(rows) == names, list(rows)
    assert document["program"] == program and document["ok"] is True, document
    assert document["platform"] == "cpu" and "but moves nothing" in " ".join(text.split()), text
    lines = text.splitlines()
    for name, row in rows.items():
        wanted = " ".join([name] + [f"{row[key] / 2**20:.2f}" for key in
                                    memory.COLUMNS.values()])
        assert wanted in [" ".join(line.split()) for line in lines], (wanted, text)
        assert row["agrees"] and row["relative"] <= document["tolerance"], row
        assert name == names[0] or any(line.startswith(f"{name}: ") for line in lines), text
        assert row["temp_bytes"] > 0 and row["host_total_bytes"] == 0, row
    return rows


def check_same(document, plain):
    """Rows are as they are without actmem, to the bit."""
    rows = document["rows"][:len(plain["rows"])]
    assert rows == plain["rows"], (rows, plain["rows"])


# For each program, the rows without actmem; and those with it, and the bytes that each puts into
# actmem and that are held there. The host's update also puts gradients and changes.
PROGRAMS = {
    "offload_activations": (["kept", "checkpointed", "offloaded"], {"actmem": (OF_INPUTS, 0)}),
    "offload_parameters": (["kept", "fetched once", "fetched again"], {"actmem": (0, OF_WEIGHTS)}),
    "offload_both": (["kept", "activations", "both"], {"actmem": (OF_INPUTS, OF_WEIGHTS)}),
    "offload_optimizer": (["kept", "offloaded"],
                          {"actmem": (3 * OF_LAYERS, 0), "host update": (5 * OF_LAYERS, 0)})}


@case
def all_of_them_plainly():
    for program, (names, _) in PROGRAMS.items():
        result, document = plainly(program)
        check(program, result.stdout, document, names)
        assert document["actmem"] is None and document["with"] == "plain", document


@case
def all_of_them_under_actmem_run():
    for program, (names, _) in PROGRAMS.items():
        result, document = ended_well(program, prefix=UNDER_RUN, python=("-X", "importtime"))
        check(program, result.stdout, document, names)
        lines = [line for line in result.stderr.splitlines() if "actmem" in line]
        assert "| jax" in result.stderr and len(lines) == 1, lines
        assert lines[0].startswith("actmem: this program kept no activation in actmem"), lines
        check_same(document, plainly(program)[1])


@case
def all_of_them_with_actmem():
    for program, (names, in_actmem) in PROGRAMS.items():
        result, document = ended_well(program, "--with", "actmem", prefix=UNDER_RUN)
        rows = check(program, result.stdout, document, names + list(in_actmem))
        for name, row in rows.items():
            put, held = in_actmem.get(name, (0, 0))
            seen = [row[f"actmem_{kind}bytes"] for kind in ("put_", "held_", "")]
            assert seen == [put, held, put + held], (program, name, seen, put, held)
        left = [document["actmem"][key] for key in ("blocks_left", "regions_left")]
        assert left == [0, 0] and document["actmem"]["regions"], document["actmem"]
        put, held = map(any, zip(*in_actmem.values()))
        assert ("were really moved" in result.stdout) == put, result.stdout
        assert ("Weights were in actmem" in result.stdout) == held, result.stdout
        check_same(document, plainly(program)[1])
        saved = rows[names[-1]]["temp_bytes"] - rows["actmem"]["temp_bytes"]
        assert rows["actmem"]["actmem_put_bytes"] != OF_INPUTS or saved > 0.9 * OF_INPUTS, saved


def analysis(function, *arguments):
    """As XLA tells it, of the same function compiled here."""
    stats = function.lower(*arguments).compile().memory_analysis()
    size = {f"{kind}_bytes": getattr(stats, f"{kind}_size_in_bytes")
            for kind in ("temp", "argument", "output", "alias")}
    return size | {"total_bytes": sum(size.values()) - 2 * size["alias_bytes"]}


def check_analysis(program, name, wanted):
    row, = [row for row in plainly(program)[1]["rows"] if row["name"] == name]
    assert {key: row[key] for key in wanted} == wanted, (name, row, wanted)


@case
def the_numbers_are_those_of_memory_analysis():
    weights, x = stack.weights_and_input(stack.SMALL)
    layer = offload_activations.layer
    kept = analysis(stack.gradient(layer), weights, x)
    check_analysis("offload_activations", "kept", kept)
    check_analysis("offload_both", "kept", kept)
    offloaded = offload_activations.checkpointed(layer, offload_activations.OFFLOAD)
    check_analysis("offload_activations", "offloaded",
                   analysis(stack.gradient(offloaded), weights, x))
    fetched = stack.gradient(offload_parameters.fetching(layer))
    check_analysis("offload_parameters", "fetched once", analysis(fetched, weights, x))
    compiled, _ = offload_optimizer.kept(WIDTH)
    argument_bytes = 4 * (3 * offload_optimizer.LAYERS + 1) * WIDTH ** 2 + 4
    check_analysis("offload_optimizer", "kept", {
        "temp_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "argument_bytes": argument_bytes})


def asked_of_a_gpu(function, *arguments):
    """What XLA would be asked for there: what is brought to which memory, in order, and the
    memories that are named for arguments and results."""
    text = function.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    signature, = re.findall(r"func.func public @main.*", text)
    return (re.findall(r'@annotate_device_placement.*"(\w+)".*-> tensor<(\w+)>', text),
            re.findall(r'memory_kind = "(\w+)"', signature))


@case
def on_a_gpu_the_hosts_memory_would_be_asked_for():
    weights, x = stack.weights_and_input(stack.SMALL)
    layer, into, out = offload_activations.layer, "32x64xf32", "64x32xf32"
    assert asked_of_a_gpu(stack.gradient(layer), weights, x) == ([], [])

    offloaded = offload_activations.checkpointed(layer, offload_activations.OFFLOAD)
    moved, named = asked_of_a_gpu(stack.gradient(offloaded), weights, x)
    assert moved == [("pinned_host", "32x32xf32"), ("device", "32x32xf32")], moved
    assert "pinned_host" not in named, named

    on_host = jax.device_put(weights, offload_parameters.ON_HOST)
    fetching = stack.gradient(offload_parameters.fetching(layer))
    moved, named = asked_of_a_gpu(fetching, on_host, x)
    assert moved == [("device", into), ("device", out),     # and the gradients back
                     ("pinned_host", into), ("pinned_host", out)], moved
    assert named == 4 * ["pinned_host"], named


@case
def on_a_gpu_the_optimizers_state_would_be_on_the_host():
    on_device, on_host = offload_optimizer.ON_DEVICE, offload_optimizer.ON_HOST
    weights, state, x = offload_optimizer.initial_state(WIDTH)
    step = offload_optimizer.fetching_step(offload_optimizer.layer, (on_device, on_host))
    moved, named = asked_of_a_gpu(step, weights, jax.device_put(state, on_host), x)
    arrays, layers = len(jax.tree.leaves(state)), offload_optimizer.LAYERS
    assert arrays == 2 * layers + 1, arrays
    assert [kind for kind, _ in moved] == [     # the state; then all results
        *arrays * ["device"], *layers * ["device"], *arrays * ["pinned_host"]], moved
    assert named == [
        *arrays * ["pinned_host"], *layers * ["device"], *arrays * ["pinned_host"]], named


@case
def a_program_that_breaks_off_leaves_its_own_rows_and_no_earlier_report():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"ok": true}')
        result = run("offload_activations", "--with", "actmem", "--json", path,
                     PYTHONPATH=os.path.join(FOLDER, "../lib/python"), ACTMEM_ALLOW="any",
                     ACTMEM_LIBDIR=os.path.join(BUILD, "lib"), ACTMEM_HEAP_LIMIT="4K")
        assert result.returncode == 1 and os.listdir(folder) == ["report.json"], result
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        assert document["unfinished"] and document["ok"] is False, document
        assert [row["name"] for row in document["rows"]] == \
            ["kept", "checkpointed", "offloaded"], document
        assert "HEAP_LIMIT" in result.stderr, result.stderr


@case
def what_cannot_be_is_refused_at_once():
    for arguments, words in ((("--with", "actmem"), "under `actmem run --`"),
                             (("--json", "/nowhere/report.json"), "--json /nowhere/report.json")):
        result = run("offload_activations", *arguments)
        assert result.returncode == 2 and not result.stdout, result
        assert words in result.stderr and "Traceback" not in result.stderr, result.stderr


main()
