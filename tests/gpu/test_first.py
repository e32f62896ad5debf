# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""The first minutes on a card, on a machine without one: tests/gpu/first with the stand-in
for libcuda.so.1, what it makes ready, what it answers, and what it expects."""
import argparse
import contextlib
import glob
import io
import os
import shutil
import tempfile

import answers
import layers
import order
import overlap
import pages
import predict
import stack
from tap import case, main
from try_run import BUILD, ON_GPU, run, start_anew


def a_copy_of_the_build(folder, *others):
    """Links to what is built, but for programs of these names."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/tests")
    for path in [*glob.glob(f"{ON_GPU}/*"), *glob.glob(f"{ON_GPU}/tests/*")]:
        name = os.path.relpath(path, ON_GPU)
        if name != "tests" and name not in others:
            os.symlink(os.path.abspath(path), f"{folder}/{name}")


@case
def the_first_minutes_answer_four_questions():
    start_anew()
    told, results = run("--first", "--no-build", "--only", "probe")
    said = results["parts"]["answers"]["facts"]
    assert said["registers?"].startswith("yes: ") and "memfd 4K " in said["registers?"], said
    assert "cuMemHostAlloc " in said["registers?"], said
    assert said["ordered?"] == said["intercepted?"] == answers.UNKNOWN, said
    # One part hangs: what comes after it is asked all the same.
    folder = f"{BUILD}/check/gpu-hangs"
    a_copy_of_the_build(folder, "tests/gpu-probe")
    with open(f"{folder}/tests/gpu-probe", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\nsleep 1000 & exec sleep 1000\n")
    os.chmod(f"{folder}/tests/gpu-probe", 0o755)
    start_anew()
    told, results = run("--build", folder, "--skip", "layers", status=1, program="first")
    said = results["parts"]["answers"]["facts"]
    assert said["registers?"] == "no: probe pieces: not done in 25 s; probe device: " \
        "not done in 10 s", said
    for question in ("ordered?", "agrees?", "intercepted?"):
        assert said[question].startswith("yes: "), said
        assert f"{question:13} yes: " in told, told


@case
def answers_are_told_in_time():
    class Results:
        def add(self, name, result):
            self.added = result

    results, output = Results(), io.StringIO()
    ok = {"status": "ok", "passed": 3}
    with contextlib.redirect_stdout(output):
        asked = answers.Answers(results, 0.1)
        asked.add("cuda", {**ok, "status": "unfinished"})
        asked.timer.join()
        assert output.getvalue().count(answers.UNKNOWN) == 4, output.getvalue()
        asked.add("cuda", ok)
        asked.add("pinned", {"status": "ok", "passed": 0, "skipped": ["cudart is not there"]})
        asked.add("checkpoint", {**ok, "status": "failed", "failed": ["x"], "why": "memory: x"})
        asked.add("probe", {"status": "failed", "why": "one kind is refused", "figures": [
            {"figure": "register a piece, private 4K", "value": 1.0}],
                            "facts": {"register a piece, memfd 4K": "CUDA_ERROR_UNKNOWN"}})
    assert results.added["facts"] == {
        "registers?": "no: private 4K 1.00 GB/s, memfd 4K CUDA_ERROR_UNKNOWN",
        "ordered?": "yes: 3 tests", "agrees?": "no: memory: x",
        "intercepted?": "not known: cudart is not there"}, results.added
    assert output.getvalue().count("After ") == 2, output.getvalue()


@case
def memory_is_made_ready_once_and_put_back():
    assert pages.touch((4 << 20) + 4096, is_huge=False) == (4 << 20) + 4096
    with tempfile.TemporaryDirectory() as folder:
        before = pages.RESERVED, pages.SHARED
        pages.RESERVED, pages.SHARED = f"{folder}/reserved", f"{folder}/shared"
        words = "always within_size advise [never] deny force"
        try:
            for path, text in ((pages.RESERVED, "0\n"), (pages.SHARED, f"{words}\n")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            ready = pages.Ready()
            ready.reserve(2)
            ready.allow_shared()
            assert (layers.lines_of(pages.RESERVED), layers.lines_of(pages.SHARED)) == \
                (["2"], ["advise"]), ready.told
            assert "2 huge pages are reserved" in ready.told and "touched" in ready.told[1]
            ready.undo()
            assert (layers.lines_of(pages.RESERVED), layers.lines_of(pages.SHARED)) == \
                (["0"], ["never"]), ready.told
        finally:
            pages.RESERVED, pages.SHARED = before


@case
def what_overlaps_is_read_from_a_trace():
    def named(kind, pid, name, tid=0):
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}

    def span(name, start, end, tid, pid=1):
        return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start, "dur": end - start}

    events = [named("process_name", 1, "/device:GPU:0"), named("process_name", 2, "/host:CPU"),
              named("thread_name", 1, "Stream #1(Compute)", 1),
              named("thread_name", 1, "Stream #2(MemcpyD2H)", 2),
              named("thread_name", 1, "XLA Ops", 3), named("thread_name", 2, "Stream #1", 1),
              span("fusion", 0, 10, 1), span("gemm", 10, 20, 1), span("gemm", 30, 40, 1),
              span("MemcpyD2H", 5, 15, 2), span("MemcpyD2H", 15, 25, 2),
              span("MemcpyD2D", 20, 25, 1), span("MemcpyH2D", 40, 50, 2),
              span("fusion", 0, 100, 3), span("fusion", 0, 100, 1, pid=2)]
    assert overlap.hidden(events) == {"hidden_out": 0.75, "hidden_in": 0.0}
    assert not overlap.hidden(events[:7])


@case
def what_stays_on_the_device_is_told():
    with tempfile.TemporaryDirectory() as folder:
        runs = layers.Runs(argparse.Namespace(minutes=1, toy=True), folder)
    sizes = stack.MODELS["small"]
    remat, ours = (layers.Case("small", "unrolled", method) for method in ("remat", "actmem"))

    def found(kept):
        return {"memory": {"temp_size_in_bytes": 1000 + round(kept * sum(sizes.offloaded_bytes))}}
    assert runs.kept_on_device(ours, sizes, found(9)) == {}
    runs.done[remat] = {"layers": sizes.layers, "found": found(0)}
    assert runs.kept_on_device(ours, sizes, found(2)) == {"kept_layers": 2.0}
    assert runs.kept_on_device(ours, sizes, found(9.5)) == {
        "kept_layers": 9.5, "memory": "Q, K and V of 9.5 layers stay on the device"}


def scheduled(names):
    calls = [f'  %c.{i} = custom-call(), custom_call_target="actmem_{name}"' if name != "other"
             else f"  %f.{i} = fusion()" for i, name in enumerate(names)]
    return "\n".join(["HloModule m, is_scheduled=true", "", "ENTRY %main () {", *calls, "}"])


@case
def puts_that_xla_left_for_later_are_told():
    spread = scheduled(["other", "other", "put"] * 8 + ["tie", "take"])
    assert order.calls(spread)[:2] == [(2, "put"), (5, "put")], spread
    assert layers.Runs.late_puts({"late_puts": order.late_share(spread)}) == {"late_puts": 0.25}
    for left in (["other"] * 16 + ["put"] * 4 + ["tie"], ["other"] * 9 + ["tie", "put", "take"]):
        told = layers.Runs.late_puts({"late_puts": order.late_share(scheduled(left))})
        assert told["late_puts"] == 1 and "left puts" in told["order"], told
    assert layers.Runs.late_puts({"late_puts": order.late_share(scheduled(["take"]))}) == {}


@case
def the_predictions_of_the_docs_are_those_of_the_program():
    link = {"out": 55e9, "in": 55e9, "device": 2.1e12}
    with open("docs/gpu.md", encoding="utf-8") as file:
        docs = file.read().splitlines()
    for model, title in (("llama-2-13b", "Llama-2-13B"), ("gemma-2-27b", "Gemma-2-27B")):
        sizes = stack.MODELS[model]
        flags = "lhs+pipelined"
        cases = [layers.Case(model, "scanned", *words) for words in (
            ("remat",), ("stock",), ("stock", "lhs"), ("stock", flags), ("stock", flags, True),
            ("actmem", flags))]
        steps = [f"{predict.step_seconds(each, sizes, 788e12 * predict.EFFICIENCY, link):.2f} s"
                 for each in cases]
        pinned = [f"{predict.pinned_bytes(each, sizes, predict.grow_bytes(sizes)) / 1e9:.3g} GB"
                  for each in (cases[1], cases[-1])]
        row = f"| {title}, {sizes.layers} layers | {' | '.join(steps + pinned)} |"
        assert row in docs, row


if __name__ == "__main__":
    main()
