# SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
"""tests/gpu/run on a machine without a GPU: with the stand-in for libcuda.so.1, JAX on
the CPU and small sizes, and where our Debian packages are hidden."""
import argparse
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import layers
import parts
import processes
import report
import running
from tap import Skip, case, main
from try_run import BUILD, ON_GPU, run, start_anew

# What a machine with a GPU need not have.
HIDDEN = ("include/liburing.h", "include/liburing", "include/xxhash.h", "include/xxh3.h",
          "include/jansson.h", "include/libsmartcols",
          "bin/make", "bin/git", "bin/pkg-config", "bin/x86_64-linux-gnu-pkg-config",
          "bin/pkgconf", "bin/scdoc",
          "lib/x86_64-linux-gnu/liburing.so", "lib/x86_64-linux-gnu/liburing.a",
          "lib/x86_64-linux-gnu/libjansson.so", "lib/x86_64-linux-gnu/libjansson.a",
          "lib/x86_64-linux-gnu/libsmartcols.so")
HIDE = """
    set -e
    mount -t tmpfs none /mnt && mkdir /mnt/changed /mnt/work
    mount -t overlay none -o lowerdir=/usr,upperdir=/mnt/changed,workdir=/mnt/work /usr
    cd /usr && rm -rf %s && cd "$OLDPWD"
    exec "$@"
""" % " ".join(HIDDEN)


@case
def what_is_packed_suffices_to_build():
    isolate = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    hide = [*isolate, "sh", "-c", HIDE, "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, check=False).returncode:
        raise Skip("no overlay over /usr can be had")
    subprocess.run(["tests/gpu/pack"], check=True, capture_output=True)
    start_anew()
    told, results = run("--only", "build", prefix=hide)
    assert results["parts"]["build"]["status"] == "ok", told
    for name in ("lib/libactmem.so.0", "lib/libactmem_preload.so", "lib/libactmem_xla.so",
                 "bin/actmem", "bin/actmem-bench", "tests/gpu-probe",
                 "tests/cuda/standin/libcuda.so.1"):
        assert os.path.exists(f"{ON_GPU}/{name}"), name
    linked = subprocess.run(["ldd", f"{ON_GPU}/lib/libactmem.so.0"], capture_output=True,
                            text=True, check=True).stdout
    assert "liburing" not in linked, linked
    subprocess.run([*hide, f"{ON_GPU}/bin/actmem", "list"], check=True, capture_output=True)


@case
def without_a_gpu_it_says_so():
    if os.path.exists("/dev/nvidia0"):
        raise Skip("this machine has a GPU")
    told, _ = run("--only", "probe", status=1, standin=None)
    assert "no /dev/nvidia0" in told and "--standin" in told, told


@case
def the_driver_is_asked_and_its_tests_run():
    start_anew()
    told, results = run("--no-build", "--only", "sanity,probe,cuda")
    parts = results["parts"]
    assert {name: part["status"] for name, part in parts.items()} == \
        {"sanity": "ok", "probe": "ok", "cuda": "ok"}, told
    facts = parts["probe"]["facts"]
    assert facts["cuMemHostGetFlags of memory registered with 0x1"] == "0x1", facts
    assert facts["cuMemHostUnregister a second time"] == \
        "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", facts
    assert not any(fact.startswith("group ") for fact in facts), facts
    peers = {figure.get("peer") for figure in parts["probe"]["figures"]}
    assert "cuMemHostAlloc" in peers and "register touched, memfd 4K" in told, told
    assert parts["cuda"]["passed"] > 100 and not parts["cuda"].get("failed"), parts["cuda"]
    assert results["versions"]["jax"] and results["machine"]["cores"] >= 1, results


@case
def layers_are_predicted_run_and_compared():
    told, results = run("--no-build", "--only", "layers")
    part = results["parts"]["layers"]
    names = [row["case"] for row in part["cases"]]
    # What ours is compared with, and ours, before what only may be faster.
    assert names[:4] == ["small scanned remat", "small scanned stock lhs+pipelined",
                         "small scanned stock, actmem run lhs+pipelined",
                         "small scanned actmem lhs+pipelined"], names
    assert names[4] == "small scanned stock" and "small scanned actmem" in names, names
    predicted = {row["predicted"]: row for row in part["predictions"]}
    assert list(predicted) == names and all(
        row["step_s"] > 0 and row["pinned_bytes"] >= 0 and row["written"]
        for row in predicted.values()), predicted
    for row in part["cases"]:
        assert row.get("valid"), row
        assert row["steps"] >= 3 and row["predicted_step_s"] > 0 and row["step_s"] > 0, row
    ours = next(row for row in part["cases"] if row["case"] == "small scanned actmem")
    assert ours["found"]["grown"]["actmem"] > 0, ours
    assert ours["found"]["actmem"]["live_bytes"] == 0, ours
    assert any(figure["figure"].startswith("small scanned actmem: step_s") and figure["peer"]
               for figure in part["figures"]), part["figures"]
    assert "CASE" in told and "PREDICTED_STEP_S" in told, told
    assert all("kept_layers" in row for row in part["cases"][1:]), part["cases"]


def with_mark(start):
    """Processes whose mark begins so, whoever's children they are."""
    found = set()
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"{processes.MARK}={start}".encode()) for word in words):
            found.add(int(path.split("/")[2]))
    return found


class Given:
    """A part of these commands, run as tests/gpu/run runs its own."""

    def __init__(self, *argvs, seconds=30, after=None):
        os.makedirs(parts.LOGS, exist_ok=True)
        self.added = []
        commands = [parts.Command(argv[0], list(argv)) for argv in argvs]
        part = parts.Part("given", "", 0, 0, lambda context, seconds: commands, after)
        self.mark = f"test-{time.time_ns()}"
        self.result = running.run_part(part, None, seconds, f"{parts.LOGS}/given.log", self.mark,
                                       self.added.append)

    def left(self):
        return with_mark(self.mark)


FIGURE = """echo '{"figure": "f", "value": 1, "unit": "s"}'"""


@case
def what_hangs_is_ended_with_all_that_it_started():
    # In the group, in timeout's, in a session of its own, and deaf to what ends politely.
    hanging = Given(["sh", "-c", f"{FIGURE}; sleep 1000 & timeout 1000 sleep 1000 & "
                     "setsid sleep 1000 & (trap '' TERM; sleep 1000; sleep 1000) & wait"],
                    ["sh", "-c", "echo ok 1 - the next one"], seconds=4)
    assert hanging.result["status"] == "failed", hanging.result
    assert "not done in 4 s" in hanging.result["why"], hanging.result
    assert hanging.result["figures"][0]["value"] == 1, hanging.result
    assert not hanging.left(), hanging.left()


@case
def what_crashes_costs_nothing_but_itself():
    crashed = Given(["sh", "-c", f"{FIGURE}; kill -SEGV $$"], ["true"],
                    ["/nowhere/program"], ["sh", "-c", "sleep 1000 & exit 3"],
                    ["sh", "-c", "echo '[ no JSON'; echo 'ok 1 - at the end'; "
                     """echo '{"fact": "the last", "answer": "told"}'"""])
    why = crashed.result["why"]
    for told in ("killed by signal 11", "/nowhere/program", "exit status 3"):
        assert told in why, crashed.result
    assert crashed.result["figures"] and crashed.result["passed"] == 1, crashed.result
    assert crashed.result["facts"] == {"the last": "told"}, crashed.result
    assert not crashed.left(), crashed.left()

    def fails(context, output):
        raise KeyError("a column")
    broken = Given(["true"], after=fails).result
    assert broken["status"] == "failed" and "KeyError" in broken["why"], broken


@case
def what_a_part_gave_is_written_while_it_runs():
    slow = Given(["sh", "-c", f"{FIGURE}; sleep 3; echo 'ok 1 - later'; sleep 2"])
    assert slow.result["status"] == "ok", slow.result
    written = [result for result in slow.added if result["status"] == "unfinished"]
    assert any(result.get("figures") for result in written), slow.added


def started(*arguments, lines=1):
    """`run`, once it has told that many lines; and its output file."""
    start_anew()
    process = subprocess.Popen(
        [sys.executable, "tests/gpu/run", "--output", f"{BUILD}/check/gpu-run.json",
         "--standin", f"{ON_GPU}/tests/cuda/standin", "--no-build", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    told = [process.stdout.readline() for _ in range(lines)]
    time.sleep(1)
    return process, told


@case
def who_ends_it_gets_what_there_is_and_leaves_nothing_running():
    for number in (signal.SIGTERM, signal.SIGKILL):
        process, told = started("--only", "sanity")
        assert with_mark(f"{process.pid}-"), told
        process.send_signal(number)
        process.stdout.read()
        status = process.wait(30)
        assert status == (1 if number == signal.SIGTERM else -signal.SIGKILL), status
        end = time.monotonic() + 20
        while with_mark(f"{process.pid}-") and time.monotonic() < end:
            time.sleep(0.1)
        assert not with_mark(f"{process.pid}-"), number
        sanity = report.read(f"{BUILD}/check/gpu-run.json")["parts"]["sanity"]
        assert sanity["status"] == "unfinished", sanity


@case
def results_and_logs_are_kept_elsewhere_too():
    start_anew()
    folder = f"{BUILD}/check/kept"
    shutil.rmtree(folder, ignore_errors=True)
    run("--build", ON_GPU, "--only", "pinned", "--keep", folder)
    assert sorted(os.listdir(folder)) == ["gpu-run.json", "logs.tar.gz"], os.listdir(folder)
    pinned = report.read(f"{folder}/gpu-run.json")["parts"]["pinned"]
    assert pinned["status"] == "ok" and pinned["passed"] == 10, pinned
    assert any(figure.get("peer") == "driver pin, alone" for figure in pinned["figures"]), pinned


class OtherCases(layers.Runs):
    """layers.py's, with a program that has memory for so many layers, hangs or crashes."""
    room = 2

    def program(self, case, sizes):
        if case.form == "unrolled":
            return ["sh", "-c", "sleep 1000 & sleep 1000"]
        if case.method == "actmem":
            return ["sh", "-c", "kill -SEGV $$"]
        if sizes.layers > self.room:
            return ["sh", "-c", "echo RESOURCE_EXHAUSTED: of memory >&2; echo after >&2; exit 1"]
        found = {"step_s": 1.0, "step_min_s": 1.0, "step_max_s": 1.0, "steps": 3,
                 "first_step_s": 1.0, "compile_s": 1.0, "first_run_s": 1.0,
                 "grown": {"actmem": 0, "driver": 0, "anonymous": 5}}
        return ["echo", json.dumps(found)]


@case
def cases_that_hang_crash_or_lack_memory_are_told():
    options = argparse.Namespace(minutes=1, layers=3, steps=1, toy=True, case_seconds=2,
                                 actmem="actmem")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w", encoding="utf-8") as null, \
            contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
        runs = OtherCases(options, folder)
        cases = [layers.Case("small", *words) for words in (
            ("unrolled", "stock"), ("scanned", "actmem"), ("scanned", "remat"))]
        for each in cases:
            runs.run(each)
    hung, crashed, less = (runs.done[each] for each in cases)
    assert "not done in 2 s" in hung["why"], hung
    assert "killed by signal 11" in crashed["why"], crashed
    assert less.get("why") is None and less["layers"] == 2 and less["steps"] == 3, less
    assert not processes.left(os.getpid()), processes.left(os.getpid())


@case
def a_part_that_fails_stops_no_other():
    start_anew()
    told, results = run("--build", f"{BUILD}/nowhere", "--only", "probe,sanity,cuda", status=1)
    parts = results["parts"]
    assert parts["probe"]["status"] == "left out" and "was not built" in parts["probe"]["why"], told
    assert parts["sanity"]["status"] == "ok", told


@case
def a_part_may_be_run_in_pieces():
    start_anew()
    path = f"{BUILD}/check/gpu-run.json"
    card, ok = {"gpus": [{"name": "one"}]}, {"status": "ok", "seconds": 1}
    first = report.Report(path, card, {}, "first")
    first.add("layers", {**ok, "cases": [{"case": "a", "step_s": 1}, {"case": "b", "step_s": 2}]})
    second = report.Report(path, card, {}, "second")
    second.add("layers", {**ok, "cases": [{"case": "b", "step_s": 3}]})
    rows = report.Report(path, card, {}, "third").content["parts"]["layers"]["cases"]
    assert rows == [{"date": "first", "case": "a", "step_s": 1}, {"case": "b", "step_s": 3}], rows
    # A part that there was no time for is as it was.
    third = report.Report(path, card, {}, "third")
    third.add("layers", {"status": "left out", "seconds": 0, "why": "no time left"})
    assert third.content["parts"]["layers"]["status"] == "ok", third.content
    other = report.Report(path, {"gpus": [{"name": "another"}]}, {}, "fourth")
    assert not other.content["parts"], "figures of another card were kept"
    assert report.read(f"{path}.fourth")["parts"] and "put aside" in other.told, other.told
    os.unlink(f"{path}.fourth")


def made_up():
    """A file of the right form; none of its numbers was measured."""
    step = {"layers": 40, "valid": True, "first_run_s": 3.0}
    return {
        "date": "2001-02-03T04:05:06+00:00", "versions": {"jax": "0.0", "commit": "abc"},
        "machine": {"gpus": [{"name": "Made-up", "driver": "1.2"}], "cores": 16,
                    "processor": "P", "memory_bytes": 128e9, "huge_pages": "7",
                    "kernel": "6.1.2-x"},
        "parts": {
            "layers": {"status": "failed", "date": "2001-02-03", "seconds": 1, "why": "a | b",
                       "facts": {"left out, as there was no time": "m unrolled remat"},
                       "skipped": ["no GPU of a kind"],
                       "cases": [
                {**step, "case": "m scanned remat", "step_s": 2.0, "pinned_gb": 0.0},
                {**step, "case": "m scanned stock", "step_s": 3.0, "pinned_per_live": 1.6},
                {**step, "case": "m scanned stock lhs", "step_s": 2.5, "pinned_per_live": 1.6},
                {**step, "case": "m scanned stock, actmem run lhs", "step_s": 2.4,
                 "pinned_per_live": 1.61},
                {**step, "case": "m scanned actmem", "step_s": 2.6, "pinned_gb": 10.0,
                 "pinned_per_live": 1.0},
                {"case": "m scanned actmem lhs", "why": "killed by signal 11"}],
                       "predictions": [
                {"predicted": "m scanned actmem", "layers": 40, "step_s": 2.2,
                 "first_run_s": 2.5, "pinned_bytes": 10e9},
                {"predicted": "m scanned actmem lhs", "layers": 40, "step_s": None,
                 "pinned_bytes": 1e9},
                {"predicted": "m unrolled stock", "layers": 40, "step_s": 1.0}],
                       "figures": [
                {"figure": "m scanned actmem: step_s", "value": 2.6, "unit": "s",
                 "peer": "m scanned stock lhs", "peer_value": 2.5, "ratio": 1.04},
                {"figure": "m scanned stock, actmem run lhs: put_out", "value": 50.0,
                 "unit": "GB/s", "peer": "m scanned stock lhs", "peer_value": 50.0,
                 "ratio": 1.0},
                {"figure": "m scanned actmem: put_out", "value": 9.0, "unit": "GB/s",
                 "peer": "m scanned stock lhs", "peer_value": 50.0, "ratio": 0.18}]},
            "probe": {"status": "ok", "date": "2001-02-03", "seconds": 1, "figures": [
                {"figure": "register", "value": 3.0, "unit": "GB/s", "peer": "other",
                 "peer_value": 2.0, "ratio": 1.5}]}}}


def table(*arguments, status=0):
    result = subprocess.run([sys.executable, "tests/gpu/table", *arguments], text=True,
                            capture_output=True, check=False)
    assert result.returncode == status, result
    return result.stdout + result.stderr


@case
def the_readmes_table_is_made_of_results():
    path, other = (f"{BUILD}/check/{name}.json" for name in ("made-up", "made-up-later"))
    content = made_up()
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    told = table(path)
    for line in (
            "Measured on 2001-02-03: 1 × Made-up, driver 1.2, 16 cores of P, 128 GB of memory, "
            "7 huge pages of 2 MiB, Linux 6.1, JAX 0.0, actmem abc.",
            "2 of 4 aims are met.",
            "| m scanned actmem: step | 2.6 s | 2.5 s, m scanned stock lhs | 0.96 | ≥ 1 | "
            "**missed** |",
            "| m scanned stock, actmem run lhs: device_put to the host | 50 GB/s | "
            "50 GB/s, m scanned stock lhs | 1.00 | ≥ 1 | met |",
            "| m scanned actmem: pinned for a live byte | 1 bytes | 1.6 bytes, m scanned stock "
            "lhs | 1.60 | ≤ 1.02 bytes | met |",
            "| m scanned stock, actmem run lhs: pinned for a live byte | 1.61 bytes | 1.6 "
            "bytes, m scanned stock lhs | 0.99 | ≤ 1.02 bytes | **missed** |",
            "| m scanned actmem | 40 | 2.2 → 2.6 s | 2.5 → 3 s | 10 → 10 GB |  |",
            "| m scanned actmem lhs | 40 | – → – | – → – | 1 GB → – | killed by signal 11 |",
            "| m unrolled stock | 40 | 1 s → – | – → – | – → – | was not finished |",
            "* `layers`: failed: a \\| b",
            "* `layers`: left out, as there was no time: m unrolled remat",
            "* `layers`: skipped: no GPU of a kind"):
        assert line in told.splitlines(), f"{line}\n{told}"
    assert "register" not in told and "register" in table(path, "--all"), told
    assert "9 GB/s" not in told, told
    content["date"] = content["parts"]["probe"]["date"] = "2001-02-04"
    content["parts"] = {"probe": content["parts"]["probe"]}
    with open(other, "w", encoding="utf-8") as file:
        json.dump(content, file)
    svg, both = f"{BUILD}/check/made-up.svg", f"{BUILD}/check/made-up-both.json"
    table(other, path, "--svg", svg, "--into", both)
    with open(svg, encoding="utf-8") as file:
        picture = file.read()
    assert "m scanned actmem: step" in picture and "the aim" in picture
    merged = report.read(both)
    assert set(merged["parts"]) == {"layers", "probe"} and merged["date"] == "2001-02-04"
    assert "no such file" in table(f"{BUILD}/nowhere.json", status=1).lower()


@case
def wrong_options_are_told():
    told, _ = run("--only", "nothing", status=1)
    assert "no part is named nothing" in told and "probe" in told, told


if __name__ == "__main__":
    main()
