# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""Test tests/gpu/first, run and table without a GPU: with the stand-in for libcuda.so.1,
JAX on the CPU and small sizes. Argument: the build's folder."""
import concurrent.futures
import contextlib
import glob
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import layers
import overlap
import predict
import running
import stack
import training
from tap import Skip, case, main

BUILD = sys.argv.pop(1)
STANDIN = f"{BUILD}/tests/cuda/standin"
FOLDER = tempfile.TemporaryDirectory(prefix="gpu-run-", dir=f"{BUILD}/check")
OUTPUT = f"{FOLDER.name}/gpu.json"
# What one case compiled, the others take from there.
CACHE = {"JAX_COMPILATION_CACHE_DIR": f"{FOLDER.name}/cache",
         "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
         "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0"}
FIGURE = """echo '{"figure": "f", "value": 1, "unit": "s"}'"""


def run(program, *arguments, status=0, standin=(f"--standin={STANDIN}", f"--build={BUILD}")):
    """Return what it printed, and the parts in its file of results."""
    output = f"{FOLDER.name}/{program}{status}.json"
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    result = subprocess.run(
        [f"tests/gpu/{program}", f"--output={output}", *standin, *arguments], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
        env={**os.environ, **CACHE, "PATH": path})
    assert result.returncode == status, result.stdout
    if not os.path.exists(output):
        return result.stdout, {}
    with open(output, encoding="utf-8") as file:
        content = json.load(file)
    assert content["date"] and content["machine"]["cores"] and content["versions"]["jax"]
    return result.stdout, content["parts"]


second = concurrent.futures.ThreadPoolExecutor().submit(
    run, "run", "--only=probe,pinned,state,layers",
    "--layers=--methods='recomputed;actmem run --offload;planned'")


@case
def the_first_command_measures_three_cases():
    told, parts = run("first")
    cases = {row["case"]: row for row in parts["layers"]["cases"]}
    assert [name.split()[2] for name in cases] == ["recomputed", "stock", "actmem"], told
    predicted = {row["predicted"]: row for row in parts["layers"]["predictions"]}
    for name, row in cases.items():
        assert row["valid"] and row["step_s"] > 0 and name in told, row
        assert row["predicted_step_s"] == predicted[name]["step_s"] > 0, row
    ours = cases["small scanned actmem"]["found"]
    assert ours["grown"]["actmem"] > 0 and ours["actmem"]["live_bytes"] == 0, ours
    table = subprocess.run(["tests/gpu/table", f"{FOLDER.name}/first0.json"], text=True, check=True,
                           stdout=subprocess.PIPE).stdout
    assert "| small, 3 layers scanned: step, s | " in table, table


@case
def the_second_command_measures_the_other_methods_and_stops_at_no_failure():
    told, parts = second.result()
    assert {name: part["status"] for name, part in parts.items()} == \
        dict.fromkeys(("probe", "pinned", "state", "layers"), "ok"), told
    assert parts["probe"]["facts"]["cuMemHostGetFlags of memory registered with 0x1"] == "0x1"
    assert parts["pinned"]["passed"] == 8 and parts["state"]["passed"] == 4, told
    cases = {row["case"].removeprefix("small scanned "): row for row in parts["layers"]["cases"]}
    assert len(cases) == 3 and all(row["valid"] for row in cases.values()), told
    # The policy of an unchanged program goes to actmem, and nowhere else.
    assert cases["actmem run --offload"]["found"]["actmem"]["put_bytes_total"] > 0, told
    assert cases["planned"]["found"]["plan"], cases["planned"]
    told, parts = run("run", "--only=probe,pinned", "--build=nowhere", status=1)
    assert parts["pinned"]["status"] == "failed" and "nowhere" in parts["pinned"]["why"], parts
    assert parts["probe"]["status"] == "ok", parts


@case
def what_cannot_run_is_refused():
    told, _ = run("run", "--only=nothing", status=1)
    assert "no part is named nothing" in told and "probe" in told, told
    if os.path.exists("/dev/nvidia0"):
        raise Skip("this machine has a GPU")
    told, _ = run("run", status=1, standin=())
    assert "no /dev/nvidia0" in told and "--standin" in told, told


def part(*scripts, seconds=30):
    """Run these shell scripts as a part; return its result and what was written meanwhile."""
    written = []
    return running.run_part([(script, ["sh", "-c", script], {}, 600, (0,)) for script in scripts],
                            seconds, f"{FOLDER.name}/part.log", written.append), written


@case
def a_program_that_hangs_ends_with_all_it_started():
    # Other runs of this test can be on the same machine.
    long = 1000000 + os.getpid()
    result, _ = part(f"{FIGURE}; sleep {long} & timeout {long} sleep {long} & setsid sleep {long} & "
                     f"(trap '' TERM; sleep {long}; sleep {long}) & wait", seconds=2)
    assert "not done in 2 s" in result["why"] and result["figures"][0]["value"] == 1, result
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            assert file.read() != b"sleep\0%d\0" % long, path


@case
def a_program_that_crashes_costs_only_itself():
    result, written = part(f"{FIGURE}; sleep 2.5; echo 'ok 1 - b'; kill -SEGV $$", "exit 3",
                           "echo '{ no JSON'; echo 'not ok 1 - c'; "
                           """echo '{"fact": "the last", "answer": "told"}'""")
    assert all(why in result["why"] for why in ("killed by signal 11", "exit status 3", "; c"))
    assert result["passed"] == 1 and result["facts"] == {"the last": "told"}, result
    assert any(each["status"] == "unfinished" and each["figures"] for each in written), written


@case
def a_run_that_is_ended_keeps_its_results():
    process = subprocess.Popen(
        [sys.executable, "tests/gpu/run", f"--output={OUTPUT}", f"--standin={STANDIN}",
         f"--build={BUILD}", "--only=probe"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 1
    with open(OUTPUT, encoding="utf-8") as file:
        assert json.load(file)["parts"]["probe"]["status"] == "unfinished"


@case
def hidden_copies_are_read_from_a_trace():
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
def rematerialised_instructions_are_counted():
    text = "  %gemm_fusion.1.remat = f()\n  ROOT %a.remat2 = f(), name=\"rematted.remat = \"\n" \
           "  %broadcast.4.rematerialized = f()\n"       # XLA always copies such instructions
    assert len(training.REMATERIALISED.findall(text)) == 2


@case
def predictions_are_those_of_the_h200():
    link = {"out": 55e9, "in": 55e9, "device": 1.97e12}
    sizes = stack.MODELS["llama-2-13b"]
    for method, seconds, pinned in (("recomputed", 1.34, 0), ("stock", 1.495, 17.18),
                                    ("actmem", 1.265, 10.24)):      # as measured
        measured = layers.Case("llama-2-13b", "scanned", method)
        step = predict.step_seconds(measured, sizes, 707e12 * predict.EFFICIENCY, link)
        assert abs(step / seconds - 1) < 0.05, (method, step)
        assert abs(predict.pinned_bytes(measured, sizes) - pinned * 1e9) < 0.03e9, method


@case
def published_results_are_still_read():
    plot = f"{FOLDER.name}/gpu.svg"
    told = subprocess.run([sys.executable, "tests/gpu/table", "--plot", plot,
                           *sorted(glob.glob("docs/results/gpu-*/*.json"))],
                          text=True, check=True, stdout=subprocess.PIPE).stdout
    assert "| Llama-2-13B, 40 layers scanned: step, s | 1.31–1.35 | 1.49–1.50 | 1.49 | " in told
    assert pathlib.Path(plot).read_text() == pathlib.Path("docs/gpu.svg").read_text()


if __name__ == "__main__":
    main()
